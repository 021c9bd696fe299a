// SPDX-License-Identifier: MIT OR Apache-2.0
//! Partitions with several I/O nodes: jobs run as on one, and the death of an I/O node ends its job.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use colony_model::{
    Block, Machine as ModelMachine, Partition as ModelPartition, Personality, PsetSize, Shape,
};
use colony_nodes::ciod::{Config, End, JobError, JobSpec, Program, Streams};
use colony_nodes::{Machine, Partition, Places};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{ciod, folder, launch, programs, run, script};

const NODES: u32 = 16;

fn machine() -> Machine {
    Machine { cpus: 1, memory: 16 << 20, torus: Some(0), ..Machine::default() }
}

/// Sixteen nodes in two psets, in a row.
fn boot() -> Partition {
    Partition::boot(machine(), Places::row(NODES, Some(8)), Config::new(ciod())).expect("boots")
}

/// A partition of 4x2x2 nodes in two psets, somewhere in a midplane.
fn block() -> ModelPartition {
    let machine = ModelMachine::new(Shape::MIDPLANE).expect("a machine");
    let block = Block::new(machine, [4, 2, 4], Shape::new([4, 2, 2]).expect("a shape")).expect("a block");
    ModelPartition::new(machine, "test", block, PsetSize::new(8).expect("a size")).expect("a partition")
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// A job of `busybox` in which some ranks run another script.
fn with_script(mut job: JobSpec, ranks: std::ops::RangeInclusive<u32>, text: &str) -> JobSpec {
    let arguments = ["sh", "-c", text].map(str::to_owned).to_vec();
    let executable = job.executable.clone();
    job.programs.push(Program { first: *ranks.start(), last: *ranks.end(), executable, arguments });
    job
}

/// All ranks say that they are there, at the end of a test.
fn all_work(partition: &mut Partition, busybox: &Path, folder: &Path) {
    let ran = run(partition, script(busybox, folder, "echo $COLONY_RANK"));
    let ranks: BTreeSet<u32> = ran.output().lines().map(|line| line.parse().expect("a rank")).collect();
    assert!(ranks.into_iter().eq(0..NODES));
}

#[test]
fn a_job_runs_on_all_psets_of_a_machine_and_nodes_know_their_places() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let model = block();
    let mut partition = Partition::boot(machine(), model.clone(), Config::new(ciod())).expect("boots");
    let mut job = script(&busybox, place.path(), "echo $COLONY_RANK $COLONY_SIZE $COLONY_TORUS_DIMS");
    job.labels = true;
    let running = launch(&mut partition, job);
    let io_nodes = running.job().io_nodes();
    assert_eq!(io_nodes.iter().map(|(pset, _)| *pset).collect::<Vec<_>>(), [0, 1]);
    let ran = running.end(&partition);
    let mut expected: Vec<String> = (0..NODES).map(|n| format!("{n}: {n} 16 4,2,2")).collect();
    expected.sort_unstable();
    assert_eq!(sorted(ran.output()), expected);
    let ended: Vec<(u32, u32)> = ran.outcome.processes.iter().map(|p| (p.rank, p.node)).collect();
    assert!(ended.into_iter().eq((0..NODES).map(|n| (n, n))), "by rank");

    let mut job = script(&busybox, place.path(), "");
    (job.arguments, job.labels) = (vec!["uname".into(), "-n".into()], true);
    let ran = run(&mut partition, job);
    let mut expected: Vec<String> = (0..NODES).map(|n| format!("{n}: {}", model.location(n))).collect();
    expected.sort_unstable();
    assert_eq!(sorted(ran.output()), expected);
    for (n, node) in (0..).zip(partition.nodes()) {
        use std::os::unix::fs::FileExt as _;
        let window = std::fs::File::from(node.link().memory().try_clone_to_owned().expect("a descriptor"));
        let mut record = [0; colony_model::ENCODED_BYTES];
        window.read_exact_at(&mut record, colony_fship::layout::PERSONALITY_AT).expect("ours");
        assert_eq!(Personality::decode(&record), Ok(model.compute_personality(n, 16 << 20)), "node {n}");
    }
}

