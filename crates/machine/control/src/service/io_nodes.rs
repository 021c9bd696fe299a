// SPDX-License-Identifier: MIT OR Apache-2.0
//! The watch over the Linux I/O nodes of a partition: one that has died is reported, and started again with its compute
//! nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use colony_ciod::JobError;
use colony_node::task;
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
    /// Those whose emulators are stopped.
    stopped: BTreeSet<u32>,
}

impl Watch {
    /// One look at all of them. Returns the compute nodes that cannot be used.
    pub(super) fn check(&mut self, nodes: &Arc<Nodes>, partition: &mut Partition) -> BTreeSet<u32> {
        let mut down = BTreeSet::new();
        for number in 0..partition.linux_io_nodes() {
            let Some(why) = partition.io_node_death(number) else {
                down.extend(self.look_for_stop(nodes, partition, number));
                continue;
            };
            self.stopped.remove(&number);
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
                    // its death has been reported: this is no second one
                    let what = (Severity::Error, "io-node-restart");
                    tell(nodes, partition, number, what, format!("it is not started again: {error}"));
                    down.extend(own);
                }
            }
        }
        down
    }

    /// Reports an I/O node whose emulator is stopped, or runs again. Returns its compute nodes while it is stopped.
    fn look_for_stop(&mut self, nodes: &Nodes, partition: &Partition, number: u32) -> Vec<u32> {
        let pid = partition.io_node_pid(number);
        let stat = pid.and_then(|pid| task::stat(pid.cast_signed()).ok());
        let is_stopped = stat.is_some_and(|stat| stat.is_stopped());
        let own = if is_stopped { partition.nodes_of_io_node(number) } else { Vec::new() };
        let say = |what, text: &str| tell(nodes, partition, number, what, text.to_owned());
        if is_stopped && self.stopped.insert(number) {
            say((Severity::Error, "io-node-stopped"), "its emulator is stopped");
        } else if !is_stopped && self.stopped.remove(&number) {
            say((Severity::Info, "io-node-resumed"), "its emulator runs again");
            set(nodes, &partition.nodes_of_io_node(number), NodeState::Booting);
        }
        set(nodes, &own, NodeState::Lost);
        own
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
        let known = state.nodes.get_mut(node as usize).filter(|known| ![to, NodeState::Off].contains(*known));
        if let Some(known) = known {
            (*known, changed) = (to, true);
        }
    }
    drop(state);
    if changed {
        nodes.change(|_| ());
    }
}
