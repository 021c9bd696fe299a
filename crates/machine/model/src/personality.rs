// SPDX-License-Identifier: MIT OR Apache-2.0
//! Personalities: what a node is told about itself (SC06 paper, table 1).

use serde::Serialize;

use crate::{
    BitSteering, CollectiveRoute, IoNetwork, Location, ModelError, NodeMemory, NodeRef, Partition,
    SecurityKey, Shape, Site,
};

/// A node's place in the machine and in its partition, as the control system gives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Personality {
    /// The node's place in the machine room.
    pub location: Location,
    /// Bytes of memory.
    pub memory: u64,
    /// Failed bits of the memory, which spare bits replace.
    pub steering: BitSteering,
    /// Extent of the partition's torus.
    pub torus: Shape,
    /// Number of the pset, from 0.
    pub pset: u32,
    /// Compute nodes of each pset.
    pub pset_size: u32,
    /// Links in the collective network.
    pub route: CollectiveRoute,
    /// What compute nodes and I/O nodes do not share.
    pub role: Role,
}

/// The part of a personality that depends on the kind of node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A compute node.
    Compute {
        /// Its number in the partition, from 0.
        node: u32,
        /// Its coordinates in the torus.
        coords: [u32; 3],
        /// Its rank in the pset.
        in_pset: u32,
    },
    /// An I/O node; its number is that of its pset.
    Io(IoNetwork),
}

impl Personality {
    /// The node in its partition.
    #[must_use]
    pub const fn node(&self) -> NodeRef {
        match self.role {
            Role::Compute { node, .. } => NodeRef::Compute(node),
            Role::Io(_) => NodeRef::Io(self.pset),
        }
    }

    /// Psets of the partition.
    #[must_use]
    pub const fn psets(&self) -> u32 {
        match self.torus.nodes().checked_div(self.pset_size) {
            Some(psets) => psets,
            None => 0,
        }
    }
}

impl Partition {
    /// Personality of compute node `node`, which is taken modulo the number of nodes.
    #[must_use]
    pub fn compute_personality(&self, node: u32, memory: impl Into<NodeMemory>) -> Personality {
        let node = node % self.nodes();
        let (pset, in_pset) = self.psets().place(node);
        let coords = self.block().shape().coords(node);
        let role = Role::Compute { node, coords, in_pset };
        self.personality(NodeRef::Compute(node), self.location(node), memory.into(), pset, role)
    }

    /// Personality of the I/O node of pset `pset`, which is taken modulo the number of psets.
    ///
    /// # Errors
    /// What [`Site::check`] refuses for this machine.
    pub fn io_personality(
        &self,
        pset: u32,
        memory: impl Into<NodeMemory>,
        site: &Site,
        key: SecurityKey,
    ) -> Result<Personality, ModelError> {
        site.check(self.machine().io_nodes())?;
        let (pset, location) = (pset % self.psets().count(), self.io_location(pset));
        let network = site.io_network(self.machine().io_number(location)?, key);
        Ok(self.personality(NodeRef::Io(pset), location, memory.into(), pset, Role::Io(network)))
    }

    fn personality(
        &self,
        node: NodeRef,
        location: Location,
        memory: NodeMemory,
        pset: u32,
        role: Role,
    ) -> Personality {
        Personality {
            location,
            memory: memory.bytes,
            steering: memory.steering,
            torus: self.block().shape(),
            pset,
            pset_size: self.psets().size().nodes(),
            route: self.collective().route(node),
            role,
        }
    }
}
