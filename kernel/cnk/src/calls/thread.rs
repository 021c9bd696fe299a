// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads, and the words by which they agree.

use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use cnk_logic::ensure;
use colony_fship::Errno;
use linux_raw_sys::general::{
    CLONE_CHILD_CLEARTID, CLONE_CHILD_SETTID, CLONE_PARENT_SETTID, CLONE_SETTLS, CLONE_SIGHAND, CLONE_THREAD,
    CLONE_VM,
};

use super::handler::Caller;
use super::over;
use super::time::{timespec, until_unless_null};
use crate::cpu::cpu;
use crate::machine::context::Context;
use crate::machine::ops;
use crate::process::{self, Over, Wait, switch, threads};
use crate::time;

pub(super) fn set_tid_address(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let process = &mut *process::on(caller.cpu);
    process.own(caller.cpu).clear_tid = args[0];
    Ok(process.id_on(caller.cpu).into())
}

/// Bytes of the head of a list of robust locks.
const ROBUST: u64 = 24;

/// Kept until the thread ends (`process::threads::end`).
pub(super) fn set_robust_list(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    ensure(args[1] == ROBUST, Errno::EINVAL)?;
    process::on(caller.cpu).own(caller.cpu).robust = args[0];
    Ok(0)
}

pub(super) fn get_robust_list(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let process = process::on(caller.cpu);
    let thread = process.thread_or_own(caller.cpu, args[0])?;
    process.user.put(args[2], &ROBUST)?;
    process.user.put(args[1], &process.threads[thread].robust)?;
    Ok(0)
}

pub(super) fn clone(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let [flags, stack, parent_tid, child_tid, tls, _] = args;
    begin(caller, flags, stack, [parent_tid, child_tid], tls)
}

pub(super) fn clone3(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    // flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls
    ensure(args[1] >= 64, Errno::EINVAL)?;
    let [flags, _, child_tid, parent_tid, _, stack, size, tls]: [u64; 8] =
        process::on(caller.cpu).user.get(args[0])?;
    let stack = stack.checked_add(size).ok_or(Errno::EINVAL)?;
    begin(caller, flags, stack, [parent_tid, child_tid], tls)
}

/// Begins a thread; its number goes to the two addresses, as the flags say.
fn begin(caller: &mut Caller<'_>, flags: u64, stack: u64, tids: [u64; 2], tls: u64) -> Result<u64, Errno> {
    // another process there cannot be: there is nobody to switch to it
    let flags = flags as u32;
    const THREAD: u32 = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
    ensure(flags & THREAD == THREAD && stack != 0, Errno::ENOSYS)?;
    let has = |flag| flags & flag != 0;
    let fs_base = if has(CLONE_SETTLS) { tls } else { ops::read_msr(ops::msr::FS_BASE) };
    ensure(ops::canonical(fs_base), Errno::EPERM)?;
    // after the call, rcx and r11 are what SYSCALL has left there; the kernel's own way back does not matter
    let context = Context { rax: 0, rsp: stack, ..*caller.context };
    let clear_tid = if has(CLONE_CHILD_CLEARTID) { tids[1] } else { 0 };
    let tell = |process: &process::Process, id: u32| {
        for (flag, place) in [CLONE_PARENT_SETTID, CLONE_CHILD_SETTID].into_iter().zip(tids) {
            if has(flag) {
                process.user.put(place, &id)?;
            }
        }
        Ok(())
    };
    threads::start(caller.cpu, context, fs_base, clear_tid, tell).map(u64::from)
}

/// Looks so often at a word before the thread leaves its CPU: most waits between two CPUs are short.
const LOOKS: u32 = 2000;

