// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes on the loopback interface: real sockets, simulated clocks, so that the truth is known.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use colony_clock::hosts::Host;
use colony_clock::key::Key;
use colony_clock::sync::{Config, Dropped, LocalClock, Node, SyncError, SyncReport};
use colony_time::Estimate;
use colony_time::clock::Clock;

use crate::alone;

/// A tenth of the smallest regular window by default: 5 % of 100 ms.
const A_TENTH_NS: u64 = 500_000;

/// A clock of software over the machine's.
#[derive(Clone, Copy, Debug)]
struct Wrong {
    offset_ns: i64,
    drift_ppm: f64,
    start_ns: i64,
}

impl Wrong {
    fn at(&self, raw_ns: i64) -> i64 {
        let gained = (raw_ns - self.start_ns) as f64 * self.drift_ppm * 1e-6;
        raw_ns + self.offset_ns + gained.round() as i64
    }

    /// The instant of this reading.
    fn when(&self, reading_ns: i64) -> i64 {
        let shown = (reading_ns - self.offset_ns - self.start_ns) as f64;
        self.start_ns + (shown / (1.0 + self.drift_ppm * 1e-6)).round() as i64
    }
}

impl LocalClock for Wrong {
    fn now_ns(&self) -> i64 {
        self.at(Clock::MonotonicRaw.now_ns())
    }
}

/// Clocks hours apart that drift by up to 500 ppm; rank 0 is off and drifts as well.
fn clocks(n: usize) -> Vec<Wrong> {
    let start_ns = Clock::MonotonicRaw.now_ns();
    let hour = 3_600_000_000_000i64;
    (0..n as i64)
        .map(|i| Wrong {
            offset_ns: (i * 7919 % 13 - 6) * hour + i * 123_456_789,
            drift_ppm: (i * 331 % 1001 - 500) as f64,
            start_ns,
        })
        .collect()
}

fn sockets(n: usize) -> (Vec<UdpSocket>, Vec<SocketAddr>, Vec<Host>) {
    let sockets: Vec<UdpSocket> = (0..n).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a port")).collect();
    let addresses: Vec<SocketAddr> = sockets.iter().map(|s| s.local_addr().expect("bound")).collect();
    let hosts = addresses.iter().map(|a| Host { name: "127.0.0.1".into(), port: a.port() }).collect();
    (sockets, addresses, hosts)
}

fn config(hosts: &[Host], rank: u32) -> Config {
    Config {
        round: Duration::from_millis(150),
        interval: Duration::from_millis(3),
        silence_timeout: Duration::from_secs(20),
        ..Config::new(hosts.to_vec(), rank)
    }
}

/// The error of what `node` makes of `root`'s clock at this instant, and its bound.
fn error(node: &Wrong, root: &Wrong, e: &Estimate) -> (u64, u64) {
    error_at(Clock::MonotonicRaw.now_ns(), node, root, e)
}

/// As [`error`], at another instant.
fn error_at(raw_ns: i64, node: &Wrong, root: &Wrong, e: &Estimate) -> (u64, u64) {
    let here = node.at(raw_ns);
    (e.reference_at(here).abs_diff(root.at(raw_ns)), e.bound_at(here))
}

fn walk_all(clocks: &[Wrong], walks: usize) -> Vec<Vec<SyncReport>> {
    let (sockets, addresses, hosts) = sockets(clocks.len());
    std::thread::scope(|s| {
        let nodes: Vec<_> = sockets
            .into_iter()
            .zip(clocks)
            .zip(0..)
            .map(|((socket, clock), rank)| {
                let (addresses, hosts) = (addresses.clone(), &hosts);
                s.spawn(move || {
                    let mut node =
                        Node::with_socket(config(hosts, rank), *clock, socket, addresses).expect("a node");
                    let reports: Vec<_> =
                        (0..walks).map(|_| node.walk().expect("everybody is there")).collect();
                    node.linger().expect("as above");
                    reports
                })
            })
            .collect();
        nodes.into_iter().map(|n| n.join().expect("no panic")).collect()
    })
}

