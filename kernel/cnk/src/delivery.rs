// SPDX-License-Identifier: MIT OR Apache-2.0
//! Delivery of signals on the way back to a program: its handlers are called, or it ends.

use core::sync::atomic::Ordering::{Relaxed, Release};

use cnk_logic::ensure;
use cnk_logic::frame::{self, Frame, MAGIC, MAGIC_BEHIND, Registers, STATE_INFO, StateInfo};
use cnk_logic::signals::{ALWAYS, Delivery, Info, SIGSEGV, flag, handler_mask, restarts};
use colony_fship::Errno;
use colony_fship::layout::CrashRecord;
use colony_fship::spans::Memory as _;

use crate::cpu::{NEVER, cpu, obey};
use crate::job::{self, End};
use crate::machine::context::{Context, safe_flags};
use crate::machine::tables::{USER_CS, USER_SS};
use crate::machine::{fpu, ops};
use crate::process::signals::alerted;
use crate::process::{self, Process, memory::User, switch, timers};
use crate::{shipping, time};

/// Time for a thread before others have the CPU, where threads outnumber the CPUs.
const SLICE_NS: u64 = 2_000_000;

/// On the way back to the user: does what there is to be done for this thread and others. `interrupted` is the call that
/// has returned `EINTR`. Whether the registers were changed.
pub fn before_user(n: usize, context: &mut Context, interrupted: Option<u64>) -> bool {
    obey(n);
    shipping::listen(n);
    if !alerted(n) {
        return false;
    }
    cpu(n).attention.store(false, Release);
    let turn_over = cpu(n).slice.load(Relaxed) <= time::monotonic_ns();
    if turn_over || !cpu(n).crowded.load(Relaxed) {
        cpu(n).slice.store(NEVER, Relaxed);
    }
    attend(n);
    shipping::listen(n);
    let changed = deliver(n, context, interrupted);
    if cpu(n).crowded.load(Relaxed) {
        if turn_over {
            switch::give_way(n, context);
        }
        if cpu(n).slice.load(Relaxed) == NEVER {
            cpu(n).slice.store(time::monotonic_ns().saturating_add(SLICE_NS), Relaxed);
            timers::arm(n);
        }
    }
    changed
}

/// Looks at all that may have come for CPU `n`: replies, ends of timers.
pub fn attend(n: usize) {
    shipping::attend(n);
    timers::look(n);
}

fn deliver(n: usize, context: &mut Context, mut interrupted: Option<u64>) -> bool {
    let mut changed = false;
    loop {
        let mut guard = process::on(n);
        let process = &mut *guard;
        process.collect(n);
        let own = process.current(n);
        let delivery = process.signals.next(&mut process.threads[own].signals);
        let outcome = match delivery {
            None => {
                let thread = &mut process.threads[own].signals;
                if let Some(mask) = thread.saved.take() {
                    (thread.mask, thread.told) = (mask, true);
                    // what that lets through is next
                    continue;
                }
                thread.told = false;
                return changed;
            }
            Some(Delivery::Kill(signal)) => Err(signal),
            Some(Delivery::Handle(signal, info, action)) => {
                if let Some(call) = interrupted.take()
                    && action.flags & flag::RESTART != 0
                    && restarts(call)
                {
                    context.rip -= 2;
                    context.rax = call;
                }
                changed = true;
                call_handler(process, n, context, signal, info, &action).map_err(|_| SIGSEGV)
            }
        };
        drop(guard);
        if let Err(signal) = outcome {
            job::end(n, &End::Signal(record(context, signal, 255)));
        }
    }
}

/// The last state of a process.
pub fn record(context: &Context, signal: u32, vector: u32) -> CrashRecord {
    CrashRecord {
        signal,
        vector,
        error: if vector < 32 { context.error } else { 0 },
        address: if vector == 14 { ops::fault_address() } else { 0 },
        registers: context.registers(),
        rip: context.rip,
        rflags: context.rflags,
        fs_base: ops::read_msr(ops::msr::FS_BASE),
    }
}

/// An exception of the program on CPU `n`.
pub fn exception(n: usize, context: &mut Context, signal: u32, info: Info) {
    let handled = {
        let process = &mut *process::on(n);
        let own = process.current(n);
        process.threads[own].fault = (context.number, context.error, ops::fault_address());
        process.signals.force(&mut process.threads[own].signals, signal, info);
        process.signals.action(signal).is_some_and(|a| a.handler > 1)
    };
    if !handled {
        job::end(n, &End::Signal(record(context, signal, context.number as u32)));
    }
    cpu(n).attention.store(true, Release);
}

/// Bytes on the user's stack for the extended state.
fn state_len() -> u64 {
    if fpu::enabled() == 0 { fpu::LEGACY } else { fpu::size() + 4 }
}