pub(super) fn futex(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    const CLOCK_REALTIME: u64 = 256;
    let [address, op, value, time_or_value2, second, value3] = args;
    let [value, value2, value3] = [value, time_or_value2, value3].map(|number| number as u32);
    ensure(address % 4 == 0, Errno::EINVAL)?;
    let n = caller.cpu;
    match op & 127 {
        9 | 10 if value3 == 0 => Err(Errno::EINVAL),
        0 => futex_wait(caller, address, value, until_unless_null(n, time_or_value2)?, u32::MAX),
        9 => {
            let end = if time_or_value2 == 0 { None } else { Some(timespec(n, time_or_value2)?) };
            let end = if op & CLOCK_REALTIME != 0 { end.map(time::from_realtime) } else { end };
            futex_wait(caller, address, value, end, value3)
        }
        1 => Ok(process::on(n).wake(n, address, value, u32::MAX).into()),
        10 => Ok(process::on(n).wake(n, address, value, value3).into()),
        3 => requeue(n, address, value, value2, second, None),
        4 => requeue(n, address, value, value2, second, Some(value3)),
        5 => wake_op(n, address, value, value2, second, value3),
        _ => Err(Errno::ENOSYS),
    }
}

fn futex_wait(caller: &Caller<'_>, at: u64, value: u32, end: Option<u64>, bits: u32) -> Result<u64, Errno> {
    let n = caller.cpu;
    {
        let process = &mut *process::on(n);
        let word = process.user.word(at, false)?;
        ensure(word.load(SeqCst) == value, Errno::EAGAIN)?;
        cpu(n).woken.store(false, Relaxed);
        process.begin_wait(n, Wait::Futex, end);
        let thread = process.current(n);
        process.waiters.add(thread, at, bits);
    }
    for _ in 0..LOOKS {
        if cpu(n).woken.load(Acquire) {
            return futex_over(n);
        }
        if cpu(n).crowded.load(Relaxed) {
            break;
        }
        core::hint::spin_loop();
    }
    switch::wait(n, caller.context)
}

/// The end of a wait at a word.
pub(super) fn futex_over(n: usize) -> Result<u64, Errno> {
    match over(n) {
        Over::Signal => Err(Errno::EINTR),
        Over::Timeout => Err(Errno::ETIMEDOUT),
        _ => Ok(0),
    }
}

fn requeue(n: usize, from: u64, wake: u32, most: u32, to: u64, value: Option<u32>) -> Result<u64, Errno> {
    let process = &mut *process::on(n);
    let word = process.user.word(from, false)?;
    process.user.word(to, false)?;
    ensure(value.is_none_or(|value| word.load(SeqCst) == value), Errno::EAGAIN)?;
    let woken = process.wake(n, from, wake, u32::MAX);
    Ok((woken + process.waiters.requeue(from, to, most)).into())
}

/// `FUTEX_WAKE_OP`: changes one word, wakes who waits at another, and at the first if its value was so (futex(2)).
fn wake_op(n: usize, address: u64, wake: u32, wake2: u32, second: u64, code: u32) -> Result<u64, Errno> {
    let process = &mut *process::on(n);
    process.user.word(address, false)?;
    let word = process.user.word(second, true)?;
    let signed = |bits: u32| ((bits << 20) as i32 >> 20) as u32;
    let (op, compare) = (code >> 28 & 7, code >> 24 & 15);
    let (mut arg, bound) = (signed(code >> 12 & 0xfff), signed(code & 0xfff) as i32);
    if code >> 31 != 0 {
        arg = 1 << (arg & 31);
    }
    let old = match op {
        0 => word.swap(arg, SeqCst),
        1 => word.fetch_add(arg, SeqCst),
        2 => word.fetch_or(arg, SeqCst),
        3 => word.fetch_and(!arg, SeqCst),
        4 => word.fetch_xor(arg, SeqCst),
        _ => return Err(Errno::ENOSYS),
    } as i32;
    let so = match compare {
        0 => old == bound,
        1 => old != bound,
        2 => old < bound,
        3 => old <= bound,
        4 => old > bound,
        5 => old >= bound,
        _ => return Err(Errno::ENOSYS),
    };
    let mut woken = process.wake(n, address, wake, u32::MAX);
    if so {
        woken += process.wake(n, second, wake2, u32::MAX);
    }
    Ok(woken.into())
}
