// SPDX-License-Identifier: MIT OR Apache-2.0
//! Booting the nodes of a partition, a bounded number at once, and starting those anew that have died.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use colony_ciod::{Config, Network, NodeState as LinkState};
use colony_node::task;
use colony_nodes::{CnkError, IoNodes, Link, Machine, Partition, programs};

use super::boot_process::BootProcesses;
use super::nodes::Nodes;
use super::protocol::Setup;
use super::tries::{TRIES, Tries};
use super::{io_nodes, jobs};
use crate::api::{IoNodeKind, NodeRequest, NodeState, PartitionState, Severity};

/// Nodes that boot at once, for each CPU of the host.
const AT_ONCE: usize = 8;
/// Timeout for a node to ask for work: one alone, and one whose I/O node boots with it.
const READY: Duration = Duration::from_secs(60);
const READY_LINUX: Duration = Duration::from_secs(360);
/// Period of the checks while nodes boot, and afterwards.
const BOOT_CHECK: Duration = Duration::from_millis(2);
const CHECK: Duration = Duration::from_millis(500);

/// The machine of the nodes of a partition.
pub(crate) fn machine_of(node: &NodeRequest) -> Machine {
    let (link, io_nodes) = match node.io_nodes {
        IoNodeKind::Process => (Link::Window, IoNodes::Process),
        IoNodeKind::Linux => (Link::Network(Network::default()), IoNodes::Linux),
    };
    let memory = node.memory_mib.saturating_mul(1 << 20);
    Machine { cpus: node.cpus, memory, link, io_nodes, ..Machine::default() }
}

/// Deaths of nodes, compute nodes and I/O nodes, and of their boot processes.
#[derive(Debug, Default)]
struct Repairs {
    tries: Tries,
    io_nodes: io_nodes::Watch,
    boots: BootProcesses,
}

/// Boots the nodes, then watches them until the service ends.
pub(crate) fn keep(setup: &Setup, nodes: &Arc<Nodes>) {
    let began = Instant::now();
    let mut repairs = Repairs::default();
    let booted = prepare(setup, nodes).and_then(|()| boot(nodes, &mut repairs));
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
    while !nodes.wait_for_check(CHECK) {
        let wanted = nodes.state().checks.0;
        check(nodes, &mut repairs);
        nodes.note_checked(wanted);
        jobs::check_inputs(nodes);
    }
}

fn prepare(setup: &Setup, nodes: &Arc<Nodes>) -> Result<(), CnkError> {
    let ciod = programs::ciod().map_err(CnkError::Machine)?;
    let config = Config { exports: setup.node.io_exports.clone(), ..Config::new(ciod) };
    let model = setup.model().map_err(|e| CnkError::Machine(e.to_string()))?;
    let partition = Partition::without_nodes(machine_of(&setup.node), model, config)?;
    *nodes.partition() = Some(partition);
    Ok(())
}