/// Changes the registers so that the handler runs.
fn call_handler(
    process: &mut Process,
    n: usize,
    context: &mut Context,
    signal: u32,
    info: Info,
    action: &cnk_logic::signals::Action,
) -> Result<(), Errno> {
    let own = process.current(n);
    let thread = &mut process.threads[own];
    let (vector, error, fault_address) = core::mem::take(&mut thread.fault);
    let on_stack = (action.flags & flag::ONSTACK != 0).then_some(&thread.signals.stack);
    let place = frame::place(context.rsp, on_stack, state_len()).ok_or(Errno::EFAULT)?;
    save_state(&process.user, place.state, context)?;
    let c = &*context;
    let frame = Frame {
        restorer: action.restorer,
        flags: frame::FLAGS | u64::from(fpu::enabled() != 0),
        link: 0,
        stack: thread.signals.stack,
        registers: Registers {
            all: [
                c.r8, c.r9, c.r10, c.r11, c.r12, c.r13, c.r14, c.r15, c.rdi, c.rsi, c.rbp, c.rbx, c.rdx,
                c.rax, c.rcx, c.rsp, c.rip, c.rflags,
            ],
            segments: USER_CS | USER_SS << 48,
            error,
            vector,
            old_mask: thread.signals.mask,
            fault_address,
            state: place.state,
            unused: [0; 8],
        },
        mask: thread.signals.saved.take().unwrap_or(thread.signals.mask),
        info: info.encode(signal),
    };
    process.user.put(place.frame, &frame)?;
    let thread = &mut thread.signals;
    thread.mask = handler_mask(thread.mask, signal, action);
    context.rip = action.handler;
    context.rsp = place.frame;
    context.rax = 0;
    context.rdi = u64::from(signal);
    context.rsi = place.frame + frame::INFO;
    context.rdx = place.frame + frame::UCONTEXT;
    context.rflags = safe_flags(0);
    ensure(ops::canonical(context.rip), Errno::EFAULT)
}

fn save_state(user: &User, at: u64, context: &Context) -> Result<(), Errno> {
    ensure(user.holds(at, state_len(), true), Errno::EFAULT)?;
    if fpu::enabled() == 0 {
        return user.bank.save_state(at, &context.xmm);
    }
    user.put(at + fpu::LEGACY, &[0u64; fpu::HEADER as usize / 8])?;
    user.bank.save_state(at, &context.xmm)?;
    let (len, features) = (fpu::size() as u32, fpu::enabled());
    let info = StateInfo { magic: MAGIC, extended_len: len + 4, features, len, unused: [0; 7] };
    user.put(at + STATE_INFO, &info)?;
    user.put(at + u64::from(len), &MAGIC_BEHIND)
}

fn restore_state(user: &User, at: u64, context: &mut Context) -> Result<(), Errno> {
    if at == 0 {
        fpu::reset(&mut context.xmm);
        return Ok(());
    }
    ensure(at.is_multiple_of(64) && user.holds(at, state_len(), false), Errno::EFAULT)?;
    if fpu::enabled() != 0 {
        let info: StateInfo = user.get(at + STATE_INFO)?;
        ensure(info.magic == MAGIC, Errno::EINVAL)?;
    }
    user.bank.restore_state(at, &mut context.xmm)
}

/// `rt_sigreturn`: the registers as the frame at the stack pointer has them.
pub fn go_back(n: usize, context: &mut Context) {
    let restored = restore(&mut process::on(n), n, context);
    if restored.is_err() {
        job::end(n, &End::Signal(record(context, SIGSEGV, 255)));
    }
    // the mask may let something through
    cpu(n).attention.store(true, Release);
}

fn restore(process: &mut Process, n: usize, context: &mut Context) -> Result<(), Errno> {
    // the handler's return has taken the first word
    let at = context.rsp.checked_sub(8).ok_or(Errno::EFAULT)?;
    let frame: Frame = process.user.get(at)?;
    restore_state(&process.user, frame.registers.state, context)?;
    let c = context;
    [
        c.r8, c.r9, c.r10, c.r11, c.r12, c.r13, c.r14, c.r15, c.rdi, c.rsi, c.rbp, c.rbx, c.rdx, c.rax,
        c.rcx, c.rsp, c.rip, c.rflags,
    ] = frame.registers.all;
    c.rflags = safe_flags(c.rflags);
    ensure(ops::canonical(c.rip), Errno::EFAULT)?;
    let thread = &mut process.own(n).signals;
    (thread.mask, thread.told) = (frame.mask & !ALWAYS, true);
    if !frame.stack.has(c.rsp) {
        thread.stack = frame.stack;
    }
    Ok(())
}
