// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits, random numbers, names, and what is asked of a scheduler that is not there.

use core::sync::atomic::Ordering::SeqCst;

use cnk_logic::ensure;
use colony_fship::Errno;
use colony_fship::layout::STACK;
use colony_fship::spans::Memory as _;
use rand_chacha::rand_core::Rng as _;

use super::handler::Caller;
use crate::cpu::{self, cpu};
use crate::machine::ops;
use crate::process::{self, shared};
use crate::time;

/// Bytes that are made at a time.
const CHUNK: usize = 256;
/// Most bytes of one call. Linux makes up to 32 MiB less one byte, and a signal can end the call before; this kernel is not interrupted in a
/// call, and the host takes a second in the kernel for a hang. Programs ask again for the bytes that a call leaves out.
const RANDOM_BYTES_LIMIT: u64 = 256 << 10;

pub(super) fn getrandom(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let [address, length, flags, ..] = args;
    ensure(flags & !7 == 0, Errno::EINVAL)?;
    let length = length.min(RANDOM_BYTES_LIMIT);
    let process = process::on(caller.cpu);
    ensure(length == 0 || process.user.holds(address, length, true), Errno::EFAULT)?;
    let mut random = shared::RANDOM.lock();
    let random = random.as_mut().ok_or(Errno::EAGAIN)?;
    let mut done = 0;
    while done < length {
        let mut bytes = [0; CHUNK];
        let part = &mut bytes[..(length - done).min(CHUNK as u64) as usize];
        random.fill_bytes(part);
        process.user.write(address + done, part)?;
        done += part.len() as u64;
    }
    Ok(length)
}

/// Now and at most, of a kind of resource.
fn limit_of(kind: u64) -> Result<[u64; 2], Errno> {
    Ok(match kind {
        3 => [STACK, STACK],                      // RLIMIT_STACK
        4 => [0, 0],                              // RLIMIT_CORE
        6 => [process::threads_most() as u64; 2], // RLIMIT_NPROC: threads
        7 => [1024, 1024],                        // RLIMIT_NOFILE
        0..=15 => [u64::MAX; 2],
        _ => return Err(Errno::EINVAL),
    })
}

pub(super) fn limit(caller: &mut Caller<'_>, kind: u64, address: u64) -> Result<u64, Errno> {
    caller.put(address, &limit_of(kind)?)
}

/// Limits cannot be changed: only what a limit is already is granted.
pub(super) fn set_limit(caller: &mut Caller<'_>, kind: u64, address: u64) -> Result<u64, Errno> {
    let wanted: [u64; 2] = process::on(caller.cpu).user.get(address)?;
    let limit = limit_of(kind)?;
    ensure(wanted[0] <= wanted[1], Errno::EINVAL)?;
    if wanted == limit { Ok(0) } else { Err(Errno::EPERM) }
}

/// Of a process, a group or a user: nobody is before anybody.
pub(super) fn priority(which: u64, result: u64) -> Result<u64, Errno> {
    if which as u32 <= 2 { Ok(result) } else { Err(Errno::EINVAL) }
}

pub(super) fn prlimit(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let [pid, kind, new, old, ..] = args;
    let own = process::on(caller.cpu).block.pid;
    ensure([0, own].contains(&(pid as u32)), Errno::ESRCH)?;
    limit_of(kind)?;
    if new != 0 {
        set_limit(caller, kind, new)?;
    }
    if old == 0 { Ok(0) } else { limit(caller, kind, old) }
}

pub(super) fn sysinfo(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let process = process::on(caller.cpu);
    let mut info = [0u64; 14];
    info[0] = time::monotonic_ns() / cnk_logic::clock::SECOND;
    info[4] = process.block.memory;
    info[5] = process.space.free();
    info[10] = process::count() as u64; // processes, a u16
    info[13] = 1; // bytes of a unit, a u32 at 104
    process.user.put(args[0], &info)?;
    Ok(0)
}

pub(super) fn prctl(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    const PR_SET_NAME: u64 = 15;
    const PR_GET_NAME: u64 = 16;
    let process = &mut *process::on(caller.cpu);
    match args[0] {
        PR_SET_NAME => {
            // as far as the zero: what follows it may not be the process's
            let mut name = [0; 16];
            for (n, place) in (0..).zip(&mut name[..15]) {
                // behind the last address is none that a process may read: the wrap ends in `EFAULT`
                *place = process.user.get::<u8>(args[1].wrapping_add(n))?;
                if *place == 0 {
                    break;
                }
            }
            process.own(caller.cpu).name = name;
            Ok(0)
        }
        PR_GET_NAME => {
            let name = process.own(caller.cpu).name;
            process.user.put(args[1], &name)?;
            Ok(0)
        }
        1 | 3 | 4 | 38 => Ok(0), // PR_SET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS
        39 => Ok(1),             // PR_GET_NO_NEW_PRIVS
        _ => Err(Errno::EINVAL),
    }
}

pub(super) fn arch_prctl(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let base = |register| process::on(caller.cpu).user.put(args[1], &ops::read_msr(register)).map(|()| 0);
    match args[0] {
        0x1001 => ops::set_gs_base(args[1]).then_some(0).ok_or(Errno::EPERM),
        0x1002 => ops::set_fs_base(args[1]).then_some(0).ok_or(Errno::EPERM),
        0x1003 => base(ops::msr::FS_BASE),
        0x1004 => base(ops::msr::GS_BASE),
        _ => Err(Errno::EINVAL),
    }
}

/// The kinds that CPUs need: each other one is interrupted, and has said so.
pub(super) fn membarrier(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    const GLOBAL: u32 = 1;
    const PRIVATE: u32 = 1 << 3;
    const REGISTER_PRIVATE: u32 = 1 << 4;
    // no flags, and no other process to name
    ensure(args[1] as u32 == 0, Errno::EINVAL)?;
    match args[0] as u32 {
        0 => Ok((GLOBAL | PRIVATE | REGISTER_PRIVATE).into()),
        GLOBAL | PRIVATE => {
            let others = process::cpus_with(caller.cpu).filter(|&m| m != caller.cpu);
            others.filter(|&m| cpu(m).busy.load(SeqCst)).for_each(|m| cpu::barrier(caller.cpu, m));
            Ok(0)
        }
        REGISTER_PRIVATE => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}
