// SPDX-License-Identifier: MIT OR Apache-2.0
//! A booted node.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use colony_ciod::{Ciod, NodeLink, Proxy};
use colony_tlb::Counts;
use colony_vm::counting::CountingPlugin;
use colony_vm::qemu::{Seal, memory_file, seal};

use crate::boot::{Booter, Emulator};
use crate::emulator::{self, Parts, Started};
use crate::life::Life;
use crate::{CnkError, KERNEL, Link, Machine};

/// A virtual machine that runs the compute node kernel. Dropping it switches it off.
#[derive(Debug)]
pub struct Node {
    link: NodeLink,
    /// Speaks with it by frames, where they share no memory.
    proxy: Option<Proxy>,
    emulator: Emulator,
    life: Life,
    /// The emulator's plugin that counts the program's instructions, if the machine asks for one.
    plugin: Option<CountingPlugin>,
    started: Instant,
    had_a_job: bool,
}

impl Node {
    /// Boots a node of a machine that was checked, with this kernel ([`kernel`]), this link to this I/O daemon, this end
    /// of it if the I/O node is a machine of its own, and this memory shared with others.
    ///
    /// # Errors
    /// If the emulator cannot be started.
    pub(crate) fn boot(
        booter: &Booter,
        machine: &Machine,
        kernel: &File,
        ciod: &Ciod,
        (link, wire): (NodeLink, Option<OwnedFd>),
        torus: Option<(&File, u64)>,
    ) -> Result<Self, CnkError> {
        let own = |file: &File| file.try_clone().map_err(CnkError::io("the files of a node"));
        let (proxy, socket) = match wire {
            Some(wire) => (None, wire),
            None => connect(machine, ciod, &link).map_err(CnkError::io("the link of a node"))?,
        };
        let kernel = own(kernel)?;
        let torus = torus.map(|(file, bytes)| Ok::<_, CnkError>((own(file)?, bytes))).transpose()?;
        let started = Instant::now();
        let parts = Parts { kernel, link: socket, torus };
        let Started { emulator, console, watch, plugin } = emulator::start(booter, machine, parts)?;
        let life = Life::new(link.clone(), emulator.clone(), console, watch, proxy.as_ref());
        Ok(Self { link, proxy, emulator, life, plugin, started, had_a_job: false })
    }

    /// Its link to the I/O daemon.
    pub fn link(&self) -> &NodeLink {
        &self.link
    }

    /// The end of the output of its kernel and its emulator.
    pub fn console(&self) -> String {
        self.life.console()
    }

    /// Time since its emulator was started.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Process id of its emulator.
    pub fn pid(&self) -> u32 {
        self.emulator.pid()
    }

    /// Process id of its proxy, where it has one.
    pub fn proxy_pid(&self) -> Option<u32> {
        self.proxy.as_ref().map(Proxy::pid)
    }

    /// The counts of its user code since it was started; `None` if its emulator has not started the plugin that counts.
    pub fn counts(&self) -> Option<Counts> {
        self.plugin.as_ref().and_then(CountingPlugin::counts)
    }

    /// Its signs of life.
    pub(crate) fn life(&self) -> &Life {
        &self.life
    }

    /// Ends its emulator, before another takes its place on its link.
    pub(crate) fn switch_off(&self) {
        self.emulator.kill();
    }

    /// A job begins on it.
    pub(crate) fn given_a_job(&mut self) {
        self.had_a_job = true;
    }

    /// Returns `true` if it was given a job since it was started.
    pub(crate) fn had_a_job(&self) -> bool {
        self.had_a_job
    }

    /// Says why, if it has died.
    ///
    /// # Errors
    /// That it has.
    pub fn check(&self) -> Result<(), CnkError> {
        self.life.death().map_or(Ok(()), |death| Err(death.into()))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.emulator.kill();
    }
}

/// The node's end of its link, and what is at the other end if that is not the daemon itself.
fn connect(machine: &Machine, ciod: &Ciod, link: &NodeLink) -> std::io::Result<(Option<Proxy>, OwnedFd)> {
    match machine.link {
        Link::Window => Ok((None, link.connect()?)),
        Link::Network(network) => {
            let mut proxy = ciod.proxy(link, network)?;
            let socket = proxy.socket().ok_or(std::io::ErrorKind::NotConnected)?;
            Ok((Some(proxy), socket))
        }
    }
}

/// The kernel, as a file in memory that any number of nodes boot from.
pub(crate) fn kernel() -> Result<File, CnkError> {
    let mut file = memory_file("colony-nodes")?;
    file.write_all(KERNEL).map_err(CnkError::io("the kernel's file"))?;
    seal(&file, Seal::Content)?;
    Ok(file)
}
