// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places of compute nodes: the supervisor has them from a personality or computes them, and workers only pass them on.

use colony_fship::layout::{PERSONALITY_BYTES, Personality};
use colony_model::Role;

use crate::{CiodError, JobSpec};

/// A compute node of a job, and its place in the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number with which the node was attached.
    pub node: u32,
    /// The personality that the node's kernel reads.
    pub personality: Personality,
    /// Number of its I/O node: that of its pset, unless the owner of the partition has another. Nodes of the same I/O node
    /// share a worker.
    pub io_node: u32,
    /// The whole personality in the encoding of the control system, if the partition is part of a machine.
    pub record: Option<Box<[u8; PERSONALITY_BYTES]>>,
}

impl Place {
    /// The place that a personality of the control system names.
    ///
    /// # Errors
    /// [`CiodError::NotCompute`] for the personality of an I/O node.
    pub fn new(node: u32, personality: &colony_model::Personality) -> Result<Self, CiodError> {
        let Role::Compute { node: number, coords, in_pset } = personality.role else {
            return Err(CiodError::NotCompute { node, location: personality.location.to_string() });
        };
        let known = Personality {
            node: number,
            nodes: personality.torus.nodes(),
            dims: personality.torus.sides(),
            coords,
            pset: personality.pset,
            in_pset,
            host: host_name(&personality.location.to_string()),
        };
        let record = Some(Box::new(personality.encode()));
        Ok(Self { node, personality: known, io_node: personality.pset, record })
    }

    /// Places of nodes that are not part of a machine. Coordinates count along x first, then y, then z; psets are
    /// consecutive nodes ([`JobSpec::torus`], [`JobSpec::pset`]).
    pub fn row(spec: &JobSpec, nodes: &[u32]) -> Vec<Self> {
        let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let dims = spec.torus.unwrap_or([count, 1, 1]);
        let [x, y, _] = dims.map(|d| d.max(1));
        let pset = spec.pset.unwrap_or(count).max(1);
        let place = |(at, &node): (u32, &u32)| {
            let personality = Personality {
                node: at,
                nodes: count,
                dims,
                coords: [at % x, at / x % y, at / x / y],
                pset: at / pset,
                in_pset: at % pset,
                host: host_name(&format!("node{at}")),
            };
            Self { node, personality, io_node: at / pset, record: None }
        };
        (0..).zip(nodes).map(place).collect()
    }
}

/// The name, with at least one zero behind it.
fn host_name(name: &str) -> [u8; 32] {
    let mut host = [0; 32];
    for (to, from) in host.iter_mut().take(31).zip(name.bytes()) {
        *to = from;
    }
    host
}

#[cfg(test)]
mod tests {
    use colony_model::{BitSteering, Block, Machine, NodeMemory, Partition, PsetSize, SecurityKey, Site};

    use super::*;

    fn row(spec: &JobSpec, nodes: u32) -> Vec<Personality> {
        let numbers: Vec<u32> = (0..nodes).collect();
        Place::row(spec, &numbers).into_iter().map(|place| place.personality).collect()
    }

    #[test]
    fn coordinates_in_the_torus_are_distinct() {
        let spec = JobSpec { torus: Some([2, 3, 4]), pset: Some(8), ..JobSpec::new("/bin/a") };
        let all = row(&spec, 24);
        let mut coords: Vec<_> = all.iter().map(|p| p.coords).collect();
        assert_eq!(coords[1], [1, 0, 0], "x first");
        assert_eq!(coords[23], [1, 2, 3]);
        coords.sort_unstable();
        coords.dedup();
        assert_eq!(coords.len(), 24);
        assert_eq!((all[17].pset, all[17].in_pset), (2, 1));
        assert_eq!((all[17].node, all[17].nodes, &all[17].host[..7]), (17, 24, &b"node17\0"[..]));
    }

    #[test]
    fn without_a_torus_all_nodes_are_in_a_row_and_in_one_pset() {
        let all = row(&JobSpec::new("/bin/a"), 3);
        assert_eq!((all[2].dims, all[2].coords), ([3, 1, 1], [2, 0, 0]));
        assert_eq!((all[2].pset, all[2].in_pset), (0, 2));
    }

    #[test]
    fn names_of_nodes_end_with_a_zero() {
        assert_eq!(host_name(&"x".repeat(40))[30..], *b"x\0");
    }

    #[test]
    fn a_personality_names_the_place_of_a_compute_node_only() {
        let machine = Machine::new("4x4x2".parse().expect("a shape")).expect("a machine");
        let size = PsetSize::new(8).expect("a size");
        let partition = Partition::new(machine, "a", Block::whole(machine), size).expect("a partition");
        let steering = BitSteering::default().with("1:17".parse().expect("a bit")).expect("steered");
        let whole = partition.compute_personality(23, NodeMemory { bytes: 64 << 20, steering });
        let place = Place::new(123, &whole).expect("a compute node");
        let known = place.personality;
        assert_eq!((place.node, known.node, known.nodes, known.dims), (123, 23, 32, [4, 4, 2]));
        assert_eq!((known.coords, known.pset, known.in_pset), ([3, 1, 1], 1, 7));
        assert_eq!(&known.host[..15], b"R00-M0-N00-J23\0");
        let record = place.record.expect("it is part of a machine");
        assert_eq!(colony_model::Personality::decode(record.as_slice()), Ok(whole));
        let (site, key) = (Site::default(), SecurityKey::default());
        let io = partition.io_personality(0, 0, &site, key).expect("a personality");
        assert!(matches!(Place::new(100, &io), Err(CiodError::NotCompute { node: 100, .. })));
    }
}
