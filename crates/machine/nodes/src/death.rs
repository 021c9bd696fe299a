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
    /// A processor of the node was reset: an exception in the handling of an exception (a triple fault).
    Reset,
    /// The process that speaks with it by frames ended, in this way.
    Proxy(String),
    /// The kernel found something that cannot be.
    Panic,
    /// The kernel hangs.
    Hang(Hang),
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} died: ", self.node)?;
        match &self.cause {
            Cause::Emulator(how) => write!(f, "its emulator ended ({how})")?,
            Cause::Reset => f.write_str("its processor was reset by a triple fault")?,
            Cause::Proxy(how) => write!(f, "its proxy ended ({how})")?,
            Cause::Panic => f.write_str("its kernel panicked")?,
            Cause::Hang(hang) => write!(f, "its kernel hangs: {hang}")?,
        }
        if self.said.is_empty() { Ok(()) } else { write!(f, ": {}", self.said) }
    }
}

impl std::error::Error for Death {}
