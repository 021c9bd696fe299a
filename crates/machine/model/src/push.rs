// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tree by which kernels and personalities are pushed.
//!
//! The service node sends to the first I/O nodes, these to the next ones, and each I/O node to the compute nodes of its
//! pset. Nodes fetch nothing. With fan-out *f*, the I/O nodes of psets `f (p + 1)` to `f (p + 1) + f - 1` are below that of
//! pset `p`, and those of psets 0 to `f - 1` below the service node.

use std::num::NonZeroU32;

use crate::{NodeRef, Psets};

/// A node that sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sender {
    /// The service node.
    Service,
    /// The I/O node of this pset.
    Io(u32),
}

/// Who sends to whom when a partition boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushTree {
    psets: Psets,
    fanout: NonZeroU32,
}

impl PushTree {
    /// The tree over these psets in which a node sends to at most `fanout` I/O nodes.
    #[must_use]
    pub const fn new(psets: Psets, fanout: NonZeroU32) -> Self {
        Self { psets, fanout }
    }

    /// Its psets.
    #[must_use]
    pub const fn psets(self) -> Psets {
        self.psets
    }

    /// The most I/O nodes that a node sends to.
    #[must_use]
    pub const fn fanout(self) -> NonZeroU32 {
        self.fanout
    }

    /// The node that sends to a node.
    #[must_use]
    pub fn parent(self, node: NodeRef) -> Sender {
        match node {
            NodeRef::Compute(node) => Sender::Io(self.psets.place(node).0),
            NodeRef::Io(pset) => (pset / self.fanout).checked_sub(1).map_or(Sender::Service, Sender::Io),
        }
    }

    /// The nodes that a node sends to, in this order: I/O nodes first, as others wait for them.
    pub fn children(self, from: Sender) -> impl Iterator<Item = NodeRef> {
        let own = match from {
            Sender::Service => 0..0,
            Sender::Io(_) => 0..self.psets.size().nodes(),
        };
        let pset = if let Sender::Io(pset) = from { pset } else { 0 };
        let compute = own.map(move |rank| NodeRef::Compute(self.psets.node(pset, rank)));
        self.io_children(from).map(NodeRef::Io).chain(compute)
    }

    /// Psets of the I/O nodes that a node sends to.
    #[must_use]
    pub fn io_children(self, from: Sender) -> std::ops::Range<u32> {
        let place = if let Sender::Io(pset) = from { u64::from(pset) + 1 } else { 0 };
        let (first, count) = (place * u64::from(self.fanout.get()), u64::from(self.psets.count()));
        let end = first + u64::from(self.fanout.get());
        // both are at most the number of psets
        first.min(count) as u32..end.min(count) as u32
    }

    /// Level of the I/O node of a pset: 1 if the service node sends to it.
    #[must_use]
    pub fn level(self, pset: u32) -> u32 {
        let above = |&pset: &u32| (pset / self.fanout).checked_sub(1);
        std::iter::successors(Some(pset), above).count() as u32
    }

    /// Levels of I/O nodes.
    #[must_use]
    pub fn levels(self) -> u32 {
        self.level(self.psets.count() - 1)
    }

    /// I/O nodes in the subtree of each I/O node, with itself, by pset.
    #[must_use]
    pub fn subtrees(self) -> Vec<u32> {
        let mut sizes = vec![1; self.psets.count() as usize];
        for pset in (0..self.psets.count()).rev() {
            if let Sender::Io(above) = self.parent(NodeRef::Io(pset)) {
                sizes[above as usize] += sizes[pset as usize];
            }
        }
        sizes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::{PsetSize, Shape};

    fn tree(shape: &str, pset: u32, fanout: u32) -> PushTree {
        let size = PsetSize::new(pset).expect("a size");
        let psets = Psets::new(shape.parse::<Shape>().expect("a shape"), size).expect("psets");
        PushTree::new(psets, NonZeroU32::new(fanout).expect("not 0"))
    }

    #[test]
    fn every_node_is_sent_to_once_by_its_parent() {
        let shapes = [("2x2x2", 8), ("8x8x8", 8), ("16x24x8", 32)];
        for ((shape, pset), fanout) in
            shapes.into_iter().flat_map(|s| [1, 2, 7, 64, u32::MAX].map(|f| (s, f)))
        {
            let tree = tree(shape, pset, fanout);
            let (mut seen, mut next) = (HashSet::new(), vec![(Sender::Service, 0)]);
            while let Some((from, level)) = next.pop() {
                for node in tree.children(from) {
                    assert!(seen.insert(node) && tree.parent(node) == from, "{node}");
                    if let NodeRef::Io(pset) = node {
                        assert_eq!(tree.level(pset), level + 1);
                        next.push((Sender::Io(pset), level + 1));
                    }
                }
            }
            assert_eq!(seen.len() as u32, tree.psets().count() * (1 + pset));
            let first = tree.io_children(Sender::Service);
            let all: u32 = first.map(|pset| tree.subtrees()[pset as usize]).sum();
            assert_eq!(all, tree.psets().count());
        }
    }

    #[test]
    fn the_largest_machine_of_blue_gene_takes_two_levels_of_thirty_two() {
        assert_eq!(tree("64x32x32", 64, 32).levels(), 2);
        assert_eq!(tree("64x32x32", 64, 31).levels(), 3);
        assert_eq!(tree("64x32x32", 64, 1024).levels(), 1);
    }
}
