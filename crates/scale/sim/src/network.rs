// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network between two ranks.

use serde::{Deserialize, Serialize};

use crate::{Layout, LogGops};

/// A network: LogGOPS, with a latency that may depend on the two ends.
pub trait Network: Send + Sync {
    /// The parameters every message shares.
    fn loggops(&self) -> &LogGops;

    /// Time of the first byte from rank to rank, nanoseconds.
    fn latency_ns(&self, from: u32, to: u32) -> u64;

    /// The latency, where it is the same between any two ranks: engines are faster then.
    fn uniform_ns(&self) -> Option<u64> {
        None
    }
}

/// The connection of the nodes; a hop is a link between two neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Topology {
    /// Every node as far from every other: plain LogGOPS.
    #[default]
    Flat,
    /// A three-dimensional torus (Blue Gene/L, SC06): nodes in x, then y, then z order.
    Torus {
        /// Nodes along each dimension. Zeros: as near to a cube of powers of two as the node count allows.
        dims: [u32; 3],
        /// Time of a hop after the first, nanoseconds.
        hop_ns: u64,
    },
    /// A fat tree: two hops in the lowest switch, two more for each level above.
    FatTree {
        /// Nodes below a lowest switch, and switches below a switch of each level above.
        radix: u32,
        /// Time of a hop after the first two, nanoseconds.
        hop_ns: u64,
    },
}

/// The network of a machine profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineNetwork {
    loggops: LogGops,
    topology: Topology,
    layout: Layout,
    inside_ns: u64,
}

impl MachineNetwork {
    /// `topology` under ranks placed by `layout`; messages inside a node take `inside_ns` instead of L.
    #[must_use]
    pub fn new(loggops: LogGops, topology: Topology, layout: Layout, inside_ns: Option<u64>) -> Self {
        let topology = match topology {
            Topology::Torus { dims, hop_ns } if dims.contains(&0) => {
                Topology::Torus { dims: cube(layout.nodes()), hop_ns }
            }
            other => other,
        };
        Self { loggops, topology, layout, inside_ns: inside_ns.unwrap_or(loggops.latency_ns) }
    }

    /// The layout of its ranks.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// The least latency between any two ranks: no message is faster.
    #[must_use]
    pub fn least_ns(&self) -> u64 {
        self.uniform_ns().unwrap_or_else(|| self.inside_ns.min(self.loggops.latency_ns))
    }

    /// A latency that no two ranks exceed.
    pub(crate) fn latency_ns_at_most(&self) -> u64 {
        let hop_ns = match self.topology {
            Topology::Flat => 0,
            Topology::Torus { hop_ns, .. } | Topology::FatTree { hop_ns, .. } => hop_ns,
        };
        let hops = u64::from(self.layout.nodes()).saturating_add(64);
        self.inside_ns.max(self.loggops.latency_ns.saturating_add(hop_ns.saturating_mul(hops)))
    }

    /// Hops between two nodes; 0 for the same one.
    #[must_use]
    pub fn hops(&self, a: u32, b: u32) -> u32 {
        match self.topology {
            _ if a == b => 0,
            Topology::Flat => 1,
            Topology::Torus { dims: [x, y, z], .. } => {
                let way = |a: u32, b: u32, n: u32| {
                    let d = a.abs_diff(b);
                    d.min(n - d)
                };
                let at = |n: u32| [n % x, n / x % y, n / x / y % z];
                let ([ax, ay, az], [bx, by, bz]) = (at(a), at(b));
                way(ax, bx, x) + way(ay, by, y) + way(az, bz, z)
            }
            Topology::FatTree { radix, .. } => {
                let (mut a, mut b, mut hops) = (a, b, 0);
                while a != b {
                    (a, b, hops) = (a / radix.max(2), b / radix.max(2), hops + 2);
                }
                hops
            }
        }
    }
}

/// Dimensions of a torus of `nodes` nodes, as equal as its prime factors allow, the largest last.
#[must_use]
pub fn cube(nodes: u32) -> [u32; 3] {
    let dims = grid(nodes, 3);
    [dims[0], dims[1], dims[2]]
}

/// The same in any number of dimensions, at least one.
#[must_use]
pub fn grid(nodes: u32, dimensions: usize) -> Vec<u32> {
    let (mut dims, mut left, mut factors, mut p) =
        (vec![1u32; dimensions.max(1)], nodes.max(1), Vec::new(), 2u32);
    while left > 1 {
        if p.saturating_mul(p) > left {
            p = left;
        }
        while left.is_multiple_of(p) {
            factors.push(p);
            left /= p;
        }
        p += 1;
    }
    for f in factors.into_iter().rev() {
        dims.sort_unstable();
        dims[0] *= f;
    }
    dims.sort_unstable();
    dims
}

impl Network for MachineNetwork {
    fn loggops(&self) -> &LogGops {
        &self.loggops
    }

    fn latency_ns(&self, from: u32, to: u32) -> u64 {
        let (a, b) = (self.layout.core(from).node, self.layout.core(to).node);
        if a == b {
            return self.inside_ns;
        }
        let more = match self.topology {
            Topology::Flat => 0,
            Topology::Torus { hop_ns, .. } => u64::from(self.hops(a, b).saturating_sub(1)) * hop_ns,
            Topology::FatTree { hop_ns, .. } => u64::from(self.hops(a, b).saturating_sub(2)) * hop_ns,
        };
        self.loggops.latency_ns + more
    }

    fn uniform_ns(&self) -> Option<u64> {
        let one_a_node = self.layout.ranks_per_node() == 1 || self.inside_ns == self.loggops.latency_ns;
        (self.topology == Topology::Flat && one_a_node).then_some(self.loggops.latency_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(topology: Topology, nodes: u32) -> MachineNetwork {
        MachineNetwork::new(LogGops::default(), topology, Layout::one_a_node(nodes).expect("some"), None)
    }

    #[test]
    fn hops_are_those_of_the_machine() {
        let t = network(Topology::Torus { dims: [0; 3], hop_ns: 10 }, 512);
        assert_eq!((t.hops(0, 0), t.hops(0, 1), t.hops(0, 7), t.hops(0, 4), t.hops(0, 511)), (0, 1, 1, 4, 3));
        assert_eq!((t.latency_ns(0, 1), t.latency_ns(0, 4)), (2500, 2530));
        let f = network(Topology::FatTree { radix: 16, hop_ns: 100 }, 4096);
        assert_eq!((f.hops(0, 15), f.hops(0, 16), f.hops(0, 4095)), (2, 4, 6));
        assert_eq!((f.latency_ns(0, 1), f.latency_ns(0, 16), f.uniform_ns()), (2500, 2700, None));
        assert_eq!(network(Topology::Flat, 8).uniform_ns(), Some(2500));
        let two = MachineNetwork::new(
            LogGops::default(),
            Topology::Flat,
            Layout::new(4, 2).expect("some"),
            Some(300),
        );
        assert_eq!((two.latency_ns(0, 1), two.latency_ns(1, 2), two.uniform_ns()), (300, 2500, None));
    }

    #[test]
    fn tori_are_near_to_cubes() {
        assert_eq!(cube(512), [8, 8, 8]);
        assert_eq!(cube(16_384), [16, 32, 32]);
        assert_eq!((cube(1), cube(7), cube(1 << 20)), ([1, 1, 1], [1, 1, 7], [64, 128, 128]));
    }
}
