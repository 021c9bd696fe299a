// SPDX-License-Identifier: MIT OR Apache-2.0
//! One loop, in the calling thread.

use colony_time::tsc::{Calibration, Counter, CounterKind, Tsc, Vdso};
use serde::{Deserialize, Serialize};

use crate::hot;
use crate::recorder::Recorder;

/// The parameters of an observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Duration, nanoseconds.
    pub duration_ns: u64,
    /// Gaps shorter than this, the loop's own turn taken off, are not detours.
    pub threshold_ns: u64,
    /// Single detours kept; further ones are only counted.
    pub keep: usize,
}

/// The result of an observation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// [`SCHEMA`](Self::SCHEMA).
    pub schema: String,
    /// Version of this package.
    pub version: String,
    /// The counter and its rate.
    pub counter: Calibration,
    /// Seconds observed.
    pub seconds: f64,
    /// Threshold of a detour, nanoseconds.
    pub threshold_ns: u64,
    /// The loop's smallest turn, nanoseconds; taken off every detour.
    pub smallest_loop_ns: f64,
    /// Mean turn of the loop in its best stretch, nanoseconds.
    pub loop_ns: f64,
    /// Turns of the loop.
    pub turns: u64,
    /// Nanoseconds in which the loop was recording, and blind.
    pub blind_ns: f64,
    /// The detours.
    pub detours: Detours,
}

/// Detours of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Detours {
    /// Number of detours.
    pub count: u64,
    /// Their sum: the stolen time, nanoseconds.
    pub stolen_ns: u64,
    /// The longest, nanoseconds; 0 where there is none.
    pub max_ns: u64,
    /// Buckets of an `HdrHistogram` of three digits: upper bound in nanoseconds, and its count; ascending.
    pub histogram_ns: Vec<(u64, u64)>,
    /// The first detours, in order: start in nanoseconds after the run's start, and length.
    pub list: Vec<(u64, u64)>,
    /// Detours that are counted above but not in the list.
    pub unlisted: u64,
}

impl Seen {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.selfish/1";
}

/// Loops for as long as asked.
#[must_use]
pub fn run(settings: &Settings, calibration: Calibration) -> Seen {
    match calibration.kind {
        CounterKind::Tsc => observe::<Tsc>(settings, calibration),
        CounterKind::Vdso => observe::<Vdso>(settings, calibration),
    }
}

fn observe<C: Counter>(settings: &Settings, calibration: Calibration) -> Seen {
    let cost = hot::cost::<C>();
    let (mut recorder, mut ring) = Recorder::new(settings.keep.max(1), calibration.to_ns(1), cost.smallest);
    // the code that records is in memory, too, before the run
    let now = C::read();
    hot::stretch::<C>(now, now + calibration.from_ns(20e3), 0, &mut recorder);
    recorder.clear(&mut ring);
    let threshold = calibration.at_least_ns(settings.threshold_ns as f64) + cost.smallest;
    let start = C::read();
    let end = start + calibration.at_least_ns(settings.duration_ns as f64);
    let s = hot::stretch::<C>(start, end, threshold, &mut recorder);
    let list: Vec<(u64, u64)> = std::iter::from_fn(|| ring.pop().ok())
        .map(|gap| {
            let from = gap.end.saturating_sub(gap.length).saturating_sub(start);
            let length = gap.length.saturating_sub(cost.smallest);
            (calibration.to_ns(from) as u64, calibration.to_ns(length) as u64)
        })
        .take(settings.keep)
        .collect();
    let histogram = recorder.histogram();
    let buckets = histogram.iter_recorded().map(|b| (b.value_iterated_to(), b.count_at_value()));
    Seen {
        schema: Seen::SCHEMA.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        counter: calibration,
        seconds: calibration.to_ns(s.last.saturating_sub(start)) / 1e9,
        threshold_ns: settings.threshold_ns,
        smallest_loop_ns: calibration.to_ns(cost.smallest),
        loop_ns: calibration.to_ns(1) * cost.measuring,
        turns: s.turns,
        blind_ns: calibration.to_ns(s.blind),
        detours: Detours {
            count: histogram.len(),
            stolen_ns: recorder.stolen_ns(),
            max_ns: histogram.max(),
            histogram_ns: buckets.collect(),
            unlisted: histogram.len() - list.len() as u64,
            list,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(kind: CounterKind, threshold_ns: u64, keep: usize) -> Seen {
        let settings = Settings { duration_ns: 20_000_000, threshold_ns, keep };
        run(&settings, Calibration::measure_kind(kind))
    }

    #[test]
    fn every_detour_is_counted_and_the_first_are_listed() {
        for kind in [CounterKind::Tsc, CounterKind::Vdso] {
            // one nanosecond: all but the smallest turns of the loop are detours
            let s = seen(kind, 1, 5);
            let d = &s.detours;
            assert!(d.count > 5 && s.turns >= d.count, "{kind:?} {s:?}");
            assert_eq!((d.list.len(), d.unlisted), (5, d.count - 5));
            assert!(d.list.is_sorted_by_key(|l| l.0), "in order");
            assert_eq!(d.histogram_ns.iter().map(|b| b.1).sum::<u64>(), d.count);
            assert!(s.seconds >= 0.02 && s.loop_ns >= s.smallest_loop_ns);
        }
    }

    #[test]
    fn nothing_is_a_detour_above_the_length_of_the_run() {
        let s = seen(CounterKind::Tsc, 1_000_000_000_000, 5);
        assert_eq!(s.detours, Detours::default());
    }
}
