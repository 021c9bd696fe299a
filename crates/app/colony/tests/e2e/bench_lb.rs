// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony bench lb`: objects that really migrate, with every strategy, and its ends.

use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{error, fails, json, program, text, until};

/// A comparison of some ms.
const SMALL: [&str; 14] = [
    "bench",
    "lb",
    "--mesh",
    "6",
    "--bytes",
    "4KiB",
    "--work",
    "2000",
    "--iterations",
    "12",
    "--period",
    "3",
    "--repeat",
    "1",
];

fn small(more: &[&str]) -> serde_json::Value {
    json(&[&SMALL, more, &["--json"]].concat())
}

/// The runs of a result.
fn runs(result: &serde_json::Value) -> &[serde_json::Value] {
    result["runs"].as_array().expect("runs")
}

/// The run of a program with a strategy.
fn run<'a>(result: &'a serde_json::Value, program: &str, strategy: &str) -> &'a serde_json::Value {
    let found = runs(result).iter().find(|r| r["program"] == program && r["strategy"] == strategy);
    found.unwrap_or_else(|| panic!("{program} with {strategy}: {result}"))
}

#[test]
fn objects_really_migrate_and_the_result_stays_the_same() {
    let result = small(&["--strategy", "none,greedy,greedy-refine,rotate"]);
    assert_eq!(result["schema"], "colony.bench.lb/1");
    assert_eq!(runs(&result).len(), 8);
    for program in ["lb-test", "stencil"] {
        let none = run(&result, program, "none");
        assert_eq!((none["moved"].as_u64(), none["bytes_moved"].as_u64()), (Some(0), Some(0)), "{none}");
        for run in runs(&result).iter().filter(|r| r["program"] == program) {
            assert_eq!(run["checksum"], none["checksum"], "{run}");
            assert_eq!(run["stretches"].as_array().map(Vec::len), Some(4), "{run}");
            let balancings = run["balancings"].as_array().expect("balancings");
            assert_eq!(balancings.len(), 3, "{run}");
            // what strategies decided is what arrived, object by object
            let decided: u64 = balancings.iter().filter_map(|b| b["moved"].as_u64()).sum();
            assert_eq!(run["moved"], decided, "{run}");
            assert_eq!(run["bytes_moved"], decided * 4096, "{run}");
        }
        // every object goes to the other of two PEs, three times
        assert_eq!(run(&result, program, "rotate")["moved"], 36 * 3);
        assert!(run(&result, program, "greedy")["moved"].as_u64() > Some(0), "{result}");
    }
    let checksum = |program| &run(&result, program, "none")["checksum"];
    assert_ne!(checksum("lb-test"), checksum("stencil"));
}

#[test]
fn a_strategy_expects_less_imbalance_than_it_found() {
    let result = small(&["--program", "lb-test", "--strategy", "none,greedy-refine"]);
    let first = &run(&result, "lb-test", "greedy-refine")["balancings"][0];
    let expected = |at: usize| first["expected"][at].as_f64().expect("a ratio");
    assert!(expected(1) < expected(0), "{first}");
    assert!(run(&result, "lb-test", "none")["balancings"][0]["expected"].is_null(), "{result}");
}

#[test]
fn the_checksum_depends_on_the_seed_and_not_on_processes_and_threads() {
    let sum = |more: &[&str]| {
        let result = small(&[&["--strategy", "greedy"], more].concat());
        runs(&result).iter().map(|r| r["checksum"].as_str().expect("text").to_owned()).collect::<Vec<_>>()
    };
    let two = sum(&[]);
    assert_eq!(two, sum(&["-n", "1"]));
    assert_eq!(two, sum(&["-n", "1", "--threads", "3"]));
    assert_eq!(two, sum(&["-n", "3", "--threads", "2"]));
    assert_ne!(two, sum(&["--seed", "2"]));
}

