// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs over the window of compute nodes; here the ranks are processes of Linux.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use colony_bench::{BenchResult, Program};

const BENCH: &str = env!("CARGO_BIN_EXE_colony-bench-cnk");

fn bench(args: &[&str]) -> Output {
    let _cpus = crate::share_cpus();
    Command::new(BENCH).args(args).env("COLONY_TORUS_TIMEOUT", "120").output().expect("it was built")
}

fn result(args: &[&str]) -> BenchResult {
    let output = bench(&[args, &["--json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {said}");
    BenchResult::parse(&String::from_utf8_lossy(&output.stdout), "colony-bench-cnk").expect("a result")
}

#[test]
fn every_program_counts_every_operation_and_computes_rightly() {
    for program in Program::ALL {
        for ranks in ["2", "3", "5"] {
            let mut args = vec!["--ranks", ranks, program.name(), "--ops", "200", "--warmup", "5"];
            if program == Program::Bsp {
                args.extend(["--work", "20us"]);
            }
            let r = result(&args);
            assert_eq!(r.ranks.to_string(), ranks);
            assert!(r.mpi.library.starts_with("Colony torus"), "{}", r.mpi.library);
            for m in &r.results {
                assert_eq!((m.ops, m.wrong), (200, 0), "{program:?}");
                assert_eq!(m.all.count, 200 * u64::from(m.ranks));
                assert!((0..m.ranks).eq(m.per_rank.iter().map(|r| r.rank)));
            }
            assert_eq!(r.whole().expect("one").work.is_some(), program == Program::Bsp);
        }
    }
}

#[test]
fn long_vectors_are_computed_rightly() {
    for program in ["allreduce", "myallreduce", "alltoall", "ring"] {
        let r = result(&["--ranks", "4", program, "--ops", "10", "--warmup", "2", "--bytes", "48000"]);
        assert_eq!(r.whole().expect("one").wrong, 0, "{program}");
    }
}

#[test]
fn glob_covers_every_power_of_two() {
    let r = result(&["--ranks", "5", "glob", "--ops", "40", "--warmup", "2"]);
    assert_eq!(r.results.iter().map(|m| m.ranks).collect::<Vec<_>>(), [2, 4]);
}

#[test]
fn the_result_file_is_the_result_and_the_table_is_printed() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("r.json");
    let path = file.to_str().expect("plain");
    let output = bench(&["--ranks=2", "barrier", "--ops", "100", "--out", path]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && table.starts_with("barrier: 2 ranks"), "{table}");
    let read = BenchResult::read(&file).expect("written");
    assert_eq!(read.whole().expect("one").ops, 100);
}

#[test]
fn wrong_use_is_exit_2_with_the_reason() {
    for (args, word) in [
        (&["--ranks", "1", "ring"][..], "at least 2"),
        (&["--ranks", "0", "barrier"], "--ranks"),
        (&["--ranks", "2", "allreduce", "--ops", "0"], "--ops"),
        (&["--ranks", "2", "allreduce", "--compare-c", "--ops", "5"], "--compare-c"),
        (&["barrier"], "COLONY_TORUS"),
    ] {
        let output = bench(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(word), "{args:?}: {said}");
    }
}

/// The ranks that a launcher started.
fn children(launcher: u32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children"));
    text.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn until(condition: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "{condition} did not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // a zombie that nobody has asked for yet is not running
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// A run that does not end by itself; ended with the test.
struct Endless(std::process::Child);

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn endless() -> Endless {
    let child = Command::new(BENCH)
        .args(["--ranks", "3", "barrier", "--seconds", "1000"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("it was built");
    until("the start of all ranks", || children(child.id()).len() == 3);
    Endless(child)
}

#[test]
fn a_killed_rank_ends_the_others_and_the_run_fails() {
    let _cpus = crate::share_cpus();
    let mut run = endless();
    let ranks = children(run.0.id());
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(ranks[1]), nix::sys::signal::Signal::SIGKILL)
        .expect("ours");
    let start = Instant::now();
    let status = loop {
        if let Some(status) = run.0.try_wait().expect("ours") {
            break status;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "the run goes on");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(1));
    assert!(ranks.iter().all(|&pid| !is_running(pid)));
}

#[test]
fn a_killed_launcher_leaves_no_rank_behind() {
    let _cpus = crate::share_cpus();
    let mut run = endless();
    let ranks = children(run.0.id());
    // a moment in which the ranks ask to be ended with it
    std::thread::sleep(Duration::from_millis(300));
    run.0.kill().and_then(|()| run.0.wait().map(drop)).expect("ours");
    until("the end of all ranks", || ranks.iter().all(|&pid| !is_running(pid)));
}
