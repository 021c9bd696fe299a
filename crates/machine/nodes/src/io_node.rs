// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Linux I/O node: a virtual machine of the image `io-node`, with the I/O daemon as its only program, and a network card
//! for each compute node of its pset.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::time::{Duration, Instant};

use colony_ciod::io_node::{Card, PORT};
use colony_ciod::{IoLink, IoNode as Description, NodeLink, PROXY_ADDRESS};
use colony_vm::{Cause, Failure, Kernel, Recipe, Running, Stopper, Vm, VmError};
use nix::sys::socket::{MsgFlags, recv};

use crate::{CnkError, Link, Machine};

/// Name of the image's recipe.
const IMAGE: &str = "io-node";
/// The description of the pset in the I/O node.
const DESCRIPTION: &str = "/etc/colony/io-node.json";
/// A year: an I/O node stays, and says nothing while no job runs.
const NO_LIMIT: Duration = Duration::from_secs(365 * 86_400);
/// Timeout for an I/O node to boot, on a machine under load.
const READY: Duration = Duration::from_secs(300);
/// Timeout for an I/O node to make a new link.
const RENEWED: Duration = Duration::from_secs(60);
/// Memory of an I/O node beside that of its compute nodes, MiB: the system, and the files of jobs.
const REST_MIB: u64 = 512;

/// Time in which a machine whose daemon has ended says why.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A running I/O node. Dropping it switches it off.
#[derive(Debug)]
pub(crate) struct IoNode {
    running: Option<Running>,
    stopper: Stopper,
    link: IoLink,
    /// The compute nodes' ends of their links, with the node's number. Each start of a node gets a copy.
    wires: Vec<(u32, UnixDatagram)>,
    started: Instant,
    /// When it was first seen that its daemon has ended.
    silent: Option<Instant>,
    /// The way it ended.
    died: Option<String>,
}

impl IoNode {
    /// Starts the I/O node of these compute nodes.
    ///
    /// # Errors
    /// If the emulator does not start, or the image cannot be made.
    pub(crate) fn start(machine: &Machine, name: &str, nodes: &[u32]) -> Result<Self, CnkError> {
        machine.check_pset(nodes.len() as u32)?;
        let Link::Network(network) = machine.link else {
            return Err(CnkError::Machine("the link of its nodes is no network".into()));
        };
        let cards = (0..).zip(nodes).map(|(n, &number): (u32, _)| Card { number, card: format!("eth{n}") });
        let description = Description { nodes: cards.collect(), memory: machine.memory, network };
        let text = serde_json::to_vec(&description)
            .map_err(|e| CnkError::Machine(format!("the description of an I/O node: {e}")))?;
        let (ours, theirs) = UnixStream::pair().map_err(CnkError::io("the port of an I/O node"))?;
        let memory = REST_MIB + nodes.len() as u64 * (machine.memory >> 20);
        let memory = u32::try_from(memory).map_err(|e| CnkError::Machine(e.to_string()))?;
        let mut vm = Vm::new(&Kernel::find("")?, &Recipe::find(IMAGE)?.image()?)
            .name(name)
            .memory_mib(memory)
            .file(DESCRIPTION, text)
            .port(PORT, theirs.into())
            .own_group()
            .timeout(NO_LIMIT)
            .silence(NO_LIMIT);
        let mut wires = Vec::new();
        for &number in nodes {
            let (near, far) = UnixDatagram::pair().map_err(CnkError::io("the link of a node"))?;
            vm = vm.card(near.into(), PROXY_ADDRESS, network.mtu);
            wires.push((number, far));
        }
        let running = vm.spawn(&["ciod", "io-node", DESCRIPTION], |_| ())?;
        let link = IoLink::new(ours).map_err(CnkError::io("the port of an I/O node"))?;
        let stopper = running.stopper();
        let (running, started) = (Some(running), Instant::now());
        Ok(Self { running, stopper, link, wires, started, silent: None, died: None })
    }

    /// Its compute nodes.
    pub(crate) fn nodes(&self) -> Vec<u32> {
        self.wires.iter().map(|(number, _)| *number).collect()
    }

