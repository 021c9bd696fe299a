// SPDX-License-Identifier: MIT OR Apache-2.0
//! Booting the nodes of a partition, a bounded number at once, and starting those anew that have died.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use colony_ciod::{Config, NodeState as LinkState};
use colony_node::task;
use colony_nodes::{CnkError, Machine, Partition, programs};

use super::jobs;
use super::nodes::Nodes;
use super::protocol::Setup;
use crate::api::{NodeState, PartitionState, Severity};

/// Nodes that boot at once, for each CPU of the host.
const AT_ONCE: usize = 8;
/// Starts of one node until it counts as broken.
const TRIES: u32 = 3;
/// Timeout for a node to ask for work.
const READY: Duration = Duration::from_secs(60);
/// Period of the checks while nodes boot, and afterwards.
const BOOT_CHECK: Duration = Duration::from_millis(2);
const CHECK: Duration = Duration::from_millis(500);

/// Starts of the nodes that have been started more than once.
#[derive(Debug, Default)]
struct Tries(BTreeMap<u32, u32>);

impl Tries {
    /// Counts one more failure. Returns `true` if the node is to be started again.
    fn again(&mut self, node: u32) -> bool {
        let failures = self.0.entry(node).or_default();
        *failures += 1;
        *failures < TRIES
    }
}

fn machine(setup: &Setup) -> Machine {
    Machine {
        cpus: setup.node.cpus,
        memory: setup.node.memory_mib.saturating_mul(1 << 20),
        ..Machine::default()
    }
}

/// Boots the nodes, then watches them until the service ends.
pub(crate) fn keep(setup: &Setup, nodes: &Arc<Nodes>) {
    let began = Instant::now();
    let mut tries = Tries::default();
    let booted = prepare(setup, nodes).and_then(|()| boot(nodes, &mut tries));
    match booted {
        Ok(broken) if broken.is_empty() => {
            nodes.set(PartitionState::Ready, None, Some(began.elapsed().as_secs_f64()));
        }
        Ok(broken) if broken.len() < setup.shape.nodes() as usize => {
            // the daemon drains them: jobs run on the others
            nodes.set(PartitionState::Ready, None, Some(began.elapsed().as_secs_f64()));
        }
        Ok(broken) => {
            let all = setup.shape.nodes();
            let text = format!("{} of {all} nodes do not boot: node {}", broken.len(), broken[0]);
            nodes.ras((Severity::Fatal, "partition-boot"), None, None, text.clone());
            nodes.set(PartitionState::Failed, Some(text), None);
        }
        Err(error) => {
            nodes.ras((Severity::Fatal, "partition-boot"), None, None, error.to_string());
            nodes.set(PartitionState::Failed, Some(error.to_string()), None);
            return;
        }
    }
    while !nodes.wait_over(CHECK) {
        check(nodes, &mut tries);
        jobs::check_inputs(nodes);
    }
}

fn prepare(setup: &Setup, nodes: &Arc<Nodes>) -> Result<(), CnkError> {
    let ciod = programs::ciod().map_err(CnkError::Machine)?;
    let model = setup.model().map_err(|e| CnkError::Machine(e.to_string()))?;
    let partition = Partition::without_nodes(machine(setup), model, Config::new(ciod))?;
    *nodes.partition() = Some(partition);
    Ok(())
}

/// Starts all nodes. Returns those that do not boot.
fn boot(nodes: &Arc<Nodes>, tries: &mut Tries) -> Result<Vec<u32>, CnkError> {
    let at_once = AT_ONCE * std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut all_started = false;
    while !nodes.state().is_over {
        let mut guard = nodes.partition();
        let Some(partition) = guard.as_mut() else { break };
        let mut booting = look(nodes, partition, tries)?;
        while !all_started && booting < at_once {
            all_started = !partition.start_next()?;
            booting += 1;
        }
        drop(guard);
        let state = nodes.state();
        let is_over = |s: &NodeState| matches!(s, NodeState::Ready | NodeState::Dead);
        if all_started && state.nodes.iter().all(is_over) {
            let numbered = (0..).zip(&state.nodes);
            return Ok(numbered.filter(|(_, s)| **s == NodeState::Dead).map(|(n, _)| n).collect());
        }
        drop(state);
        std::thread::sleep(BOOT_CHECK);
    }
    Ok(Vec::new())
}

