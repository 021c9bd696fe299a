// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony study io-scaling`: table, JSON, page, refusals, and folders that are left as they were.

use crate::common::{fails, json};

/// Nodes take QEMU and the program that they run.
fn missing() -> Option<String> {
    colony_vm::testing::missing().or_else(|| colony_nodes::programs::static_program("colony-ior").err())
}

#[test]
fn transfers_of_real_nodes_are_counted_and_lines_go_to_2048_nodes() {
    if let Some(reason) = missing() {
        return colony_testing::skip(&reason);
    }
    let dir = tempfile::tempdir().expect("temp dir");
    let place = |name: &str| dir.path().join(name).to_str().expect("plain").to_owned();
    let (folder, out, page) = (place("files"), place("r.json"), place("r.html"));
    std::fs::create_dir(&folder).expect("a folder");
    let small = ["--nodes", "2", "--io-nodes", "2,1", "--block", "256KiB", "--transfers", "64KiB"];
    let files = ["--json", "--out", &out, "--report", &page, "--folder", &folder];
    let printed = json(&[&["study", "io-scaling"], &small[..], &files[..]].concat());
    assert_eq!(printed["schema"], "colony.study.io-scaling/1");
    let kept: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&out).expect("a file")).expect("JSON");
    assert_eq!(printed, kept);
    assert_eq!(printed["plan"]["io_nodes"], serde_json::json!([1, 2]));
    let tested = &printed["folders"][0];
    assert!(tested["file_system"].is_string(), "{tested}");
    let groups = tested["groups"].as_array().expect("groups");
    assert_eq!(groups.len(), 4, "two layouts, two directions");
    for group in groups {
        let measured = group["measured"].as_array().expect("jobs");
        assert!(measured.iter().all(|m| m["transfers"] == 8 && m["bytes"] == 512 << 10), "{group}");
        let line = &group["lines"][0];
        assert_eq!((&line["io_nodes"], &line["points"][11]["nodes"]), (&1.into(), &2048.into()));
    }
    let html = std::fs::read_to_string(&page).expect("a page");
    assert!(html.contains("over 110 MB/s per I/O node"));
    assert_eq!(std::fs::read_dir(&folder).expect("there").count(), 0, "nothing is left behind");
}

#[test]
fn impossible_numbers_and_sizes_are_wrong_use() {
    for (flag, value, code, part) in [
        ("--nodes", "0", 2, "--nodes are 1 to 64, not 0"),
        ("--io-nodes", "9", 2, "--nodes has 8 at most"),
        ("--transfers", "100", 2, "512 bytes to 16 MiB"),
        ("--block", "1000", 2, "a multiple of each transfer"),
        ("--out", "/no/such/folder/x.json", 1, "/no/such/folder"),
    ] {
        fails(&["study", "io-scaling", flag, value], code, part);
    }
}

#[test]
fn a_folder_that_cannot_hold_the_files_is_named_with_the_remedy() {
    fails(&["study", "io-scaling", "--folder", "/no/such/folder"], 1, "--folder /no/such/folder");
    fails(&["study", "io-scaling", "--folder", "/proc"], 1, "give a folder of yours");
    let dir = tempfile::tempdir().expect("temp dir");
    let folder = dir.path().to_str().expect("plain");
    // more than any disk has, and few enough transfers
    let full = ["study", "io-scaling", "--folder", folder, "--block", "64TiB", "--transfers", "16MiB"];
    fails(&full, 1, "give a smaller --block");
    assert_eq!(dir.path().read_dir().expect("there").count(), 0);
}
