// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory within the static map.

use cnk_logic::ensure;
use colony_fship::Errno;
use colony_fship::calls::number;
use colony_fship::layout::{LARGE_PAGE, PAGE};
use colony_fship::spans::Memory as _;

use super::handler::{Caller, Handler};
use crate::process;
use crate::shipping::{self, Wait};

pub(super) const HANDLERS: &[(u32, Handler)] = &[
    (number::mmap, mmap),
    (number::munmap, munmap),
    (number::mremap, mremap),
    (number::brk, brk),
    (number::mprotect, mprotect),
    (number::madvise, madvise),
    (number::mincore, mincore),
    (number::msync, msync),
    (number::mlock, nothing_to_do),
    (number::mlock2, nothing_to_do),
    (number::munlock, nothing_to_do),
    (number::mlockall, mlockall),
    (number::munlockall, nothing_to_do),
];

const MAP_FIXED: u64 = 0x10;
const MAP_ANONYMOUS: u64 = 0x20;
const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;
const MAP_NORESERVE: u64 = 0x4000;
const PROT_WRITE: u64 = 2;
const PROT_EXEC: u64 = 4;
const PROT_ANY: u64 = 7;
const MREMAP_MAYMOVE: u64 = 1;
const MADV_DONTNEED: u64 = 4;
const MADV_FREE: u64 = 8;

/// All memory is there, and stays.
fn nothing_to_do(_: &mut Caller<'_>, _: [u64; 6]) -> Result<u64, Errno> {
    Ok(0)
}

fn msync(_: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    const ASYNC: u64 = 1;
    const SYNC: u64 = 4;
    let [address, _, flags, ..] = args;
    let wrong = flags & !7 != 0 || flags & (ASYNC | SYNC) == ASYNC | SYNC || address % PAGE != 0;
    if wrong { Err(Errno::EINVAL) } else { Ok(0) }
}

fn mlockall(_: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    // MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT; the last not alone
    if matches!(args[0], 1..=3 | 5..=7) { Ok(0) } else { Err(Errno::EINVAL) }
}

fn mmap(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let [address, length, protection, flags, ..] = args;
    if flags & MAP_ANONYMOUS == 0 {
        return Err(not_mapped(caller.cpu, args[4]));
    }
    ensure(flags & 3 != 0, Errno::EINVAL)?;
    // data are never executed
    ensure(protection & PROT_EXEC == 0, Errno::EACCES)?;
    let process = &mut *process::on(caller.cpu);
    let bank = &mut &process.user.bank;
    let used = protection & PROT_WRITE != 0;
    if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) == 0 {
        // what is only reserved takes no memory, if there is room for it
        if (protection & PROT_ANY == 0 || flags & MAP_NORESERVE != 0)
            && let Ok(at) = process.zone.map(length, bank)
        {
            if used {
                process.zone.allow(at, length);
            }
            return Ok(at);
        }
        return process.space.map(length, bank);
    }
    let keep = flags & MAP_FIXED_NOREPLACE != 0;
    if !process.zone.has(address) {
        return process.space.map_at(address, length, keep, bank);
    }
    let at = process.zone.map_at(address, length, keep, bank)?;
    if used {
        process.zone.allow(at, length);
    }
    Ok(at)
}

/// No file is mapped, for there is no paging (SC06 paper, 3.2); whether it is one only the daemon knows.
fn not_mapped(n: usize, fd: u64) -> Errno {
    const F_GETFD: u64 = 1;
    let flags = shipping::call(n, number::fcntl, [fd, F_GETFD, 0, 0, 0, 0], Wait::Uninterruptible);
    if flags == Errno::EBADF.result() { Errno::EBADF } else { Errno::ENODEV }
}

fn munmap(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let process = &mut *process::on(caller.cpu);
    if process.zone.has(args[0]) {
        process.zone.unmap(args[0], args[1])?;
    } else {
        process.space.unmap(args[0], args[1])?;
    }
    Ok(0)
}

fn mremap(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let [address, old, new, flags, ..] = args;
    ensure(flags & !MREMAP_MAYMOVE == 0, Errno::EINVAL)?;
    let process = &mut *process::on(caller.cpu);
    let bank = &mut &process.user.bank;
    let may_move = flags & MREMAP_MAYMOVE != 0;
    if process.zone.has(address) {
        return process.zone.remap(address, [old, new], may_move, bank);
    }
    process.space.remap(address, old, new, may_move, bank)
}

fn brk(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let process = &mut *process::on(caller.cpu);
    Ok(process.space.brk(args[0], &mut &process.user.bank))
}

/// The map is static: what may be done with a page was said when the program was loaded. To ask for less is granted
/// without effect; to ask for code where there are data, or for writing to code, is not.
fn mprotect(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let [address, length, protection, ..] = args;
    ensure(address % PAGE == 0, Errno::EINVAL)?;
    let process = &mut *process::on(caller.cpu);
    let access = &process.user.access;
    let end = address.checked_add(length).ok_or(Errno::ENOMEM)?;
    ensure(address >= LARGE_PAGE && end <= access.end(), Errno::ENOMEM)?;
    // PROT_READ, PROT_WRITE and PROT_EXEC are 1, 2 and 4; the flags of segments 4, 2 and 1
    let wanted = protection & PROT_WRITE | (protection & PROT_EXEC) >> 2;
    let mut parts = access.parts().iter();
    let clash = parts.any(|p| p.first < end && address < p.end && wanted & !p.flags != 0);
    ensure(!clash, Errno::EACCES)?;
    if protection & PROT_WRITE != 0 && process.zone.has(address) {
        process.zone.allow(address, length);
    }
    Ok(0)
}

/// All memory is there.
fn mincore(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let [address, length, at, ..] = args;
    ensure(address % PAGE == 0, Errno::EINVAL)?;
    let user = &process::on(caller.cpu).user;
    let pages = length.div_ceil(PAGE);
    let end = address.checked_add(length).ok_or(Errno::ENOMEM)?;
    ensure(address >= LARGE_PAGE && end <= user.access.end(), Errno::ENOMEM)?;
    ensure(pages == 0 || user.holds(at, pages, true), Errno::EFAULT)?;
    (0..pages).try_for_each(|page| user.put(at + page, &1u8))?;
    Ok(0)
}

fn madvise(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let [address, length, advice, ..] = args;
    // those that Linux knows; what concerns pages has no meaning here
    ensure(address % PAGE == 0 && matches!(advice, 0..=4 | 8..=25), Errno::EINVAL)?;
    if matches!(advice, MADV_DONTNEED | MADV_FREE) {
        let process = &mut *process::on(caller.cpu);
        let bank = &mut &process.user.bank;
        process.space.forget(address, length, bank);
        process.zone.forget(address, length, bank);
    }
    Ok(0)
}