#[test]
fn the_death_of_an_io_node_ends_the_job_and_the_next_runs_on_all_nodes() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot();
    let before: Vec<u32> = partition.nodes().iter().map(|node| node.pid()).collect();
    let running = launch(&mut partition, script(&busybox, place.path(), "while :; do :; done"));
    assert!(running.job().wait_started());
    let [_, (pset, pid)] = running.job().io_nodes()[..] else { panic!("two I/O nodes") };
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).expect("ours");
    let ran = running.end(&partition);
    let error = ran.outcome.error.clone().expect("the job has failed");
    assert!(matches!(&error, JobError::IoNodeFailed { pset: 1, .. }) && pset == 1, "{error}");
    assert!(error.to_string().starts_with("the I/O node of pset 1 failed"), "{error}");
    assert!(ran.outcome.lost.iter().copied().eq(8..16), "{:?}", ran.outcome.lost);
    let ends: Vec<End> = ran.outcome.processes.iter().map(|p| p.end.clone()).collect();
    assert!(ends[..8].iter().all(|end| *end == End::Signaled(9)), "{ends:?}");
    assert!(ends[8..].iter().all(|end| *end == End::Lost(error.clone())), "{ends:?}");
    all_work(&mut partition, &busybox, place.path());
    let after: Vec<u32> = partition.nodes().iter().map(|node| node.pid()).collect();
    let kept: Vec<bool> = before.iter().zip(&after).map(|(before, after)| before == after).collect();
    assert!(kept[..8].iter().all(|kept| *kept) && kept[8..].iter().all(|kept| !kept), "{kept:?}");
}

#[test]
fn the_other_psets_go_on_without_an_io_node_if_the_job_says_so() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot();
    let text = "until [ -e go ]; do :; done; echo $COLONY_RANK";
    let mut job = with_script(script(&busybox, place.path(), text), 8..=15, "while :; do :; done");
    job.go_on = true;
    let running = launch(&mut partition, job);
    assert!(running.job().wait_started());
    let (_, pid) = running.job().io_nodes()[1];
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).expect("ours");
    let began = Instant::now();
    while Path::new(&format!("/proc/{pid}/exe")).exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "it is killed");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(running.job().wait_timeout(Duration::from_millis(200)), None, "the others go on");
    std::fs::write(place.path().join("go"), "").expect("ours");
    let ran = running.end(&partition);
    assert_eq!(sorted(&ran.stdout), ["0", "1", "2", "3", "4", "5", "6", "7"]);
    assert!(matches!(ran.outcome.error, Some(JobError::IoNodeFailed { pset: 1, .. })), "{:?}", ran.outcome);
    all_work(&mut partition, &busybox, place.path());
}

#[test]
fn an_io_node_that_dies_before_the_start_ends_the_job_and_no_program_runs() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot();
    // a node of the first pset boots no further, so the second one waits
    let victim = Pid::from_raw(partition.nodes()[3].pid().cast_signed());
    kill(victim, Signal::SIGSTOP).expect("ours");
    let running = launch(&mut partition, script(&busybox, place.path(), "echo > ran.$COLONY_RANK"));
    let is_ready = |n: usize| partition.nodes()[n].link().has_asked();
    let began = Instant::now();
    while !(8..16).all(is_ready) {
        assert!(began.elapsed() < Duration::from_secs(60), "the second pset boots");
        std::thread::sleep(Duration::from_millis(5));
    }
    let stopped = !is_ready(3);
    assert_eq!(running.job().wait_timeout(Duration::from_millis(100)), None);
    let (_, pid) = running.job().io_nodes()[1];
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).expect("ours");
    let ran = running.end(&partition);
    kill(victim, Signal::SIGCONT).expect("ours");
    if stopped {
        assert!(
            matches!(ran.outcome.error, Some(JobError::IoNodeFailed { pset: 1, .. })),
            "{:?}",
            ran.outcome
        );
        assert_eq!(std::fs::read_dir(place.path()).expect("ours").count(), 0, "no program ran");
        assert!(ran.outcome.lost.iter().copied().eq(8..16), "{:?}", ran.outcome.lost);
    }
    all_work(&mut partition, &busybox, place.path());
}

#[test]
fn standard_input_is_rank_0_s_and_signals_reach_all_psets() {
    use std::io::Write as _;
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot();
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(b"one\ntwo\n").expect("there is room");
    drop(writer);
    let out = place.path().join("out");
    let output = std::fs::File::create(&out).expect("ours");
    let streams = Streams {
        stdin: reader.into(),
        stdout: output.try_clone().expect("a descriptor").into(),
        stderr: output.into(),
    };
    let mut job = script(&busybox, place.path(), "");
    (job.arguments, job.labels, job.timeout_s) = (vec!["cat".into()], true, Some(240.0));
    let outcome = partition.run(job, streams).expect("starts");
    assert!(outcome.success(), "{outcome}");
    assert_eq!(std::fs::read_to_string(&out).expect("text"), "0: one\n0: two\n");

    let text = "trap 'echo caught; exit 4' TERM; echo > up.$COLONY_RANK; while :; do :; done";
    let running = launch(&mut partition, script(&busybox, place.path(), text));
    let up = |n: u32| place.path().join(format!("up.{n}")).exists();
    let began = Instant::now();
    while !(0..NODES).all(up) {
        assert!(began.elapsed() < Duration::from_secs(120), "all are up");
        std::thread::sleep(Duration::from_millis(10));
    }
    running.job().signal(15).expect("under way");
    let ran = running.end(&partition);
    assert_eq!(ran.stdout.matches("caught\n").count(), NODES as usize, "{}", ran.outcome);
    assert_eq!(ran.outcome.code(), 4);
}

