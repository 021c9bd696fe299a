// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine in an allocation of Slurm: its nodes come from there, and it is switched off before the end. Slurm itself is
//! variables and a `squeue` of the test.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::control::{Machine, send};

/// A time that no test reaches.
const FAR: u64 = 4_000_000_000;

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs_f64()
}

/// A command in the allocation, whose end `squeue` tells.
fn command(machine: &Machine, words: &[&str]) -> Command {
    let folder = machine.path().join("bin");
    let path = std::env::var("PATH").expect("a path");
    let mut command = machine.command(words);
    for name in ["SLURM_JOB_END_TIME", "SLURM_MEM_PER_CPU", "SLURM_STEP_ID", "SLURM_NNODES", "FLUX_JOB_ID"] {
        command.env_remove(name);
    }
    command
        .env("PATH", format!("{}:{path}", folder.display()))
        .env("SLURM_JOB_ID", "77")
        .env("SLURMD_NODENAME", "n1");
    command.env("SLURM_JOB_NUM_NODES", "2").env("SLURM_CPUS_ON_NODE", "1").env("SLURM_MEM_PER_NODE", "900");
    command
}

/// A `squeue` that answers this to the question for the end of job 77.
fn squeue(machine: &Machine, answer: &str) {
    let file = machine.path().join("bin/squeue");
    std::fs::create_dir_all(machine.path().join("bin")).expect("made");
    let script = format!(
        "#!/bin/sh\n[ \"$SLURM_TIME_FORMAT $*\" = '%s --noheader --format=%e --jobs 77' ] && {answer}\n"
    );
    std::fs::write(&file, script).expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("changed");
}

fn output(machine: &Machine, words: &[&str]) -> Output {
    command(machine, words).stdin(Stdio::null()).output().expect("colony runs")
}

