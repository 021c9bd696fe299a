// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs from start to end, on synthetic nodes.

use std::collections::BTreeMap;

use colony_ciod::testing::{FREE, SyntheticNode};
use colony_ciod::{End, JobSpec, Mode, NodeState, Program, Streams};
use colony_fship::calls::number as nr;
use colony_fship::layout::Process;
use colony_model::{Block, Machine, Partition, PsetSize};

use crate::common::*;

#[test]
fn a_job_is_started_prints_and_ends_and_so_is_the_next() {
    let house = House::new(1);
    let mut node = house.synthetic(0);
    let mut asked = node.ask_for_job();
    for round in 0..3 {
        let mut spec = house.spec();
        spec.arguments = vec!["-n".into(), round.to_string()];
        let (job, mut output) = house.launch(spec);
        assert_eq!(node.answer(0, asked), 0);
        let block = node.begin();
        assert_eq!(block.processes_len, 1);
        let process = block.processes[0];
        assert_eq!(process.segments_len, 1);
        assert_eq!(node.peek(0, process.entry, 2), [0x31, 0xff], "the program is in place");
        let argc = u64::from_le_bytes(node.peek(0, process.stack, 8).try_into().expect("eight"));
        assert_eq!(argc, 3);
        assert_eq!(node.peek(0, FREE, 5), [0; 5], "nothing is left of the last job");
        node.poke(0, FREE, b"hello");
        assert_eq!(node.call(0, nr::write, [1, FREE, 5, 0, 0, 0]), 5);
        assert_eq!(node.call(0, nr::write, [7, FREE, 5, 0, 0, 0]), -9, "EBADF");
        node.exit(0, round);
        asked = node.ask_for_job();
        let outcome = job.wait();
        assert_eq!(outcome.error, None);
        assert_eq!(outcome.processes[0].end, End::Exited(i32::from(round)));
        assert_eq!(read(&mut output), "hello");
        assert_eq!(house.links[0].state(), NodeState::Free);
        assert_eq!(node.answer_within(0, asked, MOMENT), None, "no work yet");
    }
}

/// Arguments and environment with which a process was started.
fn started(
    node: &SyntheticNode,
    channel: usize,
    process: &Process,
) -> (Vec<String>, BTreeMap<String, String>) {
    let mut at = process.stack;
    let mut word = || {
        at += 8;
        u64::from_le_bytes(node.peek(channel, at - 8, 8).try_into().expect("eight"))
    };
    let text = |at: u64| {
        let bytes = node.peek(channel, at, 200.min((process.memory - at) as usize));
        let end = bytes.iter().position(|&b| b == 0).expect("an end");
        String::from_utf8(bytes[..end].to_vec()).expect("text")
    };
    let count = word();
    let arguments = (0..count).map(|_| text(word())).collect();
    assert_eq!(word(), 0);
    let mut environment = BTreeMap::new();
    loop {
        match word() {
            0 => break,
            at => {
                let text = text(at);
                let (name, value) = text.split_once('=').expect("a variable");
                environment.insert(name.to_owned(), value.to_owned());
            }
        }
    }
    (arguments, environment)
}

