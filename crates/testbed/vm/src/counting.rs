// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulator's plugin that counts user code, and feeds a modelled TLB with its addresses.
//!
//! The plugin is part of this library and reaches the emulator as a file in memory, and so do the counters. The emulator may
//! therefore run as another user, in any folder, and the counters survive its kill.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::process::Command;

use colony_tlb::{Counters, Counts, Setup};

use crate::qemu::{QEMU, Seal, memory_file, seal};
use crate::{Accel, VmError, tool};

/// The plugin: a shared library.
static PLUGIN: &[u8] = include_bytes!(env!("COLONY_TLB_PLUGIN"));

/// The plugin of one emulator.
#[derive(Debug)]
pub struct CountingPlugin {
    counters: Counters,
}

/// Arguments and descriptors of an emulator that counts.
#[derive(Debug)]
pub struct Plugged {
    /// Arguments for the emulator.
    pub arguments: [String; 2],
    /// The plugin and its counters, which the emulator must have at the numbers that the arguments name.
    pub fds: [OwnedFd; 2],
}

impl CountingPlugin {
    /// Refuses a machine whose instructions are not emulated.
    ///
    /// # Errors
    /// [`VmError::Wrong`].
    pub fn check_accel(accel: Accel) -> Result<(), VmError> {
        match accel {
            Accel::Kvm => {
                let why = "user code is counted only if QEMU emulates each instruction: run without KVM";
                Err(VmError::Wrong(why.into()))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a QEMU that was built without plugins.
    ///
    /// # Errors
    /// [`VmError::ToolFailed`], or [`VmError::Tool`] if QEMU is not here.
    pub fn check_emulator() -> Result<(), VmError> {
        let mut command = Command::new(QEMU.0);
        command.arg("-help");
        let help = tool::output(command, QEMU.0, QEMU.1, "-help")?;
        if String::from_utf8_lossy(&help).lines().any(|line| line.starts_with("-plugin ")) {
            return Ok(());
        }
        let (what, reason) =
            ("loading the plugin that counts", "it was built without plugins (-plugin); Debian's has them");
        Err(VmError::ToolFailed { tool: QEMU.0, what: what.into(), reason: reason.into() })
    }

    /// Counters for an emulator of so many CPUs, and what the emulator needs: its descriptors from `first_fd` on are the plugin's. The
    /// plugin models `tlb` if there is one.
    ///
    /// # Errors
    /// If the system refuses files in memory.
    pub fn new(tlb: Option<&Setup>, cpus: u32, first_fd: i32) -> Result<(Self, Plugged), VmError> {
        let failed = || VmError::io("the counters of an emulator");
        let mut plugin = memory_file("colony-tlb-plugin")?;
        plugin.write_all(PLUGIN).map_err(failed())?;
        seal(&plugin, Seal::Content)?;
        let file: File = memory_file("colony-counters")?;
        file.set_len(Counters::bytes(cpus)).map_err(failed())?;
        // the emulator could shorten the file, and kill this process by it
        seal(&file, Seal::Length)?;
        let counters = Counters::map(&file).map_err(failed())?;
        let words = tlb.map(|setup| format!(",{}", setup.words())).unwrap_or_default();
        let argument = format!("/proc/self/fd/{first_fd},counters=/proc/self/fd/{}{words}", first_fd + 1);
        let plugged = Plugged { arguments: ["-plugin".into(), argument], fds: [plugin.into(), file.into()] };
        Ok((Self { counters }, plugged))
    }

    /// The counts of all CPUs so far; `None` if the emulator has not started the plugin.
    #[must_use]
    pub fn counts(&self) -> Option<Counts> {
        self.counters.has_started().then(|| self.counters.sum())
    }
}
