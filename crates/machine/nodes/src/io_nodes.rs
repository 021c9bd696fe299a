// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Linux I/O nodes of a partition.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use colony_ciod::{Ciod, NodeLink};

use crate::io_node::IoNode;
use crate::{CnkError, IoNodes, Machine, Places};

/// The I/O nodes that are virtual machines, by pset; none if they are processes.
#[derive(Debug, Default)]
pub(crate) struct LinuxIoNodes {
    all: Vec<IoNode>,
    /// The I/O node of each compute node.
    of: Vec<u32>,
}

impl LinuxIoNodes {
    /// Starts those of a partition, if it has some.
    ///
    /// # Errors
    /// An emulator that does not start, an image that cannot be made.
    pub(crate) fn start(machine: &Machine, places: &Places, ciod: &Ciod) -> Result<Self, CnkError> {
        if machine.io_nodes == IoNodes::Process {
            return Ok(Self::default());
        }
        let of: Vec<u32> = (0..places.nodes()).map(|node| places.pset(node)).collect();
        let mut own = Self { all: Vec::new(), of };
        for number in 0..places.io_nodes() {
            let started = own.start_one(machine, places, ciod, number)?;
            own.all.push(started);
        }
        Ok(own)
    }

    fn start_one(
        &self,
        machine: &Machine,
        places: &Places,
        ciod: &Ciod,
        number: u32,
    ) -> Result<IoNode, CnkError> {
        let nodes: Vec<u32> = (0..).zip(&self.of).filter(|(_, io)| **io == number).map(|(n, _)| n).collect();
        let name = places.io_location(None, number).unwrap_or_else(|| format!("io{number}"));
        let started = IoNode::start(machine, &name, &nodes)?;
        ciod.set_io_node(number, started.link().clone());
        Ok(started)
    }

    /// Starts one anew. Returns its compute nodes, which must be started anew, too.
    ///
    /// # Errors
    /// As of [`LinuxIoNodes::start`].
    pub(crate) fn restart(
        &mut self,
        machine: &Machine,
        places: &Places,
        ciod: &Ciod,
        number: u32,
    ) -> Result<Vec<u32>, CnkError> {
        let started = self.start_one(machine, places, ciod, number)?;
        let nodes = started.nodes();
        if let Some(old) = self.all.get_mut(number as usize) {
            *old = started;
        }
        Ok(nodes)
    }

    /// The number of the I/O node of a compute node, if it is a machine.
    pub(crate) fn of(&self, node: u32) -> Option<u32> {
        self.of.get(node as usize).copied()
    }

    /// The numbers of those of these compute nodes.
    pub(crate) fn of_all(&self, nodes: &[u32]) -> BTreeSet<u32> {
        nodes.iter().filter_map(|&node| self.of(node)).collect()
    }

    /// The compute nodes of one.
    pub(crate) fn nodes(&self, number: u32) -> Vec<u32> {
        self.all.get(number as usize).map(IoNode::nodes).unwrap_or_default()
    }

    /// The end of the link for a compute node whose emulator is not there: its first one, or a new one.
    ///
    /// # Errors
    /// An I/O node that has ended, or does not answer.
    pub(crate) fn wire(&self, node: &NodeLink, is_first: bool) -> Result<Option<OwnedFd>, CnkError> {
        let io_node = self.of(node.number()).and_then(|number| self.all.get(number as usize));
        let wire = |io_node: &IoNode| if is_first { io_node.connect(node) } else { io_node.reconnect(node) };
        io_node.map(wire).transpose()
    }

    /// Process id of the emulator of one.
    pub(crate) fn pid(&self, number: u32) -> Option<u32> {
        self.all.get(number as usize).and_then(IoNode::pid)
    }

    /// The way one died, if it did.
    pub(crate) fn death(&mut self, number: u32) -> Option<String> {
        self.all.get_mut(number as usize).and_then(IoNode::death)
    }

    /// Returns `true` if one has ended, whether it has said why or not.
    pub(crate) fn has_ended(&mut self, number: u32) -> bool {
        self.all.get_mut(number as usize).and_then(IoNode::end).is_some()
    }

    /// Waits until these are ready.
    ///
    /// # Errors
    /// One that died, or is not ready in time.
    pub(crate) fn wait_ready(&mut self, numbers: &BTreeSet<u32>) -> Result<(), CnkError> {
        numbers.iter().filter_map(|&n| self.all.get_mut(n as usize).map(IoNode::wait_ready)).collect()
    }

    /// Release of their kernel, once one is ready.
    pub(crate) fn kernel(&self) -> Option<String> {
        self.all.iter().find_map(IoNode::kernel)
    }

    /// Their number.
    pub(crate) fn count(&self) -> u32 {
        self.all.len() as u32
    }
}
