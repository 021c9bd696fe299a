// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony study io-sockets`: table, JSON, page, refusals, and a node that dies.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{failed, fails, json, program};

/// Nodes take QEMU and the program that they run.
fn missing() -> Option<String> {
    colony_vm::testing::missing().or_else(|| colony_nodes::programs::static_program("colony-stream").err())
}

#[test]
fn sockets_of_real_nodes_reach_a_share_of_the_link_that_stands_beside_the_published_one() {
    if let Some(reason) = missing() {
        return colony_testing::skip(&reason);
    }
    let dir = tempfile::tempdir().expect("temp dir");
    let place = |name: &str| dir.path().join(name).to_str().expect("plain").to_owned();
    let (out, page) = (place("r.json"), place("r.html"));
    let small = ["--nodes", "2,1", "--block", "2MiB", "--transfer", "64KiB", "--link", "50MB/s"];
    let files = ["--json", "--out", &out, "--report", &page];
    let printed = json(&[&["study", "io-sockets"], &small[..], &files[..]].concat());
    assert_eq!(printed["schema"], "colony.study.io-sockets/1");
    let kept: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&out).expect("a file")).expect("JSON");
    assert_eq!(printed, kept);
    let measured = printed["measured"].as_array().expect("jobs");
    assert_eq!(measured.len(), 2 * 2, "two directions, two numbers of nodes");
    for m in measured {
        let (nodes, bytes) = (m["nodes"].as_u64().expect("a number"), m["bytes"].as_u64().expect("a number"));
        assert_eq!((bytes, m["transfers"].as_u64()), (nodes << 21, Some(nodes * 32)));
        let rate = bytes as f64 / m["wall_s"].as_f64().expect("seconds");
        assert!(rate < 50e6, "never faster than the link: {m}");
    }
    assert_eq!(printed["references"].as_array().map(Vec::len), Some(4), "with the link and without");
    let compared = &printed["compared"][0];
    assert_eq!((&compared["published"], &compared["basis"]), (&"over 88 %".into(), &"measured".into()));
    let html = std::fs::read_to_string(&page).expect("a page");
    assert!(html.contains("over 110 MB/s per I/O node"));
}

#[test]
fn impossible_numbers_sizes_and_links_are_wrong_use() {
    for (flag, value, code, part) in [
        ("--nodes", "0", 2, "--nodes are 1 to 64, not 0"),
        ("--transfer", "100", 2, "512 bytes to 16 MiB"),
        ("--block", "1000", 2, "a multiple of --transfer"),
        ("--link", "1", 2, "--link is 1 MB/s to 100 GB/s"),
        ("--link", "fast", 2, "write a number with a unit"),
        ("--report", "/no/such/folder/x.html", 1, "/no/such/folder"),
    ] {
        fails(&["study", "io-sockets", flag, value], code, part);
    }
}

#[test]
fn a_node_that_dies_ends_the_study_with_an_error_that_names_it() {
    if let Some(reason) = missing() {
        return colony_testing::skip(&reason);
    }
    // a reference of 6 s without nodes, then transfers of nodes
    let study = ["study", "io-sockets", "--nodes", "1", "--link", "1MB/s", "--block", "3MiB"];
    let mut command = std::process::Command::new(program());
    command.args(study).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = command.spawn().expect("started");
    let until = Instant::now() + Duration::from_secs(60);
    let emulator = loop {
        match emulator_below(running.id()) {
            Some(pid) => break pid,
            None => assert!(Instant::now() < until, "no emulator was started"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    // whether it still boots, waits for the reference or has begun to send, the study has to end
    std::thread::sleep(Duration::from_secs(2));
    let pid = nix::unistd::Pid::from_raw(emulator.cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("killed");
    let out = running.wait_with_output().expect("ended");
    failed("a node was killed", &out, 1, "node 0 died: its emulator ended");
}

/// The emulator that a process of this descent runs.
fn emulator_below(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if name.starts_with("qemu") {
        return Some(pid);
    }
    children.split_whitespace().filter_map(|child| child.parse().ok()).find_map(emulator_below)
}
