// SPDX-License-Identifier: MIT OR Apache-2.0
//! One-shot timers: the one of `alarm` and `setitimer`, and the ends of waits. There is no other timer interrupt.

use cnk_logic::clock::next_end;

use crate::machine::apic;
use crate::process;
use crate::time;

/// `ITIMER_REAL`.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    /// When it ends next, on the monotonic clock.
    pub at_ns: Option<u64>,
    /// It starts anew for so long; 0 for not.
    pub interval_ns: u64,
    /// CPU whose interrupt it is.
    pub cpu: usize,
}

impl Timer {
    /// Off.
    pub const OFF: Self = Self { at_ns: None, interval_ns: 0, cpu: 0 };

    /// Whether it has ended; it goes on to the next end then.
    pub fn ended(&mut self) -> bool {
        let now = time::monotonic_ns();
        let Some(at) = self.at_ns.filter(|&at| at <= now) else { return false };
        self.at_ns = match self.interval_ns {
            0 => None,
            // ends that nobody has seen are one
            interval => Some(next_end(at, now, interval)),
        };
        true
    }
}

/// Asks for an interrupt at `wait_ns`, or at the end of the process's timer if that is this CPU's and earlier.
pub fn arm(n: usize, wait_ns: Option<u64>) {
    let timer = process::on(n).timer;
    let own = timer.at_ns.filter(|_| timer.cpu == n);
    match wait_ns.into_iter().chain(own).min() {
        Some(at_ns) => apic::alarm_in(at_ns.saturating_sub(time::monotonic_ns())),
        None => apic::alarm_off(),
    }
}
