// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces that contradict themselves, through every command that reads one.

use std::path::Path;

use crate::common::{colony, error, fails};

/// 10 s of CPU 0 and 1: a tick, and `row` as the third of all.
fn trace(folder: &Path, row: &str) -> String {
    let mut rows =
        String::from("# observed_s: 10\n# start_ns: 0\n# cpus: 0-1\ncpu,start_ns,duration_ns,source\n");
    for i in 0..1000u64 {
        if i == 2 {
            rows += &format!("{row},thread:odd\n");
        }
        rows += &format!("{},{},2000,irq:local_timer\n", i % 2, 100_000 + i * 9_000_000);
    }
    let path = folder.join("node.csv");
    std::fs::write(&path, rows).expect("written");
    path.to_str().expect("plain").to_owned()
}

/// Every command that reads a trace.
fn readers<'a>(trace: &'a str, to: &'a str) -> Vec<Vec<&'a str>> {
    let small = ["--nodes", "4", "--iterations", "2"];
    vec![
        [&["sim", "--trace", trace][..], &small].concat(),
        [&["sim", "--what-if", trace][..], &small].concat(),
        vec!["noise", "fit", trace],
        vec!["noise", "show", trace],
        vec!["noise", "diff", trace, trace],
        vec!["noise", "convert", trace, to],
    ]
}

#[test]
fn a_row_that_cannot_be_is_told_with_its_file_and_number() {
    let dir = tempfile::tempdir().expect("temp dir");
    let to = dir.path().join("to.parquet");
    for (row, says) in [
        ("0,5000,9223372036854775808", "beyond the last instant"),
        ("0,5000,4611686018427387904", "longer than the observation of 10 s"),
        ("1,60000000000,100", "outside of the observation, 10 s from 0 ns"),
        ("1,-60000000000,100", "outside of the observation"),
        ("7,5000,100", "the CPUs observed are 0-1"),
    ] {
        let file = trace(dir.path(), row);
        for args in readers(&file, to.to_str().expect("plain")) {
            fails(&args, 1, says);
            fails(&args, 1, "node.csv: row 3 of the trace");
        }
        fails(&["inject", "replay", "--trace", &file, "--duration", "1ms"], 1, "row 3");
        assert!(!to.exists());
    }
}

#[test]
fn rows_at_the_edges_count_inside_and_are_told() {
    let dir = tempfile::tempdir().expect("temp dir");
    let to = dir.path().join("to.parquet");
    // half of it before the start, half of it after the end, all of it after the end
    for row in ["0,-500000,1000000", "1,9999500000,1000000", "1,10100000000,100"] {
        let file = trace(dir.path(), row);
        for args in readers(&file, to.to_str().expect("plain")).iter().filter(|a| a[1] != "convert") {
            let out = colony().args(args).output().expect("runs");
            let said = error(&out);
            assert!(out.status.success(), "{args:?}: {said}");
            // a row that overlaps another is two detours
            let told = |all| said.contains(&format!("node.csv: 1 of {all} detours reach over an edge"));
            assert!(told(1001) || told(1002), "{args:?}: {said}");
        }
    }
    let file = trace(dir.path(), "0,5000,100");
    let out = colony().args(["noise", "show", &file]).output().expect("runs");
    assert!(out.status.success() && !error(&out).contains("edge"), "{}", error(&out));
}

#[test]
fn what_reaches_over_the_start_counts_inside() {
    let dir = tempfile::tempdir().expect("temp dir");
    let stolen = |row: &str| {
        let file = trace(dir.path(), row);
        let out = colony().args(["noise", "fit", &file, "--json"]).output().expect("runs");
        let found: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
        let sources = found["sources"].as_array().expect("a list").clone();
        let odd = sources.iter().find(|s| s["name"] == "thread:odd").expect("there");
        odd["stolen_share"].as_f64().expect("a number")
    };
    assert_eq!(stolen("0,-500000,1500000"), stolen("0,5000,1000000"));
}
