// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layout: the node and the core of each rank.

use serde::{Deserialize, Serialize};

use crate::SimError;

/// Ranks placed in blocks: the first `ranks_per_node` ranks on node 0, and so on; one rank a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    nodes: u32,
    ranks_per_node: u32,
}

/// A core of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Core {
    /// The node.
    pub node: u32,
    /// The core on it, counted among those that run ranks.
    pub core: u32,
}

impl Layout {
    /// Most ranks that are simulated.
    pub const MAX_RANKS: u64 = 1 << 28;

    /// `nodes` nodes of `ranks_per_node` ranks.
    ///
    /// # Errors
    /// [`SimError::Nodes`] for none, [`SimError::Ranks`] for more than [`Layout::MAX_RANKS`] ranks.
    pub fn new(nodes: u32, ranks_per_node: u32) -> Result<Self, SimError> {
        match u64::from(nodes) * u64::from(ranks_per_node) {
            0 => Err(SimError::Nodes),
            ranks if ranks > Self::MAX_RANKS => Err(SimError::Ranks { ranks, max: Self::MAX_RANKS }),
            _ => Ok(Self { nodes, ranks_per_node }),
        }
    }

    /// One rank on each of `nodes` nodes.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn one_a_node(nodes: u32) -> Result<Self, SimError> {
        Self::new(nodes, 1)
    }

    /// Nodes.
    #[must_use]
    pub const fn nodes(self) -> u32 {
        self.nodes
    }

    /// Ranks on each node.
    #[must_use]
    pub const fn ranks_per_node(self) -> u32 {
        self.ranks_per_node
    }

    /// All ranks.
    #[must_use]
    pub const fn ranks(self) -> u32 {
        self.nodes * self.ranks_per_node
    }

    /// The core on which `rank` runs.
    #[must_use]
    pub const fn core(self, rank: u32) -> Core {
        Core { node: rank / self.ranks_per_node, core: rank % self.ranks_per_node }
    }
}
