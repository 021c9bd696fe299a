// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine of a node: CPUs, memory, link.

use colony_ciod::io_node::MOST_NODES;
use colony_ciod::{Mode, Network};
use colony_fship::{frame, layout};
use colony_tlb::Setup;
use colony_vm::counting::CountingPlugin;
use colony_vm::{Accel, VmError};
use serde::Serialize;

use crate::CnkError;

/// The link of a node to its I/O daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// They share the memory of the node's processes.
    #[default]
    Window,
    /// By frames over a network device: for machines that cannot share memory. There are messages between nodes only if their
    /// I/O nodes are virtual machines beside them.
    Network(Network),
}

/// The kind of a partition's I/O nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IoNodes {
    /// Processes of this machine, with its files.
    #[default]
    Process,
    /// Virtual Linux machines, each with files of its own and a network card for each of its compute nodes.
    Linux,
}

/// A node, before it is booted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// CPUs: one to four.
    pub cpus: u32,
    /// Memory of the user's processes, bytes: a power of two.
    pub memory: u64,
    /// Addresses of the user's processes, bytes: a power of two. They can reserve those beyond the memory. `None`: see
    /// [`Machine::window`].
    pub addresses: Option<u64>,
    /// Memory shared by the nodes for messages, bytes; `None`: as much as they need; 0: there is none.
    pub torus: Option<u64>,
    /// The link to its I/O daemon.
    pub link: Link,
    /// The kind of its I/O node.
    #[serde(skip)]
    pub io_nodes: IoNodes,
    /// Execution of its instructions; not [`Accel::SingleThread`].
    pub accel: Accel,
    /// A TLB that is modelled for each CPU and fed with the programs' addresses, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlb: Option<Setup>,
    /// Count the instructions, loads and stores of the programs.
    pub counters: bool,
    /// Let the kernel tell what it does on its console.
    pub debug: bool,
    /// More words for the kernel's command line (`kernel/cnk/README.md`).
    #[serde(skip)]
    pub kernel_words: Vec<String>,
}

/// Memory of the processes of a node on a network, at most, bytes: what the kernel can map of its own.
const NETWORK_MEMORY: u64 = 1 << 30;

impl Default for Machine {
    fn default() -> Self {
        Self {
            cpus: 2,
            memory: 64 << 20,
            addresses: None,
            torus: None,
            link: Link::default(),
            io_nodes: IoNodes::default(),
            accel: Accel::default(),
            tlb: None,
            counters: false,
            debug: false,
            kernel_words: Vec::new(),
        }
    }
}

/// Addresses of the processes of a node, bytes, unless the machine says otherwise: as many as runtimes reserve that have a
/// heap of their own for each thread, or look for their tables by address.
const ADDRESSES: u64 = 4 << 30;

impl Machine {
    /// Bytes of the window: as many addresses as were asked for, else 4 GiB or twice the memory. On a network it is the
    /// memory: there is no other.
    pub fn window(&self) -> u64 {
        let most = *layout::WINDOW_SIZES.end();
        match (self.link, self.addresses) {
            (Link::Network(_), _) => self.memory,
            (_, Some(bytes)) => bytes,
            (_, None) => ADDRESSES.max(self.memory.saturating_mul(2)).min(most),
        }
    }

    /// Returns `true` if nodes can share memory for messages: those beside a Linux I/O node are on this machine, whatever their
    /// link is.
    pub(crate) fn can_share(&self) -> bool {
        matches!(self.link, Link::Window) || self.io_nodes == IoNodes::Linux
    }

    /// Returns `true` if the emulator's plugin counts.
    pub(crate) const fn is_counted(&self) -> bool {
        self.counters || self.tlb.is_some()
    }

