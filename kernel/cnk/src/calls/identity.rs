// SPDX-License-Identifier: MIT OR Apache-2.0
//! Identity of a process: all from the job block. Most is answered before it gets here, from the CPU's table.

use cnk_logic::ensure;
use colony_fship::Errno;
use colony_fship::calls::number;
use zerocopy::IntoBytes as _;

use super::handler::{Caller, Handler};
use crate::process::{self, shared, threads};

pub(super) const HANDLERS: &[(u32, Handler)] = &[
    (number::getpid, |c, _| Ok(process::on(c.cpu).block.pid.into())),
    (number::gettid, |c, _| Ok(threads::id(c.cpu).into())),
    (number::getppid, |c, _| Ok(process::on(c.cpu).block.ppid.into())),
    (number::getpgrp, |c, _| Ok(process::on(c.cpu).block.pid.into())),
    (number::getuid, |c, _| Ok(process::on(c.cpu).block.uid.into())),
    (number::geteuid, |c, _| Ok(process::on(c.cpu).block.uid.into())),
    (number::getgid, |c, _| Ok(process::on(c.cpu).block.gid.into())),
    (number::getegid, |c, _| Ok(process::on(c.cpu).block.gid.into())),
    (number::getpgid, own_group),
    (number::getsid, own_group),
    (number::setuid, |c, a| stay(c, &a[..1], |p| p.block.uid)),
    (number::setgid, |c, a| stay(c, &a[..1], |p| p.block.gid)),
    (number::setreuid, |c, a| stay(c, &a[..2], |p| p.block.uid)),
    (number::setregid, |c, a| stay(c, &a[..2], |p| p.block.gid)),
    (number::setresuid, |c, a| stay(c, &a[..3], |p| p.block.uid)),
    (number::setresgid, |c, a| stay(c, &a[..3], |p| p.block.gid)),
    (number::getresuid, |c, a| thrice(c, a, |p| p.block.uid)),
    (number::getresgid, |c, a| thrice(c, a, |p| p.block.gid)),
    (number::getgroups, groups),
    (number::uname, uname),
];

fn own_group(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let pid = process::on(caller.cpu).block.pid;
    if args[0] as u32 == 0 || args[0] as u32 == pid { Ok(pid.into()) } else { Err(Errno::ESRCH) }
}

/// Only what one is already; −1 is that, too.
fn stay(caller: &Caller<'_>, wanted: &[u64], id: fn(&process::Process) -> u32) -> Result<u64, Errno> {
    let own = id(&process::on(caller.cpu));
    let same = |&id: &u64| id as u32 == own || id as u32 == u32::MAX;
    if wanted.iter().all(same) { Ok(0) } else { Err(Errno::EPERM) }
}

fn thrice(caller: &mut Caller<'_>, args: [u64; 6], id: fn(&process::Process) -> u32) -> Result<u64, Errno> {
    let process = process::on(caller.cpu);
    for address in &args[..3] {
        process.user.put(*address, &id(&process))?;
    }
    Ok(0)
}

fn groups(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
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

fn uname(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let host = shared::host();
    let end = host.iter().position(|&b| b == 0).unwrap_or(host.len());
    // the version of Linux whose calls these are: the C library looks whether it is too old
    let fields: [&[u8]; 6] = [b"Linux", &host[..end], b"6.1.0-cnk", b"Colony CNK", b"x86_64", b"(none)"];
    let mut text = [0; 6 * FIELD];
    for (place, field) in text.chunks_exact_mut(FIELD).zip(fields) {
        place[..field.len()].copy_from_slice(field);
    }
    process::on(caller.cpu).user.write(args[0], &text)?;
    Ok(0)
}
