// SPDX-License-Identifier: MIT OR Apache-2.0
//! One-shot timers: the one of `alarm` and `setitimer`, and the ends of waits. There is no other timer interrupt.

use crate::machine::apic;
use crate::process;
use crate::time;

/// Asks for an interrupt at `wait_ns`, or at the end of the process's timer if that is this CPU's and earlier.
pub fn arm(n: usize, wait_ns: Option<u64>) {
    let timer = process::on(n).timer;
    let own = timer.at_ns.filter(|_| timer.cpu == n);
    match wait_ns.into_iter().chain(own).min() {
        Some(at_ns) => apic::alarm_in(at_ns.saturating_sub(time::monotonic_ns())),
        None => apic::alarm_off(),
    }
}
