// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony study das-boot`: table, JSON, page, refusals.

use crate::common::{fails, json};

#[test]
fn a_larger_ramdisk_takes_an_io_node_longer_and_memory_takes_a_compute_node_nothing() {
    if let Some(reason) = colony_vm::testing::missing() {
        return colony_testing::skip(reason);
    }
    let dir = tempfile::tempdir().expect("temp dir");
    let place = |name: &str| dir.path().join(name).to_str().expect("plain").to_owned();
    let (out, page) = (place("r.json"), place("r.html"));
    let args =
        ["study", "das-boot", "--sizes", "16,1", "--repeat", "1", "--json", "--out", &out, "--report", &page];
    let printed = json(&args);
    assert_eq!(printed["schema"], "colony.study.das-boot/1");
    let kept: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&out).expect("a file")).expect("JSON");
    assert_eq!(printed, kept);
    assert_eq!(printed["plan"]["sizes_mib"], serde_json::json!([1, 16]));
    assert!(printed["node"]["cpu_model"].is_string() && printed["kernel"].is_string(), "{printed}");
    let curve = |name: &str| {
        let all = printed["curves"].as_array().expect("curves");
        all.iter().find(|c| c["system"] == name).expect(name).clone()
    };
    let number = |v: &serde_json::Value| v.as_f64().expect("a number");
    let linux = curve("io-node");
    let (small, large) = (&linux["rows"][0], &linux["rows"][1]);
    // 15 files of 1 MiB, with their headers
    let more = number(&large["pushed_bytes"]) - number(&small["pushed_bytes"]);
    assert!((15.0..15.1).contains(&(more / f64::from(1 << 20))), "{more}");
    // counted in instructions, so the same on any host: to unpack a MiB takes some
    let guest = |row: &serde_json::Value| number(&row["guest_s"]["mean"]);
    assert!(guest(large) > guest(small), "{linux}");
    assert!(number(&small["cpu_s"]["mean"]) > 0.0 && small["cpu_s"]["ci95"].is_null(), "{linux}");
    let node = curve("compute-node-image");
    assert_eq!(node["rows"].as_array().map(Vec::len), Some(2));
    // a whole system more
    assert!(guest(&node["rows"][0]) < guest(small), "{node} {linux}");
    assert_eq!(curve("compute-node-memory")["rows"].as_array().map(Vec::len), Some(1), "16 MiB is the least");
    let html = std::fs::read_to_string(&page).expect("a page");
    assert!(html.contains("We varied the ramdisk of the I/O node kernel"));
}

#[test]
fn impossible_sizes_are_wrong_use() {
    fails(&["study", "das-boot", "--sizes", "0"], 2, "1 to 1024 MiB, not 0");
    fails(&["study", "das-boot", "--repeat", "0"], 2, "--repeat");
    fails(&["study", "das-boot", "--out", "/no/such/folder/x.json"], 1, "/no/such/folder");
}
