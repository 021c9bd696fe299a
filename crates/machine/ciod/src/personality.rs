// SPDX-License-Identifier: MIT OR Apache-2.0
//! Personalities of nodes: given by a control system, or else computed by the supervisor. The worker, which is the user,
//! only passes them on.

use std::collections::BTreeMap;

use colony_fship::layout;
use colony_model::{Personality, Role, Shape};

use crate::control::NodeSetup;
use crate::{CiodError, JobError, JobSpec, NodeLink};

/// The personalities that a control system has given, by number of the node.
#[derive(Debug, Default)]
pub(crate) struct Given(BTreeMap<u32, Place>);

/// The part of a personality that a kernel is told.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    torus: Shape,
    pset_size: u32,
    told: layout::Personality,
}

impl Given {
    /// Keeps the personality of an attached node; an earlier one is replaced.
    pub(crate) fn give(&mut self, number: u32, personality: &Personality) -> Result<(), CiodError> {
        let Role::Compute { node, coords, in_pset } = personality.role else {
            return Err(CiodError::NotCompute { node: number, location: personality.location.to_string() });
        };
        let torus = personality.torus;
        let told = layout::Personality {
            node,
            nodes: torus.nodes(),
            dims: torus.sides(),
            coords,
            pset: personality.pset,
            in_pset,
            host: host_name(&personality.location.to_string()),
        };
        self.0.insert(number, Place { torus, pset_size: personality.pset_size, told });
        Ok(())
    }

    /// Sets torus and pset size of a job on these nodes to those of their personalities, if they have any.
    ///
    /// # Errors
    /// [`JobError::Spec`] if the nodes are not all the nodes of one partition in the order of their numbers, or if the
    /// job's own torus or pset size is another one.
    pub(crate) fn apply(&self, spec: &mut JobSpec, nodes: &[u32]) -> Result<(), JobError> {
        let mut places = nodes.iter().map(|number| (number, self.0.get(number))).peekable();
        let Some((_, Some(&first))) = places.peek().copied() else {
            return match places.find(|(_, place)| place.is_some()) {
                Some((number, _)) => wrong(format!(
                    "node {number} has a personality, and node {} has none: give all nodes one",
                    nodes[0]
                )),
                None => Ok(()),
            };
        };
        for (n, (number, place)) in (0..).zip(places) {
            let is_next = place
                .is_some_and(|p| (p.torus, p.pset_size, p.told.node) == (first.torus, first.pset_size, n));
            if !is_next {
                return wrong(format!(
                    "node {number} has no personality of node {n} of a torus of {}: name the nodes of the partition in order",
                    first.torus
                ));
            }
        }
        if nodes.len() != first.torus.nodes() as usize {
            return wrong(format!(
                "the job has {} nodes, and their partition {}: launch it on all",
                nodes.len(),
                first.torus.nodes()
            ));
        }
        let (dims, size) = (first.torus.sides(), first.pset_size);
        if let Some([x, y, z]) = spec.torus.filter(|&own| own != dims) {
            return wrong(format!(
                "a torus of {x}x{y}x{z} is not that of the partition, {}: leave it out",
                first.torus
            ));
        }
        if let Some(own) = spec.pset.filter(|&own| own != size) {
            return wrong(format!(
                "psets of {own} nodes are not those of the partition, {size}: leave the number out"
            ));
        }
        (spec.torus, spec.pset) = (Some(dims), Some(size));
        Ok(())
    }

    /// Descriptions for the worker of a job's nodes. [`Given::apply`] was applied to the job.
    pub(crate) fn setups(&self, spec: &JobSpec, nodes: &[NodeLink], count: u32) -> Vec<NodeSetup> {
        let setup = |(node, computed): (&NodeLink, layout::Personality)| {
            let personality = self.0.get(&node.number()).map_or(computed, |place| place.told);
            let (number, window, memory) = (node.number(), node.window(), node.process_memory());
            NodeSetup { number, window, memory, personality }
        };
        nodes.iter().zip(personalities(spec, count)).map(setup).collect()
    }
}

fn wrong<T>(what: String) -> Result<T, JobError> {
    Err(JobError::Spec(what))
}

