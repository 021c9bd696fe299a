// SPDX-License-Identifier: MIT OR Apache-2.0
//! Partitions: blocks of the machine that run jobs, apart from each other.

use serde::Serialize;

use crate::{Block, Collective, Location, Machine, ModelError, PsetSize, Psets};

/// A partition: a named block of the machine, covered by psets.
///
/// Compute nodes have numbers from 0 along x first, then y, then z; I/O nodes have the numbers of their psets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Partition {
    name: String,
    machine: Machine,
    block: Block,
    psets: Psets,
}

impl Partition {
    /// A partition of the machine. [`Block::name`] makes the usual name.
    ///
    /// # Errors
    /// [`ModelError::Name`] for a name that is not 1 to 31 letters, digits, `-` and `_`; [`ModelError::PsetTooLarge`];
    /// [`ModelError::Outside`] for a block of a larger machine.
    pub fn new(machine: Machine, name: &str, block: Block, pset: PsetSize) -> Result<Self, ModelError> {
        check_name(name)?;
        let block = Block::new(machine, block.origin(), block.shape())?;
        Ok(Self { name: name.into(), machine, block, psets: Psets::new(block.shape(), pset)? })
    }

    /// Refuses a partition that cannot exist beside the others.
    ///
    /// # Errors
    /// [`ModelError::NameTaken`] and [`ModelError::Overlap`].
    pub fn check_beside<'a>(&self, others: impl IntoIterator<Item = &'a Self>) -> Result<(), ModelError> {
        for other in others {
            if other.name == self.name {
                return Err(ModelError::NameTaken { name: self.name.clone() });
            }
            if let Some(at) = self.block.overlap(other.block) {
                let location = self.machine.compute_location(at).to_string();
                return Err(ModelError::Overlap {
                    name: self.name.clone(),
                    other: other.name.clone(),
                    location,
                });
            }
        }
        Ok(())
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its machine.
    #[must_use]
    pub const fn machine(&self) -> Machine {
        self.machine
    }

    /// Its nodes in the machine.
    #[must_use]
    pub const fn block(&self) -> Block {
        self.block
    }

    /// Its psets.
    #[must_use]
    pub const fn psets(&self) -> Psets {
        self.psets
    }

    /// Its collective network.
    #[must_use]
    pub const fn collective(&self) -> Collective {
        Collective::new(self.psets)
    }

    /// Its compute nodes.
    #[must_use]
    pub const fn nodes(&self) -> u32 {
        self.block.shape().nodes()
    }

    /// Location of compute node `node`, which is taken modulo the number of nodes.
    #[must_use]
    pub fn location(&self, node: u32) -> Location {
        self.machine.compute_location(self.machine_coords(node))
    }

    /// Location of the I/O node of pset `pset`, which is taken modulo the number of psets.
    #[must_use]
    pub fn io_location(&self, pset: u32) -> Location {
        self.machine.io_location(self.machine_coords(self.psets.node(pset, 0)))
    }

    /// Number of the compute node at a location.
    ///
    /// # Errors
    /// [`ModelError::NoSuchLocation`] if the location is not a compute node of this partition.
    pub fn node_at(&self, location: Location) -> Result<u32, ModelError> {
        let coords = self.machine.coords(location)?;
        if location.kind() == crate::Kind::Compute && self.block.contains(coords) {
            let origin = self.block.origin();
            return Ok(self.block.shape().number([0, 1, 2].map(|a: usize| coords[a] - origin[a])));
        }
        let machine = format!("{} (partition {})", self.block.shape(), self.name);
        Err(ModelError::NoSuchLocation { location: location.to_string(), machine })
    }

    fn machine_coords(&self, node: u32) -> [u32; 3] {
        let (origin, at) = (self.block.origin(), self.block.shape().coords(node));
        [0, 1, 2].map(|axis: usize| origin[axis] + at[axis])
    }
}

/// Names are parts of file names and of URLs.
fn check_name(name: &str) -> Result<(), ModelError> {
    let is_word = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    let starts = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if is_word && starts && name.len() <= 31 {
        Ok(())
    } else {
        Err(ModelError::Name { found: name.chars().take(40).collect() })
    }
}
