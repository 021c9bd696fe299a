// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a thread and of a process, and the program that takes its place.

use colony_fship::Errno;
use colony_fship::layout::CrashRecord;

use super::handler::Caller;
use crate::job::{self, End};
use crate::process::{switch, threads};

pub(super) fn exit(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    if threads::end(caller.cpu) {
        crate::machine::context::leave(caller.cpu);
    }
    exit_group(caller, args)
}

pub(super) fn exit_group(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    job::end(caller.cpu, &End::Exit(args[0] as u8))
}

/// The daemon has put another program in the place of this one.
pub(super) fn executed(n: usize) -> ! {
    match job::reload(n) {
        Some(context) => switch::begin_anew(n, context),
        // there is nothing to go back to
        None => job::end(n, &End::Signal(CrashRecord { signal: 9, vector: 255, ..CrashRecord::default() })),
    }
}
