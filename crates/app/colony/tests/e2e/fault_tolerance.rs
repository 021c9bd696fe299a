// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony study fault-tolerance`: tables, JSON, page, refusals.

use serde_json::Value;

use crate::common::{fails, json, text};

/// The command with few runs and a small map, and more flags.
fn quick(more: &[&'static str]) -> Vec<&'static str> {
    let few =
        ["study", "fault-tolerance", "--faster", "50", "--map-pes", "1024,131072", "--map-mtbf", "30d,5y"];
    few.into_iter().chain(more.iter().copied()).collect()
}

const SCHEMES: [&str; 6] = ["none", "disk", "double", "double-disk", "evacuation", "logging"];

#[test]
fn every_scheme_has_a_row_for_each_size_and_the_map_a_choice() {
    let shown = text(&quick(&["--pes", "1024,65536"]));
    for scheme in SCHEMES {
        let rows = shown.lines().filter(|l| l.split(' ').next() == Some(scheme)).count();
        assert_eq!(rows, 2, "{scheme}: {shown}");
    }
    for part in [
        "1024 PEs on 16 nodes",
        "a failure each 114 d",
        "65,536 PEs",
        "Scheme to choose",
        "128K",
        "30 d",
        "lost: probability",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!text(&quick(&["--schemes", "double,logging"])).contains("evacuation"));
}

#[test]
fn json_file_and_page_have_the_same_results() {
    let dir = tempfile::tempdir().expect("temp dir");
    let place = |name: &str| dir.path().join(name).to_str().expect("plain").to_owned();
    let (out, page) = (place("r.json"), place("r.html"));
    let mut args = quick(&["--pes", "131072", "--json"]);
    args.extend(["--out", &*out, "--report", &*page].map(|a| &*a.to_owned().leak()));
    let printed = json(&args);
    assert_eq!(printed["schema"], "colony.study.fault-tolerance/1");
    let kept: Value = serde_json::from_slice(&std::fs::read(&out).expect("a file")).expect("JSON");
    assert_eq!(printed, kept);
    let rows = printed["rows"].as_array().expect("rows");
    let names: Vec<&str> = rows.iter().filter_map(|r| r["scheme"].as_str()).collect();
    assert_eq!(names, SCHEMES);
    let double = &rows[2];
    let number = |v: &Value| v.as_f64().expect("a number");
    assert!(number(&double["estimate"]["time"]["ci95"]) > 0.0, "{double}");
    let off = number(&double["optimum"]["interval_s"]) / number(&double["daly_s"]);
    assert!((0.5..2.0).contains(&off), "{double}");
    assert!(number(&double["both_lost"]) < 1e-3 && rows[1]["both_lost"].is_null(), "{double}");
    assert_eq!(rows[0]["refusal"], "no-progress");
    assert_eq!(printed["map"].as_array().map(Vec::len), Some(4));
    let html = std::fs::read_to_string(&page).expect("a page");
    assert_eq!(html.matches("<canvas").count(), 5);
    assert!(html.contains("id=\"choice\"") && !html.contains("src=\"http"));
}

#[test]
fn one_seed_prints_one_result() {
    let of = |seed| text(&quick(&["--pes", "65536", "--seed", seed]));
    assert_eq!(of("1"), of("1"));
    assert_ne!(of("1"), of("2"));
}

#[test]
fn new_nodes_that_die_early_cost_more_than_old_ones() {
    let time = |ages| {
        let found = json(&quick(&[
            "--pes",
            "131072",
            "--shape",
            "0.6",
            "--ages",
            ages,
            "--schemes",
            "double",
            "--json",
        ]));
        found["rows"][0]["estimate"]["time"]["mean"].as_f64().expect("a number")
    };
    assert!(time("new") > 1.5 * time("steady"));
}

#[test]
fn a_machine_that_fails_faster_than_it_saves_is_told_so() {
    for mtbf in ["1ns", "1min"] {
        let shown = text(&quick(&["--pes", "1048576", "--mtbf", mtbf]));
        for scheme in SCHEMES {
            let reason = format!("{scheme}: no progress: the job would take over 100 times its work");
            assert!(shown.contains(&reason), "{reason}: {shown}");
        }
    }
    let shown = text(&quick(&["--pes", "1024", "--state", "2GB"]));
    assert!(shown.contains("double: five copies of the state"), "{shown}");
}

#[test]
fn wrong_parameters_have_their_value_and_the_remedy() {
    for (args, part) in [
        (&["--pes", "0"][..], "--pes is 0; it must be a whole number from 1"),
        (&["--pes", "64"], "give at least 65 PEs"),
        (&["--mtbf", "-5y"], "--mtbf is -157680000; it must be a number above 0"),
        (&["--mtbf", "5"], "such as 5y, 30d or 2h"),
        (&["--mtbf", "nany"], "such as 5y"),
        (&["--shape", "0"], "--shape is 0; it must be a number from 0.3 to 10"),
        (&["--shape", "nan"], "--shape is NaN"),
        (&["--state", "9GB"], "give a smaller --state, or a larger --memory"),
        (&["--predicted", "101%"], "a share from 0 to 1"),
        (&["--schemes", "tripple"], "there is no scheme `tripple`; choose from none, disk"),
        (&["--runs", "1"], "--runs is 1; it must be"),
        (&["--faster", "0"], "--faster is 0; it must be a factor from 1 to 1000"),
        (&["--disk-bandwidth", "0"], "--disk-bandwidth is 0"),
        (&["--as-good", "2"], "--as-good is 2"),
        (&["--replay-nodes", "0"], "--replay-nodes is 0"),
        (&["--ages", "old"], "steady"),
    ] {
        fails(&[&["study", "fault-tolerance"], args].concat(), 2, part);
    }
    fails(&["study", "fault-tolerance", "--report", "/no/such/folder/x.html"], 1, "/no/such/folder");
    fails(&["study", "--json", "fault-tolerance"], 2, "fault-tolerance");
}