#[test]
fn virtual_node_mode_has_two_processes_a_node_each_with_its_half() {
    let house = House::new(2);
    let mut spec = house.spec();
    spec.mode = Mode::VirtualNode;
    spec.processes = Some(3);
    spec.torus = Some([1, 2, 1]);
    spec.torus_bytes = Some(4096);
    spec.environment = [("A".to_owned(), "b c".to_owned())].into();
    let other = house.path("other");
    std::fs::copy(&house.program, &other).expect("copied");
    spec.programs = vec![Program { first: 1, last: 1, executable: other, arguments: vec!["x".into()] }];
    let (job, _output) = house.launch(spec);
    let mut nodes: Vec<_> = (0..2).map(|n| house.synthetic(n)).collect();
    let asked: Vec<_> = nodes.iter_mut().map(SyntheticNode::ask_for_job).collect();
    let blocks: Vec<_> =
        nodes.iter_mut().zip(asked).map(|(n, seq)| (n.answer(0, seq), n.begin()).1).collect();
    assert_eq!([blocks[0].processes_len, blocks[1].processes_len], [2, 1]);
    assert_eq!((blocks[1].personality.coords, blocks[1].personality.dims), ([0, 1, 0], [1, 2, 1]));
    for (n, c, rank) in [(0, 0, 0), (0, 1, 1), (1, 0, 2)] {
        let process = &blocks[n].processes[c];
        assert_eq!((process.rank, process.memory), (rank, WINDOW / 2));
        let (arguments, environment) = started(&nodes[n], c, process);
        assert_eq!(arguments.len(), if rank == 1 { 2 } else { 1 });
        assert_eq!(&process.name[..5], if rank == 1 { b"other" } else { b"progr" });
        assert_eq!(environment["A"], "b c");
        assert_eq!((&*environment["COLONY_RANK"], &*environment["COLONY_SIZE"]), (&*rank.to_string(), "3"));
        assert_eq!(environment["COLONY_TORUS"], "0x700000000000:0x1000");
        // the two processes of a node do not see each other's memory or descriptors
        nodes[n].poke(c, FREE, &[rank as u8 + 1]);
    }
    assert_eq!((nodes[0].peek(0, FREE, 1), nodes[0].peek(1, FREE, 1)), (vec![1], vec![2]));
    assert_eq!(nodes[0].call(0, nr::dup, [1, 0, 0, 0, 0, 0]), 3);
    assert_eq!(nodes[0].call(1, nr::close, [3, 0, 0, 0, 0, 0]), -9);
    nodes[0].exit(1, 7);
    nodes[0].exit(0, 0);
    nodes[1].exit(0, 0);
    for node in &mut nodes {
        node.ask_for_job();
    }
    let outcome = job.wait();
    let ends: Vec<_> = outcome.processes.iter().map(|p| (p.rank, p.node, p.end.clone())).collect();
    assert_eq!(ends, [(0, 0, End::Exited(0)), (1, 0, End::Exited(7)), (2, 1, End::Exited(0))]);
    assert_eq!(outcome.code(), 7);
}

#[test]
fn nodes_are_told_the_personalities_that_were_given_not_computed_ones() {
    let house = House::new(8);
    let machine = Machine::new("8x8x8".parse().expect("a shape")).expect("a machine");
    let block = Block::new(machine, [2, 4, 6], "2x2x2".parse().expect("a shape")).expect("a block");
    let size = PsetSize::new(8).expect("a size");
    let partition = Partition::new(machine, "a", block, size).expect("a partition");
    let give = |node| house.ciod.give(node, &partition.compute_personality(node, WINDOW));
    (0..7).for_each(|node| give(node).expect("given"));
    let launch = |spec: JobSpec, numbers: &[u32]| {
        let null = || std::fs::File::options().write(true).open("/dev/null").expect("null").into();
        let streams = Streams::output(null(), null()).expect("streams");
        house.ciod.launch(spec, numbers, streams).map(drop).map_err(|e| e.to_string())
    };
    let refused = launch(house.spec(), &house.numbers()).expect_err("node 7 has none");
    assert!(refused.contains("node 7 has no personality of node 7 of a torus of 2x2x2"), "{refused}");
    give(7).expect("given");
    assert_eq!(
        house.ciod.give(8, &partition.compute_personality(0, WINDOW)).expect_err("absent").to_string(),
        "there is no node 8"
    );
    let mut own = house.spec();
    own.torus = Some([8, 1, 1]);
    assert!(launch(own, &house.numbers()).expect_err("another torus").contains("leave it out"));
    assert!(house.links.iter().all(|link| link.state() == NodeState::Free));

    let (job, _output) = house.launch(house.spec());
    let mut nodes: Vec<_> = (0..8).map(|n| house.synthetic(n)).collect();
    let asked: Vec<_> = nodes.iter_mut().map(SyntheticNode::ask_for_job).collect();
    let blocks: Vec<_> =
        nodes.iter_mut().zip(asked).map(|(n, seq)| (n.answer(0, seq), n.begin()).1).collect();
    for (n, block) in (0..).zip(&blocks) {
        let told = &block.personality;
        assert_eq!((told.node, told.nodes, told.dims), (n, 8, [2, 2, 2]));
        assert_eq!((told.coords, told.in_pset), ([n % 2, n / 2 % 2, n / 4], n));
        let location = partition.location(n).to_string();
        assert_eq!(told.host.split(|&b| b == 0).next(), Some(location.as_bytes()));
    }
    let (_, environment) = started(&nodes[3], 0, &blocks[3].processes[0]);
    assert_eq!(environment["COLONY_TORUS_DIMS"], "2,2,2");
    assert!(finish(&job, &mut nodes).success());
}

