// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places of a partition's nodes: which I/O node serves each, and its personality.

use colony_ciod::{JobSpec, Place};
use colony_model::{Block, Machine, ModelError, Partition};

use crate::CnkError;

/// Places of the nodes of a partition.
///
/// A number of nodes makes a row of nodes that one I/O node serves: `8.into()`.
#[derive(Clone, Debug)]
pub struct Places(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// Nodes that are not part of a machine.
    Row { nodes: u32, pset: Option<u32> },
    /// A partition of a machine.
    Block(Box<Partition>),
}

impl Places {
    /// A row of nodes, of which each `pset` consecutive ones have an I/O node of their own; `None`: all have one.
    #[must_use]
    pub fn row(nodes: u32, pset: Option<u32>) -> Self {
        Self(Kind::Row { nodes, pset })
    }

    /// The number of compute nodes.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        match &self.0 {
            Kind::Row { nodes, .. } => *nodes,
            Kind::Block(partition) => partition.nodes(),
        }
    }

    /// The number of I/O nodes.
    #[must_use]
    pub fn io_nodes(&self) -> u32 {
        match &self.0 {
            Kind::Row { nodes, pset } => nodes.div_ceil(pset.unwrap_or(*nodes).max(1)),
            Kind::Block(partition) => partition.psets().count(),
        }
    }

    /// Compute nodes of the largest pset.
    pub(crate) fn pset_nodes(&self) -> u32 {
        match &self.0 {
            Kind::Row { nodes, pset } => pset.unwrap_or(*nodes).min(*nodes),
            Kind::Block(partition) => partition.psets().size().nodes(),
        }
    }

    /// The pset of a node of the partition.
    pub(crate) fn pset(&self, node: u32) -> u32 {
        match &self.0 {
            Kind::Row { nodes, pset } => node / pset.unwrap_or(*nodes).max(1),
            Kind::Block(partition) => partition.psets().place(node).0,
        }
    }

    /// Refuses what no partition can be.
    pub(crate) fn check(&self) -> Result<(), CnkError> {
        let refuse = |text: &str| Err(CnkError::Machine(text.into()));
        match self.0 {
            Kind::Row { nodes: 0, .. } => refuse("a partition has one node at least"),
            Kind::Row { pset: Some(0), .. } => refuse("a pset has one node at least"),
            _ => Ok(()),
        }
    }

    /// The machine that the nodes are part of.
    #[must_use]
    pub fn machine(&self) -> Option<Machine> {
        match &self.0 {
            Kind::Row { .. } => None,
            Kind::Block(partition) => Some(partition.machine()),
        }
    }

    /// The location of the I/O node of a pset of a job: one on a block of the machine inside the partition, or on all nodes.
    /// `None` if the nodes are not part of a machine.
    #[must_use]
    pub fn io_location(&self, block: Option<Block>, pset: u32) -> Option<String> {
        match &self.0 {
            Kind::Row { .. } => None,
            Kind::Block(partition) => Some(part(partition, block).ok()?.io_location(pset).to_string()),
        }
    }

    /// The places of nodes for a job, which gets the extent of their torus: those of a block of the machine inside the
    /// partition, which is wired as a partition of its own, or all. A node has `memory` bytes.
    pub(crate) fn for_job(
        &self,
        spec: &mut JobSpec,
        memory: u64,
        block: Option<Block>,
    ) -> Result<Vec<Place>, CnkError> {
        let refused = |error: ModelError| CnkError::Machine(error.to_string());
        match &self.0 {
            Kind::Row { .. } if block.is_some() => {
                Err(CnkError::Machine("nodes that are not part of a machine have no blocks".into()))
            }
            Kind::Row { nodes, pset } => {
                spec.pset = pset.or(spec.pset);
                let numbers: Vec<u32> = (0..*nodes).collect();
                Ok(Place::row(spec, &numbers))
            }
            Kind::Block(partition) => {
                let part = part(partition, block).map_err(refused)?;
                spec.torus = Some(part.block().shape().sides());
                spec.pset = Some(part.psets().size().nodes());
                let place = |node| {
                    let number = partition.node_at(part.location(node)).map_err(refused)?;
                    Ok(Place::new(number, &part.compute_personality(node, memory))?)
                };
                (0..part.nodes()).map(place).collect()
            }
        }
    }
}

