// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals that a program sends itself, waits for, blocks and handles; and its timer.

use cnk_logic::clock::{SECOND, join, nearest_second};
use cnk_logic::ensure;
use cnk_logic::signals::{ALWAYS, Action, Info, Stack, Thread, bit};
use colony_fship::Errno;

use super::handler::Caller;
use super::over;
use super::time::until_unless_null;
use crate::cpu::cpu;
use crate::process::{self, Over, Timer, Wait, signals, switch, timers};
use crate::{delivery, time};

/// Bytes of a set of signals.
const SET: u64 = 8;

/// Makes a thread look at its signals on the way back, on CPU `n`: its mask has changed.
fn recheck_signals(n: usize, thread: &mut Thread) {
    thread.told = true;
    cpu(n).attention.store(true, core::sync::atomic::Ordering::Release);
}

fn signal_of(value: u64) -> Result<u32, Errno> {
    let signal = value as u32;
    ensure(bit(signal) != 0, Errno::EINVAL)?;
    Ok(signal)
}

pub(super) fn action(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    ensure(args[3] == SET, Errno::EINVAL)?;
    let process = &mut *process::on(caller.cpu);
    let new: Option<Action> = process.user.get_unless_null(args[1])?;
    let signal = signal_of(args[0])?;
    ensure(new.is_none() || ALWAYS & bit(signal) == 0, Errno::EINVAL)?;
    let old = process.signals.action(signal).unwrap_or_default();
    if let Some(new) = new {
        process.signals.set_action(signal, new);
    }
    process.user.put_unless_null(args[2], &old)?;
    Ok(0)
}

pub(super) fn procmask(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let [how, new, old, size, ..] = args;
    ensure(size == SET, Errno::EINVAL)?;
    let process = &mut *process::on(caller.cpu);
    let mask = process.own(caller.cpu).signals.mask;
    if let Some(set) = process.user.get_unless_null::<u64>(new)? {
        let changed = match how as u32 {
            0 => mask | set,
            1 => mask & !set,
            2 => set,
            _ => return Err(Errno::EINVAL),
        };
        process.own(caller.cpu).signals.mask = changed & !ALWAYS;
        signals::pass_on(process, caller.cpu, changed & !mask);
        recheck_signals(caller.cpu, &mut process.own(caller.cpu).signals);
    }
    process.user.put_unless_null(old, &mask)?;
    Ok(0)
}

pub(super) fn go_back(caller: &mut Caller<'_>, _: [u64; 6]) -> Result<u64, Errno> {
    delivery::go_back(caller.cpu, caller.context);
    caller.restored = true;
    Ok(0)
}

pub(super) fn pending(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    ensure(args[1] <= SET, Errno::EINVAL)?;
    let process = &mut *process::on(caller.cpu);
    let thread = process.own(caller.cpu).signals;
    let set = (process.signals.pending() | thread.pending) & thread.mask;
    process.user.put(args[0], &set)?;
    Ok(0)
}

pub(super) fn timedwait(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let [set, info, timeout, size, ..] = args;
    let n = caller.cpu;
    ensure(size == SET, Errno::EINVAL)?;
    let wanted = process::on(n).user.get::<u64>(set)? & !ALWAYS;
    let end = until_unless_null(n, timeout)?;
    {
        let process = &mut *process::on(n);
        process.own(n).signals.wanted = wanted;
        process.begin_wait(n, Wait::Signal(info), end);
    }
    // if one is there, this wait is over at once
    switch::wait(n, caller.context)
}

/// The end of `rt_sigtimedwait`.
pub(super) fn wait_over(n: usize, info: u64) -> Result<u64, Errno> {
    let over = over(n);
    let process = &mut *process::on(n);
    let thread = process.current(n);
    let wanted = core::mem::take(&mut process.threads[thread].signals.wanted);
    let taken = process.signals.take(&mut process.threads[thread].signals, wanted);
    let (signal, about) = match (taken, over) {
        (Some(taken), _) => taken,
        (None, Over::Timeout) => return Err(Errno::EAGAIN),
        (None, _) => return Err(Errno::EINTR),
    };
    process.user.put_unless_null(info, &about.encode(signal))?;
    Ok(signal.into())
}

/// Waits with another mask; the old one comes back when the handler has run (or with [`unmask`]).
pub(super) fn mask_for_now(n: usize, mask: u64) {
    let process = &mut *process::on(n);
    let thread = &mut process.own(n).signals;
    let old = thread.mask;
    thread.saved = Some(old);
    thread.mask = mask & !ALWAYS;
    signals::pass_on(process, n, mask & !old);
    recheck_signals(n, &mut process.own(n).signals);
}

/// Takes the mask of [`mask_for_now`] back, if no signal has come.
pub(super) fn unmask(n: usize) {
    let process = &mut *process::on(n);
    let thread = &mut process.own(n).signals;
    if let Some(mask) = thread.saved.take() {
        thread.mask = mask;
        recheck_signals(n, thread);
    }
}

