// SPDX-License-Identifier: MIT OR Apache-2.0
//! Personalities that a control system has given to nodes.

use std::collections::BTreeMap;

use colony_model::{Personality, Shape};

use crate::{CiodError, JobError, JobSpec, Place};

/// The personalities that a control system has given, by number of the node.
#[derive(Debug, Default)]
pub(crate) struct Given(BTreeMap<u32, Member>);

/// A node of a partition.
#[derive(Clone, Debug)]
struct Member {
    torus: Shape,
    pset_size: u32,
    place: Place,
}

impl Given {
    /// Keeps the personality of an attached node; an earlier one is replaced.
    pub(crate) fn give(&mut self, number: u32, personality: &Personality) -> Result<(), CiodError> {
        let place = Place::new(number, personality)?;
        let (torus, pset_size) = (personality.torus, personality.pset_size);
        self.0.insert(number, Member { torus, pset_size, place });
        Ok(())
    }

    /// Places of these nodes for a job. If the nodes have personalities, the job gets their torus and pset size;
    /// otherwise, the nodes are in a row.
    ///
    /// # Errors
    /// [`JobError::Spec`] if only some of the nodes have a personality, if the nodes are not all the nodes of one partition
    /// in the order of their numbers, or if the job's own torus or pset size is another one.
    pub(crate) fn places(&self, spec: &mut JobSpec, nodes: &[u32]) -> Result<Vec<Place>, JobError> {
        self.apply(spec, nodes)?;
        let given: Option<Vec<Place>> =
            nodes.iter().map(|number| self.0.get(number).map(|member| member.place.clone())).collect();
        Ok(given.unwrap_or_else(|| Place::row(spec, nodes)))
    }

    /// Sets torus and pset size of a job on these nodes to those of their personalities, if they have any.
    fn apply(&self, spec: &mut JobSpec, nodes: &[u32]) -> Result<(), JobError> {
        let mut members = nodes.iter().map(|number| (number, self.0.get(number))).peekable();
        let Some((_, Some(first))) = members.peek().copied() else {
            return match members.find(|(_, member)| member.is_some()) {
                Some((number, _)) => wrong(format!(
                    "node {number} has a personality, and node {} has none: give all nodes one",
                    nodes[0]
                )),
                None => Ok(()),
            };
        };
        for (n, (number, member)) in (0..).zip(members) {
            let is_next = member.is_some_and(|m| {
                (m.torus, m.pset_size, m.place.personality.node) == (first.torus, first.pset_size, n)
            });
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
}

fn wrong<T>(what: String) -> Result<T, JobError> {
    Err(JobError::Spec(what))
}

#[cfg(test)]
mod tests {
    use colony_model::{Block, Machine, Partition, PsetSize};

    use super::*;

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
        let places = given.places(&mut spec, &nodes).expect("places");
        assert_eq!((spec.torus, spec.pset), (Some([4, 4, 2]), Some(8)));
        assert_eq!(given.places(&mut spec, &nodes).as_ref(), Ok(&places), "again");
        assert!(places.iter().map(|place| place.node).eq(nodes));
        let whole = partition().compute_personality(23, 64 << 20);
        assert_eq!(places[23], Place::new(123, &whole).expect("a compute node"));
        let mut plain = JobSpec::new("/bin/a");
        assert_eq!(given.places(&mut plain, &[0, 1]), Ok(Place::row(&plain, &[0, 1])));
        assert_eq!(plain.torus, None, "without personalities, nothing is changed");
    }

    #[test]
    fn jobs_that_contradict_the_personalities_are_refused() {
        let given = given();
        let all: Vec<u32> = (100..132).collect();
        let spec = JobSpec::new("/bin/a");
        let refused = |given: &Given, spec: &JobSpec, nodes: &[u32]| {
            given.places(&mut spec.clone(), nodes).expect_err("refused").to_string()
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
    }
}