#[test]
fn wrong_and_drifting_clocks_are_known_far_within_the_smallest_window() {
    let _alone = alone();
    let clocks = clocks(7);
    let reports = walk_all(&clocks, 1);
    let root = &reports[0][0];
    assert_eq!((root.nodes.len(), root.rounds, root.nodes[0].estimate.offset_ns), (7, 3, 0));
    for node in &root.nodes {
        let rank = node.rank as usize;
        let (error, bound) = error(&clocks[rank], &clocks[0], &node.estimate);
        assert!(error <= bound, "rank {rank}: {error} ns is outside {bound} ns");
        // the estimate itself, at its own instant, however much later this is asked
        let at = clocks[rank].when(node.estimate.at_ns);
        let (error, bound) = error_at(at, &clocks[rank], &clocks[0], &node.estimate);
        let path = std::iter::successors(Some(node.rank), |&r| (r > 0).then(|| r ^ (1 << r.ilog2())));
        let trips: u64 = path.map(|r| root.nodes[r as usize].round_trip_ns).sum();
        // a machine that is busy has slow trips
        assert!(error <= bound.min(A_TENTH_NS + trips), "rank {rank}: {error} ns, {node:?}");
        let own = reports[rank][0].own().expect("its own");
        assert_eq!(own, node, "what the node knows is what the root was told");
    }
    // below rank 1: 3 and 5
    assert_eq!(reports[1][0].nodes.iter().map(|n| n.rank).collect::<Vec<_>>(), [1, 3, 5]);
}

#[test]
fn a_second_walk_knows_the_drift_better() {
    let _alone = alone();
    let clocks = clocks(2);
    let reports = walk_all(&clocks, 4);
    let growth = |walk: usize| reports[1][walk].own().expect("its own").estimate.growth_ppm;
    assert!(growth(3) < growth(0), "{} {}", growth(0), growth(3));
    assert_eq!(reports[0][3].cycle, 4);
    let e = reports[0][3].nodes[1].estimate;
    let (error, bound) = error(&clocks[1], &clocks[0], &e);
    assert!(error <= bound, "{error} {bound}");
    let drift = ((1.0 + clocks[0].drift_ppm * 1e-6) / (1.0 + clocks[1].drift_ppm * 1e-6) - 1.0) * 1e6;
    assert!((e.drift_ppm - drift).abs() <= e.growth_ppm, "{e:?} {drift}");
}

#[test]
fn a_silent_node_is_named_by_all() {
    let _alone = alone();
    let clocks = clocks(4);
    let (sockets, addresses, mut hosts) = sockets(4);
    for (i, h) in hosts.iter_mut().enumerate() {
        h.name = format!("node{i}");
    }
    let errors: Vec<String> = std::thread::scope(|s| {
        let nodes: Vec<_> = sockets
            .into_iter()
            .zip(clocks)
            .zip(0..)
            // rank 2 never starts
            .filter(|(_, rank)| *rank != 2)
            .map(|((socket, clock), rank)| {
                let silence_timeout = Duration::from_millis(1500);
                let config = Config { silence_timeout, ..config(&hosts, rank) };
                let addresses = addresses.clone();
                s.spawn(move || {
                    let mut node = Node::with_socket(config, clock, socket, addresses).expect("a node");
                    // done, for those that need nobody who is silent
                    node.walk().err().map(|e| e.to_string())
                })
            })
            .collect();
        nodes.into_iter().filter_map(|n| n.join().expect("no panic")).collect()
    });
    assert!(!errors.is_empty());
    assert!(errors.iter().all(|e| e.contains("rank 2 (node2)")), "{errors:#?}");
}

#[test]
fn strangers_and_rubbish_are_passed_over() {
    let _alone = alone();
    let (mut sockets, addresses, hosts) = sockets(2);
    let stranger = UdpSocket::bind("127.0.0.1:0").expect("a port");
    for bytes in [&b"hello"[..], b"CLNC\x01\x04\0\0", &[0; 3000]] {
        for to in &addresses {
            stranger.send_to(bytes, to).expect("sent");
            sockets[1].send_to(bytes, to).expect("sent");
        }
    }
    let both: Vec<_> = both(&mut sockets, &addresses, [&hosts, &hosts], None);
    assert!(both.iter().all(Result::is_ok), "{both:?}");
}

