//! Threads, and the words by which they agree.

use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};

use cnk_logic::clock::join;
use colony_fship::Errno;
use colony_fship::calls::number;
use colony_fship::spans::Memory as _;

use super::{Caller, Handler};
use crate::cpu::{self, Start, cpu};
use crate::machine::context::Context;
use crate::machine::ops;
use crate::process::wait::{self, Woken};
use crate::process::{self, threads};
use crate::time;

pub(super) const HANDLERS: &[(u32, Handler)] = &[
    (number::clone, clone),
    (number::clone3, clone3),
    (number::futex, futex),
    (number::set_tid_address, set_tid_address),
    (number::set_robust_list, set_robust_list),
    (number::get_robust_list, get_robust_list),
];

fn set_tid_address(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let process = &mut *process::on(caller.cpu);
    process.threads[caller.cpu].clear_tid = args[0];
    Ok(process.id_on(caller.cpu).into())
}

/// Bytes of the head of a list of robust locks.
const ROBUST: u64 = 24;

/// Only kept: a thread that ends with a lock ends its process, or nobody waits.
fn set_robust_list(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    if args[1] != ROBUST {
        return Err(Errno::EINVAL);
    }
    process::on(caller.cpu).threads[caller.cpu].robust = args[0];
    Ok(0)
}

fn get_robust_list(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let process = process::on(caller.cpu);
    let thread = match args[0] as u32 {
        0 => caller.cpu,
        id => process.thread_with(id).ok_or(Errno::ESRCH)?,
    };
    process.user.put(args[2], &ROBUST)?;
    process.user.put(args[1], &process.threads[thread].robust)?;
    Ok(0)
}

const CLONE_VM: u64 = 0x100;
const CLONE_SIGHAND: u64 = 0x800;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_SETTLS: u64 = 0x8_0000;
const CLONE_PARENT_SETTID: u64 = 0x10_0000;
const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
const CLONE_CHILD_SETTID: u64 = 0x100_0000;

/// What a new thread is to be.
struct Wish {
    flags: u64,
    stack: u64,
    parent_tid: u64,
    child_tid: u64,
    tls: u64,
}

fn clone(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let [flags, stack, parent_tid, child_tid, tls, _] = args;
    begin(caller, &Wish { flags, stack, parent_tid, child_tid, tls })
}

fn clone3(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    // flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls
    if args[1] < 64 {
        return Err(Errno::EINVAL);
    }
    let [flags, _, child_tid, parent_tid, _, stack, size, tls]: [u64; 8] =
        process::on(caller.cpu).user.get(args[0])?;
    let stack = stack.checked_add(size).ok_or(Errno::EINVAL)?;
    begin(caller, &Wish { flags, stack, parent_tid, child_tid, tls })
}

fn begin(caller: &mut Caller<'_>, wish: &Wish) -> Result<u64, Errno> {
    // another process there cannot be: there is nobody to switch to it
    const THREAD: u64 = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
    if wish.flags & THREAD != THREAD || wish.stack == 0 {
        return Err(Errno::ENOSYS);
    }
    let has = |flag| wish.flags & flag != 0;
    let fs_base = if has(CLONE_SETTLS) { wish.tls } else { ops::read_msr(ops::msr::FS_BASE) };
    if !ops::canonical(fs_base) {
        return Err(Errno::EPERM);
    }
    // after the call, rcx and r11 are what SYSCALL has left there; the kernel's own way back does not matter
    let context = Context { rax: 0, rsp: wish.stack, ..*caller.context };
    {
        let process = process::on(caller.cpu);
        let id = process.id_on(cpu::other(caller.cpu));
        if has(CLONE_PARENT_SETTID) {
            process.user.put(wish.parent_tid, &id)?;
        }
        if has(CLONE_CHILD_SETTID) {
            process.user.put(wish.child_tid, &id)?;
        }
    }
    let clear_tid = if has(CLONE_CHILD_CLEARTID) { wish.child_tid } else { 0 };
    threads::start(caller.cpu, Start { context, fs_base }, clear_tid).map(u64::from)
}

/// Looks so often at a word before halting: most waits between two CPUs are short.
const LOOKS: u32 = 2000;

