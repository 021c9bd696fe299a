// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony bench`, as a user runs it, with MPI and without.

use crate::common::{alone, colony, copy, failed, fails, has_mpi, json, program, text};

#[test]
fn every_program_runs_on_two_ranks() {
    if !has_mpi() {
        return;
    }
    let _alone = alone();
    for name in ["barrier", "allreduce", "myallreduce", "alltoall", "ring", "glob", "bsp"] {
        let r = json(&["bench", name, "-n", "2", "--ops", "50", "--json"]);
        assert!(r["schema"].as_str().is_some_and(|s| s.starts_with("colony.bench")), "{r}");
        assert_eq!(r["ranks"], 2, "{name}");
    }
    text(&["bench", "allreduce", "-n", "2", "--ops", "50"]);
}

#[test]
fn the_result_is_kept_where_it_is_wanted() {
    if !has_mpi() {
        return;
    }
    let dir = tempfile::tempdir().expect("temp dir");
    let out = dir.path().join("r.json");
    let _alone = alone();
    text(&["bench", "ring", "-n", "2", "--ops", "50", "--out", out.to_str().expect("plain")]);
    let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(&out).expect("kept")).expect("JSON");
    assert_eq!(kept["ranks"], 2);
}

#[test]
fn absent_mpi_and_absent_programs_are_told_with_what_to_install() {
    let dir = tempfile::tempdir().expect("temp dir");
    // away from where cargo puts colony-bench
    let lonely = dir.path().join("colony");
    copy(&program(), &lonely);
    let run = |what: &str| {
        let mut command = assert_cmd::Command::new(what);
        command.args(["bench", "allreduce", "--ops", "10"]).env("PATH", "").env_remove("COLONY_MPIRUN");
        command
    };
    let lonely = lonely.to_str().expect("plain");
    let out = run(lonely).env("COLONY_BENCH", "/nonexistent").output().expect("runs");
    failed("no colony-bench", &out, 1, "/nonexistent");
    failed("no colony-bench", &out, 1, "cargo build -p colony-bench --features mpi");
    let out = run(lonely).env("COLONY_BENCH", "/bin/true").output().expect("runs");
    failed("no mpirun", &out, 1, "apt install openmpi-bin");
}

#[test]
fn a_launcher_that_is_none_is_told() {
    let dir = tempfile::tempdir().expect("temp dir");
    let lonely = dir.path().join("colony");
    copy(&program(), &lonely);
    let with_kind = |mpirun: &str, kind: &str| {
        let mut command = assert_cmd::Command::new(&lonely);
        command.args(["bench", "allreduce", "--ops", "10"]);
        command.env("COLONY_BENCH", "/bin/true").env("COLONY_MPIRUN", mpirun).env("COLONY_MPIRUN_KIND", kind);
        command.output().expect("runs")
    };
    let with = |mpirun: &str| with_kind(mpirun, "hydra");
    failed("unknown", &with_kind("/bin/true", ""), 1, "unknown MPI launcher /bin/true");
    failed("unknown kind", &with_kind("/bin/true", "lam"), 2, "COLONY_MPIRUN_KIND is `lam`");
    failed("not there", &with("/nonexistent"), 1, "/nonexistent ($COLONY_MPIRUN)");
    failed("not executable", &with("/etc/passwd"), 1, "/etc/passwd ($COLONY_MPIRUN)");
    failed("says nothing", &with("/bin/true"), 1, "holds no result of colony-bench");
    failed("fails", &with("/bin/false"), 1, "ended with exit status: 1");
}

#[test]
fn wrong_parameters_are_told_before_anything_starts() {
    for (args, part) in [
        (&["ring", "-n", "1"][..], "at least 2"),
        (&["allreduce", "-n", "0"], "at least 1"),
        (&["allreduce", "--ops", "0"], "at least 1"),
        (&["allreduce", "--seconds", "nan"], "above 0"),
        (&["allreduce", "--bytes", "7"], "multiple of 16"),
        (&["allreduce", "--detour", "16us", "--every", "10us"], "shorter than its interval"),
        (&["allreduce", "--period", "100ms", "--duty", "100%"], "no regular window"),
        (&["allreduce", "--timeline", "1ns"], "10us"),
        (&["allreduce", "--timeout", "0"], "--timeout"),
        (&["barrier", "--compare-c"], "only allreduce"),
        (&["bogus"], "bogus"),
    ] {
        fails(&[&["bench"], args].concat(), 2, part);
    }
    fails(&["bench", "allreduce", "--hostfile", "/nonexistent"], 1, "cannot read /nonexistent");
}

#[test]
fn a_run_that_takes_too_long_is_ended_with_its_ranks() {
    if !has_mpi() {
        return;
    }
    let _alone = alone();
    // a number of operations nobody else would ask for names the ranks
    let ops = (900_000_000 + u64::from(std::process::id())).to_string();
    let out = colony().args(["bench", "barrier", "--ops", &ops, "--timeout", "1"]).output().expect("runs");
    failed("a long run", &out, 1, "was not done after 1 s");
    let left = std::process::Command::new("ps").args(["-eo", "args"]).output().expect("ps");
    assert!(!String::from_utf8_lossy(&left.stdout).contains(&format!("--ops={ops}")), "ranks are left");
}
