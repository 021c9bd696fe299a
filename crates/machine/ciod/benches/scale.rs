// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many nodes on one daemon: what they get together as they grow in number, until something saturates, and how evenly
//! it is shared (SC06 paper, 4.1 and 4.2, Figs. 4 and 5).
//!
//! The nodes are synthetic: one thread plays them all over real windows, so that the daemon is what is measured. Each
//! computes for 200 µs between two calls. The last lines are of 64 nodes that share more and more I/O nodes.
//! `cargo bench -p colony-ciod --bench scale`

#[path = "../tests/ciod/common.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod common;

use std::time::{Duration, Instant};

use colony_ciod::testing::{FREE, SyntheticNode};
use colony_fship::calls::number as nr;
use colony_fship::message::own;
use common::House;

/// Duration of each case.
const TIME: Duration = Duration::from_millis(500);
/// Time that a node computes between two calls: so one node alone cannot keep the daemon busy.
const THINK: Duration = Duration::from_micros(200);
/// Bytes of a transfer.
const BYTES: u64 = 64 << 10;

/// A case: its name, the call, its arguments, the bytes that it moves.
type Case = (&'static str, u32, [u64; 6], u64);

const CASES: [Case; 4] = [
    ("null calls", own::NOP, [0; 6], 0),
    ("file, write", nr::pwrite64, [3, FREE, BYTES, 0, 0, 0], BYTES),
    ("file, read", nr::pread64, [3, FREE, BYTES, 0, 0, 0], BYTES),
    ("socket, send", nr::sendto, [4, FREE, 1400, 0, 0, 0], 1400),
];

fn main() {
    let head = ["case", "nodes", "I/O nodes", "calls/s", "GB/s", "most/least"];
    println!("{:<14} {:>6} {:>9} {:>12} {:>9} {:>10}", head[0], head[1], head[2], head[3], head[4], head[5]);
    for case in CASES {
        for count in [1, 2, 4, 8, 16, 32, 64, 128] {
            print(case, count, 1);
        }
    }
    for case in CASES {
        for io_nodes in [1, 2, 4, 8] {
            print(case, 64, io_nodes);
        }
    }
}

fn print(case: Case, count: u32, io_nodes: u32) {
    let (rate, ratio) = run(case, count, io_nodes);
    let speed = if case.3 > 0 { format!("{:.2}", rate * case.3 as f64 / 1e9) } else { String::new() };
    println!("{:<14} {count:>6} {io_nodes:>9} {rate:>12.0} {speed:>9} {ratio:>10.2}", case.0);
}

/// Calls a second of all nodes, and how many times more the luckiest has than the others' least.
fn run((_, call, args, _): Case, count: u32, io_nodes: u32) -> (f64, f64) {
    let house = House::new(count);
    let mut spec = house.spec();
    spec.pset = Some(count.div_ceil(io_nodes));
    let (job, mut nodes, _output) = house.run(spec);
    // datagrams to a socket that nobody reads are dropped: what is measured is the way out
    let sink = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = sink.local_addr().expect("bound").port().to_be_bytes();
    for (n, node) in nodes.iter_mut().enumerate() {
        let at = node.string(0, FREE, &format!("file-{n}"));
        assert_eq!(node.call(0, nr::open, [at, (libc::O_CREAT | libc::O_RDWR) as u64, 0o600, 0, 0, 0]), 3);
        assert_eq!(node.call(0, nr::socket, [2, 2, 0, 0, 0, 0]), 4);
        let address = [2, 0, port[0], port[1], 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        node.poke(0, FREE, &address);
        assert_eq!(node.call(0, nr::connect, [4, FREE, 16, 0, 0, 0]), 0);
        assert_eq!(node.call(0, nr::pwrite64, [3, FREE, BYTES, 0, 0, 0]), BYTES as i64);
    }
    let done = work(&mut nodes, call, args);
    let (least, most) = (done.iter().min().copied().unwrap_or(0), done.iter().max().copied().unwrap_or(0));
    assert!(common::finish(&job, &mut nodes).success());
    (done.iter().sum::<u64>() as f64 / TIME.as_secs_f64(), most as f64 / least.max(1) as f64)
}

/// Lets every node make a call, compute for [`THINK`], and so on; how many each had done.
fn work(nodes: &mut [SyntheticNode], call: u32, args: [u64; 6]) -> Vec<u64> {
    let mut done = vec![0u64; nodes.len()];
    let start = Instant::now();
    // nodes do not begin together
    let begin = |n: u32| start + THINK * n / nodes.len() as u32;
    let mut state: Vec<_> = (0..nodes.len() as u32).map(|n| State::Computes(begin(n))).collect();
    loop {
        let now = Instant::now();
        for ((node, done), state) in nodes.iter_mut().zip(&mut done).zip(&mut state) {
            match *state {
                State::Waits(seq) => {
                    if let Some(reply) = node.poll_reply(0) {
                        assert!(reply.seq == seq && reply.result >= 0, "{reply:?}");
                        *done += 1;
                        *state = State::Computes(now + THINK);
                    }
                }
                State::Computes(until) if now >= until => *state = State::Waits(node.send(0, call, args)),
                State::Computes(_) => {}
            }
        }
        if now - start >= TIME {
            break;
        }
    }
    for (node, state) in nodes.iter_mut().zip(state) {
        if let State::Waits(seq) = state {
            assert!(node.answer(0, seq) >= 0);
        }
    }
    done
}

/// State of a node.
#[derive(Clone, Copy)]
enum State {
    /// Computes until then.
    Computes(Instant),
    /// Waits for the reply of this number.
    Waits(u32),
}
