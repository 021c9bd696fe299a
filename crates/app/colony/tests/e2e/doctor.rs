// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony doctor`, as a user runs it.

use std::path::Path;

use crate::common::{colony, error, fails, is_plain, json, text};

/// A node of four CPUs as collected files.
fn collected() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let files = [
        ("sys/devices/system/cpu/online", "0-3"),
        ("sys/devices/system/cpu/isolated", ""),
        ("sys/devices/system/cpu/nohz_full", ""),
        ("sys/kernel/mm/ksm/run", "1"),
        ("proc/cmdline", "quiet"),
        ("proc/sys/kernel/hostname", "made-up"),
        ("proc/sys/vm/stat_interval", "1"),
    ];
    for (file, value) in files {
        let path = dir.path().join(file);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, value).expect("written");
    }
    dir
}

/// A trace of CPUs 0 and 1: a tick each millisecond, ksmd each 100 ms.
fn trace(dir: &Path) -> String {
    let mut rows =
        String::from("# observed_s: 2\n# cpus: 0-1\n# start_ns: 0\nnode,cpu,start_ns,duration_ns,source\n");
    for ms in 0..2000u64 {
        for cpu in 0..2 {
            rows.push_str(&format!("0,{cpu},{},2000,irq:local_timer\n", ms * 1_000_000 + 500));
        }
        if ms % 100 == 7 {
            rows.push_str(&format!("0,1,{},400000,thread:ksmd\n", ms * 1_000_000 + 50_000));
        }
    }
    let file = dir.join("trace.csv");
    std::fs::write(&file, rows).expect("written");
    file.to_str().expect("a path").to_owned()
}

