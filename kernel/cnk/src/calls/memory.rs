// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory within the static map.

use cnk_logic::ensure;
use cnk_logic::space::{Content, Space};
use colony_fship::Errno;
use colony_fship::calls::number;
use colony_fship::layout::{LARGE_PAGE, PAGE};
use colony_fship::spans::Memory as _;
use linux_raw_sys::general::{
    F_GETFD, MADV_DONTNEED, MADV_FREE, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_NORESERVE,
    MREMAP_MAYMOVE, MS_ASYNC, MS_SYNC, PROT_EXEC, PROT_READ, PROT_WRITE,
};

use super::handler::Caller;
use crate::process::{self, Process};
use crate::shipping;

pub(super) fn msync(_: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    const BOTH: u32 = MS_ASYNC | MS_SYNC;
    let [address, _, flags, ..] = args;
    let wrong = flags & !7 != 0 || flags as u32 & BOTH == BOTH || address % PAGE != 0;
    if wrong { Err(Errno::EINVAL) } else { Ok(0) }
}

pub(super) fn mlockall(_: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    // MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT; the last not alone
    if matches!(args[0], 1..=3 | 5..=7) { Ok(0) } else { Err(Errno::EINVAL) }
}

/// Changes the mappings of which `at` is in one: those in the memory of the process, or its reservations.
fn change<R>(process: &mut Process, at: u64, f: impl FnOnce(&mut Space, &mut dyn Content) -> R) -> R {
    let bank = &mut &process.user.bank;
    if process.zone.has(at) { process.zone.change(bank, f) } else { f(&mut process.space, bank) }
}

pub(super) fn mmap(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let [address, length, ..] = args;
    let (protection, flags) = (args[2] as u32, args[3] as u32);
    if flags & MAP_ANONYMOUS == 0 {
        let ask = [args[4], F_GETFD.into(), 0, 0, 0, 0];
        return Err(not_mapped(shipping::call_of_thread(caller.cpu, caller.context, number::fcntl, ask)));
    }
    ensure(flags & 3 != 0, Errno::EINVAL)?;
    // data are never executed
    ensure(protection & PROT_EXEC == 0, Errno::EACCES)?;
    let process = &mut *process::on(caller.cpu);
    let at = if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
        let keep = flags & MAP_FIXED_NOREPLACE != 0;
        change(process, address, |space, content| space.map_at(address, length, keep, content))?
    } else {
        let bank = &mut &process.user.bank;
        // what is only reserved takes no memory, if there is room for it
        let reserves = protection & (PROT_READ | PROT_WRITE | PROT_EXEC) == 0 || flags & MAP_NORESERVE != 0;
        let reserved =
            process.zone.change(bank, |space, content| reserves.then(|| space.map(length, content)));
        match reserved {
            Some(Ok(at)) => at,
            _ => process.space.map(length, bank)?,
        }
    };
    if protection & PROT_WRITE != 0 {
        process.zone.allow(at, length);
    }
    Ok(at)
}

/// No file is mapped, for there is no paging (SC06 paper, 3.2). Whether it is one only the daemon knows: the result of its
/// `fcntl`.
pub(super) fn not_mapped(result: i64) -> Errno {
    if result == Errno::EBADF.result() { Errno::EBADF } else { Errno::ENODEV }
}

pub(super) fn munmap(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    change(&mut process::on(caller.cpu), args[0], |space, _| space.unmap(args[0], args[1])).map(|()| 0)
}

pub(super) fn mremap(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let [address, old, new, flags, ..] = args;
    ensure(flags & !u64::from(MREMAP_MAYMOVE) == 0, Errno::EINVAL)?;
    let process = &mut *process::on(caller.cpu);
    let may_move = flags != 0;
    let at = change(process, address, |space, bank| space.remap(address, old, new, may_move, bank))?;
    process.zone.allow(at, new);
    Ok(at)
}

pub(super) fn brk(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let process = &mut *process::on(caller.cpu);
    Ok(process.space.brk(args[0], &mut &process.user.bank))
}

/// The map is static: what may be done with a page was said when the program was loaded. To ask for less is granted
/// without effect; to ask for code where there are data, or for writing to code, is not.
pub(super) fn mprotect(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let [address, length, protection, ..] = args;
    let protection = protection as u32;
    ensure(address % PAGE == 0, Errno::EINVAL)?;
    let process = &mut *process::on(caller.cpu);
    let access = &process.user.access;
    let end = address.checked_add(length).ok_or(Errno::ENOMEM)?;
    ensure(address >= LARGE_PAGE && end <= access.end(), Errno::ENOMEM)?;
    // PROT_READ, PROT_WRITE and PROT_EXEC are 1, 2 and 4; the flags of segments 4, 2 and 1
    let wanted = u64::from(protection & PROT_WRITE | (protection & PROT_EXEC) >> 2);
    let mut parts = access.parts().iter();
    let clash = parts.any(|p| p.first < end && address < p.end && wanted & !p.flags != 0);
    ensure(!clash, Errno::EACCES)?;
    if protection & PROT_WRITE != 0 {
        process.zone.allow(address, length);
    }
    Ok(0)
}

/// All memory is there.
pub(super) fn mincore(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
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

pub(super) fn madvise(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let [address, length, advice, ..] = args;
    // those that Linux knows; what concerns pages has no meaning here
    ensure(address % PAGE == 0 && matches!(advice, 0..=4 | 8..=25), Errno::EINVAL)?;
    if matches!(advice as u32, MADV_DONTNEED | MADV_FREE) {
        let process = &mut *process::on(caller.cpu);
        let bank = &mut &process.user.bank;
        process.space.forget(address, length, bank);
        process.zone.change(bank, |space, content| space.forget(address, length, content));
    }
    Ok(0)
}
