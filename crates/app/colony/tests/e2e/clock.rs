// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony clock`.

use std::net::UdpSocket;
use std::path::Path;

use serde_json::Value;

use crate::common::{colony, fails, json, text};

/// A host list of free ports of this machine.
fn hosts(folder: &Path, n: usize) -> String {
    let sockets: Vec<UdpSocket> = (0..n).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a port")).collect();
    let list: String = sockets.iter().map(|s| format!("{}\n", s.local_addr().expect("bound"))).collect();
    let path = folder.join("hosts");
    std::fs::write(&path, list).expect("writable");
    path.to_str().expect("text").to_owned()
}

#[test]
fn this_nodes_clock_is_told_to_people_and_programs() {
    let shown = text(&["clock", "show"]);
    assert!(shown.starts_with("clock ") && shown.contains("\nTAI "), "{shown}");
    let shown = json(&["clock", "show", "--json"]);
    assert_eq!(shown["schema"], "colony.clock.show/1");
    assert!(shown["kernel"]["synchronised"].is_boolean() && shown["tai_ns"].as_i64() > Some(0), "{shown}");
}

#[test]
fn processes_compare_their_clock_with_itself_and_find_no_offset() {
    let folder = tempfile::tempdir().expect("temp dir");
    let (hosts, out) = (hosts(folder.path(), 3), folder.path().join("{rank}.json"));
    let sync = |rank: &str| {
        let mut command = colony();
        command.args(["clock", "sync", "--hosts", &hosts, "--rank", rank, "--round", "200ms", "--json"]);
        command.arg("--out").arg(&out);
        command.output().expect("runs")
    };
    let outs: Vec<_> = std::thread::scope(|s| {
        let all: Vec<_> = ["0", "1", "2"].map(|rank| s.spawn(move || sync(rank))).into();
        all.into_iter().map(|t| t.join().expect("no panic")).collect()
    });
    for out in &outs {
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    let root: Value = serde_json::from_slice(&outs[0].stdout).expect("JSON");
    assert_eq!((root["schema"].as_str(), root["rounds"].as_u64()), (Some("colony.clock.sync/1"), Some(2)));
    assert!(outs[1].stdout.is_empty(), "rank 0 speaks for all");
    let nodes = root["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 3);
    for node in nodes {
        let offset = node["estimate"]["offset_ns"].as_i64().expect("an offset");
        // the truth is 0: one machine, one clock
        assert!(offset.unsigned_abs() <= node["estimate"]["bound_ns"].as_u64().expect("a bound"), "{node}");
    }
    for rank in 0..3 {
        let kept = std::fs::read(folder.path().join(format!("{rank}.json"))).expect("kept");
        assert_eq!(serde_json::from_slice::<Value>(&kept).expect("JSON")["rank"], rank);
    }
}

#[test]
fn wrong_use_and_silent_nodes_are_told_apart() {
    let folder = tempfile::tempdir().expect("temp dir");
    let hosts = hosts(folder.path(), 2);
    let sync = ["clock", "sync", "--hosts", &hosts];
    let with = |more: &[&'static str]| [&sync[..], more].concat();
    fails(&with(&["--rank", "2"]), 2, "rank 2");
    fails(&with(&["--rank", "0", "--round", "1ms"]), 2, "--round must be from 10ms");
    fails(&with(&["--rank", "0", "--feed"]), 2, "colonyd does not run");
    fails(&with(&["--rank", "0", "--key", "/nonexistent"]), 2, "--key /nonexistent: No such file");
    fails(&with(&["--rank", "1", "--patience", "300ms"]), 1, "rank 0 (127.0.0.1)");
    std::fs::write(&hosts, "a\nb/c\n").expect("ours");
    fails(&with(&["--rank", "0"]), 2, "line 2");
    fails(&["clock", "simulate", "--nodes", "1"], 2, "nodes = 1");
}

#[test]
fn a_simulation_says_that_no_bound_is_broken() {
    let s = json(&["clock", "simulate", "--nodes", "300", "--walks", "2", "--json"]);
    assert_eq!(s["schema"], "colony.clock.simulation/1");
    let rows = s["by_nodes"].as_array().expect("rows");
    assert_eq!(rows.last().expect("rows")["nodes"], 300);
    assert!(rows.iter().all(|r| r["outside"] == 0), "{s}");
    assert!(text(&["clock", "simulate", "--nodes", "40", "--walks", "1"]).contains("outside"));
}