#[test]
fn findings_have_costs_and_come_in_a_sequence() {
    let node = collected();
    let root = node.path().to_str().expect("a path");
    let trace = trace(node.path());
    let args = ["doctor", "--root", root, "--trace", &trace, "--nodes", "512"];
    let found = json(&[&args[..], &["--json"]].concat());
    assert_eq!(found["schema"], "colony.doctor/1");
    assert_eq!(found["cpus"], "1-3");
    assert_eq!(found["noise"]["cpus"], "1", "only the job's CPUs count");
    let cost = |id: &str| {
        let all = found["findings"].as_array().expect("a list");
        all.iter().find(|f| f["id"] == id).unwrap_or_else(|| panic!("{id}"))["cost"].clone()
    };
    let share =
        |id: &str| cost(id)["added"]["share"].as_f64().unwrap_or_else(|| panic!("{id}: {}", cost(id)));
    assert!(share("isolation") >= share("ksm") && share("ksm") > share("nohz-full"), "{found:#}");
    assert!(share("nohz-full") > 0.0);
    assert_eq!(cost("stat-interval")["kind"], "not_seen");
    let sequence = found["sequence"].as_array().expect("a list");
    let left: Vec<f64> = sequence.iter().filter_map(|s| s["left"]["share"].as_f64()).collect();
    assert_eq!(sequence.len(), 2, "{sequence:?}");
    assert!(left[0] > left[1] && left[1] < 1e-6, "{left:?}: nothing is left in the end");
    let shown = text(&args);
    for part in [
        "What to change, in this order",
        "not seen",
        "undecided:",
        "made-up",
        "echo 0 > /sys/kernel/mm/ksm/run",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let again = json(&[&args[..], &["--json"]].concat());
    assert_eq!(found, again, "the same trace gives the same figures");
}

#[test]
fn a_check_fails_above_what_is_tolerated() {
    let node = collected();
    let root = node.path().to_str().expect("a path");
    let trace = trace(node.path());
    let code = |more: &[&str]| {
        let out = colony().args(["doctor", "--root", root, "--check"]).args(more).output().expect("runs");
        is_plain(&String::from_utf8_lossy(&out.stdout));
        (out.status.code(), error(&out))
    };
    let (failed, above) = code(&[]);
    assert!(failed == Some(1) && above.contains("above low: ") && above.contains("ksm"), "{above}");
    assert_eq!(code(&["--tolerate", "medium"]).0, Some(0));
    let costs = |percent| code(&["--trace", &trace, "--nodes", "64", "--tolerate", percent]).0;
    assert_eq!((costs("0%"), costs("100000%")), (Some(1), Some(0)));
    fails(&["doctor", "--root", root, "--check", "--tolerate", "2%"], 2, "needs a trace");
    fails(&["doctor", "--root", root, "--tolerate", "medium"], 2, "--check");
    // no finding, and no node either
    let empty = tempfile::tempdir().expect("a folder");
    let nowhere = empty.path().to_str().expect("a path");
    fails(
        &["doctor", "--root", nowhere, "--check"],
        2,
        "the node could not be checked: the CPUs of the node",
    );
    fails(&["doctor", "--root", root, "--check", "--tolerate", "severe"], 2, "write note, low, medium, high");
    fails(&["doctor", "--root", root, "--check", "--tolerate", "-5%"], 2, "write note, low, medium, high");
}

#[test]
fn a_monitor_gets_every_rule_and_a_whole_file() {
    let node = collected();
    let root = node.path().to_str().expect("a path");
    let (trace, file) = (trace(node.path()), node.path().join("colony.prom"));
    let name = file.to_str().expect("a path");
    text(&["doctor", "--root", root, "--trace", &trace, "--nodes", "64", "--node-exporter-textfile", name]);
    let metrics = std::fs::read_to_string(&file).expect("written");
    for line in [
        "colony_doctor_finding_level{rule=\"ksm\"} 3",
        "colony_doctor_finding_level{rule=\"swap\"} 0",
        "colony_doctor_undecided{rule=\"swap\"} 1",
        "# TYPE colony_doctor_cost_ratio gauge",
        "colony_doctor_nodes 64",
    ] {
        assert!(metrics.lines().any(|l| l == line), "{line}: {metrics}");
    }
    let is_metric =
        |l: &&str| l.starts_with("# ") || l.rsplit_once(' ').is_some_and(|(_, v)| v.parse::<f64>().is_ok());
    assert!(metrics.ends_with('\n') && metrics.lines().all(|l| is_metric(&l)), "{metrics}");
    fails(&["doctor", "--root", root, "--node-exporter-textfile", "/no/such/folder/x"], 1, "/no/such/folder");
}

#[test]
fn what_cannot_be_examined_is_said() {
    let node = collected();
    let root = node.path().to_str().expect("a path");
    fails(&["doctor", "--root", "/no/such/root"], 2, "cannot open the root /no/such/root");
    fails(&["doctor", "--root", "/usr"], 1, "sys/devices/system/cpu/online");
    fails(&["doctor", "--root", root, "--cpus", "3-4"], 2, "CPU 4 is not online; online are 0-3");
    fails(&["doctor", "--root", root, "--explain", "swap"], 2, "/proc/swaps is not there");
    fails(&["doctor", "--root", root, "--explain", "nothing"], 2, "there is no finding nothing; there are:");
    let other = trace(node.path());
    let job = text(&["doctor", "--root", root, "--cpus", "2-3", "--trace", &other]);
    assert!(job.contains("the trace has no CPU of the job"), "{job}");
}

#[test]
fn the_last_trace_is_kept_for_the_doctor() {
    let _alone = crate::common::alone();
    let state = tempfile::tempdir().expect("a folder");
    let kept = state.path().join("colony/last-trace.parquet");
    let run = |args: &[&str]| {
        let out = colony().env("XDG_STATE_HOME", state.path()).args(args).output().expect("runs");
        assert!(out.status.success(), "{args:?}: {}", error(&out));
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let cpu = crate::common::last_cpu();
    run(&["measure", "--duration", "200ms", "--no-keep", "--cpus", &cpu]);
    assert!(!kept.exists());
    run(&["measure", "--duration", "200ms", "--cpus", &cpu]);
    assert!(kept.exists());
    let shown = run(&["doctor", "--nodes", "16", "--cpus", &cpu]);
    is_plain(&shown);
    assert!(shown.contains("stolen: ") && shown.contains("cost on 16 nodes"), "{shown}");
    // a folder that cannot be made fails no measurement
    std::fs::remove_dir_all(state.path().join("colony")).expect("removed");
    std::fs::write(state.path().join("colony"), "in the way").expect("written");
    run(&["measure", "--duration", "200ms", "--cpus", &cpu]);
}
