// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes that get no new jobs: by an operator, or by a number of events.

use colony_node::task;
use nix::sys::signal::Signal;

use crate::control::{Machine, is_named, send};

const NODE: &str = "R00-M0-N00-J05";

fn state(machine: &Machine, location: &str) -> String {
    let nodes = machine.json(&["machine", "nodes"]);
    let node = nodes.as_array().expect("a list").iter().find(|node| node["location"] == location);
    node.expect("there is one")["state"].as_str().expect("a state").to_owned()
}

#[test]
fn a_drained_node_gets_no_job_until_it_is_undrained_and_jobs_go_on() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "2x2x2"]);
    let text = "while [ ! -e go ]; do :; done; echo went on";
    let running = machine.done(&machine.script("submit", "1", text)).trim().to_owned();
    machine.wait("the job runs", || machine.job(&running)["state"] == "running");
    machine.done(&["machine", "drain", NODE, "--reason", "memory errors"]);
    let (code, text) = machine.fails(&["machine", "drain", NODE, "--reason", "again"]);
    assert!(code == Some(2) && text.contains("drained already"), "{text}");
    for (words, said) in [
        (vec!["machine", "drain", "R77", "--reason", "x"], "R77"),
        (vec!["machine", "drain", NODE, "--reason", " "], "a reason"),
        (vec!["machine", "undrain", "R00-M0-N00-J06"], "R00-M0-N00-J06 is not drained"),
        (vec!["ras", "rates", "--within", "1ms"], "1 s to"),
    ] {
        let (code, text) = machine.fails(&words);
        assert!(code == Some(2) && text.contains(said), "{words:?}: {text}");
    }
    let waits = machine.done(&machine.script("submit", "8", "true")).trim().to_owned();
    std::fs::write(machine.path().join("go"), []).expect("written");
    assert_eq!(machine.ended(&running)["code"], 0);
    assert_eq!(machine.done(&["job", "output", &running]), "went on\n");
    machine.wait("it is shown", || state(&machine, NODE) == "drained");
    assert!(machine.done(&["machine", "status"]).contains("drained: memory errors"));
    // also by a daemon that starts again
    send(machine.daemon().expect("it runs"), Signal::SIGKILL);
    assert_eq!(machine.job(&waits)["state"], "queued");
    assert_eq!(machine.state(), "degraded");
    // a location stands for all of its parts
    assert_eq!(machine.done(&["machine", "undrain", "R00-M0"]), format!("{NODE} gets jobs again\n"));
    assert_eq!(machine.ended(&waits)["code"], 0);
    machine.wait("it gets jobs again", || state(&machine, NODE) == "ready");
    let events = machine.events();
    assert!(events.contains(&"node-drained".into()) && events.contains(&"node-undrained".into()));
}

#[test]
fn a_node_whose_emulator_stops_too_often_is_drained() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "2x2x2"]);
    machine.done(&["ras", "threshold", "node-stopped", "--events", "2", "--within", "1h"]);
    let stopped = machine.emulators()[3];
    for round in 1..=2 {
        let count = |code: &str| machine.events().iter().filter(|other| *other == code).count();
        send(stopped, Signal::SIGSTOP);
        machine.wait("it is seen", || count("node-stopped") == round);
        send(stopped, Signal::SIGCONT);
        machine.wait("it goes on", || count("node-resumed") == round);
    }
    let rates = machine.json(&["ras", "rates"]);
    let rate = rates.as_array().expect("a list").iter().find(|rate| rate["code"] == "node-stopped");
    assert_eq!(rate.expect("there is one")["events"], 2);
    let status = machine.json(&["machine", "status"]);
    let drain = &status["drains"][0];
    assert_eq!(drain["reason"], "node-stopped 2 times within 1 h");
    let location = drain["location"].as_str().expect("a location").to_owned();
    assert_eq!(state(&machine, &location), "drained");
    machine.done(&["machine", "undrain", &location]);
    assert_eq!(machine.done(&machine.script("run", "8", "echo $COLONY_RANK")).lines().count(), 8);
}

#[test]
fn a_boot_process_that_is_killed_again_and_again_drains_no_node() {
    let Some(machine) = Machine::new() else { return };
    machine.done(&["machine", "up", "--shape", "2x2x2"]);
    let mut killed = Vec::new();
    // each node may die three times in an hour before it is drained
    for kills in 1..=4 {
        let mut next = None;
        machine.wait("there is a boot process", || {
            let is_next = |pid: &i32| is_named(*pid, "colony-boot") && !killed.contains(pid);
            next = task::tree(machine.owner()).into_iter().find(is_next);
            next.is_some()
        });
        let pid = next.expect("there is one");
        send(pid, Signal::SIGKILL);
        killed.push(pid);
        let events = || machine.events().iter().filter(|code| *code == "boot-process-died").count();
        machine.wait("it is one event", || events() == kills);
        machine.wait("all nodes are started again", || machine.all_are("ready"));
    }
    let events = machine.events();
    let blames = |code: &String| code.starts_with("node-") || code.starts_with("io-node-");
    assert!(!events.iter().any(blames), "{events:?}");
    assert_eq!(machine.state(), "ready");
    assert_eq!(machine.done(&machine.script("run", "8", "echo $COLONY_RANK")).lines().count(), 8);
}