/// Looks at every node that has been started, and starts those again that died. Returns how many boot.
fn look(nodes: &Arc<Nodes>, partition: &mut Partition, tries: &mut Tries) -> Result<usize, CnkError> {
    let known = nodes.state().nodes.clone();
    let mut booting = 0;
    for (number, known) in known.into_iter().enumerate().take(partition.nodes().len()) {
        if matches!(known, NodeState::Ready | NodeState::Dead) {
            continue;
        }
        let node = &partition.nodes()[number];
        let died = match node.check() {
            Err(death) => Some(death.to_string()),
            Ok(()) if node.age() > READY && !node.link().has_asked() => Some(format!(
                "it has not asked for work within {} s: {}",
                READY.as_secs(),
                node.console().trim()
            )),
            Ok(()) => None,
        };
        let state = match died {
            None if node.link().has_asked() => NodeState::Ready,
            None => NodeState::Booting,
            Some(why) => {
                nodes.ras((Severity::Error, "node-died"), Some(number as u32), None, why);
                start_again(nodes, partition, tries, number as u32)?
            }
        };
        booting += usize::from(state == NodeState::Booting);
        if known != state {
            nodes.change(|all| all.nodes[number] = state);
        }
    }
    Ok(booting)
}

/// Starts a node again that has died, unless it has died too often. Returns its state.
fn start_again(
    nodes: &Arc<Nodes>,
    partition: &mut Partition,
    tries: &mut Tries,
    number: u32,
) -> Result<NodeState, CnkError> {
    if !tries.again(number) {
        let text = format!("it has died {TRIES} times and is not started again until it is undrained");
        nodes.ras((Severity::Fatal, "node-broken"), Some(number), None, text);
        return Ok(NodeState::Dead);
    }
    partition.restart(number)?;
    Ok(NodeState::Booting)
}

/// One look at the nodes of a partition that is up.
fn check(nodes: &Arc<Nodes>, tries: &mut Tries) {
    let mut guard = nodes.partition();
    let Some(partition) = guard.as_mut() else { return };
    let (known, mended) = {
        let mut state = nodes.state();
        (state.nodes.clone(), std::mem::take(&mut state.mended))
    };
    tries.0.retain(|node, _| !mended.contains(node));
    for (number, known) in known.into_iter().enumerate().take(partition.nodes().len()) {
        let node = &partition.nodes()[number];
        let (link, death) = (node.link().state(), node.check().err());
        let is_stopped = || task::stat(node.pid().cast_signed()).is_ok_and(|stat| stat.is_stopped());
        let state = match (link, death) {
            (LinkState::Busy | LinkState::Free, None) if is_stopped() => NodeState::Lost,
            // the job's own watch ends the job, which then leaves the node as lost
            (LinkState::Busy, None) => NodeState::Busy,
            (LinkState::Busy, Some(_)) => NodeState::Dead,
            (LinkState::Free, None) if node.link().has_asked() => NodeState::Ready,
            (LinkState::Free, None) => NodeState::Booting,
            (_, Some(_)) if known == NodeState::Dead && is_broken(tries, number as u32) => continue,
            (LinkState::Lost, None) => restart(nodes, partition, number as u32),
            (_, Some(death)) => {
                // the end of a job has reported the deaths of its nodes
                if !matches!(known, NodeState::Busy | NodeState::Dead) {
                    nodes.ras((Severity::Error, "node-died"), Some(number as u32), None, death.to_string());
                }
                start_again(nodes, partition, tries, number as u32).unwrap_or(NodeState::Dead)
            }
        };
        if state != known {
            report(nodes, number, known, state);
            nodes.change(|all| all.nodes[number] = state);
        }
    }
}

fn is_broken(tries: &Tries, node: u32) -> bool {
    tries.0.get(&node).is_some_and(|failures| *failures >= TRIES)
}

/// Starts a node anew that a job has left in the middle.
fn restart(nodes: &Arc<Nodes>, partition: &mut Partition, number: u32) -> NodeState {
    match partition.restart(number) {
        Ok(()) => NodeState::Booting,
        Err(error) => {
            nodes.ras((Severity::Error, "node-restart"), Some(number), None, error.to_string());
            NodeState::Lost
        }
    }
}

fn report(nodes: &Arc<Nodes>, number: usize, from: NodeState, to: NodeState) {
    let number = Some(number as u32);
    match (from, to) {
        (_, NodeState::Lost) => {
            nodes.ras((Severity::Error, "node-stopped"), number, None, "its emulator is stopped".to_owned());
        }
        (NodeState::Lost, NodeState::Ready | NodeState::Busy) => {
            nodes.ras((Severity::Info, "node-resumed"), number, None, "its emulator runs again".to_owned());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_broken_after_three_failures() {
        let mut tries = Tries::default();
        assert!(tries.again(4) && tries.again(4));
        assert!(!is_broken(&tries, 4));
        assert!(!tries.again(4));
        assert!(is_broken(&tries, 4) && !is_broken(&tries, 5));
    }
}
