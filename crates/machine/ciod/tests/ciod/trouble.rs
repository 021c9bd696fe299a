// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of one job or node are reported, and the others continue.

use std::time::{Duration, Instant};

use colony_ciod::testing::{FREE, SyntheticNode};
use colony_ciod::{End, JobError, Mode, NodeState, ProgramError, Rule};
use colony_fship::calls::number as nr;
use colony_fship::layout::CrashRecord;
use colony_fship::message::own;

use crate::common::*;

/// A job of three nodes, of which the second misbehaves; what is said of it.
fn misbehaved(how: impl FnOnce(&mut SyntheticNode)) -> Rule {
    let house = House::new(3);
    let (job, mut nodes, _output) = house.run(house.spec());
    let at = nodes[1].string(0, FREE, "/dev/null");
    assert_eq!(nodes[1].call(0, nr::open, [at, 2, 0, 0, 0, 0]), 3);
    // only root can look into a worker
    let descriptors =
        || std::fs::read_dir(format!("/proc/{}/fd", job.workers()[0].1)).map_or(0, Iterator::count);
    let before = descriptors();
    how(&mut nodes[1]);
    // the others go on, and what it had is closed
    let start = Instant::now();
    while before > 0 && descriptors() > before - 4 {
        assert!(start.elapsed() < Duration::from_secs(20), "its descriptors are closed");
        assert_eq!(nodes[0].call(0, own::NOP, [0; 6]), 0);
        assert_eq!(nodes[2].call(0, nr::umask, [0o22, 0, 0, 0, 0, 0]), 0o22);
    }
    for n in [0, 2] {
        nodes[n].exit(0, 0);
        nodes[n].ask_for_job();
    }
    let outcome = job.wait();
    assert_eq!(outcome.lost, [1]);
    assert_eq!((&outcome.processes[0].end, &outcome.processes[2].end), (&End::Exited(0), &End::Exited(0)));
    assert_eq!(house.links[1].state(), NodeState::Lost);
    assert_eq!(house.links[0].state(), NodeState::Free);
    match &outcome.processes[1].end {
        End::Lost(JobError::NodeMisbehaved { node: 1, rule }) => rule.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_damaged_ring_is_found() {
    assert_eq!(
        misbehaved(|n| {
            n.damage(0, 0, 0x7000_0000);
            n.send_bell();
        }),
        Rule::Ring
    );
}

#[test]
fn a_flood_is_stopped() {
    let flood = |n: &mut SyntheticNode| {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(2) {
            n.try_send(0, own::NOP, [0; 6]);
        }
    };
    assert_eq!(misbehaved(flood), Rule::Flood);
}

#[test]
fn calls_that_are_not_shipped_are_refused() {
    for call in [nr::mmap, nr::fork, 9999, 0x9000] {
        let asked = move |n: &mut SyntheticNode| {
            n.send(0, call, [0; 6]);
        };
        assert_eq!(misbehaved(asked), Rule::Call(call));
    }
}

#[test]
fn the_order_of_a_job_is_kept() {
    let twice = |n: &mut SyntheticNode| {
        n.ask_for_job();
    };
    assert!(matches!(misbehaved(twice), Rule::Order(_)));
}

#[test]
fn ending_twice_is_noticed_or_nothing() {
    let house = House::new(1);
    let mut spec = house.spec();
    spec.mode = Mode::VirtualNode;
    let (job, mut nodes, _output) = house.run(spec);
    nodes[0].exit(0, 1);
    nodes[0].exit(0, 2);
    let outcome = job.wait();
    assert_eq!(outcome.processes[0].end, End::Exited(1));
    assert!(matches!(
        outcome.processes[1].end,
        End::Lost(JobError::NodeMisbehaved { rule: Rule::Order(_), .. })
    ));
}

#[test]
fn a_process_may_end_on_either_cpu() {
    let house = House::new(1);
    let mut node = house.synthetic(0);
    let mut asked = node.ask_for_job();
    for _ in 0..200 {
        let (job, _output) = house.launch(house.spec());
        assert_eq!(node.answer(0, asked), 0);
        node.exit(1, 3);
        asked = node.ask_for_job();
        assert_eq!(job.wait().processes[0].end, End::Exited(3));
    }
}

#[test]
fn addresses_are_the_process_s_or_refused() {
    let house = House::new(1);
    let mut spec = house.spec();
    spec.mode = Mode::VirtualNode;
    let (job, mut nodes, _output) = house.run(spec);
    let node = &mut nodes[0];
    for address in [0, 0x1000, (2 << 20) - 1, WINDOW / 2 - 1, WINDOW / 2, WINDOW, u64::MAX, 1 << 63] {
        assert_eq!(node.call(0, nr::write, [1, address, 2, 0, 0, 0]), -14, "{address:#x}");
        assert_eq!(node.call(1, nr::read, [0, address, 2, 0, 0, 0]), -14, "{address:#x}");
    }
    for address in [0, WINDOW / 2, u64::MAX] {
        assert_eq!(node.call(0, nr::open, [address, 0, 0, 0, 0, 0]), -14, "{address:#x}");
    }
    node.exit(0, 0);
    node.exit(1, 0);
    node.ask_for_job();
    let outcome = job.wait();
    assert!(outcome.success() && outcome.processes.len() == 2, "{outcome:?}");
}

#[test]
fn a_crash_is_reported_with_its_registers_and_ends_the_others() {
    let house = House::new(2);
    let mut spec = house.spec();
    spec.go_on = false;
    let (job, mut nodes, _output) = house.run(spec);
    let mut record =
        CrashRecord { signal: 11, vector: 14, address: 0xdead_beef, rip: 0x40_1234, ..Default::default() };
    record.registers[0] = 0x5a5a;
    nodes[0].crash(0, &record);
    nodes[0].fault(0, 11);
    nodes[0].ask_for_job();
    let start = Instant::now();
    while nodes[1].signals(0) & 1 << (libc::SIGKILL - 1) == 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "the other is killed");
    }
    nodes[1].fault(0, 9);
    nodes[1].ask_for_job();
    let outcome = job.wait();
    assert_eq!(outcome.processes[0].end, End::Signaled(11));
    assert_eq!(outcome.processes[1].end, End::Signaled(9));
    let crash = outcome.processes[0].crash.clone().expect("registers");
    for part in ["SIGSEGV", "0xdeadbeef", "0000000000401234", "rax 0000000000005a5a"] {
        assert!(crash.contains(part), "{part}: {crash}");
    }
    assert_eq!(outcome.code(), 128 + 11);
}

