// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony timeline`: from the files of a run to tables, the page and the files of other viewers.

use std::path::Path;

use crate::common::{colony, error, fails, json, text};

/// The files of the sample run in `folder`: both processes, and the noise.
fn sample(folder: &Path) -> [String; 3] {
    let folder = folder.to_str().expect("plain");
    assert_eq!(text(&["timeline", "sample", folder]), "");
    ["stencil.0.timeline", "stencil.1.timeline", "noise.parquet"].map(|name| format!("{folder}/{name}"))
}

#[test]
fn a_run_is_shown_with_the_detours_that_made_its_stragglers() {
    let dir = tempfile::tempdir().expect("temp dir");
    let [a, b, noise] = &sample(dir.path());
    let shown = text(&["timeline", "show", b, a, "--noise", noise]);
    for part in [
        "stencil: 4 PEs in 2 processes",
        "Block::compute",
        "thread:kworker/2:1",
        "detours hit",
        "2 objects migrated",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let found = json(&["timeline", "show", a, b, "--noise", noise, "--stragglers", "3", "--json"]);
    assert_eq!(found["schema"], "colony.timeline.show/1");
    let list = found["stragglers"]["list"].as_array().expect("a list");
    assert_eq!(list.len(), 3);
    assert!(
        list.iter().all(|s| s["pe"] == 2 && s["sources"][0]["source"] == "thread:kworker/2:1"),
        "{list:?}"
    );
    let all = &found["utilization"]["all"];
    let of = |name: &str| all[name].as_u64().expect("a number");
    let sum = ["busy_ns", "overhead_ns", "balancing_ns", "idle_ns"].map(of).iter().sum::<u64>();
    assert_eq!(sum, 4 * found["duration_ns"].as_u64().expect("a number"), "every nanosecond of four PEs");
    // one of two files, and a trace of another time, are told
    let part = text(&["timeline", "show", a]);
    assert!(part.contains("the files have 2 of the run's 4 PEs"), "{part}");
    let late = dir.path().join("late.csv");
    std::fs::write(&late, "# observed_s: 1\n# start_ns: 5\n# cpus: 0\nstart_ns,duration_ns\n7,100\n")
        .expect("written");
    let late = text(&["timeline", "show", a, b, "--noise", late.to_str().expect("plain")]);
    assert!(late.contains("share no time") && late.contains("not observed"), "{late}");
}

#[test]
fn a_run_is_written_for_other_viewers() {
    let dir = tempfile::tempdir().expect("temp dir");
    let [a, b, noise] = &sample(dir.path());
    let file = |name: &str| dir.path().join(name).to_str().expect("plain").to_owned();
    text(&["timeline", "convert", a, b, "--to", "projections", "-o", &file("run.sts")]);
    for pe in 0..4 {
        let log = std::fs::read_to_string(file(&format!("run.{pe}.log"))).expect("a log");
        assert!(log.starts_with("PROJECTIONS-RECORD "));
    }
    text(&["timeline", "convert", a, b, "--to", "perfetto", "--noise", noise, "-o", &file("run.pftrace")]);
    let trace = std::fs::read(file("run.pftrace")).expect("a trace");
    assert!(trace.windows(14).any(|w| w == b"Block::compute") && trace[0] == 0x0a);
    text(&["timeline", "convert", a, b, "--to", "timeline", "-o", &file("all.timeline")]);
    let shown = |files: &[&str]| json(&[&["timeline", "show", "--json"], files].concat());
    assert_eq!(shown(&[&file("all.timeline")]), shown(&[a, b]));
    text(&["timeline", "report", a, b, "--noise", noise, "-o", &file("report.html")]);
    let page = std::fs::read_to_string(file("report.html")).expect("a page");
    assert!(page.contains("Time lines</h2>") && page.contains("Stragglers"));
}

#[test]
fn logs_of_projections_are_read_by_every_command() {
    let dir = tempfile::tempdir().expect("temp dir");
    let [a, b, noise] = &sample(dir.path());
    let file = |name: &str| dir.path().join(name).to_str().expect("plain").to_owned();
    let sts = &file("run.sts");
    text(&["timeline", "convert", a, b, "--to", "projections", "-o", sts]);
    let [ours, theirs] = [&[a, b][..], &[sts][..]].map(|files| {
        let words: Vec<&str> = files.iter().map(|f| f.as_str()).collect();
        json(&[&["timeline", "show", "--json"], &words[..]].concat())
    });
    for figure in ["pes", "messages"] {
        assert_eq!(theirs[figure], ours[figure]);
    }
    let calls = |shown: &serde_json::Value| -> Vec<(String, u64)> {
        let entries = shown["entries"].as_array().expect("a list").iter();
        let calls = entries.map(|e| (e["name"].to_string(), e["calls"].as_u64().expect("a number")));
        let mut calls: Vec<_> = calls.collect();
        calls.sort();
        calls
    };
    assert_eq!(calls(&theirs), calls(&ours));
    assert_eq!(theirs["processes"].as_array().map(Vec::len), Some(2));
    assert!(
        theirs["processes"][0].get("pid").is_none(),
        "an unknown number is absent: {}",
        theirs["processes"]
    );
    // the folder has one .sts file
    assert_eq!(json(&["timeline", "show", "--json", &file("")]), theirs);
    text(&["timeline", "report", sts, "-o", &file("report.html")]);
    text(&["timeline", "convert", sts, "--to", "timeline", "-o", &file("again.timeline")]);
    assert_eq!(json(&["timeline", "show", "--json", &file("again.timeline")]), theirs);
    fails(&["timeline", "show", sts, "--noise", noise], 2, "leave --noise out");
    // a record of another kind is counted, for people and on the way to another format
    let log = file("run.0.log");
    let whole = std::fs::read_to_string(&log).expect("a log");
    std::fs::write(&log, whole.replacen('\n', "\n26 7 0\n", 1)).expect("written");
    let note = "1 records of kinds that are not shown: 26";
    assert!(text(&["timeline", "show", sts]).contains(note));
    let convert = ["timeline", "convert", sts, "--to", "perfetto", "-o", &file("run.pftrace")];
    assert!(error(&colony().args(convert).output().expect("runs")).contains(note));
    std::fs::write(&log, &whole[..whole.len() - 3]).expect("written");
    fails(&["timeline", "show", sts], 1, "run.0.log: line ");
    std::fs::remove_file(&log).expect("there");
    fails(&["timeline", "show", sts], 1, "run.0.log: the log of PE 0 is missing");
}

#[test]
fn what_is_no_run_is_refused() {
    let dir = tempfile::tempdir().expect("temp dir");
    let [a, b, noise] = &sample(dir.path());
    let file = |name: &str| dir.path().join(name).to_str().expect("plain").to_owned();
    fails(&["timeline", "show"], 2, "FILE");
    fails(&["timeline", "show", "/no/such/file"], 1, "reading /no/such/file: No such file");
    fails(&["timeline", "show", noise], 1, "this is no time line");
    fails(&["timeline", "show", a, a], 2, "process 0 occurs twice");
    std::fs::write(file("cut.timeline"), &std::fs::read(a).expect("there")[..60_000]).expect("written");
    fails(&["timeline", "show", &file("cut.timeline")], 1, "it may be cut off");
    let mut other = std::fs::read(b).expect("there");
    let at = other.windows(8).position(|w| w == b"\"sample\"").expect("the build id");
    other[at + 1] = b'S';
    std::fs::write(file("other.timeline"), other).expect("written");
    fails(&["timeline", "show", a, &file("other.timeline")], 2, "files are of different runs: the build id");
    fails(&["timeline", "show", a, "--noise", "/no/trace"], 1, "/no/trace");
    fails(&["timeline", "convert", a, "--to", "projections", "-o", &file("x.log")], 1, ".sts");
    fails(&["timeline", "convert", a, "--to", "html", "-o", &file("x")], 2, "perfetto");
    fails(
        &["timeline", "convert", a, "--to", "timeline", "--noise", noise, "-o", &file("x")],
        2,
        "--to perfetto",
    );
    fails(&["timeline", "report", a, "-o", "/no/such/folder/x.html"], 1, "/no/such/folder/x.html");
    fails(&["timeline", "sample", noise], 1, "noise.parquet");
    assert!(!dir.path().join("x").exists());
}

#[test]
fn a_trace_of_a_host_that_is_not_of_the_run_is_refused_until_it_is_named() {
    let dir = tempfile::tempdir().expect("temp dir");
    let [a, b, _] = &sample(dir.path());
    let out = dir.path().join("here.parquet");
    let here = out.to_str().expect("plain");
    text(&["measure", "--duration", "20ms", "--cpus", "0", "--no-attribution", "--no-keep", "--out", here]);
    fails(&["timeline", "show", a, b, "--noise", here], 2, "--noise sample=");
    let named = colony()
        .args(["timeline", "show", a, b, "--noise", &format!("sample={here}")])
        .output()
        .expect("runs");
    assert!(named.status.success(), "{}", error(&named));
}
