// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deaths of nodes.

use std::fmt;

use serde::Serialize;

use crate::Hang;

/// A node has died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Death {
    /// Its number.
    pub node: u32,
    /// The part of the node that died.
    pub cause: Cause,
    /// The last that its kernel and its emulator said.
    pub said: String,
}

/// The part of a node that died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The emulator ended, in this way.
    Emulator(String),
    /// The process that boots the nodes ended, and every emulator with it. The node has no part in that.
    BootProcess {
        /// Process id of the boot process. Deaths with the same process id have one cause.
        pid: u32,
    },
    /// A processor of the node was reset: an exception in the handling of an exception (a triple fault).
    Reset,
    /// The process that speaks with it by frames ended, in this way.
    Proxy(String),
    /// The kernel found something that cannot be.
    Panic,
    /// The kernel hangs.
    Hang(Hang),
}

impl Death {
    /// The boot process whose end was the cause: the same for all nodes that died with it.
    #[must_use]
    pub const fn boot_process(&self) -> Option<u32> {
        match self.cause {
            Cause::BootProcess { pid } => Some(pid),
            _ => None,
        }
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} died: ", self.node)?;
        match &self.cause {
            Cause::Emulator(how) => write!(f, "its emulator ended ({how})")?,
            Cause::BootProcess { .. } => f.write_str("its boot process ended")?,
            Cause::Reset => f.write_str("its processor was reset by a triple fault")?,
            Cause::Proxy(how) => write!(f, "its proxy ended ({how})")?,
            Cause::Panic => f.write_str("its kernel panicked")?,
            Cause::Hang(hang) => write!(f, "its kernel hangs: {hang}")?,
        }
        if self.said.is_empty() { Ok(()) } else { write!(f, ": {}", self.said) }
    }
}

impl std::error::Error for Death {}
