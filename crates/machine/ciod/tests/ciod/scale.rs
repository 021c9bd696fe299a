// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many nodes on one daemon: throughput, fairness, and one that waits (SC06 paper, 4.1, Figs. 4 and 5).

use std::time::{Duration, Instant};

use colony_ciod::testing::{FREE, SyntheticNode};
use colony_fship::calls::number as nr;
use colony_fship::message::own;

use crate::common::*;

/// Calls that a node has done on the average when it is looked at which has done most.
const ROUNDS: u64 = 300;

/// Lets every node always have one call under way; how many each had done when all together had done enough.
fn work(nodes: &mut [SyntheticNode], call: u32, args: [u64; 6]) -> Vec<u64> {
    let mut done = vec![0u64; nodes.len()];
    let mut open: Vec<_> = nodes.iter_mut().map(|n| n.send(0, call, args)).collect();
    let enough = ROUNDS * nodes.len() as u64;
    let start = Instant::now();
    while done.iter().sum::<u64>() < enough {
        assert!(start.elapsed() < Duration::from_secs(120), "{done:?}");
        for ((node, done), open) in nodes.iter_mut().zip(&mut done).zip(&mut open) {
            if let Some(reply) = node.poll_reply(0) {
                assert_eq!(reply.seq, *open);
                assert!(reply.result >= 0, "{}", reply.result);
                *done += 1;
                *open = node.send(0, call, args);
            }
        }
    }
    for (node, seq) in nodes.iter_mut().zip(open) {
        assert!(node.answer(0, seq) >= 0);
    }
    done
}

#[test]
fn many_nodes_share_one_daemon_fairly() {
    for count in [1, 8, 32, 128] {
        let house = House::new(count);
        let (job, mut nodes, _output) = house.run(house.spec());
        for node in &mut nodes {
            let at = node.string(0, FREE, "shared");
            assert_eq!(
                node.call(0, nr::open, [at, (libc::O_CREAT | libc::O_RDWR) as u64, 0o600, 0, 0, 0]),
                3
            );
        }
        for (what, call, args) in
            [("null", own::NOP, [0; 6]), ("pwrite 4 KiB", nr::pwrite64, [3, FREE, 4096, 0, 0, 0])]
        {
            // other work on the machine makes a single round unfair: the best of three
            let rounds = (0..3).map(|_| {
                let start = Instant::now();
                let done = work(&mut nodes, call, args);
                let (least, most) = (done.iter().min().copied(), done.iter().max().copied());
                let (least, most) = (least.unwrap_or(0), most.unwrap_or(0));
                let rate = done.iter().sum::<u64>() as f64 / start.elapsed().as_secs_f64();
                (most as f64 / least.max(1) as f64, rate)
            });
            let (ratio, rate) = rounds.min_by(|a, b| a.0.total_cmp(&b.0)).expect("three");
            println!("{count} nodes, {what}: {rate:.0} calls/s, most to least {ratio:.2}");
            assert!(ratio <= 2.0, "{count} nodes, {what}: {ratio}");
        }
        assert!(finish(&job, &mut nodes).success());
    }
}

#[test]
fn others_work_while_one_waits() {
    let house = House::new(128);
    let (job, mut nodes, _output) = house.run(house.spec());
    let (one, others) = nodes.split_at_mut(1);
    let node = &mut one[0];
    assert_eq!(node.call(0, nr::socketpair, [1, 1, 0, FREE, 0, 0]), 0);
    let waits = node.send(0, nr::read, [3, FREE, 1, 0, 0, 0]);
    for (n, other) in others.iter_mut().enumerate() {
        let at = other.string(0, FREE, &format!("file-{n}"));
        assert_eq!(other.call(0, nr::open, [at, (libc::O_CREAT | libc::O_RDWR) as u64, 0o600, 0, 0, 0]), 3);
        for _ in 0..10 {
            assert_eq!(other.call(0, nr::write, [3, FREE, 100, 0, 0, 0]), 100);
        }
    }
    assert_eq!(node.answer_within(0, waits, Duration::from_millis(1)), None, "it still waits");
    assert_eq!(node.call(1, nr::write, [4, FREE, 1, 0, 0, 0]), 1);
    assert_eq!(node.answer(0, waits), 1);
    assert_eq!(house.path("file-126").metadata().expect("written").len(), 1000);
    assert!(finish(&job, &mut nodes).success());
}
