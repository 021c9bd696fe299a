// SPDX-License-Identifier: MIT OR Apache-2.0
//! The watch over the Linux I/O nodes of a partition: one that has died is reported, and started again with its compute
//! nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use colony_ciod::JobError;
use colony_nodes::{CnkError, Partition};

use super::events::News;
use super::nodes::Nodes;
use super::tries::Tries;
use crate::api::{NodeState, Severity};

/// What is known of them.
#[derive(Debug, Default)]
pub(super) struct Watch {
    tries: Tries,
    /// Those that have died and were not started again: they are broken, or nodes of them are in a job that ends.
    dead: BTreeSet<u32>,
}

impl Watch {
    /// One look at all of them. Returns the compute nodes that cannot be used.
    pub(super) fn check(&mut self, nodes: &Arc<Nodes>, partition: &mut Partition) -> BTreeSet<u32> {
        let mut down = BTreeSet::new();
        for number in 0..partition.linux_io_nodes() {
            let Some(why) = partition.io_node_death(number) else { continue };
            if self.dead.insert(number) {
                tell(nodes, partition, number, (Severity::Fatal, "io-node-died"), why);
                if !self.tries.again(number) {
                    let text =
                        "it has died too often: it is not started again until one of its nodes is undrained";
                    tell(nodes, partition, number, (Severity::Fatal, "io-node-broken"), text.to_owned());
                }
            }
            let own = partition.nodes_of_io_node(number);
            if self.tries.is_broken(number) {
                set(nodes, &own, NodeState::Dead);
                down.extend(own);
                continue;
            }
            // a job that still has nodes of it ends, since its relay has heard of the death
            match partition.restart_io_node(number) {
                Ok(()) => {
                    self.dead.remove(&number);
                    set(nodes, &own, NodeState::Booting);
                }
                Err(CnkError::Job(JobError::NodeBusy(_))) => down.extend(own),
                Err(error) => {
                    self.tries.again(number);
                    let what = (Severity::Error, "io-node-died");
                    tell(nodes, partition, number, what, format!("it is not started again: {error}"));
                    down.extend(own);
                }
            }
        }
        down
    }

    /// Starts the I/O nodes of these compute nodes again although they have died too often.
    pub(super) fn mend(&mut self, partition: &Partition, mended: &BTreeSet<u32>) {
        let has_any = |number: &u32| partition.nodes_of_io_node(*number).iter().any(|n| mended.contains(n));
        let own: Vec<u32> = self.dead.iter().copied().filter(has_any).collect();
        own.into_iter().for_each(|number| self.tries.forget(number));
    }
}

fn tell(
    nodes: &Nodes,
    partition: &Partition,
    number: u32,
    (severity, code): (Severity, &str),
    message: String,
) {
    let (location, code) = (partition.places().io_location(None, number), code.to_owned());
    nodes.tell(News::Ras { severity, node: None, location, code, message, job: None });
}

/// Sets the state of compute nodes that have been started.
fn set(nodes: &Nodes, own: &[u32], to: NodeState) {
    let mut state = nodes.state();
    let mut changed = false;
    for &node in own {
        if let Some(known) = state.nodes.get_mut(node as usize).filter(|known| **known != to) {
            changed |= *known != NodeState::Off;
            if *known != NodeState::Off {
                *known = to;
            }
        }
    }
    drop(state);
    if changed {
        nodes.change(|_| ());
    }
}
