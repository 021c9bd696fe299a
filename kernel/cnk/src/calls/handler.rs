// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handlers of local calls: what they are given, and what they return.

use colony_fship::Errno;

use crate::machine::context::Context;

/// The thread that makes a call.
pub struct Caller<'a> {
    /// Number of the CPU.
    pub cpu: usize,
    /// The registers.
    pub context: &'a mut Context,
    /// All registers are to be as they are in the context.
    pub restored: bool,
}

/// Does a local call.
pub(super) type Handler = fn(&mut Caller<'_>, [u64; 6]) -> Result<u64, Errno>;
