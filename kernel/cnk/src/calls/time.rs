// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time of day, clocks, resources used, and sleep.

use core::sync::atomic::Ordering::Relaxed;

use cnk_logic::clock::{SECOND, join, split};
use cnk_logic::ensure;
use colony_fship::Errno;
use colony_fship::spans::Memory as _;

use super::handler::Caller;
use super::over;
use crate::cpu::cpu;
use crate::machine::ops;
use crate::process::{self, Over, Wait, switch};
use crate::time;

/// Time by a clock of Linux's number, ns.
pub(super) fn clock(n: usize, number: u64) -> Result<u64, Errno> {
    Ok(match number as u32 {
        0 | 5 => time::realtime_ns(), // REALTIME, REALTIME_COARSE
        11 => time::realtime_ns().saturating_add(37 * SECOND), // TAI: leap seconds as of 2017
        1 | 4 | 6 | 7 => time::monotonic_ns(), // MONOTONIC, _RAW, _COARSE, BOOTTIME
        2 | 3 => used_ns(n),          // PROCESS_CPUTIME_ID, THREAD_CPUTIME_ID
        _ => return Err(Errno::EINVAL),
    })
}

/// Time that the process has had its CPU: all since its start.
fn used_ns(n: usize) -> u64 {
    time::rate().ns(ops::tsc().wrapping_sub(process::on(n).started))
}

pub(super) fn clock_gettime(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let time = clock(caller.cpu, args[0])?;
    caller.put(args[1], &split(time))
}

pub(super) fn clock_getres(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    clock(caller.cpu, args[0])?;
    caller.put_unless_null(args[1], &[0u64, 1])
}

pub(super) fn gettimeofday(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let [s, ns] = split(time::realtime_ns());
    // the time zone: two ints
    caller.put_unless_null(args[1], &0u64)?;
    caller.put_unless_null(args[0], &[s, ns / 1000])
}

pub(super) fn seconds(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let now = time::realtime_ns() / SECOND;
    caller.put_unless_null(args[0], &now)?;
    Ok(now)
}

/// Ticks of 10 ms, as `sysconf(_SC_CLK_TCK)` has them.
const TICK: u64 = SECOND / 100;

pub(super) fn times(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let used = used_ns(caller.cpu) / TICK;
    caller.put_unless_null(args[0], &[used, 0, 0, 0])?;
    Ok(time::monotonic_ns() / TICK)
}

pub(super) fn getrusage(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let used = match args[0] as i32 {
        0 | 1 => used_ns(caller.cpu),
        -1 => 0,
        _ => return Err(Errno::EINVAL),
    };
    let mut usage = [0u64; 18];
    (usage[0], usage[1]) = (used / SECOND, used % SECOND / 1000);
    caller.put(args[1], &usage)
}

pub(super) fn getcpu(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    caller.put_unless_null(args[0], &(caller.cpu as u32))?;
    caller.put_unless_null(args[1], &0u32)
}

/// Only CPUs of the process can be chosen. A thread that runs on another one moves when it next gives its CPU away.
pub(super) fn setaffinity(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let n = caller.cpu;
    let mut set = [0; 8];
    let length = args[1].min(8) as usize;
    let moves = {
        let process = &mut *process::on(n);
        process.user.read(args[2], &mut set[..length])?;
        let thread = process.thread_or_own(n, args[0])?;
        let placed = process.sched.set_mask(thread, u64::from_le_bytes(set)).ok_or(Errno::EINVAL)?;
        process.placed(n, placed);
        process.queue_changed(n);
        process.sched.mask(process.current(n)) >> n & 1 == 0
    };
    if moves {
        caller.context.rax = 0;
        switch::give_way(n, caller.context);
    }
    Ok(0)
}

pub(super) fn getaffinity(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    ensure(args[1] >= 8 && args[1].is_multiple_of(8), Errno::EINVAL)?;
    let process = process::on(caller.cpu);
    let thread = process.thread_or_own(caller.cpu, args[0])?;
    process.user.put(args[2], &u64::from(process.sched.mask(thread)))?;
    Ok(8)
}

/// The nanoseconds of a `timespec`.
pub(super) fn timespec(n: usize, address: u64) -> Result<u64, Errno> {
    let [s, ns]: [i64; 2] = process::on(n).user.get(address)?;
    join(s, ns).ok_or(Errno::EINVAL)
}

/// The same, or no end if there is no `timespec`.
pub(super) fn until_unless_null(n: usize, address: u64) -> Result<Option<u64>, Errno> {
    if address == 0 { Ok(None) } else { until(n, address).map(Some) }
}

/// The end of a wait for so long, by a `timespec`.
pub(super) fn until(n: usize, address: u64) -> Result<u64, Errno> {
    Ok(time::monotonic_ns().saturating_add(timespec(n, address)?))
}

/// Sleeps until the monotonic clock shows `until`; what is left after a signal goes to `left`, unless that is null.
pub(super) fn sleep(caller: &Caller<'_>, until: u64, left: u64) -> Result<u64, Errno> {
    process::on(caller.cpu).begin_wait(caller.cpu, Wait::Sleep(left), Some(until));
    switch::wait(caller.cpu, caller.context)
}

/// The end of a sleep.
pub(super) fn sleep_over(n: usize, left: u64) -> Result<u64, Errno> {
    let until = process::on(n).own(n).until_ns;
    if over(n) != Over::Signal {
        return Ok(0);
    }
    let rest = split(until.saturating_sub(time::monotonic_ns()));
    process::on(n).user.put_unless_null(left, &rest)?;
    Err(Errno::EINTR)
}

/// Lets other threads run first, if there are any: the entry code has answered otherwise.
pub(super) fn give_way(caller: &mut Caller<'_>, _: [u64; 6]) -> Result<u64, Errno> {
    if cpu(caller.cpu).crowded.load(Relaxed) {
        caller.context.rax = 0;
        switch::give_way(caller.cpu, caller.context);
    }
    Ok(0)
}

pub(super) fn clock_nanosleep(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    const TIMER_ABSTIME: u64 = 1;
    let [number, flags, wanted, left, ..] = args;
    let n = caller.cpu;
    let now = clock(n, number)?;
    if matches!(number as u32, 3..=6) {
        return Err(if number as u32 == 3 { Errno::EINVAL } else { Errno::EOPNOTSUPP });
    }
    if flags & TIMER_ABSTIME == 0 {
        return sleep(caller, until(n, wanted)?, left);
    }
    let wait = timespec(n, wanted)?.saturating_sub(now);
    sleep(caller, time::monotonic_ns().saturating_add(wait), 0)
}
