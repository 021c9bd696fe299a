// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony vm`. What machines do is tested with the library; here is what the command adds.

use crate::common::{colony, error, fails, json, text};

fn can_start() -> bool {
    let missing = colony_vm::testing::missing();
    if let Some(reason) = &missing {
        colony_testing::skip(reason);
    }
    missing.is_none()
}

#[test]
fn a_report_holds_what_the_program_did_and_its_files_are_here() {
    if !can_start() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("kept");
    let collect = format!("/tmp/kept={}", file.display());
    let script = "echo out; echo err >&2; printf '\\000\\377' > /tmp/kept; kill -TERM $$";
    let out = colony()
        .args(["vm", "run", "--json", "--icount", "--collect", &collect, "--", "sh", "-c", script])
        .output()
        .expect("runs");
    assert_eq!(out.status.code(), Some(128 + 15), "{}", error(&out));
    let report: serde_json::Value = serde_json::from_slice(&out.stdout).expect("a report");
    assert_eq!(report["schema"], "colony.vm.run/1");
    assert_eq!(report["icount"], 1);
    let node = &report["nodes"][0];
    assert_eq!((&node["stdout"], &node["stderr"]), (&"out\n".into(), &"err\n".into()));
    assert_eq!(node["exit"]["signal"], 15);
    assert_eq!(std::fs::read(file).expect("collected"), [0, 0xff]);
}

#[test]
fn nodes_are_told_apart_and_the_first_failure_is_the_exit_code() {
    if !can_start() {
        return;
    }
    let script = "printf 'one\\ntwo'; test $COLONY_NODE = 0 || exit 5";
    let out = colony().args(["vm", "run", "--nodes", "2", "--", "sh", "-c", script]).output().expect("runs");
    assert_eq!(out.status.code(), Some(5), "{}", error(&out));
    let text = String::from_utf8(out.stdout).expect("text");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[n0] one", "[n0] two", "[n1] one", "[n1] two"]);
}

#[test]
fn what_cannot_be_is_wrong_use() {
    if !can_start() {
        return;
    }
    let fails = |args: &[&str], part: &str| fails(&[&["vm"], args].concat(), 2, part);
    fails(&["run", "--image", "nowhere", "--", "true"], "node, shell");
    fails(&["run", "--", "no-such-program"], "give its path");
    fails(&["run", "--collect", "x", "--", "true"], "/path/in/guest");
    fails(&["run", "--icount", "--accel", "kvm", "--", "true"], "leave out");
    fails(&["run", "--icount", "--cpus", "2", "--", "true"], "use 1 CPU");
    fails(&["run", "--nodes", "0", "--", "true"], "0 nodes");
}

#[test]
fn lists_are_for_people_and_programs() {
    if !can_start() {
        return;
    }
    assert!(text(&["vm", "image"]).contains("/usr/bin/busybox"));
    let all = json(&["vm", "image", "--json"]);
    assert!(all.as_array().is_some_and(|all| all.iter().any(|c| c["path"] == "/init")));
    let kernels = json(&["vm", "kernels", "--json"]);
    assert!(kernels.as_array().is_some_and(|all| all.iter().all(|k| k["cached"] == true)));
    text(&["vm", "kernels"]);
}
