// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exceptions and interrupts.

use core::sync::atomic::Ordering::{Relaxed, Release};

use cnk_logic::signals::{Info, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGTRAP};

use crate::cpu::{count, cpu};
use crate::machine::context::Context;
use crate::machine::{apic, fpu, ops};
use crate::process::timers;
use crate::{delivery, network};

/// Handles a trap and goes back; or ends the process.
pub fn dispatch(n: usize, context: &mut Context) {
    match context.number {
        // a non-maskable interrupt, on a short stack of its own: nothing sends one
        2 => return,
        vector @ 0..32 => exception(n, context, vector),
        vector => interrupt(n, vector as u8),
    }
    if context.is_user() {
        delivery::before_user(n, context, None);
    }
}

fn interrupt(n: usize, vector: u8) {
    count(if vector == apic::ALARM { &cpu(n).timer_interrupts } else { &cpu(n).other_interrupts });
    match vector {
        apic::ALARM => timers::fired(n),
        // who halts looks at the rings by itself; frames are to be taken first
        apic::DOORBELL => network::pump(n),
        _ => {}
    }
    if cpu(n).open.load(Relaxed) > 0 {
        cpu(n).attention.store(true, Release);
    }
    apic::end();
}

fn exception(n: usize, context: &mut Context, vector: u64) {
    if !context.is_user() {
        match fpu::refused(context.rip) {
            Some(resume) => context.rip = resume,
            None => {
                let (error, rip, address) = (context.error, context.rip, ops::fault_address());
                panic!("exception {vector} (error {error:#x}) at {rip:#x}, address {address:#x}")
            }
        }
        return;
    }
    count(&cpu(n).faults);
    let (signal, info) = signal_of(context, vector);
    delivery::exception(n, context, signal, info);
}

/// The signal that Linux makes of an exception of a program: number, `si_code`, address.
fn signal_of(context: &Context, vector: u64) -> (u32, Info) {
    /// An error code of a page fault: the page was there.
    const PRESENT: u64 = 1;
    let at_instruction = |signal, code| (signal, Info { code, about: context.rip });
    let by_kernel = |signal| (signal, Info::KERNEL);
    match vector {
        0 => at_instruction(SIGFPE, 1),  // FPE_INTDIV
        1 => at_instruction(SIGTRAP, 2), // TRAP_TRACE
        3 => by_kernel(SIGTRAP),
        6 => at_instruction(SIGILL, 2), // ILL_ILLOPN
        11 | 12 => by_kernel(SIGBUS),
        14 => {
            let address = ops::fault_address();
            // SEGV_ACCERR or SEGV_MAPERR; what is in the kernel's half is not told
            let code = if context.error & PRESENT != 0 && ops::canonical(address) { 2 } else { 1 };
            (SIGSEGV, Info { code, about: address })
        }
        16 | 19 => at_instruction(SIGFPE, 7), // FPE_FLTINV: which it was is in the state
        17 => (SIGBUS, Info { code: 1, about: 0 }), // BUS_ADRALN
        8 | 18 => panic!("double fault or machine check"),
        _ => by_kernel(SIGSEGV),
    }
}
