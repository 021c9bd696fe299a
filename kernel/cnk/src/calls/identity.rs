// SPDX-License-Identifier: MIT OR Apache-2.0
//! Identity of a process: all from the job block. Most is answered before it gets here, from the CPU's table.

use core::sync::atomic::Ordering::Relaxed;

use cnk_logic::ensure;
use colony_fship::Errno;
use colony_fship::calls::find;
use zerocopy::IntoBytes as _;

use super::handler::Caller;
use crate::machine::area::area;
use crate::node::node;
use crate::process::{self, Process};

pub(super) fn own_group(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let pid = process::on(caller.cpu).block.pid;
    if args[0] as u32 == 0 || args[0] as u32 == pid { Ok(pid.into()) } else { Err(Errno::ESRCH) }
}

/// The entry code gives this answer by itself (`process::answers`).
pub(super) fn answered(caller: &mut Caller<'_>, _: [u64; 6]) -> Result<u64, Errno> {
    Ok(area(caller.cpu).quick[caller.context.number as usize].load(Relaxed))
}

/// An identity of a process.
type Id = fn(&Process) -> u32;

/// Only what one is already can be set by these calls, of one to three arguments; −1 is that, too.
pub(super) fn stay(caller: &mut Caller<'_>, args: [u64; 6], id: Id) -> Result<u64, Errno> {
    let count = find(caller.context.number).map_or(0, |call| call.args.len());
    let own = id(&process::on(caller.cpu));
    let same = |&id: &u64| id as u32 == own || id as u32 == u32::MAX;
    if args[..count].iter().all(same) { Ok(0) } else { Err(Errno::EPERM) }
}

pub(super) fn thrice(caller: &mut Caller<'_>, args: [u64; 6], id: Id) -> Result<u64, Errno> {
    let process = process::on(caller.cpu);
    for address in &args[..3] {
        process.user.put(*address, &id(&process))?;
    }
    Ok(0)
}

pub(super) fn getgroups(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let process = process::on(caller.cpu);
    let len = process.block.groups_len as usize;
    let room = args[0] as i32;
    if room != 0 {
        ensure(usize::try_from(room).is_ok_and(|room| room >= len), Errno::EINVAL)?;
        process.user.write(args[1], process.block.groups[..len].as_bytes())?;
    }
    Ok(len as u64)
}

/// Bytes of a field of `utsname`.
const FIELD: usize = 65;

pub(super) fn uname(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let host = node().window.host();
    let end = host.iter().position(|&b| b == 0).unwrap_or(host.len());
    // the version of Linux whose calls these are: the C library looks whether it is too old
    let fields: [&[u8]; 6] = [b"Linux", &host[..end], b"6.1.0-cnk", b"Colony CNK", b"x86_64", b"(none)"];
    let mut text = [0; 6 * FIELD];
    for (place, field) in text.chunks_exact_mut(FIELD).zip(fields) {
        place[..field.len()].copy_from_slice(field);
    }
    caller.put(args[0], &text)
}
