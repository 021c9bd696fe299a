// SPDX-License-Identifier: MIT OR Apache-2.0
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use colony_time::Windows;
use colony_time::tsc::ClockMap;
use hdrhistogram::Histogram;

use crate::{Distribution, Measurement, Params, SlowOp, Timeline};

/// Turns the stamps of one rank's operations into a [`Measurement`], stretch by stretch.
///
/// It runs between stretches, outside the time that is measured.
#[derive(Debug)]
pub struct Recorder {
    clock: ClockMap,
    anchored_at: u64,
    all: Tally,
    split: Option<Split>,
    /// The slowest so far, the shortest of them on top: counts, and counter value at the start.
    slowest: BinaryHeap<Reverse<(u64, u64)>>,
    keep: usize,
    timeline: Option<Timeline>,
    first: Option<u64>,
    last: u64,
    timed: u64,
}

#[derive(Debug)]
struct Split {
    windows: Windows,
    favored: Tally,
    regular: Tally,
}

impl Recorder {
    /// An empty record; `clock` says what counter values mean.
    #[must_use]
    pub fn new(params: &Params, clock: ClockMap) -> Self {
        let split = |windows| Split { windows, favored: Tally::new(), regular: Tally::new() };
        Self {
            clock,
            anchored_at: 0,
            all: Tally::new(),
            split: params.windows.map(split),
            slowest: BinaryHeap::new(),
            keep: params.slowest as usize,
            timeline: params.timeline_ns.map(|bucket_ns| Timeline { bucket_ns, buckets: Vec::new() }),
            first: None,
            last: 0,
            timed: 0,
        }
    }

    /// Records a stretch: the counter at its start, and after each operation.
    pub fn stretch(&mut self, start: u64, stamps: &[u64]) {
        let (Some(&end), hz) = (stamps.last(), self.clock.calibration().hz) else { return };
        if (start.saturating_sub(self.anchored_at)) as f64 > hz {
            self.clock.anchor();
            self.anchored_at = start;
        }
        self.first.get_or_insert(start);
        self.last = end;
        self.timed += end.saturating_sub(start);
        let start_tai_ns = self.clock.tai_ns(start);
        let ns_per_count = 1e9 / hz;
        let mut from = start;
        for &stamp in stamps {
            let counts = stamp.saturating_sub(from);
            let ns = (counts as f64 * ns_per_count).round() as u64;
            self.all.add(ns, counts);
            if self.split.is_some() || self.timeline.is_some() {
                let since_ns = (from.saturating_sub(start) as f64 * ns_per_count) as i64;
                self.place(start_tai_ns + since_ns, ns, counts);
            }
            self.maybe_slow(counts, from);
            from = stamp;
        }
    }

    /// An operation's share in what goes by the instant of its start.
    fn place(&mut self, at_ns: i64, ns: u64, counts: u64) {
        if let Some(split) = &mut self.split {
            let favored = split.windows.is_favored(at_ns);
            (if favored { &mut split.favored } else { &mut split.regular }).add(ns, counts);
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.add(at_ns, ns);
        }
    }

    fn maybe_slow(&mut self, counts: u64, start: u64) {
        if self.slowest.len() < self.keep {
            self.slowest.push(Reverse((counts, start)));
        } else if let Some(mut least) = self.slowest.peek_mut()
            && least.0.0 < counts
        {
            *least = Reverse((counts, start));
        }
    }

    /// Seconds spent in operations so far.
    #[must_use]
    pub fn timed_s(&self) -> f64 {
        self.clock.calibration().to_ns(self.timed) / 1e9
    }

    /// Seconds since the first stretch began, at counter value `now`.
    #[must_use]
    pub fn elapsed_s(&self, now: u64) -> f64 {
        let first = self.first.unwrap_or(now);
        self.clock.calibration().to_ns(now.saturating_sub(first)) / 1e9
    }

    /// The measurement of this rank, `rank` of `ranks`; who it was comes later.
    #[must_use]
    pub fn finish(mut self, rank: u32, ranks: u32) -> Measurement {
        self.clock.anchor();
        let (seconds, elapsed_s) = (self.timed_s(), self.elapsed_s(self.last));
        let clock = &self.clock;
        let hz = clock.calibration().hz;
        let slowest = self.slowest.into_sorted_vec().into_iter().map(|Reverse((counts, start))| SlowOp {
            rank,
            start_ns: clock.tai_ns(start),
            duration_ns: clock.calibration().to_ns(counts).round() as u64,
        });
        let (favored, regular) =
            self.split.map(|s| (s.favored.distribution(hz), s.regular.distribution(hz))).unzip();
        Measurement {
            ranks,
            ops: self.all.histogram.len(),
            seconds,
            excluded_s: (elapsed_s - seconds).max(0.0),
            wrong: 0,
            all: self.all.distribution(hz),
            favored,
            regular,
            slowest: slowest.collect(),
            timeline: self.timeline,
            per_rank: Vec::new(),
            work: None,
        }
    }
}