fn futex(caller: &mut Caller<'_>, args: [u64; 6]) -> Result<u64, Errno> {
    let [address, op, value, time_or_value2, second, value3] = args;
    const CLOCK_REALTIME: u64 = 256;
    if address % 4 != 0 {
        return Err(Errno::EINVAL);
    }
    let n = caller.cpu;
    match op & 127 {
        0 => futex_wait(n, address, value as u32, time_or_value2, false, false, u32::MAX),
        9 => futex_wait(
            n,
            address,
            value as u32,
            time_or_value2,
            true,
            op & CLOCK_REALTIME != 0,
            value3 as u32,
        ),
        1 => Ok(process::on(n).wake(n, address, value as u32, u32::MAX).into()),
        10 if value3 as u32 != 0 => Ok(process::on(n).wake(n, address, value as u32, value3 as u32).into()),
        3 => requeue(n, address, value as u32, time_or_value2 as u32, second, None),
        4 => requeue(n, address, value as u32, time_or_value2 as u32, second, Some(value3 as u32)),
        5 => wake_op(n, address, value as u32, time_or_value2 as u32, second, value3 as u32),
        10 => Err(Errno::EINVAL),
        _ => Err(Errno::ENOSYS),
    }
}

fn futex_wait(
    n: usize,
    address: u64,
    value: u32,
    time: u64,
    absolute: bool,
    wall: bool,
    bits: u32,
) -> Result<u64, Errno> {
    if bits == 0 {
        return Err(Errno::EINVAL);
    }
    let until = {
        let process = &mut *process::on(n);
        let until = match time {
            0 => None,
            _ => {
                let [s, ns]: [i64; 2] = process.user.get(time)?;
                let ns = join(s, ns).ok_or(Errno::EINVAL)?;
                Some(match (absolute, wall) {
                    (false, _) => time::monotonic_ns().saturating_add(ns),
                    (true, true) => time::from_realtime(ns),
                    (true, false) => ns,
                })
            }
        };
        if !process.user.holds(address, 4, false) {
            return Err(Errno::EFAULT);
        }
        if process.user.bank.word(address)?.load(SeqCst) != value {
            return Err(Errno::EAGAIN);
        }
        cpu(n).woken.store(false, Relaxed);
        process.threads[n].futex = Some((address, bits));
        until
    };
    let woken = || cpu(n).woken.load(Acquire).then_some(());
    let early = (0..LOOKS).any(|_| {
        core::hint::spin_loop();
        woken().is_some()
    });
    let outcome = if early { Woken::Done(()) } else { wait::until(n, until, woken) };
    // who was woken meanwhile was woken
    let late = process::on(n).threads[n].futex.take().is_none();
    match outcome {
        _ if late => Ok(0),
        Woken::Signal => Err(Errno::EINTR),
        _ => Err(Errno::ETIMEDOUT),
    }
}

fn requeue(
    n: usize,
    from: u64,
    wake: u32,
    move_max: u32,
    to: u64,
    expected: Option<u32>,
) -> Result<u64, Errno> {
    let process = &mut *process::on(n);
    if !process.user.holds(from, 4, false) || !process.user.holds(to, 4, false) {
        return Err(Errno::EFAULT);
    }
    if let Some(expected) = expected
        && process.user.bank.word(from)?.load(SeqCst) != expected
    {
        return Err(Errno::EAGAIN);
    }
    let mut done = process.wake(n, from, wake, u32::MAX);
    for thread in &mut process.threads {
        match thread.futex {
            Some((at, bits)) if at == from && done < wake.saturating_add(move_max) => {
                thread.futex = Some((to, bits));
                done += 1;
            }
            _ => {}
        }
    }
    Ok(done.into())
}

/// `FUTEX_WAKE_OP`: changes one word, wakes who waits at another, and at the first if its value was so (futex(2)).
fn wake_op(n: usize, address: u64, wake: u32, wake2: u32, second: u64, code: u32) -> Result<u64, Errno> {
    let process = &mut *process::on(n);
    if !process.user.holds(address, 4, false) || !process.user.holds(second, 4, true) {
        return Err(Errno::EFAULT);
    }
    let signed = |bits: u32| ((bits << 20) as i32 >> 20) as u32;
    let (op, compare) = (code >> 28 & 7, code >> 24 & 15);
    let (mut arg, bound) = (signed(code >> 12 & 0xfff), signed(code & 0xfff) as i32);
    if code >> 31 != 0 {
        arg = 1 << (arg & 31);
    }
    let word = process.user.bank.word(second)?;
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