/// Starts all nodes. Returns those that do not boot.
fn boot(nodes: &Arc<Nodes>, repairs: &mut Repairs) -> Result<Vec<u32>, CnkError> {
    let at_once = AT_ONCE * std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut all_started = false;
    while !nodes.state().is_over {
        let mut guard = nodes.partition();
        let Some(partition) = guard.as_mut() else { break };
        let down = repairs.io_nodes.check(nodes, partition);
        let mut booting = look(nodes, partition, repairs, &down)?;
        while !all_started && booting < at_once {
            all_started = match partition.start_next() {
                Ok(has_started) => !has_started,
                // it is reported by the nodes that have died with it, and this one is tried again
                Err(_) if partition.ended_boot_process().is_some() => break,
                Err(error) => return Err(error),
            };
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
fn look(
    nodes: &Arc<Nodes>,
    partition: &mut Partition,
    repairs: &mut Repairs,
    down: &BTreeSet<u32>,
) -> Result<usize, CnkError> {
    let limit = if partition.linux_io_nodes() > 0 { READY_LINUX } else { READY };
    let known = nodes.state().nodes.clone();
    let mut booting = 0;
    for (number, known) in known.into_iter().enumerate().take(partition.nodes().len()) {
        if matches!(known, NodeState::Ready | NodeState::Dead) || down.contains(&(number as u32)) {
            continue;
        }
        let node = &partition.nodes()[number];
        let died = match node.check() {
            Ok(()) if node.age() > limit && !node.link().has_asked() => {
                let (seconds, console) = (limit.as_secs(), node.console());
                let text = format!("it has not asked for work within {seconds} s: {}", console.trim());
                Some((text, None))
            }
            checked => checked.err().map(|error| (error.to_string(), error.boot_process())),
        };
        let state = match died {
            None if node.link().has_asked() => NodeState::Ready,
            None => NodeState::Booting,
            Some((_, Some(pid))) => repairs.start_after_boot_process(nodes, partition, number as u32, pid),
            Some((why, None)) => {
                nodes.ras((Severity::Error, "node-died"), Some(number as u32), None, why);
                repairs.start_again(nodes, partition, number as u32)?
            }
        };
        booting += usize::from(state == NodeState::Booting);
        if known != state {
            nodes.change(|all| all.nodes[number] = state);
        }
    }
    Ok(booting)
}

impl Repairs {
    /// Starts a node again that has died, unless it has died too often. Returns its state.
    fn start_again(
        &mut self,
        nodes: &Arc<Nodes>,
        partition: &mut Partition,
        number: u32,
    ) -> Result<NodeState, CnkError> {
        if !self.tries.again(number) {
            let text = format!("it has died {TRIES} times and is not started again until it is undrained");
            nodes.ras((Severity::Fatal, "node-broken"), Some(number), None, text);
            return Ok(NodeState::Dead);
        }
        partition.restart(number)?;
        Ok(NodeState::Booting)
    }

    /// Starts a node again that has died with the boot process of all nodes, which is not counted as a failure of the node.
    /// Until then it counts as booting, also if the start fails: it is tried again.
    fn start_after_boot_process(
        &mut self,
        nodes: &Arc<Nodes>,
        partition: &mut Partition,
        number: u32,
        pid: u32,
    ) -> NodeState {
        nodes.boot_process_died(pid, None);
        if self.boots.may_start(pid, Instant::now()) {
            let _ = partition.restart(number);
        }
        NodeState::Booting
    }

    /// A node of a partition that is up has died. Returns its state.
    fn died(
        &mut self,
        nodes: &Arc<Nodes>,
        partition: &mut Partition,
        (number, known): (u32, NodeState),
        death: &CnkError,
    ) -> NodeState {
        // the end of a job has reported the deaths of its nodes
        let is_reported = nodes.state().reported.remove(&number);
        if let Some(pid) = death.boot_process() {
            return self.start_after_boot_process(nodes, partition, number, pid);
        }
        if !is_reported && !matches!(known, NodeState::Busy | NodeState::Dead) {
            nodes.ras((Severity::Error, "node-died"), Some(number), None, death.to_string());
        }
        self.start_again(nodes, partition, number).unwrap_or(NodeState::Dead)
    }
}

/// One look at the nodes of a partition that is up.
fn check(nodes: &Arc<Nodes>, repairs: &mut Repairs) {
    let mut guard = nodes.partition();
    let Some(partition) = guard.as_mut() else { return };
    let (known, mended) = {
        let mut state = nodes.state();
        (state.nodes.clone(), std::mem::take(&mut state.mended))
    };
    mended.iter().for_each(|node| repairs.tries.forget(*node));
    repairs.io_nodes.mend(partition, &mended);
    let down = repairs.io_nodes.check(nodes, partition);
    for (number, known) in known.into_iter().enumerate().take(partition.nodes().len()) {
        if down.contains(&(number as u32)) {
            continue;
        }
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
            (_, Some(_)) if known == NodeState::Dead && repairs.tries.is_broken(number as u32) => continue,
            (LinkState::Lost, None) => restart(nodes, partition, number as u32),
            (_, Some(death)) => repairs.died(nodes, partition, (number as u32, known), &death),
        };
        if matches!(state, NodeState::Ready | NodeState::Busy) {
            nodes.state().reported.remove(&(number as u32));
        }
        if state != known {
            report(nodes, number, known, state);
            nodes.change(|all| all.nodes[number] = state);
        }
    }
    if nodes.state().nodes.iter().all(|state| matches!(state, NodeState::Ready | NodeState::Busy)) {
        repairs.boots.all_ready();
    }
}

/// Starts a node anew that a job has left in the middle.
fn restart(nodes: &Arc<Nodes>, partition: &mut Partition, number: u32) -> NodeState {
    match partition.restart(number) {
        Ok(()) => NodeState::Booting,
        Err(error) => {
            match partition.ended_boot_process() {
                Some(pid) => nodes.boot_process_died(pid, None),
                None => {
                    nodes.ras((Severity::Error, "node-restart"), Some(number), None, error.to_string());
                }
            }
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