#[test]
fn a_node_that_does_not_end_is_given_up() {
    let house = House::new(2);
    let (job, mut nodes, _output) = house.run(house.spec());
    job.signal(libc::SIGKILL).expect("running");
    nodes[0].fault(0, 9);
    nodes[0].ask_for_job();
    let outcome = job.wait();
    assert_eq!(outcome.processes[1].end, End::Lost(JobError::NodeUnresponsive(1)));
    assert_eq!(outcome.lost, [1]);
    let streams = colony_ciod::Streams::output(null().into(), null().into()).expect("streams");
    assert_eq!(house.ciod.launch(house.spec(), &house.numbers(), streams).err(), Some(JobError::NodeLost(1)));
}

#[test]
fn a_signal_that_comes_before_the_start_is_delivered_after_it() {
    let house = House::new(1);
    let mut node = house.synthetic(0);
    let (job, _output) = house.launch(house.spec());
    job.signal(libc::SIGTERM).expect("told");
    node.next_job();
    let start = Instant::now();
    while node.signals(0) != 1 << (libc::SIGTERM - 1) {
        assert!(start.elapsed() < Duration::from_secs(20), "the signal comes");
    }
    assert!(finish(&job, &mut [node]).success());
}

#[test]
fn a_job_has_its_time() {
    let house = House::new(1);
    let mut spec = house.spec();
    spec.timeout_s = Some(0.2);
    let (job, mut nodes, _output) = house.run(spec);
    let start = Instant::now();
    while nodes[0].signals(0) == 0 {
        assert!(start.elapsed() < Duration::from_secs(20));
    }
    nodes[0].fault(0, 9);
    nodes[0].ask_for_job();
    let outcome = job.wait();
    assert_eq!(outcome.error, Some(JobError::Timeout { seconds: 0.2 }));
    assert_eq!(outcome.processes[0].end, End::Signaled(9));
}

