// SPDX-License-Identifier: MIT OR Apache-2.0
//! One-shot timers: the one of `alarm` and `setitimer`, the ends of waits, and the turns of threads that outnumber the
//! CPUs. There is no other timer interrupt.

use core::sync::atomic::Ordering::{Relaxed, Release};

use cnk_logic::sched::State;

use super::Over;
use crate::cpu::{NEVER, cpu};
use crate::machine::{apic, ops};
use crate::process;
use crate::time;

/// Sets the timer of CPU `n` for the first of its ends: of a wait that began there, of the process's timer if that is
/// this CPU's, of the turn of its thread.
pub fn arm(n: usize) {
    let at_ns = {
        let process = &*process::on(n);
        let waiting = |t: &usize| process.runs && process.sched.state(*t) == State::Waiting;
        let waits = process.sched.numbers().filter(waiting).map(|t| &process.threads[t]);
        let waits = waits.filter(|t| t.timer == n).map(|t| t.until_ns);
        let timer = process.timer.at_ns.filter(|_| process.timer.cpu == n && process.runs);
        waits.chain(timer).min().unwrap_or(NEVER).min(cpu(n).slice.load(Relaxed))
    };
    if cpu(n).alarm.swap(at_ns, Relaxed) == at_ns {
        return;
    }
    match at_ns {
        NEVER => apic::alarm_off(),
        _ => apic::alarm_in(at_ns.saturating_sub(time::monotonic_ns())),
    }
}

/// Ends the waits whose time is over, and starts the timer of CPU `n` again if it is not off.
pub fn look(n: usize) {
    if cpu(n).alarm.load(Relaxed) == NEVER && !cpu(n).fired.swap(false, Relaxed) {
        return;
    }
    {
        let now = time::monotonic_ns();
        let process = &mut *process::on(n);
        for thread in process.sched.numbers() {
            if process.threads[thread].until_ns <= now && process.sched.state(thread) == State::Waiting {
                process.end_wait(n, thread, Over::Timeout);
            }
        }
    }
    arm(n);
}

/// The timer of CPU `n` has interrupted it, and is off.
pub fn fired(n: usize) {
    cpu(n).alarm.store(NEVER, Relaxed);
    cpu(n).fired.store(true, Relaxed);
    cpu(n).attention.store(true, Release);
}

/// Halts CPU `n` until an interrupt, but no longer than `ns`. It takes no lock: a kernel that panics may hold the process, and
/// waits here until its report is sent.
pub fn nap(n: usize, ns: u64) {
    let left_ns = cpu(n).alarm.load(Relaxed).saturating_sub(time::monotonic_ns());
    apic::alarm_in(ns.min(left_ns));
    ops::halt();
    apic::alarm_off();
    fired(n);
}

/// Nothing is left of the timers of an earlier job.
pub fn forget(n: usize) {
    cpu(n).fired.store(false, Relaxed);
    cpu(n).alarm.store(NEVER, Relaxed);
    apic::alarm_off();
}
