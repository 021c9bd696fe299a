// SPDX-License-Identifier: MIT OR Apache-2.0
//! The examples: one result on any number of processes and PEs, real migration, errors of the command line.

use std::process::{Command, Output, Stdio};

use crate::common::example;

/// Ranks and PEs of each.
const PLACES: [(&str, &str); 5] = [("1", "1"), ("1", "3"), ("2", "1"), ("3", "1"), ("2", "2")];
const LB_TEST: [&str; 10] =
    ["--mesh", "6", "--iterations", "12", "--period", "4", "--bytes", "4000", "--work", "2000"];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(program: &str, (ranks, threads): (&str, &str), words: &[&str]) -> Output {
    let mut command = Command::new(example("run"));
    command.arg(ranks).arg(example(program)).args(words).args(["--threads", threads]);
    let output = command.stdin(Stdio::null()).output().expect("the launcher starts");
    assert!(output.status.success(), "{ranks} ranks of {threads} PEs: {}", text(&output.stderr));
    output
}

/// The line of standard output that contains `part`, on every place; it must be the same on all of them.
fn same_line(program: &str, words: &[&str], part: &str) -> String {
    let mut lines = PLACES.into_iter().map(|place| {
        let printed = text(&run(program, place, words).stdout);
        let mut found = printed.lines().filter(|line| line.contains(part)).map(str::to_owned);
        let line = found.next().unwrap_or_else(|| panic!("{place:?}: no `{part}` in {printed}"));
        assert_eq!(found.next(), None, "{place:?}: {printed}");
        line
    });
    let first = lines.next().expect("a place");
    lines.for_each(|line| assert_eq!(line, first));
    first
}

/// Objects moved and the imbalance before each load balancing, in a report.
fn balancings(report: &str) -> Vec<(u64, f64)> {
    let number = |line: &str, before: &str, after: &str| -> f64 {
        let rest = line.split(before).nth(1).and_then(|rest| rest.split(after).next());
        rest.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    };
    let lines = report.lines().filter(|line| line.starts_with("balancing "));
    lines.map(|l| (number(l, " moved ", " objects") as u64, number(l, "imbalance ", " -> "))).collect()
}

#[test]
fn lb_test_has_one_checksum_whatever_migrates() {
    let mut checksums = Vec::new();
    for strategy in ["greedy-refine", "rotate", "random", "none"] {
        checksums.push(same_line("lb_test", &[&LB_TEST[..], &["--strategy", strategy]].concat(), "checksum"));
    }
    assert!(checksums[0].starts_with("36 objects") && checksums.iter().all(|c| *c == checksums[0]));
    // other state, other checksum
    let mut other = LB_TEST;
    other[7] = "4008";
    assert_ne!(same_line("lb_test", &other, "checksum"), checksums[0]);
}

#[test]
fn lb_test_migrates_objects_and_lowers_the_imbalance() {
    for place in PLACES {
        let report =
            text(&run("lb_test", place, &[&LB_TEST[..], &["--strategy", "greedy-refine"]].concat()).stdout);
        let balancings = balancings(&report);
        let [(moved, before), .., (_, last)] = balancings[..] else { panic!("{report}") };
        if place == PLACES[0] {
            assert_eq!(balancings, [(0, 1.0), (0, 1.0)]);
            continue;
        }
        assert!(moved > 0 && before > 1.4 && last < before, "{place:?}: {report}");
    }
    let rotated =
        text(&run("lb_test", ("3", "1"), &[&LB_TEST[..], &["--strategy", "rotate"]].concat()).stdout);
    assert!(balancings(&rotated).iter().all(|(moved, _)| *moved == 36), "{rotated}");
    let none = text(&run("lb_test", ("2", "1"), &[&LB_TEST[..], &["--strategy", "none"]].concat()).stdout);
    assert_eq!(balancings(&none), []);
}

#[test]
fn the_environment_chooses_the_strategy_and_records_load_databases() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |strategy: &str, prefix: &str| {
        let mut command = Command::new(example("run"));
        command.arg("2").arg(example("lb_test")).args(LB_TEST).args(["--strategy", "none"]);
        command.env("COLONY_BALANCE", strategy).env("COLONY_BALANCE_RECORD", folder.path().join(prefix));
        command.stdin(Stdio::null()).output().expect("the launcher starts")
    };
    let rotated = run("rotate", "rotated");
    let report = text(&rotated.stdout);
    assert!(balancings(&report).iter().all(|(moved, _)| *moved == 36), "{report}");
    assert!(report.contains(&same_line("lb_test", &LB_TEST, "checksum")), "{report}");
    for iteration in [0, 1] {
        let name = format!("rotated.{iteration}.json");
        let bytes = std::fs::read(folder.path().join(&name)).expect("a load database");
        let database = colony_balance::file::read(&[(name, bytes)], None).expect("one of ours").database;
        assert_eq!((database.pes().len(), database.objects(), database.edges().len()), (2, 36, 4 * 36));
        // one message to each neighbour in each of the 4 iterations
        assert!(database.edges().iter().all(|e| e.messages == 4 && e.bytes > 0), "{:?}", database.edges());
    }
    let file = folder.path().join("wrong.toml");
    std::fs::write(&file, "schema = \"colony.balance/1\"\n[[phase]]\nstrategy = \"greedy\"\n").expect("room");
    let missing = folder.path().join("no/prefix").display().to_string();
    for (strategy, prefix, part) in [
        ("gredy", "a", "COLONY_BALANCE: there is no strategy `gredy`"),
        (&file.display().to_string(), "a", "trigger"),
        ("/nowhere", "a", "COLONY_BALANCE: cannot read /nowhere"),
        ("greedy", &missing, "cannot write the load database"),
    ] {
        let output = run(strategy, prefix);
        let errors = text(&output.stderr);
        assert!(errors.contains(part) && output.status.code() != Some(0), "{strategy}: {errors}");
        assert_eq!(errors.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{errors}");
    }
}