#[test]
fn nodes_that_never_get_ready_are_reported() {
    let mut config = config();
    config.ready = Duration::from_millis(300);
    let house = House::with(2, config);
    // who comes has asked before, so that a slow machine does not make it late
    let mut node = house.synthetic(0);
    let asked = node.ask_for_job();
    let (job, _output) = house.launch(house.spec());
    let outcome = job.wait();
    assert_eq!(outcome.error, Some(JobError::NodeNotReady(1)));
    // who came has its request answered in the next job
    let mut other = house.synthetic(1);
    let second = other.ask_for_job();
    let (job, _output) = house.launch(house.spec());
    assert_eq!((node.answer(0, asked), other.answer(0, second)), (0, 0));
    assert!(finish(&job, &mut [node, other]).success());
}

#[test]
fn programs_that_cannot_run_leave_the_nodes_free() {
    let house = House::new(1);
    for (program, why) in [
        ("nowhere", ProgramError::Missing),
        ("/tmp", ProgramError::NotAFile),
        ("/etc/passwd", ProgramError::NotExecutable),
    ] {
        let mut spec = house.spec();
        spec.executable = program.into();
        let outcome = house.launch(spec).0.wait();
        assert_eq!(outcome.error, Some(JobError::Program { path: program.into(), why }));
        assert_eq!(outcome.code(), 1);
    }
    let (job, mut nodes, _output) = house.run(house.spec());
    assert!(finish(&job, &mut nodes).success());
}