pub(super) fn wait_for_handler(caller: &Caller<'_>) -> ! {
    process::on(caller.cpu).begin_wait(caller.cpu, Wait::Handler, None);
    switch::wait(caller.cpu, caller.context)
}

pub(super) fn suspend(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    ensure(args[1] == SET, Errno::EINVAL)?;
    let mask = process::on(caller.cpu).user.get(args[0])?;
    mask_for_now(caller.cpu, mask);
    wait_for_handler(caller)
}

pub(super) fn altstack(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    const SMALLEST: u64 = 2048;
    let process = &mut *process::on(caller.cpu);
    let old = process.own(caller.cpu).signals.stack;
    let used = old.has(caller.context.rsp);
    if let Some(new) = process.user.get_unless_null::<Stack>(args[0])? {
        ensure(!used, Errno::EPERM)?;
        let stack = &mut process.own(caller.cpu).signals.stack;
        *stack = match new.flags as u32 {
            2 => Stack::NONE,
            0 if new.size < SMALLEST => return Err(Errno::ENOMEM),
            0 | 1 => Stack { flags: 0, ..new },
            _ => return Err(Errno::EINVAL),
        };
    }
    let flags = old.flags | if used { Stack::IN_USE } else { 0 };
    process.user.put_unless_null(args[1], &Stack { flags, ..old })?;
    Ok(0)
}

pub(super) fn kill(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let process = &mut *process::on(caller.cpu);
    let (to, own) = (args[0] as i32, process.block.pid as i32);
    // oneself, one's group, everybody: all the same here
    ensure([own, 0, -1, own.wrapping_neg()].contains(&to), Errno::ESRCH)?;
    if args[1] as u32 != 0 {
        let signal = signal_of(args[1])?;
        let info = Info::from(process.block.pid, process.block.uid, false);
        process.post(caller.cpu, signal, info);
    }
    Ok(0)
}

pub(super) fn tgkill(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    ensure(args[0] as i32 > 0, Errno::EINVAL)?;
    ensure(args[0] as u32 == process::on(caller.cpu).block.pid, Errno::ESRCH)?;
    to_thread(caller, args[1] as i32, args[2])
}

pub(super) fn to_thread(caller: &mut Caller<'_>, thread: i32, signal: u64) -> Result<u64, Errno> {
    ensure(thread > 0, Errno::EINVAL)?;
    let process = &mut *process::on(caller.cpu);
    let to = process.thread_with(thread as u32).ok_or(Errno::ESRCH)?;
    if signal as u32 != 0 {
        let signal = signal_of(signal)?;
        let info = Info::from(process.block.pid, process.block.uid, true);
        process.post_thread(caller.cpu, to, signal, info);
    }
    Ok(0)
}

/// Time left of the timer, and its interval, ns.
fn left(timer: &Timer) -> (u64, u64) {
    let now = time::monotonic_ns();
    // one that ends just now has not ended yet
    let left = timer.at_ns.map_or(0, |at| at.saturating_sub(now).max(1));
    (left, timer.interval_ns)
}

/// Sets the timer of the process; what was left of the one before.
fn set_timer(n: usize, wait_ns: u64, interval_ns: u64) -> (u64, u64) {
    let old = {
        let process = &mut *process::on(n);
        let old = left(&process.timer);
        let at_ns = (wait_ns > 0).then(|| time::monotonic_ns().saturating_add(wait_ns));
        process.timer = Timer { at_ns, interval_ns, cpu: n };
        old
    };
    timers::arm(n);
    old
}

pub(super) fn alarm(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let (left, _) = set_timer(caller.cpu, u64::from(args[0] as u32) * SECOND, 0);
    Ok(u64::from(nearest_second(left) as u32))
}

/// `itimerval`: the interval, then what is left, in seconds and microseconds.
fn encode((left, interval): (u64, u64)) -> [u64; 4] {
    let pair = |ns: u64| [ns / SECOND, ns.div_ceil(1000) % 1_000_000];
    let ([a, b], [c, d]) = (pair(interval), pair(left));
    [a, b, c, d]
}

pub(super) fn getitimer(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    // only `ITIMER_REAL` is there: the others count time that a scheduler gives
    ensure(args[0] as u32 == 0, Errno::EINVAL)?;
    let process = process::on(caller.cpu);
    process.user.put(args[1], &encode(left(&process.timer)))?;
    Ok(0)
}

pub(super) fn setitimer(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    ensure(args[0] as u32 == 0, Errno::EINVAL)?;
    let new: Option<[i64; 4]> = process::on(caller.cpu).user.get_unless_null(args[1])?;
    let [interval_s, interval_us, wait_s, wait_us] = new.unwrap_or_default();
    let ns = |s, us: i64| join(s, us.checked_mul(1000).ok_or(Errno::EINVAL)?).ok_or(Errno::EINVAL);
    let (wait, interval) = (ns(wait_s, wait_us)?, ns(interval_s, interval_us)?);
    let old = set_timer(caller.cpu, wait, interval);
    process::on(caller.cpu).user.put_unless_null(args[2], &encode(old))?;
    Ok(0)
}