fn done(machine: &Machine, words: &[&str]) -> Value {
    let output = output(machine, words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

fn fails(machine: &Machine, words: &[&str], said: &str) {
    let output = output(machine, words);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && text.contains(said), "{words:?}: {text}");
}

/// Changes the database of a machine whose daemon does not run.
fn change(machine: &Machine, text: &str, values: &[f64]) {
    let database = rusqlite::Connection::open(machine.path().join("m/machine.db")).expect("a database");
    database.execute(text, rusqlite::params_from_iter(values)).expect("changed");
}

#[test]
fn nodes_come_from_the_allocation_and_none_start_outside_of_it() {
    let Some(machine) = Machine::new() else { return };
    squeue(&machine, &format!("echo {FAR}"));
    // 900 MiB are 18 nodes of 48 MiB
    fails(
        &machine,
        &["machine", "up", "--slurm", "--shape", "4x4x2"],
        "32 nodes of 16 MiB take up to 1536 MiB",
    );
    fails(&machine, &["machine", "up", "--slurm", "--cpus", "2"], "ask Slurm for more");
    assert!(!machine.path().join("m").exists(), "nothing has been started");
    let up = output(&machine, &["machine", "up", "--slurm", "--unpartitioned", "--json"]);
    let notes = String::from_utf8_lossy(&up.stderr);
    assert!(notes.contains("Slurm job 77 has 2 hosts"), "{notes}");
    let up: Value = serde_json::from_slice(&up.stdout).expect("json");
    assert_eq!(up["shape"], "2x2x2", "eight nodes for one CPU");
    let own = up["allocation"].clone();
    assert_eq!((&own["job"], &own["cpus"], &own["memory_mib"]), (&"77".into(), &1.into(), &900.into()));
    assert_eq!((own["ends"].as_f64(), own["stops"].as_f64()), (Some(FAR as f64), Some(FAR as f64 - 60.0)));
    let create = ["partition", "create", "--name", "a", "--shape", "2x2x2", "--memory"];
    fails(&machine, &[&create[..], &["128"]].concat(), "8 nodes of 128 MiB take up to 1280 MiB");
    done(&machine, &[&create[..], &["16"]].concat());
    done(&machine, &["partition", "boot", "a"]);
    let busybox = machine.busybox();
    fails(
        &machine,
        &["job", "submit", "--timeout", "3000000000s", "--", busybox, "true"],
        "use a shorter --timeout",
    );
    done(&machine, &["job", "run", "--timeout", "1000s", "--", busybox, "true"]);
    // a daemon that is started again by a command outside of the job keeps the allocation, and starts nothing
    let owner = machine.owner();
    send(machine.daemon().expect("it runs"), Signal::SIGKILL);
    let status = machine.json(&["machine", "status"]);
    assert_eq!(status["allocation"], own);
    assert!(machine.done(&["machine", "status"]).contains("Slurm job 77: 1 CPU, 900 MiB, one of 2 hosts"));
    send(owner, Signal::SIGKILL);
    machine.wait("the partition has failed", || machine.state() == "failed");
    machine.wait("it is not booted again", || machine.events().contains(&"partition-boot".to_owned()));
    let (code, text) = machine.fails(&["partition", "boot", "a"]);
    assert!(code == Some(2) && text.contains("runs outside of Slurm job 77"), "{text}");
    machine.done(&["machine", "down"]);
    // the next machine has its own allocation, or none
    done(&machine, &["machine", "up", "--shape", "2x2x2", "--unpartitioned"]);
    assert_eq!(machine.json(&["machine", "status"])["allocation"], Value::Null);
}

#[test]
fn the_machine_ends_before_its_allocation_and_a_daemon_that_is_killed_keeps_the_end() {
    let Some(machine) = Machine::new() else { return };
    squeue(&machine, &format!("echo {FAR}"));
    let up = ["machine", "up", "--slurm", "--shape", "4x2x2", "--pset", "8"];
    done(&machine, &up);
    let submit = |text: &str| {
        let words = ["job", "submit", "--nodes", "8", "--", machine.busybox(), "sh", "-c", text];
        done(&machine, &words).to_string()
    };
    let obeys = submit(": > obeys.$COLONY_RANK; while :; do :; done");
    // the job that runs ends with the allocation: one that has a time limit overtakes the one that waits for it
    let words = ["job", "submit", "--nodes", "16", "--", machine.busybox(), "true"];
    let all = done(&machine, &words).to_string();
    let short = ["job", "run", "--nodes", "8", "--timeout", "1000s", "--", machine.busybox(), "true"];
    done(&machine, &short);
    let job = machine.job(&all);
    assert_eq!(job["state"], "queued", "{job}");
    assert!(job["waits"].as_str().is_some_and(|why| why.contains("without a time limit")), "{job}");
    machine.done(&["job", "cancel", &all]);
    let ignores = submit("trap '' TERM; : > ignores.$COLONY_RANK; while :; do :; done");
    let begun = |name: &str| (0..8).all(|rank| machine.path().join(format!("{name}.{rank}")).exists());
    machine.wait("both run", || begun("obeys") && begun("ignores"));
    let waits = submit("true");
    let (emulators, owner) = (machine.emulators(), machine.owner());
    send(machine.daemon().expect("it runs"), Signal::SIGKILL);
    let time = now();
    change(&machine, "UPDATE allocation SET stops = ?, ends = ?", &[time, time + 4.0]);
    // any command starts the daemon again, from inside or outside
    let _ = machine.output(&["machine", "status"]);
    machine.wait_quietly("the machine is off", || !machine.path().join("m/up").exists());
    machine.wait_quietly("all processes end", || {
        let processes = emulators.iter().chain([&owner]);
        machine.daemon().is_none() && !processes.into_iter().any(|pid| crate::control::is_running(*pid))
    });
    let (code, text) = machine.fails(&["machine", "status"]);
    assert!(code == Some(2) && text.contains("is off"), "{text}");
    // the next allocation finds what has been
    squeue(&machine, "exit 3");
    let next = output(&machine, &["machine", "up", "--slurm", "--unpartitioned"]);
    let (text, notes) = (String::from_utf8_lossy(&next.stdout), String::from_utf8_lossy(&next.stderr));
    assert!(next.status.success() && text.contains("no end is known"), "{text}{notes}");
    assert!(notes.contains("the end of Slurm job 77 is not known (squeue: "), "{notes}");
    let ended = |id: &str| {
        let job = machine.job(id);
        assert_eq!(job["state"], "ended", "{job}");
        (job["code"].as_i64().expect("a code"), job["error"].as_str().expect("a reason").to_owned())
    };
    let (code, why) = ended(&obeys);
    assert!(code == 143 && why.contains("Slurm job 77 ends"), "{code} {why}");
    let (code, why) = ended(&ignores);
    assert!(code != 0 && code != 143 && why.contains("Slurm job 77 ends"), "{code} {why}");
    let (code, why) = ended(&waits);
    assert!(code == 1 && why.contains("Slurm job 77 ends"), "{code} {why}");
    assert!(machine.events().contains(&"allocation-end".to_owned()));
}

#[test]
fn a_machine_whose_allocation_has_ended_without_a_daemon_is_off() {
    let Some(machine) = Machine::new() else { return };
    squeue(&machine, &format!("echo {FAR}"));
    done(&machine, &["machine", "up", "--slurm"]);
    // all processes of a job are killed together
    let owner = machine.owner();
    for pid in [machine.daemon().expect("it runs"), owner] {
        send(pid, Signal::SIGKILL);
    }
    machine.wait_quietly("they end", || !crate::control::is_running(owner));
    change(&machine, "UPDATE allocation SET stops = 1000, ends = 1060", &[]);
    let (code, text) = machine.fails(&["machine", "status"]);
    assert!(code == Some(2) && text.contains("is off"), "{text}");
    done(&machine, &["machine", "up", "--slurm", "--unpartitioned"]);
    assert!(machine.events().contains(&"allocation-end".to_owned()));
    assert_eq!(machine.json(&["machine", "status"])["allocation"]["ends"].as_f64(), Some(FAR as f64));
}
