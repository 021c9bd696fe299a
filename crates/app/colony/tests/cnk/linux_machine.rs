// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine with Linux I/O nodes: it runs jobs, and its processes are killed meanwhile, also two at once.

use colony_node::task;
use nix::sys::signal::Signal;

use crate::control::{Machine, send};

impl Machine {
    /// Process ids of the emulators of Linux I/O nodes, by the order of their starts.
    fn linux_io_nodes(&self) -> Vec<i32> {
        let is_io_node = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("colony.io-node")
        };
        let mut all: Vec<i32> = self.emulators().into_iter().filter(is_io_node).collect();
        all.sort_unstable();
        all
    }

    /// A job of 16 ranks that does not end by itself, and runs.
    fn endless(&self) -> String {
        let text = "echo $COLONY_RANK; while :; do :; done";
        let id = self.done(&self.script("submit", "16", text)).trim().to_owned();
        // it is said to run before its programs do; until then an I/O node that died is started again
        let output = self.path().join("m/jobs").join(&id).join("stdout");
        self.wait("all ranks run", || {
            std::fs::read_to_string(&output).is_ok_and(|text| text.lines().count() == 16)
        });
        id
    }

    /// All ranks of a job work.
    fn all_work(&self) {
        let out = self.done(&self.script("run", "16", "echo $COLONY_RANK"));
        let mut ranks: Vec<u32> = out.lines().map(|line| line.parse().expect("a rank")).collect();
        ranks.sort_unstable();
        assert!(ranks.into_iter().eq(0..16), "{out}");
    }
}

#[test]
fn a_machine_with_linux_io_nodes_runs_jobs_with_their_own_files() {
    let Some(machine) = Machine::new() else { return };
    let up = ["machine", "up", "--shape", "4x2x2", "--pset", "8", "--io-export", "/a"];
    let (code, text) = machine.fails(&up);
    assert!(code == Some(2) && text.contains("nothing is exported to I/O nodes"), "{text}");
    let shared = machine.path().join("shared");
    std::fs::create_dir(&shared).expect("made");
    let shared = shared.to_str().expect("a path");
    let up =
        ["machine", "up", "--shape", "4x2x2", "--pset", "8", "--io-nodes", "linux", "--io-export", shared];
    let up = machine.json(&up);
    assert_eq!(up["partitions"][0]["node"]["io_exports"][0], shared);
    assert_eq!(
        (&up["partitions"][0]["io_nodes"], &up["partitions"][0]["node"]["io_nodes"]),
        (&2.into(), &"linux".into())
    );
    let (input, given) = (machine.path().join("input"), machine.path().join("given"));
    std::fs::write(&input, "of the input\n").expect("written");
    std::fs::write(&given, "of the host\n").expect("written");
    let (input, given) = (input.to_str().expect("a path"), given.to_str().expect("a path"));

    let text = format!(
        "read x < {given}; read kernel < /proc/sys/kernel/ostype; echo > made; echo $COLONY_RANK $kernel $x"
    );
    let mut words = vec!["job", "run", "--io-file", given, "--", machine.busybox(), "sh", "-c", &text];
    let out = machine.done(&words);
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let mut expected: Vec<String> = (0..16).map(|rank| format!("{rank} Linux of the host")).collect();
    expected.sort_unstable();
    assert_eq!(lines, expected);
    assert!(!machine.path().join("made").exists(), "nothing is written on the host");
    let out = machine.done(&["job", "run", "--input", input, "--", machine.busybox(), "cat"]);
    assert_eq!(out, "of the input\n", "by rank 0 alone");
    let (code, text) = machine.fails(&machine.script("run", "16", "exit $((COLONY_RANK == 12 ? 7 : 0))"));
    assert!(code == Some(7) && text.contains("rank 12 (node 12) exited with 7"), "{text}");
    words = vec!["job", "run", "--timeout", "1s", "--", machine.busybox(), "sleep", "1000"];
    let (_, text) = machine.fails(&words);
    assert!(text.contains("ended after 1 s"), "{text}");
    let text =
        format!("echo $COLONY_RANK >> {shared}/all; echo $COLONY_RANK; exec {} uname -n", machine.busybox());
    let files = format!("{shared}/out-%j.%r");
    words = vec!["job", "run", "--output", &files, "--", machine.busybox(), "sh", "-c", &text];
    assert_eq!(machine.done(&words), "");
    let mut made: Vec<String> = std::fs::read_dir(shared)
        .expect("ours")
        .map(|entry| std::fs::read_to_string(entry.expect("ours").path()).expect("text"))
        .filter(|text| text.contains("R00-M0-N"))
        .map(|text| text.lines().next().expect("a rank").to_owned())
        .collect();
    made.sort_by_key(|rank| rank.parse::<u32>().expect("a rank"));
    assert!(made.iter().map(|rank| rank.parse::<u32>().expect("a rank")).eq(0..16), "{made:?}");
    let all = std::fs::read_to_string(format!("{shared}/all")).expect("made");
    assert_eq!(all.lines().count(), 16, "{all}");
    let id = machine.endless();
    machine.done(&["job", "cancel", &id]);
    // the first rank that ends by the signal ends the others
    let code = machine.ended(&id)["code"].clone();
    assert!(code == 143 || code == 137, "{code}");
    machine.all_work();
}

#[test]
fn kills_of_linux_io_nodes_daemon_and_owner_end_jobs_and_leave_no_process() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "4x2x2", "--pset", "8", "--io-nodes", "linux"]);
    let [_, second] = machine.linux_io_nodes()[..] else { panic!("two I/O nodes") };
    let id = machine.endless();
    send(second, Signal::SIGKILL);
    let ended = machine.ended(&id);
    let error = ended["error"].as_str().expect("an error");
    assert!(ended["code"] != 0 && error.contains("the I/O node of pset 1 failed"), "{ended}");
    machine.wait("both are reported", || {
        let events = machine.json(&["ras", "list", "--limit", "1000"]);
        let of = |code: &str| {
            let all = events.as_array().expect("a list");
            all.iter().any(|event| event["code"] == code && event["location"] == "R00-M0-N00-I01")
        };
        of("io-node-failed") && of("io-node-died")
    });
    machine.all_work();

    // one that is stopped is found, and goes on
    let stopped = machine.linux_io_nodes()[0];
    send(stopped, Signal::SIGSTOP);
    machine.wait("it is seen", || machine.events().contains(&"io-node-stopped".to_owned()));
    send(stopped, Signal::SIGCONT);
    machine.wait("it goes on", || machine.all_are("ready"));

    // an I/O node and the daemon at once
    let id = machine.endless();
    send(machine.linux_io_nodes()[0], Signal::SIGKILL);
    send(machine.daemon().expect("it runs"), Signal::SIGKILL);
    assert_ne!(machine.ended(&id)["code"], 0);
    machine.all_work();

    // an I/O node and the owner at once
    machine.endless();
    let (owner, all) = (machine.owner(), task::tree(machine.owner()));
    assert!(all.len() > 18, "emulators, and the job's relays: {all:?}");
    send(machine.linux_io_nodes()[1], Signal::SIGKILL);
    send(owner, Signal::SIGKILL);
    let is_there = |pid: &i32| task::stat(*pid).is_ok_and(|stat| !stat.has_ended());
    machine.wait("nothing of them is left", || !all.iter().any(is_there));
    machine.done(&["machine", "down"]);
    machine.wait("nothing is left", || machine.processes("colony-partition").next().is_none());
}
