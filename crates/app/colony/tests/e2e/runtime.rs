// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony runtime`: ranks listed, requests refused, the health of the host. The runtime's own tests evacuate ranks.

use std::process::{Command, Output};

use crate::common::{colony, error, fails, is_plain, program};

/// Runs a line of shell as the only rank of a job.
fn as_rank(line: &str) -> Output {
    let launch = ["launch", "-n", "1", "--", "/bin/sh", "-c", line];
    Command::new(program()).args(launch).env("COLONY", program()).output().expect("runs")
}

#[test]
fn a_rank_is_listed_with_its_launcher_and_what_it_starts_is_no_rank() {
    let out = as_rank("\"$COLONY\" runtime ranks --json; echo $PPID $$ >&2");
    assert!(out.status.success(), "{}", error(&out));
    let ranks: Vec<serde_json::Value> = serde_json::from_slice(&out.stdout).expect("JSON");
    let ids: Vec<i64> = error(&out).split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let [launcher, pid] = ids[..] else { panic!("{ids:?}") };
    // other tests start jobs too
    let own: Vec<_> = ranks.iter().filter(|rank| rank["launcher"] == launcher).collect();
    assert_eq!(own.len(), 1, "{ranks:?}");
    assert_eq!((&own[0]["rank"], &own[0]["pid"]), (&0.into(), &pid.into()));
}

#[test]
fn a_rank_that_would_die_of_the_request_gets_none() {
    for action in ["evacuate", "readmit"] {
        let out = as_rank(&format!("\"$COLONY\" runtime {action} 0 --job $PPID"));
        assert_eq!(out.status.code(), Some(2), "{}", error(&out));
        assert!(error(&out).contains("does not handle SIGUSR"), "{}", error(&out));
    }
}

#[test]
fn ranks_that_do_not_run_are_refused() {
    fails(
        &["runtime", "evacuate", "4294967295"],
        2,
        "no rank 4294967295 of a job of this user runs on this host",
    );
    fails(&["runtime", "readmit", "0", "--job", "1"], 2, "no rank 0");
    fails(&["launch", "-n", "2", "--slurm", "--restarts", "1", "--", "/bin/true"], 2, "--restarts");
}

#[test]
fn a_job_that_does_not_run_is_not_resized() {
    for action in ["grow", "shrink"] {
        let why = "no job of this user has been started on this host by process 1";
        fails(&["runtime", action, "2", "--job", "1"], 2, why);
        fails(&["runtime", action, "0"], 2, "0 is not in 1..");
    }
}

#[test]
fn the_health_of_the_host_is_shown_and_listed_with_its_ranks() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("health.json");
    let run = |args: &[&str]| colony().args(args).env("COLONY_HEALTH", &file).output().expect("runs");
    let failed = |part: &str| {
        let out = run(&["runtime", "health"]);
        assert_eq!(out.status.code(), Some(1), "{}", error(&out));
        assert!(error(&out).contains(part) && error(&out).contains("health.json"), "{}", error(&out));
    };
    failed("is colonyd running?");
    std::fs::write(&file, "{}").expect("room");
    failed("is no health file");
    let reason = r#"{"source": "edac", "text": "mc0 fails", "since_unix_ns": 0}"#;
    let text = format!(r#"{{"schema": "colony.health/1", "state": "warning", "reasons": [{reason}]}}"#);
    std::fs::write(&file, text).expect("room");
    let shown = String::from_utf8(run(&["runtime", "health"]).stdout).expect("text");
    is_plain(&shown);
    // a long path is on a line of its own
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.starts_with("this node may fail (") && shown.contains("edac: mc0 fails, for "), "{shown}");
    let json = run(&["runtime", "health", "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!((&json["state"], &json["reasons"][0]["source"]), (&"warning".into(), &"edac".into()));
    for (value, expected) in [(file.to_str().expect("text"), "warning"), ("none", "not watched")] {
        let line = format!("COLONY_HEALTH={value} \"$COLONY\" runtime ranks --json");
        let ranks: serde_json::Value = serde_json::from_slice(&as_rank(&line).stdout).expect("JSON");
        assert_eq!(ranks[0]["host"], expected, "{ranks}");
    }
    let out = colony().args(["runtime", "health"]).env("COLONY_HEALTH", "none").output().expect("runs");
    assert_eq!(out.status.code(), Some(2), "{}", error(&out));
}
