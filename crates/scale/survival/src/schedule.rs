// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job as it would run without failures: work and checkpoints in turn.
//!
//! Places in it are seconds since its start, pauses of failures not counted. Where a failure throws the job back to is a
//! function of the place, so a simulation makes no step for a checkpoint.

use crate::costs::Costs;

/// Shares of an interval below this are errors of rounding.
const ROUNDING: f64 = 1e-9;

/// Work and checkpoints in turn.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    work_s: f64,
    interval_s: f64,
    /// Interval and its checkpoint.
    segment_s: f64,
    /// Segments from a checkpoint on disk to the next; 1 without a second level.
    every: f64,
    /// A checkpoint on disk as a second level.
    second_s: Option<f64>,
    /// Segments and the checkpoint of the second level.
    cycle_s: f64,
    length_s: f64,
    waits: bool,
}

impl Schedule {
    /// `work_s` of work with a checkpoint after each `interval_s` but the last; `every` of them, one on disk too.
    pub(crate) fn new(costs: &Costs, work_s: f64, interval_s: f64, every: Option<u64>) -> Self {
        let interval_s = interval_s.min(work_s);
        let every = every.unwrap_or(1) as f64;
        let segment_s = interval_s + costs.checkpoint_s;
        let checkpoints = ((work_s / interval_s - ROUNDING).ceil() - 1.0).max(0.0);
        let second_s = costs.second_s.unwrap_or(0.0);
        Self {
            work_s,
            interval_s,
            segment_s,
            every,
            second_s: costs.second_s,
            cycle_s: every * segment_s + second_s,
            length_s: work_s + checkpoints * costs.checkpoint_s + (checkpoints / every).floor() * second_s,
            waits: costs.waits,
        }
    }

    /// The place where the job ends.
    pub(crate) fn length_s(&self) -> f64 {
        self.length_s
    }

    /// Cycles before `place`, segments of its cycle before it, and what is left.
    fn split(&self, place: f64) -> (f64, f64, f64) {
        let cycles = (place / self.cycle_s + ROUNDING).floor();
        let rest = (place - cycles * self.cycle_s).max(0.0);
        let segments = (rest / self.segment_s + ROUNDING).floor().min(self.every);
        (cycles, segments, (rest - segments * self.segment_s).max(0.0))
    }

    /// The last complete checkpoint before `place`.
    pub(crate) fn saved(&self, place: f64) -> f64 {
        let (cycles, segments, _) = self.split(place);
        cycles * self.cycle_s + segments * self.segment_s
    }

    /// The last complete checkpoint of the second level before `place`; the job's start if there is none.
    pub(crate) fn saved_second(&self, place: f64) -> f64 {
        if self.second_s.is_some() { self.split(place).0 * self.cycle_s } else { 0.0 }
    }

    /// Work done before `place`.
    pub(crate) fn work(&self, place: f64) -> f64 {
        let (cycles, segments, rest) = self.split(place);
        let part =
            if segments < self.every || self.second_s.is_none() { rest.min(self.interval_s) } else { 0.0 };
        ((cycles * self.every + segments) * self.interval_s + part).min(self.work_s)
    }

    /// Work between `place` and the next checkpoint.
    pub(crate) fn work_left(&self, place: f64) -> f64 {
        let (_, segments, rest) = self.split(place);
        let to_checkpoint = if segments < self.every { (self.interval_s - rest).max(0.0) } else { 0.0 };
        to_checkpoint.min(self.length_s - place).max(0.0)
    }

    /// Time before `place` in which the nodes wait for the file system.
    pub(crate) fn waiting(&self, place: f64) -> f64 {
        if self.waits {
            return place - self.work(place);
        }
        let (cycles, segments, rest) = self.split(place);
        let second_s = self.second_s.unwrap_or(0.0);
        cycles * second_s + if segments >= self.every { rest.min(second_s) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use crate::scheme::Scheme;
    use proptest::prelude::*;

    fn costs(checkpoint_s: f64, second_s: Option<f64>) -> Costs {
        let plain = Costs::of(&Scenario::default(), Scheme::Double).expect("fits");
        Costs { checkpoint_s, second_s, ..plain }
    }

    #[test]
    fn places_are_those_of_work_and_checkpoints_in_turn() {
        // 10 of work, 2 of checkpoint; each third on disk too, 5 more: cycles of 41
        let s = Schedule::new(&costs(2.0, Some(5.0)), 100.0, 10.0, Some(3));
        assert_eq!(s.length_s(), 100.0 + 9.0 * 2.0 + 3.0 * 5.0);
        let at = |place| (s.saved(place), s.saved_second(place), s.work(place), s.waiting(place));
        assert_eq!(at(9.0), (0.0, 0.0, 9.0, 0.0));
        assert_eq!(at(11.0), (0.0, 0.0, 10.0, 0.0), "within a checkpoint");
        assert_eq!(at(12.0), (12.0, 0.0, 10.0, 0.0));
        assert_eq!(at(38.0), (36.0, 0.0, 30.0, 2.0), "within the one on disk");
        assert_eq!(at(41.0), (41.0, 41.0, 30.0, 5.0));
        assert_eq!(at(133.0), (123.0, 123.0, 100.0, 15.0));
        assert_eq!((s.work_left(4.0), s.work_left(11.0), s.work_left(38.0)), (6.0, 0.0, 0.0));
    }

    proptest! {
        #[test]
        fn a_job_that_goes_back_to_a_checkpoint_stays_there(
            interval in 0.1..500.0_f64, cost in 0.01..50.0_f64, every in 1..20_u64, share in 0.0..1.0_f64, two in any::<bool>(),
        ) {
            let s = Schedule::new(&costs(cost, two.then_some(7.0)), 1e4, interval, two.then_some(every));
            let place = share * s.length_s();
            let saved = s.saved(place);
            prop_assert!(saved <= place + 1e-6);
            prop_assert!((s.saved(saved) - saved).abs() < 1e-6);
            prop_assert!(s.work(place) - s.work(saved) <= interval + 1e-6);
            prop_assert!(s.saved_second(place) <= saved + 1e-6);
            prop_assert!((s.work(s.length_s()) - 1e4).abs() < 1e-5);
        }
    }
}
