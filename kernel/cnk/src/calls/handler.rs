// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handlers of local calls: what they are given, and what they return.

use colony_fship::Errno;
use zerocopy::{Immutable, IntoBytes};

use crate::machine::context::Context;
use crate::process;

/// The thread that makes a call.
pub struct Caller<'a> {
    /// Number of the CPU.
    pub cpu: usize,
    /// The registers.
    pub context: &'a mut Context,
    /// All registers are to be as they are in the context.
    pub restored: bool,
}

impl Caller<'_> {
    /// Copies a value to the process; the result of the call is 0.
    pub fn put<T: IntoBytes + Immutable>(&self, address: u64, value: &T) -> Result<u64, Errno> {
        process::on(self.cpu).user.put(address, value).map(|()| 0)
    }

    /// The same, unless the address is null.
    pub fn put_unless_null<T: IntoBytes + Immutable>(&self, address: u64, value: &T) -> Result<u64, Errno> {
        process::on(self.cpu).user.put_unless_null(address, value).map(|()| 0)
    }
}

/// Does a local call.
pub(super) type Handler = fn(&mut Caller<'_>, [u64; 6]) -> Result<u64, Errno>;
