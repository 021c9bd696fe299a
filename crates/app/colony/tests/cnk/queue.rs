// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several jobs at once on blocks of one partition, their order, and a daemon that is killed meanwhile.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::control::{Machine, check_that_each_ran_once, submit_and_kill_daemon};

/// Submits a script with these options.
fn submit(machine: &Machine, options: &[&str], text: &str) -> String {
    let busybox = machine.busybox.to_str().expect("a path");
    let words = [&["job", "submit"], options, &["--", busybox, "sh", "-c", text]].concat();
    machine.done(&words).trim().to_owned()
}

/// The inode of the memory that an emulator shares with others.
fn shared_memory(pid: i32) -> String {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    let line = maps.lines().find(|line| line.contains("colony-torus")).expect("it has some");
    line.split_whitespace().nth(4).expect("an inode").to_owned()
}

#[test]
fn jobs_share_a_partition_and_one_that_ends_in_time_overtakes() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "4x2x2", "--pset", "8"]);
    let until = |file: &str| {
        format!("echo $COLONY_TORUS_DIMS; : > {file}.$COLONY_RANK; while [ ! -e {file} ]; do :; done")
    };
    let one = submit(&machine, &["--nodes", "8", "--timeout", "1000s"], &until("go"));
    let two = submit(&machine, &["--shape", "2x2x2", "--timeout", "2000s"], &until("go2"));
    let begun = |file: &str| (0..8).all(|rank| machine.path().join(format!("{file}.{rank}")).exists());
    machine.wait("both run", || begun("go") && begun("go2"));
    // each job has memory of its own
    machine.wait("all nodes have a job", || machine.all_are("busy"));
    let mut inodes = BTreeMap::<String, usize>::new();
    machine.emulators().into_iter().for_each(|pid| *inodes.entry(shared_memory(pid)).or_default() += 1);
    assert_eq!(inodes.values().collect::<Vec<_>>(), [&8, &8], "{inodes:?}");
    let status = machine.json(&["machine", "status"]);
    assert_eq!(status["partitions"][0]["free"]["nodes"], 0);
    std::fs::write(machine.path().join("go"), []).expect("written");
    assert_eq!(machine.ended(&one)["code"], 0);
    assert_eq!(machine.done(&["job", "output", &one]), "2,2,2\n".repeat(8));
    // the first of the queue needs all nodes
    let all = submit(&machine, &["--timeout", "100s"], "echo $COLONY_TORUS_DIMS");
    let long = submit(&machine, &["--nodes", "8"], "true");
    let short = submit(&machine, &["--nodes", "8", "--timeout", "100s"], "true");
    assert_eq!(machine.ended(&short)["code"], 0, "it overtakes");
    // nodes take a moment to be ready again
    machine.wait("half of the nodes are free", || {
        let free = &machine.json(&["machine", "status"])["partitions"][0]["free"];
        free["nodes"] == 8 && free["largest"] == "2x2x2"
    });
    let (first, waits) = (machine.job(&all), machine.job(&long));
    assert!(first["waits"].as_str().is_some_and(|why| why.contains("at the latest")), "{first}");
    assert_eq!(waits["waits"], format!("it waits for job {all}"));
    std::fs::write(machine.path().join("go2"), []).expect("written");
    for id in [&two, &all, &long] {
        assert_eq!(machine.ended(id)["code"], 0);
    }
    assert_eq!(machine.done(&["job", "output", &all]), "4,2,2\n".repeat(16));
    for (options, said) in [
        (["--nodes", "17"], "17"),
        (["--processes", "17"], "partition R00-M0-N00-J00-4x2x2 has 16 nodes"),
        (["--shape", "4x4x4"], "has 16 nodes, 4x2x2"),
        (["--shape", "1x1x1"], "one pset at least"),
    ] {
        let words = [&["job", "run"], &options[..], &["--", "busybox", "true"]].concat();
        let (code, text) = machine.fails(&words);
        assert!(code == Some(2) && text.contains(said), "{options:?}: {text}");
    }
}

#[test]
fn a_drained_node_takes_its_block_only() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "4x2x2", "--pset", "8"]);
    let drained = "R00-M0-N00-J00";
    machine.done(&["machine", "drain", drained, "--reason", "test"]);
    let all = submit(&machine, &[], "true");
    let half = submit(&machine, &["--nodes", "8"], "uname -n");
    assert_eq!(machine.ended(&half)["code"], 0, "a job that cannot begin holds nobody up");
    let names = machine.done(&["job", "output", &half]);
    assert!(names.contains("R00-M0-N00-J02") && !names.contains(drained), "{names}");
    let waits = machine.job(&all)["waits"].as_str().map(str::to_owned);
    assert!(waits.is_some_and(|why| why.contains("drained")));
    machine.done(&["machine", "undrain", drained]);
    assert_eq!(machine.ended(&all)["code"], 0);
}

#[test]
fn a_killed_daemon_leaves_a_queue_in_which_each_job_runs_once_and_no_nodes_are_given_twice() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "4x2x2", "--pset", "8"]);
    let jobs = submit_and_kill_daemon(&machine, |n, text| {
        let nodes = if n % 4 == 3 { "16" } else { "8" };
        submit(&machine, &["--processes", "1", "--nodes", nodes, "--timeout", "60s"], text)
    });
    check_that_each_ran_once(&machine, &jobs);
    let ended: Vec<Value> = jobs.iter().map(|id| machine.job(id)).collect();
    let at = |job: &Value, name: &str| job[name].as_f64().expect("a time");
    for (n, job) in ended.iter().enumerate() {
        for other in &ended[..n] {
            let is_apart =
                at(job, "ended") <= at(other, "started") || at(other, "ended") <= at(job, "started");
            let share =
                job["block"] == other["block"] || [job, other].iter().any(|j| j["request"]["nodes"] == 16);
            assert!(is_apart || !share, "two jobs had the same nodes: {job} {other}");
        }
    }
}
