// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs on several I/O nodes, on synthetic nodes.

use colony_ciod::testing::{FREE, SyntheticNode};
use colony_ciod::{End, JobError, JobSpec, NodeState};
use colony_fship::calls::number as nr;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::*;

/// A job on two I/O nodes.
fn spec(house: &House) -> JobSpec {
    let mut spec = house.spec();
    (spec.pset, spec.go_on) = (Some(2), false);
    spec
}

fn kill_worker(job: &colony_ciod::Job, number: usize) {
    let (_, pid) = job.workers()[number];
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).expect("ours");
}

#[test]
fn programs_start_when_the_nodes_of_all_psets_are_ready() {
    let house = House::new(4);
    let (job, mut output) = house.launch(spec(&house));
    assert_eq!(job.workers().iter().map(|(pset, _)| *pset).collect::<Vec<_>>(), [0, 1]);
    let mut nodes: Vec<_> = (0..4).map(|n| house.synthetic(n)).collect();
    let mut asked: Vec<_> = nodes[..3].iter_mut().map(SyntheticNode::ask_for_job).collect();
    for n in 0..3 {
        assert_eq!(nodes[n].answer_within(0, asked[n], MOMENT), None, "node {n} waits for the last");
    }
    asked.push(nodes[3].ask_for_job());
    for (n, (node, seq)) in nodes.iter_mut().zip(asked).enumerate() {
        assert_eq!(node.answer(0, seq), 0);
        let block = node.begin();
        assert!(block.realtime_ns > 0);
        assert_eq!((block.personality.pset, block.personality.in_pset), (n as u32 / 2, n as u32 % 2));
        assert_eq!(block.processes[0].rank, n as u32);
        node.poke(0, FREE, &[b'0' + n as u8]);
        assert_eq!(node.call(0, nr::write, [1, FREE, 1, 0, 0, 0]), 1);
    }
    assert!(job.wait_started());
    let outcome = finish(&job, &mut nodes);
    assert!(outcome.success() && outcome.processes.iter().map(|p| p.rank).eq(0..4), "{outcome:?}");
    assert_eq!(read(&mut output), "0123");
}

#[test]
fn a_job_whose_worker_dies_before_the_start_leaves_the_other_nodes_free() {
    let house = House::new(4);
    let (job, _output) = house.launch(spec(&house));
    let mut nodes: Vec<_> = (0..2).map(|n| house.synthetic(n)).collect();
    let asked: Vec<_> = nodes.iter_mut().map(SyntheticNode::ask_for_job).collect();
    assert_eq!(job.wait_timeout(MOMENT), None);
    kill_worker(&job, 1);
    let outcome = job.wait();
    assert!(matches!(outcome.error, Some(JobError::IoNodeFailed { pset: 1, .. })), "{outcome:?}");
    assert_eq!((outcome.lost, outcome.processes.len()), (vec![2, 3], 0));
    let states: Vec<_> = house.links.iter().map(colony_ciod::NodeLink::state).collect();
    assert_eq!(states, [NodeState::Free, NodeState::Free, NodeState::Lost, NodeState::Lost]);
    // the nodes' requests for work are answered in the next job
    let streams = colony_ciod::Streams::output(null().into(), null().into()).expect("streams");
    let job = house.ciod.launch(house.spec(), &[0, 1], streams).expect("launched");
    for (node, seq) in nodes.iter_mut().zip(asked) {
        assert_eq!(node.answer(0, seq), 0);
    }
    assert!(finish(&job, &mut nodes).success());
}

#[test]
fn a_job_whose_linux_io_node_has_just_ended_names_its_pset_and_leaves_all_nodes_free() {
    let house = House::new(4);
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let link = colony_ciod::IoLink::new(ours).expect("a link");
    house.ciod.set_io_node(1, link.clone());
    drop(theirs);
    while link.over().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let streams = colony_ciod::Streams::output(null().into(), null().into()).expect("streams");
    let error = house.ciod.launch(spec(&house), &[0, 1, 2, 3], streams).expect_err("it cannot start");
    assert!(matches!(error, JobError::IoNodeFailed { pset: 1, .. }), "{error}");
    assert!(house.links.iter().all(|link| link.state() == NodeState::Free), "{:?}", house.links);
}

#[test]
fn a_worker_that_dies_ends_the_processes_of_the_others() {
    let house = House::new(4);
    let (job, mut nodes, _output) = house.run(spec(&house));
    kill_worker(&job, 0);
    for node in &mut nodes[2..] {
        let start = std::time::Instant::now();
        while node.signals(0) & 1 << (libc::SIGKILL - 1) == 0 {
            assert!(start.elapsed() < std::time::Duration::from_secs(20), "it is killed");
        }
        node.fault(0, 9);
        node.ask_for_job();
    }
    let outcome = job.wait();
    let error = outcome.error.clone().expect("it has failed");
    assert!(error.to_string().starts_with("the I/O node of pset 0 failed"), "{error}");
    let ends: Vec<_> = outcome.processes.iter().map(|p| p.end.clone()).collect();
    let lost = End::Lost(error);
    assert_eq!(ends, [lost.clone(), lost, End::Signaled(9), End::Signaled(9)]);
    assert_eq!(outcome.lost, [0, 1]);
}

#[test]
fn an_error_in_one_pset_ends_the_job_before_any_program_starts() {
    let mut config = config();
    config.ready = std::time::Duration::from_millis(300);
    let house = House::with(4, config);
    let mut nodes: Vec<_> = (0..3).map(|n| house.synthetic(n)).collect();
    let asked: Vec<_> = nodes.iter_mut().map(SyntheticNode::ask_for_job).collect();
    let (job, _output) = house.launch(spec(&house));
    let outcome = job.wait();
    assert_eq!(outcome.error, Some(JobError::NodeNotReady(3)));
    assert_eq!(outcome.lost, [0; 0]);
    for (node, seq) in nodes.iter_mut().zip(asked) {
        assert_eq!(node.answer_within(0, seq, MOMENT), None, "no program has started");
    }
}

#[test]
fn a_stopped_worker_is_killed_when_the_time_of_the_others_is_over() {
    let mut config = config();
    config.grace = std::time::Duration::from_millis(100);
    let house = House::with(4, config);
    let (job, mut nodes, _output) = house.run(spec(&house));
    assert!(job.wait_started());
    let (_, pid) = job.workers()[1];
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGSTOP).expect("ours");
    nodes[0].fault(0, 11);
    for node in &mut nodes[..2] {
        node.ask_for_job();
    }
    let outcome = job.wait();
    assert!(matches!(&outcome.processes[0].end, End::Signaled(11)), "{outcome:?}");
    assert!(outcome.lost.contains(&2) && outcome.lost.contains(&3), "{outcome:?}");
}

#[test]
fn dropping_a_job_kills_all_of_its_workers() {
    let house = House::new(4);
    let (job, _nodes, _output) = house.run(spec(&house));
    let workers = job.workers();
    drop(job);
    for (_, pid) in workers {
        assert!(!std::path::Path::new(&format!("/proc/{pid}/exe")).exists(), "{pid}");
    }
    assert!(house.links.iter().all(|link| link.state() == NodeState::Lost));
}
