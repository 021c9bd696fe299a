// SPDX-License-Identifier: MIT OR Apache-2.0
//! The store of the loop's detours: bounded memory, touched before the run.

use hdrhistogram::Histogram;
use rtrb::{Consumer, Producer, RingBuffer};

/// A gap between two readings of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The reading at its end.
    pub end: u64,
    /// Its length in counts, the loop's own turn included.
    pub length: u64,
}

/// Longest detour the histogram tells apart: an hour. A longer one is counted there.
const LONGEST_NS: u64 = 3600 * 1_000_000_000;

/// Takes the gaps of one loop: all into a histogram, singly into a ring while it has room.
pub struct Recorder {
    histogram: Histogram<u64>,
    ring: Producer<Gap>,
    dropped: u64,
    stolen_ns: u64,
    ns_per_count: f64,
    smallest_loop: u64,
    limit_ns: u64,
    over_limit: Option<Gap>,
}

/// A histogram of detour lengths in nanoseconds: 1 ns to 1 h, three digits.
#[must_use]
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).unwrap_or_else(|_| unreachable!("the bounds are constants"))
}

impl Recorder {
    /// A recorder with room for `capacity` single gaps, and the end to take them from.
    /// `smallest_loop` (counts) is taken off before a gap goes into the histogram.
    #[must_use]
    pub fn new(capacity: usize, ns_per_count: f64, smallest_loop: u64) -> (Self, Consumer<Gap>) {
        let (mut ring, mut consumer) = RingBuffer::new(capacity);
        // every page is touched now, not by a fault in the middle of the run
        while ring.push(Gap { end: 0, length: 0 }).is_ok() {}
        while consumer.pop().is_ok() {}
        let mut histogram = histogram();
        for ns in (0..42).map(|bit| 1u64 << bit) {
            histogram.saturating_record(ns);
        }
        histogram.reset();
        let recorder = Self {
            histogram,
            ring,
            dropped: 0,
            stolen_ns: 0,
            ns_per_count,
            smallest_loop,
            limit_ns: u64::MAX,
            over_limit: None,
        };
        (recorder, consumer)
    }

    /// Ends stretches at the first detour of at least `limit_ns` nanoseconds (see [`over_limit`](Self::over_limit)).
    pub fn set_limit(&mut self, limit_ns: u64) {
        self.limit_ns = limit_ns;
    }

    /// The first detour of at least the limit; `None` if there was none, or if no limit was set.
    #[must_use]
    pub fn over_limit(&self) -> Option<Gap> {
        self.over_limit
    }

    /// A recorder for loops that find nothing.
    #[must_use]
    pub fn discarding() -> Self {
        Self::new(1, 1.0, 0).0
    }

    /// Forgets everything: what a warm-up recorded is not noise.
    pub fn clear(&mut self, ring: &mut Consumer<Gap>) {
        while ring.pop().is_ok() {}
        self.histogram.reset();
        self.dropped = 0;
        self.stolen_ns = 0;
        self.over_limit = None;
    }

    /// Takes one gap.
    #[inline(never)]
    #[cold]
    pub fn record(&mut self, end: u64, length: u64) {
        let ns = (length.saturating_sub(self.smallest_loop) as f64 * self.ns_per_count) as u64;
        self.histogram.saturating_record(ns);
        self.stolen_ns = self.stolen_ns.saturating_add(ns);
        if ns >= self.limit_ns && self.over_limit.is_none() {
            self.over_limit = Some(Gap { end, length });
        }
        if self.ring.push(Gap { end, length }).is_err() {
            self.dropped += 1;
        }
    }

    /// All detours so far, by length in nanoseconds.
    #[must_use]
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// Detours that found the ring full. They are in the histogram.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The sum of all detours so far, nanoseconds.
    #[must_use]
    pub fn stolen_ns(&self) -> u64 {
        self.stolen_ns
    }

    /// Gives up the histogram.
    #[must_use]
    pub fn into_histogram(self) -> Histogram<u64> {
        self.histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_drops_rows_but_no_count() {
        let (mut recorder, mut consumer) = Recorder::new(3, 2.0, 10);
        for n in 0..10 {
            recorder.record(n, 110);
        }
        assert_eq!((recorder.histogram().len(), recorder.dropped()), (10, 7));
        assert_eq!(recorder.histogram().max(), 200);
        assert_eq!(consumer.pop(), Ok(Gap { end: 0, length: 110 }));
        recorder.record(10, u64::MAX);
        assert_eq!((recorder.histogram().len(), recorder.dropped()), (11, 7), "room again after a pop");
    }

    #[test]
    fn the_first_detour_of_the_limit_is_kept_without_the_time_of_the_loop() {
        let (mut recorder, _ring) = Recorder::new(8, 2.0, 10);
        recorder.set_limit(200);
        for (end, length) in [(1, 109), (2, 110), (3, 500)] {
            recorder.record(end, length);
        }
        assert_eq!(recorder.over_limit(), Some(Gap { end: 2, length: 110 }));
    }
}
