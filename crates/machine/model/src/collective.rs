// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routes in the collective network of a partition.
//!
//! The I/O nodes are a binary heap: those of psets `2 p + 1` and `2 p + 2` are children of that of pset `p`. The compute
//! nodes of a pset are a binary heap by their rank in the pset, and rank 0 is a child of the pset's I/O node. So an I/O
//! node has at most three children, and a compute node at most two.
//!
//! The software tree of `colony-torus`, which combines values in shared memory, is another one.

use std::fmt;

use serde::Serialize;

use crate::Psets;

/// A node of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeRef {
    /// The compute node with this number in the partition.
    Compute(u32),
    /// The I/O node of the pset with this number.
    Io(u32),
}

impl fmt::Display for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compute(node) => write!(f, "node {node}"),
            Self::Io(pset) => write!(f, "I/O node {pset}"),
        }
    }
}

/// The links of one node in the collective network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CollectiveRoute {
    /// The node that values go up to; `None` for the root, which is the I/O node of pset 0.
    pub parent: Option<NodeRef>,
    /// The nodes that results go down to; those that are there come first.
    pub children: [Option<NodeRef>; 3],
    /// Links between this node and the root.
    pub depth: u32,
}

/// The collective network of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collective {
    psets: Psets,
}

impl Collective {
    /// The tree over these psets.
    #[must_use]
    pub const fn new(psets: Psets) -> Self {
        Self { psets }
    }

    /// The route of a node. Numbers are taken modulo the number of nodes.
    #[must_use]
    pub fn route(self, node: NodeRef) -> CollectiveRoute {
        match node {
            NodeRef::Compute(node) => self.compute(node),
            NodeRef::Io(pset) => self.io(pset % self.psets.count()),
        }
    }

    /// The largest depth of a node: ⌊log₂ psets⌋ + 1 + ⌊log₂ nodes of a pset⌋.
    #[must_use]
    pub const fn depth(self) -> u32 {
        self.psets.count().ilog2() + 1 + self.psets.size().nodes().ilog2()
    }

    fn compute(self, node: u32) -> CollectiveRoute {
        let (pset, rank) = self.psets.place(node);
        let peer = |rank: u32| NodeRef::Compute(self.psets.node(pset, rank));
        let parent = if rank == 0 { NodeRef::Io(pset) } else { peer((rank - 1) / 2) };
        let child = |rank: u32| (rank < self.psets.size().nodes()).then(|| peer(rank));
        CollectiveRoute {
            parent: Some(parent),
            children: [child(2 * rank + 1), child(2 * rank + 2), None],
            depth: (pset + 1).ilog2() + 1 + (rank + 1).ilog2(),
        }
    }

    fn io(self, pset: u32) -> CollectiveRoute {
        let child = |pset: u32| (pset < self.psets.count()).then_some(NodeRef::Io(pset));
        CollectiveRoute {
            parent: pset.checked_sub(1).map(|above| NodeRef::Io(above / 2)),
            children: [
                Some(NodeRef::Compute(self.psets.node(pset, 0))),
                child(2 * pset + 1),
                child(2 * pset + 2),
            ],
            depth: (pset + 1).ilog2(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::{PsetSize, Shape};

    /// From the root down: every node once, by the link that it knows as its parent's, at the depth it says.
    fn check(tree: Collective, nodes: u32) {
        let mut depths = HashMap::new();
        let mut next = vec![(NodeRef::Io(0), None, 0)];
        while let Some((node, parent, depth)) = next.pop() {
            let route = tree.route(node);
            assert_eq!((route.parent, route.depth), (parent, depth), "{node}");
            assert!(depths.insert(node, depth).is_none(), "{node} is reached twice");
            next.extend(route.children.into_iter().flatten().map(|child| (child, Some(node), depth + 1)));
        }
        assert_eq!(depths.len() as u32, nodes + tree.psets.count());
        assert_eq!(depths.values().max(), Some(&tree.depth()));
    }

    #[test]
    fn every_node_is_reached_once_and_no_deeper_than_the_bound() {
        let sides = [[2, 2, 2], [4, 2, 8], [4, 4, 4], [8, 8, 8], [24, 8, 8], [16, 16, 8], [40, 24, 8]];
        for (sides, size) in sides.into_iter().flat_map(|s| PsetSize::ALL.map(|size| (s, size))) {
            let block = Shape::new(sides).expect("a shape");
            if let Ok(psets) = Psets::new(block, size) {
                check(Collective::new(psets), block.nodes());
            }
        }
    }

    #[test]
    fn the_largest_machine_of_blue_gene_has_seventeen_levels() {
        let block: Shape = "64x32x32".parse().expect("a shape");
        let psets = Psets::new(block, PsetSize::new(64).expect("a size")).expect("psets");
        let tree = Collective::new(psets);
        check(tree, 65_536);
        assert_eq!(tree.depth(), 17);
    }
}
