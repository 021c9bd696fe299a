// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the bandwidth of many nodes grows until something saturates: a closed queueing network with the service times that
//! were measured.
//!
//! Each node sends a transfer, waits for it, computes what the next one takes, and so on. Its own time is a delay; its
//! I/O process is a queue that it shares with the other nodes of its pset; the storage is one queue for all. Every node
//! and every I/O process has a processor of its own. Waiting times are those of the approximate mean value analysis
//! of Bard and Schweitzer (Schweitzer 1979), for psets that are alike: exact for one node and for very many, and a
//! few per cent off in between.

use serde::{Deserialize, Serialize};

/// Service times of a transfer, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Services {
    /// Of the node: program, kernel, its side of the window.
    pub node_ns: f64,
    /// Of the I/O process, without the file system's part.
    pub io_ns: f64,
    /// Of the file system, in system calls of the I/O process.
    pub file_system_ns: f64,
    /// Of the storage below the file system, used by nobody else; 0 for a file system in memory.
    pub storage_ns: f64,
}

/// A part that can be busy all of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Saturated {
    /// The nodes themselves: more nodes, more bandwidth.
    Nodes,
    /// The I/O processes, with the file system's part in them.
    IoProcess,
    /// The storage.
    Storage,
    /// The processors of this host, which nodes and I/O processes share.
    Host,
}

impl Saturated {
    /// Its name for a table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::IoProcess => "I/O process",
            Self::Storage => "storage",
            Self::Host => "host CPUs",
        }
    }
}

impl Services {
    /// Time of an I/O process for a transfer.
    fn served_ns(&self) -> f64 {
        self.io_ns + self.file_system_ns
    }

    /// Transfers a second of `nodes` nodes with `io_nodes` I/O nodes, each on a processor of its own.
    #[must_use]
    pub fn transfers_per_s(&self, nodes: u32, io_nodes: u32) -> f64 {
        let psets = f64::from(io_nodes.min(nodes).max(1));
        let each = f64::from(nodes) / psets;
        let (served, stored) = (self.served_ns(), self.storage_ns);
        // nodes at the I/O process of a pset, and of a pset at the storage
        let (mut at_io, mut at_storage, mut rate) = (0.0, 0.0, 0.0);
        for _ in 0..10_000 {
            let others = (each - 1.0) / each;
            let io_ns = served * (1.0 + others * at_io);
            let storage_ns = stored * (1.0 + (others + psets - 1.0) * at_storage);
            let next = each / (self.node_ns + io_ns + storage_ns).max(f64::MIN_POSITIVE);
            let done = (next - rate).abs() <= 1e-12 * next;
            (at_io, at_storage, rate) = (next * io_ns, next * storage_ns, next);
            if done {
                break;
            }
        }
        rate * psets * 1e9
    }

    /// The part that saturates first as nodes are added, and the number of nodes from which on it does: where the line of
    /// nodes that never wait meets that part's bound. Nothing saturates if nothing takes time.
    #[must_use]
    pub fn saturation(&self, io_nodes: u32) -> (Saturated, f64) {
        let (io_ns, storage_ns) = (self.served_ns() / f64::from(io_nodes.max(1)), self.storage_ns);
        let alone_ns = self.node_ns + self.served_ns() + self.storage_ns;
        match io_ns.max(storage_ns) {
            most if most <= 0.0 => (Saturated::Nodes, f64::INFINITY),
            most if storage_ns > io_ns => (Saturated::Storage, alone_ns / most),
            most => (Saturated::IoProcess, alone_ns / most),
        }
    }

    /// Transfers a second on this host, whose processors nodes and I/O processes share: never more than these can do.
    #[must_use]
    pub fn transfers_per_s_here(&self, nodes: u32, io_nodes: u32, cpus: u32) -> f64 {
        let cpu_ns = self.node_ns + self.served_ns();
        let host = f64::from(cpus) * 1e9 / cpu_ns.max(f64::MIN_POSITIVE);
        self.transfers_per_s(nodes, io_nodes).min(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Services = Services { node_ns: 7000.0, io_ns: 600.0, file_system_ns: 400.0, storage_ns: 0.0 };

    /// Exact mean value analysis of one queue and a delay (Reiser and Lavenberg 1980).
    fn exact(nodes: u32, think_ns: f64, service_ns: f64) -> f64 {
        let mut waiting = 0.0;
        let mut rate = 0.0;
        for n in 1..=nodes {
            let response = service_ns * (1.0 + waiting);
            rate = f64::from(n) / (think_ns + response);
            waiting = rate * response;
        }
        rate * 1e9
    }

    #[test]
    fn one_io_node_is_as_exact_analysis_says_within_a_few_per_cent() {
        for nodes in [1, 2, 4, 8, 16, 64, 1024] {
            let (ours, exact) = (S.transfers_per_s(nodes, 1), exact(nodes, 7000.0, 1000.0));
            assert!((ours / exact - 1.0).abs() < 0.05, "{nodes}: {ours} {exact}");
        }
        assert!((S.transfers_per_s(1, 1) - 1e9 / 8000.0).abs() < 1e-3, "a node alone waits for nobody");
        assert!((S.transfers_per_s(1024, 1) / 1e6 - 1.0).abs() < 1e-3, "the I/O process is always busy");
    }

    #[test]
    fn bounds_hold_and_psets_do_not_disturb_each_other() {
        let disk = Services { storage_ns: 500.0, ..S };
        for services in [S, disk] {
            for io_nodes in [1, 2, 4, 16, 256] {
                let mut last = 0.0;
                for nodes in [1, 2, 8, 64, 512, 2048] {
                    let rate = services.transfers_per_s(nodes, io_nodes);
                    let alone = f64::from(nodes) * 1e9
                        / (services.node_ns + services.served_ns() + services.storage_ns);
                    let io = f64::from(io_nodes.min(nodes)) * 1e9 / services.served_ns();
                    let storage = 1e9 / services.storage_ns;
                    assert!(rate <= alone.min(io).min(storage) * 1.000_001, "{nodes} {io_nodes}: {rate}");
                    assert!(rate >= last * 0.999_999, "more nodes are never slower");
                    last = rate;
                }
            }
        }
        let (four, one) = (S.transfers_per_s(64, 4), S.transfers_per_s(16, 1));
        assert!((four / one / 4.0 - 1.0).abs() < 1e-6, "{four} {one}");
    }

    #[test]
    fn the_part_with_the_longest_service_saturates() {
        assert_eq!(S.saturation(1), (Saturated::IoProcess, 8.0));
        assert_eq!(S.saturation(4), (Saturated::IoProcess, 32.0));
        let disk = Services { storage_ns: 500.0, ..S };
        assert_eq!(disk.saturation(1).0, Saturated::IoProcess);
        assert_eq!(disk.saturation(4), (Saturated::Storage, 17.0));
        assert_eq!(Services::default().saturation(1), (Saturated::Nodes, f64::INFINITY));
        // two processors for nodes and I/O processes: 4 µs a transfer at best
        assert!((S.transfers_per_s_here(8, 2, 2) - 250_000.0).abs() < 1e-6);
    }
}
