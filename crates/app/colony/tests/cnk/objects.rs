// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs of objects, which exchange messages between nodes.

use std::path::Path;
use std::process::Command;

use colony_nodes::Machine;
use colony_nodes::ciod::{End, JobSpec, LOST, Mode, Program};

use crate::common::{Ran, boot, folder, programs, run, spec};

const STENCIL: [&str; 3] = ["16", "4", "6"];
const LB_TEST: [&str; 10] =
    ["--mesh", "6", "--iterations", "12", "--period", "4", "--bytes", "40000", "--work", "2000"];

/// A job on the first `ranks` nodes.
fn on(ranks: u32, program: &Path, folder: &Path, words: &[&str]) -> JobSpec {
    let mut job = spec(program, folder, words);
    job.processes = Some(ranks);
    job
}

/// The first line of what the program prints as one process on Linux.
fn alone(program: &Path, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    first_line(&String::from_utf8_lossy(&output.stdout))
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn programs_of_objects_have_on_nodes_the_result_of_one_process() {
    let Some([stencil, lb_test]) = programs(["stencil", "lb_test"]) else { return };
    let place = folder();
    let mut partition = boot(Machine::default(), 4);
    let sum = alone(&stencil, &STENCIL);
    assert!(sum.starts_with("sum of all cells: "), "{sum}");
    for ranks in [2, 4] {
        let ran = run(&mut partition, on(ranks, &stencil, place.path(), &STENCIL));
        assert_eq!(first_line(ran.output()), sum, "{ranks} nodes");
    }
    let checksum = alone(&lb_test, &LB_TEST);
    for (ranks, mode) in [(2, Mode::Coprocessor), (4, Mode::VirtualNode)] {
        let mut job = on(ranks, &lb_test, place.path(), &LB_TEST);
        job.mode = mode;
        let ran = run(&mut partition, job);
        assert_eq!(first_line(ran.output()), checksum, "{ranks} processes, {mode:?}");
        let balancings: Vec<_> = ran.stdout.lines().filter(|line| line.starts_with("balancing ")).collect();
        assert_eq!(balancings.len(), 2, "{}", ran.stdout);
        assert!(!balancings[0].contains(" moved 0 objects"), "{}", ran.stdout);
    }
}

/// The only process that failed by itself; all others ended because of it, and standard error has one error.
fn only_failure(ran: &Ran, ranks: usize) -> (u32, End) {
    let processes = &ran.outcome.processes;
    assert_eq!(processes.len(), ranks, "{}", ran.outcome);
    let causes: Vec<_> = ran.outcome.causes().collect();
    let [cause] = causes[..] else { panic!("{}\n{}", ran.outcome, ran.stderr) };
    let lost = processes.iter().filter(|p| p.end == End::Exited(LOST)).count();
    assert_eq!(lost, ranks - 1, "{processes:?}");
    let errors = ran.stderr.lines().filter(|line| line.starts_with("error: ")).count();
    assert!(errors <= 1, "{}", ran.stderr);
    (cause.rank, cause.end.clone())
}

#[test]
fn a_rank_that_fails_ends_the_job_on_all_nodes_with_one_error() {
    let Some([ring, busybox]) = programs(["ring", "busybox"]) else { return };
    let place = folder();
    let mut partition = boot(Machine::default(), 3);
    let ran = run(&mut partition, on(3, &ring, place.path(), &["1000", "--fail", "1"]));
    assert_eq!(only_failure(&ran, 3), (1, End::Exited(1)));
    assert!(
        ran.stderr.contains("error: the entry method Token of Node 1 panicked: PE 1 fails"),
        "{}",
        ran.stderr
    );
    assert_eq!(ran.outcome.code(), 1);

    // a rank that never joins, and one that is killed, with which the daemon kills all others
    let busybox_ends = |script: &str| {
        let mut job = on(3, &ring, place.path(), &["1000", "--stay"]);
        let arguments = ["sh", "-c", script].map(str::to_owned).to_vec();
        job.programs = vec![Program { first: 2, last: 2, executable: busybox.clone(), arguments }];
        job
    };
    let ran = run(&mut partition, busybox_ends("exit 3"));
    assert_eq!((only_failure(&ran, 3), ran.outcome.code()), ((2, End::Exited(3)), 3));
    // one that computes and never looks at its messages, unless it has seen the failure before it begins
    let ran = run(&mut partition, on(3, &ring, place.path(), &["1000", "--fail", "1", "--spin", "2"]));
    let end = &ran.outcome.processes[2].end;
    assert!(matches!(end, End::Signaled(9) | End::Exited(LOST)), "{}", ran.outcome);
    assert!(ran.stderr.contains("PE 1 fails") && ran.outcome.code() != 0, "{}", ran.outcome);
    let ran = run(&mut partition, busybox_ends("kill -KILL $$"));
    assert_eq!(
        (&ran.outcome.processes[2].end, ran.outcome.code()),
        (&End::Signaled(9), 137),
        "{}",
        ran.outcome
    );
    let ran = run(&mut partition, on(3, &ring, place.path(), &["20"]));
    assert_eq!(ran.output(), "20 rounds over 3 PEs\n", "the nodes go on");
}

#[test]
fn more_threads_than_a_node_has_and_wrong_options_are_one_error() {
    let Some([lb_test]) = programs(["lb_test"]) else { return };
    let place = folder();
    let mut partition = boot(Machine::default(), 2);
    let ran = run(&mut partition, spec(&lb_test, place.path(), &["--threads", "300"]));
    assert_eq!(only_failure(&ran, 2).1, End::Exited(1));
    assert!(ran.stderr.contains("cannot start thread"), "{}", ran.stderr);
    let ran = run(&mut partition, spec(&lb_test, place.path(), &["--mesh", "0"]));
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    assert_eq!(ran.outcome.code(), 2);
}