    pub(crate) fn link(&self) -> &IoLink {
        &self.link
    }

    /// Process id of its emulator, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.running.as_ref().and_then(Running::pid)
    }

    /// Release of its kernel, once it is ready.
    pub(crate) fn kernel(&self) -> Option<String> {
        self.link.kernel()
    }

    /// The way it died, if it did. A machine whose daemon has ended gets time to say why, and nobody waits for that.
    pub(crate) fn death(&mut self) -> Option<String> {
        let is_silent = self.link.over().is_some() && self.running.as_ref().is_some_and(|r| !r.is_over());
        if is_silent && self.silent.get_or_insert_with(Instant::now).elapsed() < LAST_WORDS {
            return None;
        }
        self.end()
    }

    /// The way it died, if it did: its machine or its daemon has ended, or it is not ready in time.
    pub(crate) fn end(&mut self) -> Option<String> {
        let is_over = self.running.as_ref().is_none_or(Running::is_over);
        let late = self.link.kernel().is_none() && self.started.elapsed() > READY;
        if self.died.is_none() && (is_over || late || self.link.over().is_some()) {
            let over = self.link.over();
            self.stopper.stop();
            let ended = self.running.take().map(Running::wait);
            let (is_late, limit) = (late && !is_over, READY.as_secs());
            self.died = Some(match ended {
                _ if is_late => format!("it was not ready within {limit} s"),
                Some(Err(VmError::Failed(failure))) if is_over => told(&failure),
                Some(Err(error)) if is_over => error.to_string(),
                Some(Ok(out)) if is_over => format!("its daemon ended: {}", out.error_text().trim()),
                _ => over.unwrap_or_else(|| "it was switched off".into()),
            });
        }
        self.died.clone()
    }

    /// Waits until it is ready.
    ///
    /// # Errors
    /// It died, or is not ready in time.
    pub(crate) fn wait_ready(&mut self) -> Result<(), CnkError> {
        if self.link.wait_ready(READY) {
            return Ok(());
        }
        let began = Instant::now();
        loop {
            match self.death() {
                Some(why) => return Err(CnkError::IoNode(why)),
                None if began.elapsed() > 2 * LAST_WORDS => {
                    return Err(CnkError::IoNode("it has ended".into()));
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// The end of a link for the first start of a compute node.
    pub(crate) fn connect(&self, node: &NodeLink) -> Result<OwnedFd, CnkError> {
        self.link.attach(node.clone());
        self.wire(node.number())
    }

    /// The end of a link for a compute node that is started anew, and whose emulator has ended: no frame of it is left, and
    /// the I/O node has forgotten it.
    pub(crate) fn reconnect(&self, node: &NodeLink) -> Result<OwnedFd, CnkError> {
        let wire = self.wire(node.number())?;
        if self.link.kernel().is_none() {
            return self.connect(node);
        }
        self.link.renew(node.clone(), RENEWED).map_err(|e| CnkError::IoNode(e.to_string()))?;
        use std::os::fd::AsRawFd as _;
        while recv(wire.as_raw_fd(), &mut [0; 64], MsgFlags::MSG_DONTWAIT).is_ok() {}
        Ok(wire)
    }

    fn wire(&self, node: u32) -> Result<OwnedFd, CnkError> {
        let wire = self.wires.iter().find(|(number, _)| *number == node).map(|(_, wire)| wire);
        let wire = wire.ok_or_else(|| CnkError::IoNode(format!("it does not serve node {node}")))?;
        Ok(wire.try_clone().map_err(CnkError::io("the link of a node"))?.into())
    }
}

/// The cause of the end of a machine, with the last words of a kernel that has panicked.
fn told(failure: &Failure) -> String {
    match &failure.cause {
        Cause::Ended(how) => format!("its emulator ended ({how})"),
        Cause::Panic => format!("its kernel panicked: {}", failure.console.trim()),
        _ => failure.to_string(),
    }
}

impl Drop for IoNode {
    fn drop(&mut self) {
        self.link.close();
        self.stopper.stop();
        // the emulator has ended when this returns
        let _ = self.running.take().map(Running::wait);
    }
}