#[test]
fn no_particle_is_lost_and_none_depends_on_the_number_of_pes() {
    let small = ["--boxes", "5", "--steps", "12", "--period", "3", "--density", "60"];
    let line = same_line("particles", &small, "particles");
    for strategy in ["rotate", "none"] {
        assert_eq!(
            same_line("particles", &[&small[..], &["--strategy", strategy]].concat(), "particles"),
            line
        );
    }
    let count: u64 = line.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    assert!(count > 200, "{line}");
    // boxes that are their own neighbours
    same_line("particles", &["--boxes", "1", "--steps", "4", "--density", "20"], "20 particles");
    same_line("particles", &["--boxes", "2", "--steps", "4", "--density", "20"], "particles");
}

#[test]
fn particles_collide_and_the_cloud_takes_the_load_with_it() {
    let output = run("particles", ("2", "1"), &["--boxes", "8", "--steps", "30", "--density", "150"]);
    let moved: Vec<_> = balancings(&text(&output.stderr)).into_iter().map(|(moved, _)| moved).collect();
    assert_eq!(moved.len(), 5);
    assert!(moved.iter().filter(|moved| **moved > 0).count() > 1, "{moved:?}");
}

#[test]
fn jacobi_converges_to_the_same_bits() {
    let line = same_line("jacobi", &["--cells", "16", "--strips", "5", "--tolerance", "1e-3"], "iterations");
    let mean: f64 = line.rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    // by symmetry, the mean of the solution is a quarter
    assert!((0.2..0.25).contains(&mean), "{line}");
    let limited = ["--cells", "16", "--strips", "16", "--tolerance", "0", "--iterations", "7"];
    assert!(same_line("jacobi", &limited, "iterations").starts_with("7 iterations, "));
    same_line("jacobi", &["--cells", "3", "--strips", "1"], "iterations");
}

#[test]
fn messages_between_objects_that_migrate_arrive_once_and_in_order() {
    let words = ["--messages", "100000", "--objects", "20", "--migrate", "50"];
    let line = same_line("delivery", &words, "messages");
    assert!(line.starts_with("100000 messages, each once and in order, checksum "), "{line}");
    let report = text(&run("delivery", ("3", "1"), &words).stderr);
    let migrations: u64 = report.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    assert!(migrations > 500, "{report}");
    // other messages, other checksum; fewer messages than may be under way
    assert_ne!(same_line("delivery", &[&words[..], &["--seed", "2"]].concat(), "messages"), line);
    same_line("delivery", &["--messages", "3"], "3 messages");
}

#[test]
fn wrong_arguments_are_one_error_and_exit_code_2() {
    for (program, words, part) in [
        ("lb_test", &["--strategy", "gredy"][..], "known are greedy, greedy-refine"),
        ("lb_test", &["--strategy", "refine:tolerence=2"], "tolerance"),
        ("lb_test", &["--mesh", "0"], "--mesh is `0`, not a number from 1 to 1024"),
        ("lb_test", &["--period", "often"], "--period is `often`"),
        ("lb_test", &["8"], "unknown argument `8`; usage: lb_test [--mesh N]"),
        ("lb_test", &["--mesh"], "--mesh has no value"),
        ("lb_test", &["--mesh", "2", "--mesh", "3"], "--mesh is given twice"),
        ("particles", &["--density", "-1"], "--density is `-1`, not a number from 0"),
        ("particles", &["--mesh", "2"], "unknown argument `--mesh`; usage: particles [--boxes N]"),
        ("jacobi", &["--tolerance", "nan"], "--tolerance is `nan`, not a number from 0 to 1"),
        ("jacobi", &["--cells", "4", "--strips", "5"], "--strips is `5`, not a number from 1 to 4"),
        ("jacobi", &["--threads", "0"], "--threads is `0`"),
        ("delivery", &["--messages", "0"], "--messages is `0`, not a number from 1 to"),
        ("delivery", &["--strategy", "none"], "unknown argument `--strategy`"),
    ] {
        let alone = Command::new(example(program)).args(words).output().expect("starts");
        let launched = Command::new(example("run")).arg("2").arg(example(program)).args(words).output();
        for output in [alone, launched.expect("starts")] {
            let errors = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{program} {words:?}: {errors}");
            assert!(errors.starts_with("error: ") && errors.contains(part), "{program} {words:?}: {errors}");
            assert_eq!(
                (errors.lines().count(), output.stdout.len()),
                (1, 0),
                "{program} {words:?}: {errors}"
            );
        }
    }
}

#[test]
fn elements_inserted_while_a_round_ends_resume_at_its_end() {
    let medley = |ranks: u32, checkpoints: &str| {
        let mut command = Command::new(example("run"));
        command.arg(ranks.to_string()).arg(example("medley")).arg("60").stdin(Stdio::null());
        command.env("COLONY_CHECKPOINT", checkpoints).env("RUN_RESTARTS", "1");
        // a rank that the host does not run for a while is not dead
        let output = command.env("RUN_TIMEOUT", "60").output().expect("the launcher starts");
        let shown = format!("{ranks} ranks, {checkpoints}: {}", text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{shown}");
        text(&output.stdout)
    };
    let expected = medley(1, "none");
    assert!(expected.starts_with("medley "), "{expected}");
    for ranks in 3..=6 {
        for checkpoints in ["memory:same-machine", "none"] {
            assert_eq!(medley(ranks, checkpoints), expected, "{ranks} ranks, {checkpoints}");
        }
    }
}
