// SPDX-License-Identifier: MIT OR Apache-2.0
//! Virtual nodes with wrong and drifting clocks, compared over their network; what comes out is judged by another
//! method: a third node's broadcast reaches the others at one instant, whatever their clocks read then.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use colony_clock::hosts;
use colony_clock::sync::{Config, Node, SystemClock};
use colony_time::Estimate;
use colony_time::clock::Clock;
use colony_vm::testing::{missing, node};
use colony_vm::{Exit, Link, fleet};

use crate::alone;

/// A tenth of the smallest regular window by default: 5 % of 100 ms.
const A_TENTH_NS: u64 = 500_000;
const NODES: u32 = 3;
const WALKS: usize = 3;
/// Datagrams of one sender, and the time between two.
const BROADCASTS: u32 = 200;
const APART: Duration = Duration::from_millis(10);
/// Hours off, and what `adjtimex` adds to the tick of 10 ms, µs: a hundred ppm each.
const WRONG: [(i64, libc::c_long); NODES as usize] = [(0, -1), (-13, 3), (5, -4)];

#[test]
fn wrong_and_drifting_clocks_of_virtual_nodes_are_brought_together() {
    if let Ok(rank) = std::env::var("COLONY_NODE") {
        return guest(rank.parse().expect("a number"));
    }
    if let Some(reason) = missing() {
        colony_testing::skip(reason);
        return;
    }
    let _alone = alone();
    // the program of all nodes: this test, started again there
    let own = std::env::current_exe().expect("linux");
    let vm = node([&own]).expect("a node");
    let test = "vm::wrong_and_drifting_clocks_of_virtual_nodes_are_brought_together";
    let argv = [own.to_str().expect("text"), "--exact", test, "--nocapture"];
    let out = fleet::run(&vm, NODES, Link::default(), &argv, |_, _| {}).expect("all run");
    // a node that fails has the others fail, too: its own message tells why
    let failed = out.iter().filter(|o| o.exit != Exit::Code(0));
    let why: String = failed.map(|o| format!("{:?}: {}{}\n", o.exit, o.text(), o.error_text())).collect();
    assert!(why.is_empty(), "{why}");
    let reports: Vec<NodeReport> = out.iter().map(|o| NodeReport::read(&o.text())).collect();
    for rank in 1..NODES as usize {
        let other = if rank == 1 { 2 } else { 1 };
        let e = &reports[rank].estimate;
        // hours, and hundreds of ppm, were found
        let hours = (WRONG[0].0 - WRONG[rank].0) as f64 * 3.6e12;
        assert!((e.offset_ns as f64 - hours).abs() < 60e9, "rank {rank}: {e:?}");
        let drift = (WRONG[0].1 - WRONG[rank].1) as f64 * 100.0;
        assert!((e.drift_ppm - drift).abs() < e.growth_ppm + 1.0, "rank {rank}: {e:?}, not {drift} ppm");
        // what the other one sent came to the reference and to this node at one instant; the quickest of each
        // count, since a node that waits for a processor hears late
        let quickest = |node: usize| {
            let of_other = reports[node].arrivals.iter().filter(|((sender, _), _)| *sender == other);
            let ways: Vec<i64> = of_other.map(|(_, way)| *way).collect();
            assert!(ways.len() > BROADCASTS as usize / 4, "{} arrived at {node}", ways.len());
            ways.into_iter().min().expect("some")
        };
        let residual = quickest(rank) - quickest(0);
        println!("rank {rank}: residual {residual} ns, {e:?}");
        let bound = e.bound_at(e.at_ns + 20_000_000_000);
        assert!(residual.unsigned_abs() < bound, "rank {rank}: {residual} ns");
        // trips take longer on a busy host, and the node says so by its bound
        assert!(residual.unsigned_abs() < A_TENTH_NS || bound > 2 * A_TENTH_NS, "rank {rank}: {residual} ns");
    }
}

/// The report of a node.
struct NodeReport {
    estimate: Estimate,
    /// Time from the sending of a datagram (sender, number) to its arrival, both as cluster time.
    arrivals: BTreeMap<(usize, u32), i64>,
}

