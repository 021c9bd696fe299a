// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting: a CPU that has nothing to do halts.

use crate::cpu::obey;
use crate::machine::ops;
use crate::process::{signals, timers};
use crate::time;

/// The end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken<T> {
    /// The condition is met, with its value.
    Done(T),
    /// A signal is to be delivered.
    Signal,
    /// The time is over.
    Timeout,
}

/// Waits until `done` says so, a signal comes, or the monotonic clock shows `until_ns`. The caller holds no lock.
pub fn until<T>(n: usize, until_ns: Option<u64>, mut done: impl FnMut() -> Option<T>) -> Woken<T> {
    let mut armed = false;
    let woken = loop {
        obey(n);
        if let Some(value) = done() {
            break Woken::Done(value);
        }
        if signals::waits(n) {
            break Woken::Signal;
        }
        if until_ns.is_some_and(|at| at <= time::monotonic_ns()) {
            break Woken::Timeout;
        }
        if until_ns.is_some() {
            timers::arm(n, until_ns);
            armed = true;
        }
        ops::halt();
    };
    if armed {
        timers::arm(n, None);
    }
    woken
}
