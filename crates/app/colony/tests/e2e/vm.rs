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

#[test]
fn an_io_node_has_no_swap_and_no_process_but_its_first_and_the_kernels_threads() {
    if !can_start() {
        return;
    }
    // the parent of each process, which follows its name; the kernel's threads have process 2
    let script = "busybox cat /proc/swaps; for p in /proc/[0-9]*; do \
                  set -- $(busybox sed 's/.*) //' $p/stat 2>/dev/null); \
                  [ \"$2\" = 2 ] || echo \"process ${p#/proc/} of $2\"; done";
    let shown = text(&["vm", "run", "--image", "io-node", "--", "busybox", "sh", "-c", script]);
    let (swaps, processes): (Vec<&str>, Vec<&str>) = shown.lines().partition(|l| !l.starts_with("process "));
    assert_eq!(swaps.len(), 1, "a heading and no swap: {shown}");
    // the shell itself runs instead of the I/O daemon
    assert_eq!(processes.len(), 3, "{shown}");
    assert_eq!(processes[..2], ["process 1 of 0", "process 2 of 0"], "{shown}");
    assert!(processes[2].ends_with(" of 1"), "{shown}");
    let files = json(&["vm", "image", "io-node", "--json"]);
    let paths: Vec<&str> =
        files.as_array().expect("a list").iter().filter_map(|f| f["path"].as_str()).collect();
    assert!(paths.contains(&"/usr/bin/ciod") && !paths.iter().any(|p| p.ends_with("/sh")), "{paths:?}");
}

#[test]
fn an_image_and_its_list_are_the_same_each_time() {
    if !can_start() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let made = |name: &str| {
        let place = |end: &str| folder.path().join(format!("{name}.{end}"));
        let (out, sbom) = (place("cpio"), place("json"));
        let path = |p: &std::path::Path| p.to_str().expect("plain").to_owned();
        text(&["vm", "image", "io-node", "--out", &path(&out), "--sbom", &path(&sbom)]);
        (std::fs::read(out).expect("an image"), std::fs::read_to_string(sbom).expect("a list"))
    };
    let (first, second) = (made("a"), made("b"));
    assert!(first.0 == second.0 && first.1 == second.1);
    let sbom: serde_json::Value = serde_json::from_str(&first.1).expect("JSON");
    assert_eq!(sbom["spdxVersion"], "SPDX-2.3");
    let files = sbom["files"].as_array().expect("files");
    assert!(files.iter().any(|f| f["fileName"] == "./usr/bin/ciod"), "{sbom}");
}