#[test]
fn failures_in_another_pset_end_the_job_as_on_one_io_node() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot();
    // codes: that of the first rank that failed, wherever it ran
    let job = with_script(script(&busybox, place.path(), "exit 0"), 9..=9, "exit 7");
    let job = with_script(job, 12..=12, "exit 5");
    let ran = run(&mut partition, job);
    assert_eq!((ran.outcome.code(), ran.outcome.error.clone()), (7, None), "{}", ran.outcome);
    // a crash of rank 12 kills ranks of both psets
    let job = with_script(script(&busybox, place.path(), "while :; do :; done"), 12..=12, "kill -SEGV $$");
    let ran = run(&mut partition, job);
    for process in &ran.outcome.processes {
        let signal = if process.rank == 12 { 11 } else { 9 };
        assert_eq!(process.end, End::Signaled(signal), "rank {}", process.rank);
    }
    assert!(ran.outcome.processes[12].crash.as_ref().is_some_and(|crash| crash.contains("rip")));
    // a program that is not there, in one pset only
    let mut job = script(&busybox, place.path(), "echo > ran.$COLONY_RANK");
    let (executable, arguments) = ("nowhere".into(), Vec::new());
    job.programs.push(Program { first: 10, last: 10, executable, arguments });
    let ran = run(&mut partition, job);
    assert!(matches!(ran.outcome.error, Some(JobError::Program { .. })), "{:?}", ran.outcome);
    assert_eq!(std::fs::read_dir(place.path()).expect("ours").count(), 0, "no program ran");
    let mut job = script(&busybox, place.path(), "while :; do :; done");
    job.timeout_s = Some(0.5);
    let ran = run(&mut partition, job);
    assert_eq!(ran.outcome.error, Some(JobError::Timeout { seconds: 0.5 }));
    assert!(ran.outcome.processes.iter().all(|p| p.end == End::Signaled(9)), "{}", ran.outcome);
    assert_eq!(ran.outcome.lost, [0; 0]);
    all_work(&mut partition, &busybox, place.path());
}

#[test]
fn a_job_needs_only_the_psets_in_which_it_has_processes() {
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot();
    for (processes, io_nodes) in [(5, 1), (8, 1), (9, 2)] {
        let mut job = script(&busybox, place.path(), "echo $COLONY_RANK of $COLONY_SIZE");
        job.processes = Some(processes);
        let running = launch(&mut partition, job);
        assert_eq!(running.job().io_nodes().len(), io_nodes);
        let ran = running.end(&partition);
        let mut expected: Vec<String> = (0..processes).map(|n| format!("{n} of {processes}")).collect();
        expected.sort_unstable();
        assert_eq!(sorted(ran.output()), expected);
    }
    all_work(&mut partition, &busybox, place.path());
}

#[test]
fn lines_of_all_psets_are_whole_on_a_pipe() {
    use std::io::Read as _;
    let Some([busybox]) = programs(["busybox"]) else { return };
    let place = folder();
    let mut partition = boot();
    let (mut reader, writer) = std::io::pipe().expect("a pipe");
    let errors = writer.try_clone().expect("a descriptor");
    let streams = Streams::output(writer.into(), errors.into()).expect("streams");
    // 8 KiB a line and more: a pipe does not take them as a whole
    let text = "l=$COLONY_RANK,; for i in 0 1 2 3 4 5 6 7 8 9 10 11; do l=$l$l; done
        for i in 0 1 2 3; do echo $l; done";
    let mut job = script(&busybox, place.path(), text);
    (job.labels, job.timeout_s) = (true, Some(240.0));
    let job = partition.launch(job, streams).expect("starts");
    let mut text = String::new();
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(job.wait().success()));
        reader.read_to_string(&mut text).expect("text");
    });
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4 * NODES as usize);
    for line in lines {
        let (rank, letters) = line.split_once(": ").expect("a label");
        assert_eq!(letters, format!("{rank},").repeat(4096));
    }
}
