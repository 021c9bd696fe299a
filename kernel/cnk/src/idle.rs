// SPDX-License-Identifier: MIT OR Apache-2.0
//! A CPU without a thread: it takes the next one, or halts until there is one.

use core::sync::atomic::Ordering::{Relaxed, Release};

use crate::cpu::{self, cpu};
use crate::machine::{area::area, context, ops};
use crate::node::is_up;
use crate::process::{self, switch, timers};
use crate::{calls, delivery, job, shipping};

/// The loop of a CPU without a thread.
pub fn idle(n: usize) -> ! {
    cpu(n).busy.store(false, Release);
    cpu(n).slice.store(cpu::NEVER, Relaxed);
    while !is_up() {
        ops::halt();
    }
    loop {
        cpu::count(&area(n).pulses);
        job::between(n);
        process::on(n).collect(n);
        delivery::attend(n);
        shipping::listen(n);
        if switch::take(n).is_some() {
            go_on(n);
        }
        // what comes from here on interrupts
        if shipping::may_halt(n) {
            timers::arm(n);
            ops::halt();
        }
    }
}

/// Goes on with the thread that CPU `n` has taken, where it left its CPU.
fn go_on(n: usize) -> ! {
    let mut context = switch::restore(n);
    let interrupted = calls::resume(n, &mut context);
    cpu(n).attention.store(true, Release);
    delivery::before_user(n, &mut context, interrupted);
    context::enter(&context)
}
