// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony bench checkpoint`: checkpoints are really made, each figure of the table is in the JSON, and wrong use.

use crate::common::{colony, failed, fails, json, text};

/// Two small sizes, one of them published.
const SMALL: [&str; 6] = ["bench", "checkpoint", "--bytes", "1000,80kB", "--repeat", "3"];

fn small(more: &[&str]) -> serde_json::Value {
    json(&[&SMALL, more, &["--json"]].concat())
}

fn number(value: &serde_json::Value, path: &str) -> f64 {
    value.pointer(path).and_then(serde_json::Value::as_f64).unwrap_or_else(|| panic!("{path} in {value}"))
}

#[test]
fn every_size_has_its_checkpoints_its_floor_and_its_simulations() {
    for (more, pes) in [(&[][..], 2), (&["-n", "3", "--threads", "2", "--objects", "3"], 6)] {
        let result = small(more);
        assert_eq!(result["schema"], "colony.bench.checkpoint/1");
        let runs = result["runs"].as_array().expect("runs");
        for (run, bytes) in runs.iter().zip([1000, 80_000]) {
            assert_eq!(run["bytes"], bytes);
            // each image has the state of its PE, and what the runtime keeps for it
            assert!(run["image_bytes"].as_u64() > Some(bytes * pes), "{run}");
            for figure in ["quiet", "copy", "floor"] {
                let all = run[figure]["all_s"].as_array().expect("times");
                assert_eq!(all.len(), 3, "{run}");
                let (least, median) = (&run[figure]["least_s"], &run[figure]["median_s"]);
                assert!(all.contains(least) && all.contains(median), "{run}");
            }
            assert!(number(run, "/floor_memcpy_s") <= number(run, "/floor/least_s"), "{run}");
            let ratio = number(run, "/copy/least_s") / number(run, "/floor/least_s");
            assert!((number(run, "/ratio") / ratio - 1.0).abs() < 1e-9, "{run}");
            for (place, pes) in [8192, 20_480].into_iter().enumerate() {
                assert_eq!(run["simulated"][place]["pes"], pes, "{run}");
                let part = |name: &str| number(run, &format!("/simulated/{place}/{name}"));
                let sum = part("quiet_s") + part("copy_s") + part("commit_s");
                assert!((part("total_s") / sum - 1.0).abs() < 1e-9, "{run}");
            }
        }
        assert_eq!(runs[1]["published"][1]["seconds"], 0.377_770_4);
        assert!(runs[0]["published"][0]["seconds"].is_null(), "{result}");
        assert!(result["assumptions"].as_array().is_some_and(|all| all.len() > 2), "{result}");
    }
}

#[test]
fn the_table_has_a_row_for_each_size_and_is_kept_as_json() {
    let dir = tempfile::tempdir().expect("temp dir");
    let out = dir.path().join("checkpoint.json");
    let table = text(&[&SMALL[..], &["--out", out.to_str().expect("plain")]].concat());
    for row in [["1", "kB", "–", "–"], ["80", "kB", "0.161", "0.378"]] {
        let rows = table.lines().filter(|line| line.split_whitespace().take(4).eq(row));
        assert_eq!(rows.count(), 1, "{row:?}: {table}");
    }
    assert!(table.starts_with("2 PEs in 2 processes, 8 objects each\n"), "{table}");
    let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(&out).expect("kept")).expect("JSON");
    assert_eq!((&kept["params"]["repeat"], &kept["params"]["processes"]), (&3.into(), &2.into()));
    // the state of all PEs together
    let table = text(&["bench", "checkpoint", "--total", "6kB", "-n", "3", "--repeat", "1"]);
    assert!(table.lines().any(|line| line.starts_with("2 kB ")), "{table}");
}

#[test]
fn only_objects_that_have_changed_are_sent() {
    let sent = |changed: &str| {
        let sizes = ["--bytes", "400kB", "--objects", "10", "--repeat", "2"];
        let result = json(&[&["bench", "checkpoint", "--json", "--changed", changed], &sizes[..]].concat());
        let run = &result["runs"][0];
        [&run["sent_bytes"], &run["image_bytes"]].map(|bytes| bytes.as_u64().expect("bytes"))
    };
    let all = sent("10");
    assert_eq!(all[0], all[1]);
    for changed in [0, 1, 4] {
        let [some, image] = sent(&changed.to_string());
        // beside the states, of 40 kB each on 2 PEs, the head of each image is sent
        assert!((80_000 * changed..80_000 * changed + 40_000).contains(&some), "{changed}: {some}");
        assert_eq!(image, all[1]);
    }
}

#[test]
fn a_faster_network_makes_the_simulated_checkpoint_shorter() {
    let total = |more: &[&str]| number(&small(more), "/runs/1/simulated/1/total_s");
    let slow = total(&["--link", "1MB"]);
    let fast = total(&["--link", "1GB", "--message", "0.1", "--latency", "0.5", "--hop", "0"]);
    assert!(slow > 0.08 && fast < slow / 2.0, "{slow} {fast}");
}

#[test]
fn wrong_use_says_what_is_possible_and_starts_nothing() {
    let wrong = |args: &[&str], part: &str| fails(&[&["bench", "checkpoint"], args].concat(), 2, part);
    wrong(&["-n", "1"], "need another process; choose 2 to 64");
    wrong(&["-n", "0"], "-n is 0; choose 2 to 64");
    wrong(&["-n", "many"], "many");
    wrong(&["--threads", "0"], "--threads is 0");
    wrong(&["--objects", "0"], "--objects is 0");
    wrong(&["--changed", "9"], "--changed is 9; choose 0 to 8");
    wrong(&["--repeat", "0"], "--repeat is 0; choose 1 to 1000");
    wrong(&["--bytes", "0"], "the state of a PE in bytes is 0");
    wrong(&["--bytes", "80kb"], "80kB");
    wrong(&["--bytes", "99999999999GB"], "too large");
    wrong(&["--bytes", "1000GB"], "of memory");
    wrong(&["--bytes", "1kB", "--total", "1kB"], "--total");
    wrong(&["--total", "0"], "is 0; choose 1 to");
    wrong(&["--link", "0"], "--link is 0");
    wrong(&["--latency=-1"], "--latency is -1 µs");
    wrong(&["--ops", "5"], "--ops");
    fails(&["bench", "checkpoint", "--out", "/nonexistent/x.json"], 1, "/nonexistent");
    for variable in ["COLONY_CHECKPOINT", "COLONY_BALANCE"] {
        let out = colony().args(SMALL).env(variable, "none").output().expect("runs");
        failed(variable, &out, 2, variable);
    }
}