/// A histogram with exact sums beside it.
#[derive(Debug)]
struct Tally {
    histogram: Histogram<u64>,
    sum: u64,
    min: u64,
    max: u64,
}

impl Tally {
    /// Longer operations count as this long in the histogram; `max_ns` still says how long.
    const LONGEST_NS: u64 = 1000 * 1_000_000_000;

    fn new() -> Self {
        let bounds = Histogram::new_with_bounds(1, Self::LONGEST_NS, 3);
        let histogram = bounds.unwrap_or_else(|_| unreachable!("1 < {}, and 3 digits", Self::LONGEST_NS));
        Self { histogram, sum: 0, min: u64::MAX, max: 0 }
    }

    fn add(&mut self, ns: u64, counts: u64) {
        self.histogram.saturating_record(ns);
        self.sum += counts;
        self.min = self.min.min(counts);
        self.max = self.max.max(counts);
    }

    fn distribution(&self, hz: f64) -> Distribution {
        let n = self.histogram.len();
        if n == 0 {
            return Distribution::default();
        }
        let ns = |counts: f64| counts * 1e9 / hz;
        let whole_ns = |counts: u64| ns(counts as f64).round() as u64;
        let buckets =
            self.histogram.iter_recorded().map(|b| (b.value_iterated_to(), b.count_at_value())).collect();
        Distribution::new(buckets, ns(self.sum as f64 / n as f64), whole_ns(self.min), whole_ns(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;
    use colony_time::tsc::{Calibration, CounterKind};
    use colony_time::{DutyCycle, clock::Clock};

    /// A clock that counts nanoseconds: tests choose the stamps.
    fn recorder(params: &Params) -> Recorder {
        Recorder::new(params, ClockMap::new(Calibration::measure_kind(CounterKind::Vdso)))
    }

    #[test]
    fn time_between_stretches_is_excluded_and_no_operation_is_lost() {
        let now = CounterKind::Vdso.read();
        let mut r = recorder(&Params { slowest: 2, ..Params::new(Program::Barrier) });
        r.stretch(now, &[now + 1_000, now + 3_000, now + 6_000]);
        r.stretch(now + 1_000_000, &[now + 1_010_000]);
        r.stretch(now + 2_000_000, &[]);
        let m = r.finish(3, 4);
        assert_eq!((m.ops, m.ranks, m.all.count), (4, 4, 4));
        assert!((m.seconds - 16e-6).abs() < 1e-12, "{}", m.seconds);
        assert!((m.excluded_s - 994e-6).abs() < 1e-12, "{}", m.excluded_s);
        assert_eq!((m.all.mean_ns, m.all.min_ns, m.all.max_ns), (4000.0, 1000, 10_000));
        let slow: Vec<_> = m.slowest.iter().map(|s| (s.rank, s.duration_ns)).collect();
        assert_eq!(slow, [(3, 10_000), (3, 3_000)], "the largest first");
        assert!(m.slowest[0].start_ns > m.slowest[1].start_ns);
    }

    #[test]
    fn operations_belong_to_the_window_they_start_in() {
        let mut map_offset = ClockMap::new(Calibration::measure_kind(CounterKind::Vdso));
        map_offset.anchor();
        let now = CounterKind::Vdso.read();
        let tai_ns = map_offset.tai_ns(now);
        assert!(tai_ns.abs_diff(Clock::Tai.now_ns()) < 1_000_000_000);
        // a favored window opens 1 ms after `now`, a regular one 10 ms later
        let windows = Windows::new(20_000_000, DutyCycle::Ppm(500_000), tai_ns + 1_000_000).expect("valid");
        let params =
            Params { windows: Some(windows), timeline_ns: Some(10_000_000), ..Params::new(Program::Barrier) };
        let mut r = recorder(&params);
        let at = |ms: u64| now + ms * 1_000_000;
        r.stretch(at(0), &[at(2), at(8), at(13), at(14)]);
        let m = r.finish(0, 1);
        let (favored, regular) = (m.favored.expect("asked"), m.regular.expect("asked"));
        // starts at 0 (regular), 2 and 8 (favored), 13 (regular) ms
        assert_eq!((favored.count, regular.count), (2, 2));
        assert_eq!((favored.max_ns, regular.max_ns), (6_000_000, 2_000_000));
        let timeline = m.timeline.expect("asked");
        assert_eq!(timeline.buckets.iter().map(|b| b.1).sum::<u64>(), 4);
        assert!(timeline.buckets.iter().all(|b| b.0 % 10_000_000 == 0), "buckets start at multiples");
    }
}