/// Personalities of the job's nodes, in the order of the nodes. Coordinates count along x first, then y, then z.
fn personalities(spec: &JobSpec, nodes: u32) -> impl Iterator<Item = layout::Personality> {
    let dims = spec.torus.unwrap_or([nodes, 1, 1]);
    let [x, y, _] = dims.map(|d| d.max(1));
    let pset = spec.pset.unwrap_or(nodes).max(1);
    (0..nodes).map(move |node| layout::Personality {
        node,
        nodes,
        dims,
        coords: [node % x, node / x % y, node / x / y],
        pset: node / pset,
        in_pset: node % pset,
        host: host_name(&format!("node{node}")),
    })
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
    use colony_model::{Block, Machine, Partition, PsetSize, SecurityKey, Site};

    use super::*;

    #[test]
    fn coordinates_in_the_torus_are_distinct() {
        let spec = JobSpec { torus: Some([2, 3, 4]), pset: Some(8), ..JobSpec::new("/bin/a") };
        let all: Vec<_> = personalities(&spec, 24).collect();
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
        let all: Vec<_> = personalities(&JobSpec::new("/bin/a"), 3).collect();
        assert_eq!((all[2].dims, all[2].coords), ([3, 1, 1], [2, 0, 0]));
        assert_eq!((all[2].pset, all[2].in_pset), (0, 2));
    }

    fn partition() -> Partition {
        let machine = Machine::new("4x4x2".parse().expect("a shape")).expect("a machine");
        let size = PsetSize::new(8).expect("a size");
        Partition::new(machine, "a", Block::whole(machine), size).expect("a partition")
    }

    /// The nodes of a partition, from number 100 on.
    fn given() -> Given {
        let mut given = Given::default();
        for node in 0..32 {
            given.give(100 + node, &partition().compute_personality(node, 64 << 20)).expect("given");
        }
        given
    }

    #[test]
    fn the_job_has_torus_and_psets_of_its_nodes() {
        let (given, mut spec) = (given(), JobSpec::new("/bin/a"));
        let nodes: Vec<u32> = (100..132).collect();
        given.apply(&mut spec, &nodes).expect("applied");
        assert_eq!((spec.torus, spec.pset), (Some([4, 4, 2]), Some(8)));
        assert_eq!(given.apply(&mut spec, &nodes), Ok(()), "again");
        let told = given.0[&123].told;
        assert_eq!((told.node, told.nodes, told.coords, told.pset, told.in_pset), (23, 32, [3, 1, 1], 1, 7));
        assert_eq!(&told.host[..15], b"R00-M0-N00-J23\0");
        let mut plain = JobSpec::new("/bin/a");
        assert_eq!(given.apply(&mut plain, &[0, 1]), Ok(()));
        assert_eq!(plain.torus, None, "without personalities, nothing is changed");
    }

    #[test]
    fn jobs_that_contradict_the_personalities_are_refused() {
        let mut given = given();
        let all: Vec<u32> = (100..132).collect();
        let spec = JobSpec::new("/bin/a");
        let refused = |given: &Given, spec: &JobSpec, nodes: &[u32]| {
            given.apply(&mut spec.clone(), nodes).expect_err("refused").to_string()
        };
        assert!(refused(&given, &spec, &all[..31]).contains("has 31 nodes, and their partition 32"));
        assert!(
            refused(&given, &spec, &[&all[1..], &[100]].concat())
                .contains("node 101 has no personality of node 0")
        );
        assert!(
            refused(&given, &spec, &[&all[..31], &[7]].concat())
                .contains("node 7 has no personality of node 31")
        );
        assert!(
            refused(&given, &spec, &[&[7], &all[..31]].concat())
                .contains("node 100 has a personality, and node 7 has none")
        );
        let own = JobSpec { torus: Some([32, 1, 1]), ..spec.clone() };
        assert!(
            refused(&given, &own, &all).contains("a torus of 32x1x1 is not that of the partition, 4x4x2")
        );
        let own = JobSpec { pset: Some(16), ..spec };
        assert!(refused(&given, &own, &all).contains("psets of 16 nodes"));
        let io = partition()
            .io_personality(0, 0, &Site::default(), SecurityKey::default())
            .expect("a personality");
        assert!(matches!(given.give(100, &io), Err(CiodError::NotCompute { node: 100, .. })));
    }
}
