// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulated transport: parameters, and the time of a push.

use serde::{Deserialize, Serialize};

use crate::{ModelError, PushTree, Sender};

/// One kind of connection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Bytes per second that a sender puts out, on all its connections together.
    pub bytes_per_s: f64,
    /// Time of a message of no length, one way.
    pub latency_s: f64,
    /// CPU time of the sender for a connection.
    pub connection_s: f64,
    /// Connections that a sender serves at the same time.
    pub parallel: u32,
}

/// The parameters of a simulated boot. The defaults are assumptions, not measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Transport {
    /// From the service node to I/O nodes, and between I/O nodes.
    pub network: Link,
    /// From an I/O node to its compute nodes.
    pub collective: Link,
    /// Time from an I/O node's image to its I/O daemon.
    pub io_boot_s: f64,
    /// Time from a compute node's kernel to its first report.
    pub node_boot_s: f64,
    /// CPU time of the receiver for a report.
    pub report_s: f64,
    /// Interval at which each node reports that it lives.
    pub heartbeat_s: f64,
}

impl Default for Transport {
    /// Gigabit Ethernet, and Blue Gene/L's collective network at 350 MB/s.
    fn default() -> Self {
        Self {
            network: Link { bytes_per_s: 117e6, latency_s: 50e-6, connection_s: 200e-6, parallel: 32 },
            collective: Link { bytes_per_s: 350e6, latency_s: 5e-6, connection_s: 20e-6, parallel: 8 },
            io_boot_s: 2.0,
            node_boot_s: 0.02,
            report_s: 20e-6,
            heartbeat_s: 0.5,
        }
    }
}

impl Transport {
    /// Refuses parameters that make no time.
    ///
    /// # Errors
    /// [`ModelError::Transport`].
    pub fn check(&self) -> Result<(), ModelError> {
        let [network, collective] = [&self.network, &self.collective];
        let positive = [
            ("network bandwidth", network.bytes_per_s),
            ("network parallelism", network.parallel.into()),
            ("collective bandwidth", collective.bytes_per_s),
            ("collective parallelism", collective.parallel.into()),
            ("heartbeat interval", self.heartbeat_s),
        ];
        let others = [
            ("network latency", network.latency_s),
            ("network connection time", network.connection_s),
            ("collective latency", collective.latency_s),
            ("collective connection time", collective.connection_s),
            ("boot time of I/O nodes", self.io_boot_s),
            ("boot time of compute nodes", self.node_boot_s),
            ("report time", self.report_s),
        ];
        let refuse = |(parameter, found): (&'static str, f64), bound| ModelError::Transport {
            parameter,
            found: found.to_string(),
            bound,
        };
        let wrong =
            positive.into_iter().find(|(_, v)| !(v.is_finite() && *v > 0.0)).map(|p| refuse(p, "above 0"));
        let wrong = wrong.or_else(|| {
            let other = others.into_iter().find(|(_, v)| !(v.is_finite() && *v >= 0.0));
            other.map(|p| refuse(p, "of at least 0"))
        });
        wrong.map_or(Ok(()), Err)
    }
}

impl Link {
    /// Calls `done` with the time at which each receiver has its bytes, in order. A sender serves `parallel` receivers
    /// at a time: it makes their connections one after the other, then all share its bandwidth. Returns the end.
    fn send(&self, start: f64, bytes: impl Iterator<Item = u64>, mut done: impl FnMut(f64)) -> f64 {
        let (mut now, mut bytes) = (start, bytes.peekable());
        while bytes.peek().is_some() {
            let (mut count, mut sum) = (0, 0.0);
            for one in bytes.by_ref().take(self.parallel as usize) {
                count += 1;
                sum += one as f64;
            }
            // there and back once for the connection, and once for the bytes and their receipt
            now += f64::from(count) * self.connection_s + 4.0 * self.latency_s + sum / self.bytes_per_s;
            (0..count).for_each(|_| done(now));
        }
        now
    }
}

/// Bytes that are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Loads {
    /// To each I/O node for itself: its image and the kernel of its compute nodes.
    pub(crate) io: u64,
    /// To an I/O node for each I/O node of its subtree: the personalities of the pset and of the I/O node.
    pub(crate) pset: u64,
    /// To each compute node.
    pub(crate) node: u64,
}