#[test]
fn nodes_that_a_job_does_not_need_stay_free() {
    let house = House::new(2);
    let mut spec = house.spec();
    spec.processes = Some(1);
    let (job, _output) = house.launch(spec);
    let mut nodes: Vec<_> = (0..2).map(|n| house.synthetic(n)).collect();
    let asked: Vec<_> = nodes.iter_mut().map(SyntheticNode::ask_for_job).collect();
    assert_eq!(nodes[0].answer(0, asked[0]), 0);
    assert_eq!(nodes[1].answer_within(0, asked[1], MOMENT), None);
    nodes[0].exit(0, 0);
    let third = nodes[0].ask_for_job();
    assert!(job.wait().success());
    let (job, _output) = house.launch(house.spec());
    assert_eq!((nodes[0].answer(0, third), nodes[1].answer(0, asked[1])), (0, 0));
    assert!(finish(&job, &mut nodes).success());
}

#[test]
fn standard_input_is_rank_0_s() {
    let house = House::new(2);
    let (reader, mut writer) = std::io::pipe().expect("pipe");
    let streams = Streams { stdin: reader.into(), stdout: null().into(), stderr: null().into() };
    let job = house.ciod.launch(house.spec(), &house.numbers(), streams).expect("launched");
    let mut nodes: Vec<_> = (0..2).map(|n| house.synthetic(n)).collect();
    let asked: Vec<_> = nodes.iter_mut().map(SyntheticNode::ask_for_job).collect();
    for (node, seq) in nodes.iter_mut().zip(asked) {
        assert_eq!(node.answer(0, seq), 0);
    }
    let waits = nodes[0].send(0, nr::read, [0, FREE, 100, 0, 0, 0]);
    assert_eq!(nodes[1].call(0, nr::read, [0, FREE, 100, 0, 0, 0]), 0, "nothing at all");
    assert_eq!(nodes[0].answer_within(0, waits, MOMENT), None);
    std::io::Write::write_all(&mut writer, b"line\n").expect("written");
    assert_eq!(nodes[0].answer(0, waits), 5);
    drop(writer);
    assert_eq!(nodes[0].call(0, nr::read, [0, FREE, 100, 0, 0, 0]), 0);
    assert!(finish(&job, &mut nodes).success());
}

/// A thread asks for a write on channel `late` and is stopped by the end of its process on the other channel; what the
/// first job and the next one print.
fn left_over(late: usize) -> [String; 2] {
    let house = House::with(1, config().blocking());
    let mut node = house.synthetic(0);
    let asked = node.ask_for_job();
    let (job, mut output) = house.launch(house.spec());
    assert_eq!(node.answer(0, asked), 0);
    node.begin();
    node.poke(0, FREE, b"late");
    if late == 1 {
        // the worker sleeps, and finds both at once
        std::thread::sleep(MOMENT);
        node.mute(true);
        node.send(late, nr::write, [1, FREE, 4, 0, 0, 0]);
        node.mute(false);
        node.exit(0, 0);
    } else {
        node.exit(1, 0);
        let start = std::time::Instant::now();
        while !node.drained(1) {
            assert!(start.elapsed() < std::time::Duration::from_secs(20), "the end is heard");
        }
        node.send(late, nr::write, [1, FREE, 4, 0, 0, 0]);
    }
    let asked = node.ask_for_job();
    assert!(job.wait().success());
    let first = read(&mut output);
    let (job, mut output) = house.launch(house.spec());
    assert_eq!(node.answer(0, asked), 0);
    node.begin();
    node.poke(0, FREE, b"next");
    assert_eq!(node.call(0, nr::write, [1, FREE, 4, 0, 0, 0]), 4);
    assert!(finish(&job, &mut [node]).success());
    [first, read(&mut output)]
}

#[test]
fn calls_of_a_process_end_with_it() {
    for late in [0, 1] {
        assert_eq!(left_over(late), ["", "next"], "on channel {late}");
    }
}

#[test]
fn a_process_that_is_alone_on_its_node_has_all_channels_in_any_mode() {
    let house = House::new(1);
    let mut spec = house.spec();
    spec.mode = Mode::VirtualNode;
    spec.processes = Some(1);
    let (job, mut nodes, _output) = house.run(spec);
    assert_eq!(nodes[0].call(1, nr::umask, [0o77, 0, 0, 0, 0, 0]), 0o22, "its thread asks");
    assert_eq!(nodes[0].call(0, nr::umask, [0o22, 0, 0, 0, 0, 0]), 0o77);
    assert!(finish(&job, &mut nodes).success());
}