/// The block of a partition as a partition of its own; without a block, all of it.
fn part(partition: &Partition, block: Option<Block>) -> Result<Partition, ModelError> {
    let block = block.unwrap_or(partition.block());
    Partition::new(partition.machine(), partition.name(), block, partition.psets().size())
}

impl From<u32> for Places {
    fn from(nodes: u32) -> Self {
        Self::row(nodes, None)
    }
}

impl From<Partition> for Places {
    fn from(partition: Partition) -> Self {
        Self(Kind::Block(Box::new(partition)))
    }
}

#[cfg(test)]
mod tests {
    use colony_model::{Personality, PsetSize, Shape};

    use super::*;

    fn block(shape: [u32; 3], pset: u32) -> Partition {
        let machine = Machine::new(Shape::MIDPLANE).expect("a machine");
        let block = Block::new(machine, [4, 4, 2], Shape::new(shape).expect("a shape")).expect("a block");
        Partition::new(machine, "test", block, PsetSize::new(pset).expect("a size")).expect("a partition")
    }

    #[test]
    fn nodes_of_a_machine_are_where_the_model_says() {
        let model = block([4, 4, 2], 8);
        let places = Places::from(model.clone());
        assert_eq!((places.nodes(), places.io_nodes()), (32, 4));
        let mut spec = JobSpec::new("/bin/a");
        let all = places.for_job(&mut spec, 16 << 20, None).expect("places");
        assert_eq!((spec.torus, spec.pset), (Some([4, 4, 2]), Some(8)));
        for (node, place) in (0..).zip(&all) {
            let personality = &place.personality;
            assert_eq!((personality.pset, personality.in_pset), model.psets().place(node));
            assert_eq!(personality.coords, model.block().shape().coords(node));
            let host = String::from_utf8_lossy(&personality.host).trim_end_matches('\0').to_owned();
            assert_eq!(host, model.location(node).to_string());
            let record = place.record.as_deref().expect("the nodes are part of a machine");
            assert_eq!(Personality::decode(record), Ok(model.compute_personality(node, 16 << 20)));
        }
        // psets are compact, so the nodes of one are not all consecutive
        assert_eq!(all.iter().map(|p| p.personality.pset).take(5).collect::<Vec<_>>(), [0, 0, 1, 1, 0]);
    }

    #[test]
    fn a_block_of_a_partition_is_wired_as_a_partition_of_its_own() {
        let whole = block([4, 4, 2], 8);
        let places = Places::from(whole.clone());
        let sub = Block::new(whole.machine(), [6, 4, 2], Shape::new([2, 4, 2]).expect("a shape"));
        let sub = sub.expect("a block");
        let mut spec = JobSpec::new("/bin/a");
        let all = places.for_job(&mut spec, 16 << 20, Some(sub)).expect("places");
        assert_eq!((spec.torus, spec.pset, all.len()), (Some([2, 4, 2]), Some(8), 16));
        let numbers: Vec<u32> = all.iter().map(|place| place.node).collect();
        assert_eq!(numbers[..4], [2, 3, 6, 7], "numbers of the partition's nodes");
        assert_eq!(all[2].personality.coords, [0, 1, 0]);
        let host = String::from_utf8_lossy(&all[0].personality.host).trim_end_matches('\0').to_owned();
        assert_eq!(host, whole.location(2).to_string());
        assert_eq!(places.io_location(Some(sub), 0), Some(whole.io_location(1).to_string()));
        let outside = Block::new(whole.machine(), [0, 4, 2], Shape::new([2, 4, 2]).expect("a shape"));
        assert!(places.for_job(&mut spec, 16 << 20, outside.ok()).is_err(), "outside of the partition");
        assert!(Places::row(16, None).for_job(&mut spec, 16 << 20, Some(sub)).is_err());
    }

    #[test]
    fn nodes_in_a_row_have_consecutive_psets_the_last_of_which_may_be_smaller() {
        let places = Places::row(10, Some(4));
        assert_eq!((places.nodes(), places.io_nodes()), (10, 3));
        let all = places.for_job(&mut JobSpec::new("/bin/a"), 16 << 20, None).expect("places");
        let psets: Vec<u32> = all.iter().map(|p| p.personality.pset).collect();
        assert_eq!(psets, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
        assert_eq!(Places::from(5).io_nodes(), 1);
        assert_eq!(Places::row(4, Some(100)).io_nodes(), 1);
        assert!(Places::row(4, Some(0)).check().is_err() && Places::from(0).check().is_err());
    }
}