#[test]
fn a_worker_is_confined_and_has_no_descriptors_of_its_starter() {
    let house = House::new(1);
    let inherited = house.path("inherited");
    let file = std::fs::File::create(&inherited).expect("a file");
    // as a shell opens one: without close-on-exec
    let _open = nix::unistd::dup(&file).expect("a descriptor");
    let (job, mut nodes, _output) = house.run(house.spec());
    let place = format!("/proc/{}", job.workers()[0].1);
    let status = std::fs::read_to_string(format!("{place}/status")).expect("it runs");
    for line in ["Seccomp:\t2", "NoNewPrivs:\t1", "CapPrm:\t0000000000000000"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    assert_eq!(std::fs::read_to_string(format!("{place}/oom_score_adj")).expect("it runs").trim(), "500");
    // only root can look into a worker
    let links = std::fs::read_dir(format!("{place}/fd")).into_iter().flatten().flatten();
    let links: Vec<_> = links.filter_map(|l| std::fs::read_link(l.path()).ok()).collect();
    assert!(!links.contains(&inherited), "{links:?}");
    assert!(finish(&job, &mut nodes).success());
}

#[test]
fn a_killed_worker_is_reported() {
    let house = House::new(2);
    let (job, _nodes, _output) = house.run(house.spec());
    let pid = nix::unistd::Pid::from_raw(job.workers()[0].1 as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::SIGKILL).expect("killed");
    let outcome = job.wait();
    assert!(
        matches!(&outcome.error, Some(JobError::WorkerDied(how)) if how.contains("SIGKILL")),
        "{outcome:?}"
    );
    assert_eq!(outcome.lost, [0, 1]);
}

/// A job whose worker does nothing any more; what becomes of it.
fn wedged(timeout_s: Option<f64>) -> Option<JobError> {
    let mut config = config();
    config.grace = Duration::from_millis(100);
    let house = House::with(1, config);
    let mut spec = house.spec();
    spec.timeout_s = timeout_s;
    let (job, _nodes, _output) = house.run(spec);
    assert!(job.wait_started());
    let pid = nix::unistd::Pid::from_raw(job.workers()[0].1 as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::SIGSTOP).expect("stopped");
    let outcome = std::thread::scope(|s| {
        let waits = s.spawn(|| job.wait());
        if timeout_s.is_none() {
            // another thread waits, and asks how it goes meanwhile
            assert_eq!(job.wait_timeout(MOMENT), None);
            job.signal(libc::SIGKILL).expect("told");
        }
        let outcome = job.wait_timeout(Duration::MAX).expect("it ends");
        assert_eq!(waits.join().expect("ended"), outcome);
        outcome
    });
    assert_eq!((outcome.lost, house.links[0].state()), (vec![0], NodeState::Lost));
    outcome.error
}

#[test]
fn a_worker_that_does_nothing_any_more_is_given_up() {
    assert!(matches!(wedged(None), Some(JobError::WorkerDied(how)) if how.contains("SIGKILL")));
    assert_eq!(wedged(Some(0.2)), Some(JobError::Timeout { seconds: 0.2 }));
}

/// The supervisor that the next test kills.
#[test]
#[ignore = "run by the test below"]
fn supervisor() {
    let house = House::new(1);
    let (job, _nodes, _output) = house.run(house.spec());
    println!("worker {}", job.workers()[0].1);
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_worker_ends_with_its_supervisor() {
    use std::io::{BufRead as _, BufReader};
    let mut supervisor = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["trouble::supervisor", "--exact", "--ignored", "--nocapture"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("started");
    let said = BufReader::new(supervisor.stdout.take().expect("piped")).lines();
    let worker = said.map_while(Result::ok).find_map(|l| Some(l.split_once("worker ")?.1.trim().to_owned()));
    supervisor.kill().expect("killed");
    supervisor.wait().expect("dead");
    let worker = worker.expect("it said so");
    let runs = || std::fs::read_to_string(format!("/proc/{worker}/stat")).is_ok_and(|s| !s.contains(") Z"));
    let start = Instant::now();
    while runs() {
        assert!(start.elapsed() < Duration::from_secs(20), "the worker is left");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_bell_that_was_lost_at_the_start_is_made_up_for() {
    let house = House::new(1);
    let (job, _output) = house.launch(house.spec());
    let mut node = house.synthetic(0);
    node.mute(true);
    // the worker sleeps by now, and is not rung for
    std::thread::sleep(MOMENT);
    node.next_job();
    std::thread::sleep(MOMENT);
    assert_eq!(node.call(0, nr::umask, [0, 0, 0, 0, 0, 0]), 0o022);
    node.mute(false);
    assert!(finish(&job, &mut [node]).success());
}

#[test]
fn words_of_the_kernel_are_kept() {
    let house = House::new(1);
    let (job, mut nodes, _output) = house.run(house.spec());
    nodes[0].log("all is well\x1b[2J");
    let outcome = finish(&job, &mut nodes);
    assert_eq!(outcome.log, ["node 0: all is well?[2J"]);
}

#[test]
fn words_without_end_are_counted_and_not_kept() {
    const SAID: usize = 200;
    let house = House::new(1);
    let (job, mut nodes, _output) = house.run(house.spec());
    let log = std::thread::scope(|s| {
        // the words wait for who waits for the job
        let waits = s.spawn(|| job.wait());
        for _ in 0..SAID {
            nodes[0].log(&"x".repeat(4000));
            assert_eq!(nodes[0].call(0, own::NOP, [0; 6]), 0);
        }
        finish(&job, &mut nodes);
        waits.join().expect("ended").log
    });
    let bytes: usize = log.iter().map(String::len).sum();
    assert!(bytes <= 65 << 10, "{bytes} bytes of 800,000 are kept");
    let (last, kept) = log.split_last().expect("some are kept");
    assert!(last.starts_with(&format!("{} more reports", SAID - kept.len())), "{last}");
}