impl NodeReport {
    fn read(text: &str) -> Self {
        let mut arrivals = BTreeMap::new();
        let mut estimate = None;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("arrived ") {
                let n: Vec<i64> = rest.split(' ').map(|w| w.parse().expect("a number")).collect();
                arrivals.insert((n[0] as usize, n[1] as u32), n[2]);
            } else if let Some(json) = line.strip_prefix("estimate ") {
                estimate = Some(serde_json::from_str(json).expect("an estimate"));
            }
        }
        Self { estimate: estimate.expect("an estimate"), arrivals }
    }
}

/// A node: sets its clock wrong, compares it, and listens to the others' broadcasts.
fn guest(rank: u32) {
    let (hours, tick) = WRONG[rank as usize];
    set_wrong(hours, tick);
    let list: String = (0..NODES).map(|n| format!("{}\n", fleet::name(n))).collect();
    let config = Config {
        round: Duration::from_secs(1),
        silence_timeout: Duration::from_secs(60),
        ..Config::new(hosts::parse(&list, hosts::DEFAULT_PORT).expect("a list"), rank)
    };
    let socket = UdpSocket::bind("0.0.0.0:99").expect("a port");
    socket.set_broadcast(true).expect("a socket");
    let mut node = Node::open(config, SystemClock).expect("a node");
    // as with --every: what drifts add up to between walks tells them
    let mut estimate = Estimate::EXACT;
    for _ in 0..WALKS {
        let report = node.walk().expect("all take part");
        estimate = report.own().expect("itself").estimate;
        node.idle(Instant::now() + Duration::from_secs(2)).expect("as before");
    }
    node.linger().expect("as before");
    println!("\nestimate {}", serde_json::to_string(&estimate).expect("JSON"));
    let start = begin_together(&socket, rank);
    // drifts have time to add up to many windows' tenths
    let turn = BROADCASTS * APART + Duration::from_secs(1);
    let send_at = |n: u32| start + Duration::from_secs(1) + turn * (rank.max(1) - 1) + APART * n;
    let end = start + turn * (NODES - 1) + Duration::from_secs(2);
    let mut sent = 0;
    // reports at the end: telling takes time
    let mut arrived = Vec::new();
    while Instant::now() < end {
        let now = || estimate.reference_at(Clock::Tai.now_ns());
        if rank > 0 && sent < BROADCASTS && Instant::now() >= send_at(sent) {
            let _ = socket.send_to(format!("{rank} {sent} {}", now()).as_bytes(), "10.0.0.255:99");
            sent += 1;
        }
        let mut buffer = [0; 64];
        let Ok((length, _)) = socket.recv_from(&mut buffer) else { continue };
        let (at, text) = (now(), String::from_utf8_lossy(&buffer[..length]).into_owned());
        if let Some((which, sent_ns)) = text.rsplit_once(' ') {
            arrived.push(format!("arrived {which} {}\n", at - sent_ns.parse::<i64>().expect("a number")));
        }
    }
    print!("{}", arrived.concat());
}

/// Waits until rank 0, which is done last, says so: all are here within milliseconds of each other.
fn begin_together(socket: &UdpSocket, rank: u32) -> Instant {
    socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a socket");
    let mut buffer = [0; 64];
    if rank == 0 {
        for _ in 0..20 {
            let _ = socket.send_to(b"go", "10.0.0.255:99");
            std::thread::sleep(Duration::from_millis(5));
        }
    } else {
        let deadline = Instant::now() + Duration::from_secs(60);
        while socket.recv_from(&mut buffer).is_err() && Instant::now() < deadline {}
    }
    Instant::now()
}

/// Sets this node's clock by so many hours, and its tick by so many µs.
fn set_wrong(hours: i64, tick: libc::c_long) {
    let now = Clock::Realtime.now_ns() / 1_000_000_000 + hours * 3600;
    let wrong = nix::sys::time::TimeSpec::new(now, 0);
    nix::time::clock_settime(nix::time::ClockId::CLOCK_REALTIME, wrong).expect("root");
    // SAFETY: all zeros is a valid `timex`.
    let mut t: libc::timex = unsafe { std::mem::zeroed() };
    t.modes = libc::ADJ_TICK;
    t.tick = 10_000 + tick;
    // SAFETY: `t` is a valid timex to read and write.
    assert!(unsafe { libc::adjtimex(&raw mut t) } >= 0, "{}", std::io::Error::last_os_error());
}