impl Loads {
    /// Bytes to an I/O node with so many I/O nodes in its subtree.
    pub(crate) fn to_io(self, subtree: u32) -> u64 {
        self.io.saturating_add(u64::from(subtree) * self.pset)
    }
}

/// Times of a push, in seconds from its start.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Timeline {
    /// Each I/O node has its data.
    pub(crate) io_given: Vec<f64>,
    /// The last compute node of each pset has its data.
    pub(crate) pset_given: Vec<f64>,
    /// The service node has the report of the last node.
    pub(crate) reported: f64,
}

/// Simulates the push, and the reports that go back up the tree: an I/O node reports when all below it have.
pub(crate) fn simulate(tree: PushTree, loads: Loads, transport: &Transport) -> Timeline {
    let psets = tree.psets().count();
    let subtrees = tree.subtrees();
    let (mut io_given, mut pset_given) =
        (Vec::with_capacity(psets as usize), Vec::with_capacity(psets as usize));
    let to_io = |from: Sender| tree.io_children(from).map(|p| loads.to_io(subtrees[p as usize]));
    transport.network.send(0.0, to_io(Sender::Service), |at| io_given.push(at));
    // children have higher numbers than their parents, in the order of the parents
    for pset in 0..psets {
        let ready = io_given[pset as usize] + transport.io_boot_s;
        let sent = transport.network.send(ready, to_io(Sender::Io(pset)), |at| io_given.push(at));
        let nodes = (0..tree.psets().size().nodes()).map(|_| loads.node);
        pset_given.push(transport.collective.send(sent, nodes, |_| ()));
    }
    let report = |link: &Link, count: u32| link.latency_s + f64::from(count) * transport.report_s;
    let mut reported = vec![0.0; psets as usize];
    for pset in (0..psets).rev() {
        let nodes = pset_given[pset as usize] + transport.node_boot_s;
        let own = nodes + report(&transport.collective, tree.psets().size().nodes());
        let below = tree.io_children(Sender::Io(pset));
        let count = below.len() as u32;
        let last = below.map(|p| reported[p as usize]).fold(0.0, f64::max);
        let below = if count > 0 { last + report(&transport.network, count) } else { 0.0 };
        reported[pset as usize] = own.max(below);
    }
    let first = tree.io_children(Sender::Service);
    let count = first.len() as u32;
    let last = first.map(|p| reported[p as usize]).fold(0.0, f64::max);
    Timeline { io_given, pset_given, reported: last + report(&transport.network, count) }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::{PsetSize, Psets, Shape};

    #[test]
    fn a_push_by_hand() {
        let psets = Psets::new(Shape::MIDPLANE, PsetSize::new(128).expect("a size")).expect("psets");
        let tree = PushTree::new(psets, NonZeroU32::new(2).expect("not 0"));
        let link = Link { bytes_per_s: 10.0, latency_s: 1.0, connection_s: 3.0, parallel: 1 };
        let transport = Transport {
            network: link,
            collective: Link { parallel: 128, ..link },
            io_boot_s: 100.0,
            node_boot_s: 5.0,
            report_s: 0.0,
            heartbeat_s: 1.0,
        };
        let seen = simulate(tree, Loads { io: 10, pset: 20, node: 10 }, &transport);
        // psets 2 and 3 are below pset 0: 3 + 4 + 70/10, then 3 + 4 + 30/10
        assert_eq!(seen.io_given, [14.0, 24.0, 124.0, 134.0]);
        // 128 × 3 + 4 + 1280/10 after the I/O nodes below
        assert_eq!(seen.pset_given, [650.0, 640.0, 740.0, 750.0]);
        assert_eq!(seen.reported, 750.0 + 5.0 + 3.0);
    }

    #[test]
    fn parameters_that_make_no_time_are_refused() {
        assert_eq!(Transport::default().check(), Ok(()));
        let refused = |change: fn(&mut Transport)| {
            let mut transport = Transport::default();
            change(&mut transport);
            transport.check().expect_err("refused").to_string()
        };
        assert!(refused(|t| t.network.bytes_per_s = 0.0).contains("network bandwidth of 0"));
        assert!(refused(|t| t.collective.parallel = 0).contains("collective parallelism of 0"));
        assert!(refused(|t| t.io_boot_s = -1.0).contains("at least 0"));
        assert!(refused(|t| t.node_boot_s = f64::NAN).contains("NaN"));
        assert!(refused(|t| t.heartbeat_s = f64::INFINITY).contains("inf"));
    }
}
