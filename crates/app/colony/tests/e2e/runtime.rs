// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony runtime`: ranks listed, requests refused. The runtime's own tests evacuate ranks.

use std::process::{Command, Output};

use crate::common::{error, fails, program};

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