#[test]
fn datagrams_of_another_version_or_list_are_counted_and_end_nothing() {
    let _alone = alone();
    let (mut sockets, addresses, hosts) = sockets(2);
    // from an address in the list, which a user of that host can forge where the port is not privileged
    let version = [&b"CLNC\x02\x01\0\0"[..], &[0; 12]].concat();
    let list = [&b"CLNC\x01\x01\0\0"[..], &[0; 12]].concat();
    for bytes in [&version, &version, &list] {
        sockets[1].send_to(bytes, addresses[0]).expect("sent");
    }
    let both = both(&mut sockets, &addresses, [&hosts, &hosts], None);
    let reports: Vec<_> = both.iter().map(|r| r.as_ref().expect("they are compared")).collect();
    let dropped = Dropped { other_version: 2, other_list: 1, ..Dropped::default() };
    assert_eq!((reports[0].dropped, reports[1].dropped), (dropped, Dropped::default()));
}

#[test]
fn with_a_key_unsigned_datagrams_are_dropped_and_signed_ones_are_not() {
    let _alone = alone();
    let (mut sockets, addresses, hosts) = sockets(2);
    // an end of the comparison, in the name of rank 1
    let forged = colony_clock::wire::Datagram {
        from: 1,
        list: 0,
        cycle: 1,
        message: colony_clock::wire::Message::Abort { rank: 1, silent: false },
    };
    sockets[1].send_to(&forged.encode(), addresses[0]).expect("sent");
    let key = Key::new(b"sixteen bytes ok").expect("long enough");
    let both = both(&mut sockets, &addresses, [&hosts, &hosts], Some(key));
    let reports: Vec<_> = both.iter().map(|r| r.as_ref().expect("they are compared")).collect();
    assert_eq!((reports[0].dropped.unsigned, reports[1].dropped.unsigned), (1, 0));
}

#[test]
fn another_host_list_is_told_on_both_sides() {
    let _alone = alone();
    let (mut sockets, addresses, hosts) = sockets(2);
    let mut other = hosts.clone();
    other[1].name = "localhost".into();
    let both = both(&mut sockets, &addresses, [&hosts, &other], None);
    assert!(matches!(both[0], Err(SyncError::OtherList { rank: 1, .. })), "{:?}", both[0]);
    assert!(matches!(both[1], Err(SyncError::OtherList { rank: 0, .. })), "{:?}", both[1]);
}

/// One walk of two nodes, each with a list of its own.
fn both(
    sockets: &mut Vec<UdpSocket>,
    addresses: &[SocketAddr],
    lists: [&[Host]; 2],
    key: Option<Key>,
) -> Vec<Result<SyncReport, SyncError>> {
    std::thread::scope(|s| {
        let nodes: Vec<_> = sockets
            .drain(..)
            .zip(clocks(2))
            .zip(lists)
            .zip(0..)
            .map(|(((socket, clock), list), rank)| {
                // those that do not understand each other say so when this is over
                let silence_timeout = if lists[0] == lists[1] { 20_000 } else { 1_500 };
                let silence_timeout = Duration::from_millis(silence_timeout);
                let config = Config { silence_timeout, key: key.clone(), ..config(list, rank) };
                s.spawn(move || {
                    let node = Node::with_socket(config, clock, socket, addresses.to_vec());
                    let mut node = node.expect("a node");
                    let report = node.walk();
                    report.and_then(|r| node.linger().map(|()| r))
                })
            })
            .collect();
        nodes.into_iter().map(|n| n.join().expect("no panic")).collect()
    })
}

#[test]
fn a_rank_outside_the_list_is_wrong_use() {
    let (mut sockets, addresses, hosts) = sockets(1);
    let socket = sockets.pop().expect("one");
    let refused = Node::with_socket(config(&hosts, 1), clocks(1)[0], socket, addresses);
    let error = refused.expect_err("no rank 1");
    assert!(error.is_wrong_use() && error.to_string().contains("rank 1"), "{error}");
}