#[test]
fn the_table_has_a_row_for_each_strategy_and_says_what_was_not_seen() {
    let dir = tempfile::tempdir().expect("temp dir");
    let out = dir.path().join("lb.json");
    let table = text(&[&SMALL[..], &["--out", out.to_str().expect("plain")]].concat());
    for name in ["none ", "greedy ", "greedy-refine ", "refine ", "hybrid "] {
        assert_eq!(table.lines().filter(|l| l.starts_with(name)).count(), 2, "{name}: {table}");
    }
    assert_eq!(table.matches("the same in 5 runs").count(), 2, "{table}");
    let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(&out).expect("kept")).expect("JSON");
    assert_eq!((runs(&kept).len(), &kept["params"]["mesh"]), (10, &6.into()));
    // one stretch: nothing is balanced, and nothing is compared
    let table =
        text(&[&SMALL[..8], &["--iterations", "2", "--strategy", "greedy", "--program", "lb-test"]].concat());
    assert!(table.contains("–: not seen"), "{table}");
}

#[test]
fn wrong_use_says_what_is_possible_and_starts_nothing() {
    let wrong = |args: &[&str], part: &str| fails(&[&["bench", "lb"], args].concat(), 2, part);
    wrong(&["-n", "0"], "-n is 0; choose 1 to 4096");
    wrong(&["-n", "many"], "many");
    wrong(&["--threads", "0"], "--threads is 0");
    wrong(&["--mesh", "0"], "--mesh is 0; choose 1 to 1024");
    wrong(&["--mesh", "2", "-n", "5"], "each PE needs at least one");
    wrong(&["--bytes", "0"], "--bytes is 0");
    wrong(&["--bytes", "512kb"], "512KiB");
    wrong(&["--mesh", "1024", "--bytes", "1GiB"], "of memory");
    wrong(&["--iterations", "0"], "--iterations is 0");
    wrong(&["--period", "0"], "--period is 0");
    wrong(&["--repeat", "0"], "--repeat is 0");
    wrong(&["--strategy", "gredy"], "known are greedy");
    wrong(&["--strategy", "refine:tolerence=2"], "tolerance");
    wrong(&["--strategy", ""], "there is no strategy");
    wrong(&["--program", "ring"], "lb-test");
    wrong(&["--ops", "5"], "--ops");
    fails(&["bench", "lb", "--out", "/nonexistent/x.json"], 1, "/nonexistent");
    // options of the MPI programs do not go with it
    fails(&["bench", "--ops", "5", "lb"], 2, "lb");
    fails(&["bench"], 2, "<PROGRAM>");
}

/// The command with a run that lasts until it is ended, and the ranks that it has started.
fn running() -> (Child, Vec<Pid>) {
    // a shell that starts tests in the background has them ignore Ctrl-C
    let mut command = Command::new("env");
    command.arg("--default-signal=INT,TERM").arg(program());
    command.args(["bench", "lb", "--iterations", "100000", "--work", "1000000", "--program", "lb-test"]);
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let path = format!("/proc/{0}/task/{0}/children", child.id());
    let mut ranks = Vec::new();
    until("two ranks", || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        ranks = text.split_whitespace().filter_map(|p| p.parse().ok().map(Pid::from_raw)).collect();
        // they are ranks once they are this program with that argument
        ranks.len() == 2
            && ranks.iter().all(|r| {
                let line = std::fs::read_to_string(format!("/proc/{r}/cmdline")).unwrap_or_default();
                line.contains("--colony-bench-lb-rank")
            })
    });
    (child, ranks)
}

fn wait_until_gone(ranks: Vec<Pid>) {
    for rank in ranks {
        until("the end of a rank", || {
            let stat = std::fs::read_to_string(format!("/proc/{rank}/stat")).unwrap_or_default();
            matches!(stat.rsplit(") ").next().unwrap_or_default().chars().next(), None | Some('Z' | 'X'))
        });
    }
}

#[test]
fn no_rank_outlives_the_command_whichever_signal_ends_it() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGKILL] {
        let (mut child, ranks) = running();
        kill(Pid::from_raw(child.id().cast_signed()), signal).expect("it runs");
        assert!(!child.wait().expect("it ends").success());
        wait_until_gone(ranks);
    }
}

#[test]
fn a_killed_rank_ends_the_command_with_one_error() {
    let (child, ranks) = running();
    kill(ranks[1], Signal::SIGKILL).expect("it runs");
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(out.status.code(), Some(1), "{}", error(&out));
    let errors: Vec<String> =
        error(&out).lines().filter(|l| l.starts_with("error:")).map(str::to_owned).collect();
    assert_eq!(errors, ["error: rank 1 was killed by signal 9; the job ends"]);
    assert!(out.stdout.is_empty());
    wait_until_gone(ranks);
}
