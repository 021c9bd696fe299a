// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small program that suffers: it reads the counter and notes where time went missing.

use colony_time::tsc::{Calibration, Counter, CounterKind, Tsc, Vdso};

use super::threads::Stop;

/// Time that was taken from the victim, in counts of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// The last reading before.
    pub(super) start: u64,
    /// The first reading after.
    pub(super) end: u64,
}

/// The gaps that the victim observed.
pub(super) struct Seen {
    /// First and last reading.
    pub(super) span: (u64, u64),
    /// Gaps longer than the threshold, in order.
    pub(super) gaps: Vec<Gap>,
    /// True if the list of gaps is full.
    pub(super) full: bool,
}

/// Reads the counter until it shows `end` or `stop` is set, and keeps up to `room` gaps of more than
/// `threshold_ns`. The caller has put the thread where it is to suffer.
pub(super) fn suffer(c: &Calibration, threshold_ns: f64, end: u64, room: usize, stop: Stop<'_>) -> Seen {
    let threshold = c.from_ns(threshold_ns);
    match c.kind {
        CounterKind::Tsc => read_on::<Tsc>(threshold, end, room, stop),
        CounterKind::Vdso => read_on::<Vdso>(threshold, end, room, stop),
    }
}

fn read_on<C: Counter>(threshold: u64, end: u64, room: usize, stop: Stop<'_>) -> Seen {
    // filled once so that its pages are there before the clock runs
    let mut gaps = vec![Gap { start: 1, end: 1 }; room];
    gaps.clear();
    let first = C::read();
    let mut last = first;
    while last < end && gaps.len() < room && !stop.is_set() {
        let now = C::read();
        if now - last > threshold {
            gaps.push(Gap { start: last, end: now });
        }
        last = now;
    }
    let full = gaps.len() == room;
    Seen { span: (first, last), gaps, full }
}