    /// Refuses what no node can be.
    ///
    /// # Errors
    /// The impossible value, and the possible ones.
    pub fn check(&self) -> Result<(), CnkError> {
        let refuse = |text: String| Err(CnkError::Machine(text));
        if !(1..=layout::CHANNELS as u32).contains(&self.cpus) {
            return refuse(format!("a node has one to four CPUs, not {}", self.cpus));
        }
        let wrong = |e| match e {
            VmError::Wrong(text) => CnkError::Machine(text),
            e => e.into(),
        };
        self.accel.check(self.cpus).map_err(wrong)?;
        if self.is_counted() {
            CountingPlugin::check_accel(self.accel).map_err(wrong)?;
        }
        if self.accel == Accel::SingleThread {
            // its fences order nothing against the I/O daemon
            return refuse("an emulated node needs one thread of the host for each CPU".into());
        }
        if !self.memory.is_power_of_two() || !layout::WINDOW_SIZES.contains(&self.memory) {
            let [min, max] = [layout::WINDOW_SIZES.start(), layout::WINDOW_SIZES.end()].map(|b| b >> 20);
            return refuse(format!(
                "a node's memory is a power of two from {min} to {max} MiB, not {} MiB",
                self.memory >> 20
            ));
        }
        if let Some(addresses) = self.addresses
            && (!addresses.is_power_of_two()
                || addresses < self.memory
                || addresses > *layout::WINDOW_SIZES.end())
        {
            return refuse(format!(
                "the addresses of a node are a power of two from its memory to {} MiB, not {} MiB",
                layout::WINDOW_SIZES.end() >> 20,
                addresses >> 20
            ));
        }
        if let Link::Network(network) = self.link {
            if self.memory > NETWORK_MEMORY {
                return refuse("a node on a network has 1 GiB of memory at most".into());
            }
            if !self.can_share() && self.torus.is_some_and(|bytes| bytes > 0) {
                return refuse("a node on a network shares no memory with others: ask for no torus".into());
            }
            if !(frame::MTU..=frame::MTU_MOST).contains(&network.mtu) {
                return refuse(format!(
                    "the link's MTU is {} to {}, not {}",
                    frame::MTU,
                    frame::MTU_MOST,
                    network.mtu
                ));
            }
        }
        Ok(())
    }

    /// Refuses psets of this many nodes, which no I/O node of the machine's kind can serve.
    ///
    /// # Errors
    /// If that is so.
    pub fn check_pset(&self, nodes: u32) -> Result<(), CnkError> {
        let refuse = |text: String| Err(CnkError::Machine(text));
        match (self.io_nodes, self.link) {
            (IoNodes::Process, _) => Ok(()),
            (IoNodes::Linux, Link::Window) => refuse(
                "a Linux I/O node shares no memory with its compute nodes: its link is a network".into(),
            ),
            (IoNodes::Linux, _) if nodes == 0 || nodes as usize > MOST_NODES => {
                refuse(format!("a Linux I/O node has 1 to {MOST_NODES} compute nodes, not {nodes}"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a mode for which this machine has too few CPUs.
    ///
    /// # Errors
    /// If that is so.
    pub fn fits(&self, mode: Mode) -> Result<(), CnkError> {
        if mode.processes() > self.cpus {
            return Err(CnkError::Machine(
                "virtual node mode needs two CPUs a node: ask for --cpus 2".into(),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_4_gib_of_addresses_unless_it_has_much_memory() {
        let window = |change: fn(&mut Machine)| {
            let mut machine = Machine::default();
            change(&mut machine);
            machine.window()
        };
        assert_eq!(window(|_| ()), 4 << 30);
        assert_eq!(window(|m| m.addresses = Some(1 << 30)), 1 << 30);
        assert_eq!(window(|m| m.memory = 8 << 30), 16 << 30, "as many again as it has memory");
        assert_eq!(window(|m| m.link = Link::Network(Network::default())), 64 << 20, "none but its memory");
    }

    #[test]
    fn impossible_machines_are_refused() {
        let refused = |change: fn(&mut Machine)| {
            let mut machine = Machine::default();
            change(&mut machine);
            machine.check().is_err()
        };
        assert!(!refused(|_| ()));
        assert!(refused(|m| m.cpus = 0));
        assert!(!refused(|m| m.cpus = 4));
        assert!(refused(|m| m.cpus = 5));
        assert!(refused(|m| m.memory = 48 << 20));
        assert!(refused(|m| m.memory = 1 << 20));
        assert!(refused(|m| m.addresses = Some(32 << 20)) && refused(|m| m.addresses = Some(3 << 30)));
        assert!(!refused(|m| m.addresses = Some(64 << 20)));
        assert!(refused(|m| m.accel = Accel::Counted { shift: 0 }));
        assert!(refused(|m| m.accel = Accel::SingleThread));
        let network = |mtu| Link::Network(Network { mtu, ..Network::default() });
        assert!(!refused(|m| m.link = Link::Network(Network::default())));
        assert!(refused(|m| (m.link, m.torus) = (Link::Network(Network::default()), Some(2 << 20))));
        assert!(refused(|m| (m.link, m.memory) = (Link::Network(Network::default()), 2 << 30)));
        assert!(Machine { link: network(100), ..Machine::default() }.check().is_err());
        let linux = Machine { io_nodes: IoNodes::Linux, ..Machine::default() };
        assert!(linux.check_pset(8).is_err(), "no memory is shared with an I/O node");
        let linux = Machine { link: Link::Network(Network::default()), torus: Some(2 << 20), ..linux };
        assert!(linux.check().is_ok(), "nodes share memory among themselves");
        assert!(
            linux.check_pset(128).is_ok() && linux.check_pset(129).is_err() && linux.check_pset(0).is_err()
        );
        assert!(Machine::default().check_pset(128).is_ok());
        assert!(Machine { cpus: 1, ..Machine::default() }.fits(Mode::VirtualNode).is_err());
    }
}
