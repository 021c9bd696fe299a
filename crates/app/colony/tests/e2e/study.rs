// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony study`, as a user runs it.

use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::{
    Owned, Public, alone, colony, error, fails, has_mpi, is_plain, json, program, text, until,
};

#[test]
fn every_experiment_is_listed_for_people_and_programs() {
    let list = text(&["study", "--list"]);
    let all = json(&["study", "--list", "--json"]);
    let all = all["experiments"].as_array().expect("a list");
    assert!(all.len() >= 10 && all.iter().all(|e| list.contains(e["name"].as_str().expect("a name"))));
}

#[test]
fn arithmetic_and_projections_are_shown_beside_what_was_published() {
    let shown = text(&["study", "noise-level", "cycles", "anl-ring", "bsp-noise"]);
    for word in ["published", "ours", "noise-level", "period 0xffffffff"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    assert_eq!(json(&["study", "cycles", "--json"])["name"], "cycles");
    assert_eq!(json(&["study", "cycles", "noise-level", "--json"])[1]["name"], "noise-level");
}

#[test]
fn wrong_wishes_are_told_before_anything_runs() {
    for (args, code, part) in [
        (&["fig55"][..], 2, "did you mean `fig5`"),
        (&["cycles", "nope"], 2, "--list"),
        (&["--faster", "0"], 2, "1 to 1000"),
        (&["--faster", "nan"], 2, "1 to 1000"),
        (&["--period", "0"], 2, "not possible"),
        (&["--period", "1us"], 2, "limits"),
        (&["--duty", "100%"], 2, "no regular window"),
        (&["--nodes", "0"], 2, "1024,16384"),
        (&["--nodes", "18446744073709551615"], 2, "1024,16384"),
        (&["--nodes", "many"], 2, "many"),
        (&["--cpus", "900"], 2, "no such CPU"),
        (&["--list", "fig4"], 2, "--list"),
        (&["--out", "/etc/passwd"], 1, "choose another folder"),
    ] {
        fails(&[&["study"], args].concat(), code, part);
    }
}

/// Checks of both files that hold for every user who runs the study.
fn check(folder: &Path) -> Value {
    let results: Value =
        serde_json::from_slice(&std::fs::read(folder.join("results.json")).expect("written")).expect("JSON");
    assert!(results["schema"].as_str().is_some_and(|s| s.starts_with("colony.study/")), "{results}");
    assert!(results["headline"].as_str().is_some_and(|h| !h.is_empty()));
    assert!(!results["scaling"]["curves"].as_array().expect("a list").is_empty());
    let html = std::fs::read_to_string(folder.join("report.html")).expect("written");
    assert!(
        html.trim_end().ends_with("</html>") && !html.contains("src=\"http"),
        "whole, and self-contained"
    );
    results
}

#[test]
fn the_whole_study_measures_projects_and_reports() {
    let dir = tempfile::tempdir().expect("temp dir");
    let folder = dir.path().join("made/if/missing");
    let _alone = alone();
    let args = ["study", "--faster", "20", "--nodes", "1024,16384", "--out"];
    let out = colony().args(args).arg(&folder).output().expect("runs");
    assert!(out.status.success(), "{}", error(&out));
    let table = String::from_utf8(out.stdout).expect("text");
    is_plain(&table);
    assert!(table.contains("unmodified") || !has_mpi(), "{table}");
    let results = check(&folder);
    let first = ["stolen", "worst source", "on 16,384 nodes", "What to change"];
    let places: Vec<_> = first.iter().map(|text| table.find(text)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{table}");
    assert!(table.find(first[3]) < table.find("published experiments"), "{table}");
    assert!(results["card"]["doctor"]["noise"]["all"]["share"].as_f64() > Some(0.0), "{}", results["card"]);
    let cells = results["allreduce"].as_array().expect("a list").len();
    let real_time = results["privileges"]["real_time"] == true;
    // a cell that other programs disturbed is struck out, and the reason says so
    let missing = results["missing"].as_array().expect("a list");
    let is_struck_out = |m: &&serde_json::Value| {
        m["figure"] == "allreduce"
            && m["reason"].as_str().is_some_and(|why| why.contains("of the job's CPUs meanwhile"))
    };
    let struck_out = missing.iter().filter(is_struck_out).count();
    assert!(
        !has_mpi() || cells + struck_out == if real_time { 6 } else { 3 },
        "{missing:?} {}",
        results["not_done"]
    );
    opens_without_errors(&folder.join("report.html"));
}

/// Opens the report in a browser, where there is one.
fn opens_without_errors(page: &Path) {
    let Some(browser) = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|b| Command::new(b).arg("--version").output().is_ok_and(|o| o.status.success()))
    else {
        colony_testing::skip("the report is not opened: there is no Chromium here");
        return;
    };
    let profile = tempfile::tempdir().expect("temp dir");
    let out = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("runs");
    let log = error(&out);
    assert!(out.status.success(), "{log}");
    assert!(!log.lines().any(|l| l.contains("CONSOLE")), "{log}");
    assert!(String::from_utf8_lossy(&out.stdout).contains("<canvas"), "nothing is drawn");
}

#[test]
fn without_privileges_the_study_works_and_says_what_it_could_not_do() {
    let Some(public) = Public::new() else { return };
    let _alone = alone();
    let out = public
        .colony()
        .args(["study", "--faster", "40", "--nodes", "1024", "--out", "mine"])
        .output()
        .expect("runs");
    assert!(out.status.success(), "{}", error(&out));
    let said = String::from_utf8_lossy(&out.stdout);
    is_plain(&said);
    assert!(said.contains("left out:") && said.contains("CAP_"), "{said}");
    let results = check(&public.folder().join("mine"));
    assert!(!results["not_done"].as_array().expect("a list").is_empty());
}

#[test]
fn a_study_that_is_ended_leaves_no_temporary_files() {
    let tmp = tempfile::tempdir().expect("temp dir");
    let out = tmp.path().join("study");
    let mut run = Command::new(program());
    run.args(["study", "--out"]).arg(&out).env("TMPDIR", tmp.path());
    let mut run = Owned(run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts"));
    let scratch = || {
        let entries = std::fs::read_dir(tmp.path()).expect("there");
        entries.flatten().any(|e| e.file_name().to_string_lossy().starts_with("colony-study-"))
    };
    until("its temporary files", scratch);
    // its handler is in place just after them
    std::thread::sleep(std::time::Duration::from_millis(300));
    kill(Pid::from_raw(run.0.id().cast_signed()), Signal::SIGTERM).expect("ours");
    until("its end", || run.0.try_wait().expect("ours").is_some());
    assert!(!scratch(), "temporary files are left");
}
