// SPDX-License-Identifier: MIT OR Apache-2.0
//! Utilization: the time of each state, for each PE and over the run.

use serde::Serialize;

use crate::analysis::segments::{Segment, State, of_track};
use crate::timeline::Timeline;

/// Time of each state, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Times {
    /// Entry methods.
    pub busy_ns: u64,
    /// The runtime.
    pub overhead_ns: u64,
    /// Load balancing.
    pub balancing_ns: u64,
    /// Nothing to do.
    pub idle_ns: u64,
}

impl Times {
    /// Adds time of a state.
    pub fn add(&mut self, state: State, ns: u64) {
        let sum = match state {
            State::Busy => &mut self.busy_ns,
            State::Overhead => &mut self.overhead_ns,
            State::Balancing => &mut self.balancing_ns,
            State::Idle => &mut self.idle_ns,
        };
        *sum = sum.saturating_add(ns);
    }

    /// Time of a state.
    #[must_use]
    pub fn of(&self, state: State) -> u64 {
        match state {
            State::Busy => self.busy_ns,
            State::Overhead => self.overhead_ns,
            State::Balancing => self.balancing_ns,
            State::Idle => self.idle_ns,
        }
    }

    /// Time of all states.
    #[must_use]
    pub fn all_ns(&self) -> u64 {
        State::ALL.iter().fold(0, |sum, &state| sum.saturating_add(self.of(state)))
    }

    /// The share of a state, 0 to 1; 0 if there is no time. Shares of all states add up to 1.
    #[must_use]
    pub fn share(&self, state: State) -> f64 {
        match self.all_ns() {
            0 => 0.0,
            all => self.of(state) as f64 / all as f64,
        }
    }
}

/// One PE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeTimes {
    /// The PE.
    pub pe: u32,
    /// Rank of its process.
    pub process: u32,
    /// Events it kept.
    pub events: u64,
    /// Events it dropped.
    pub dropped: u64,
    /// Its times; they add up to the time that its events cover.
    pub times: Times,
}

/// Utilization of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Utilization {
    /// Begin of the first slice, TAI nanoseconds.
    pub begin_ns: i64,
    /// End of the last slice, TAI nanoseconds.
    pub end_ns: i64,
    /// Each PE.
    pub pes: Vec<PeTimes>,
    /// The run in slices of equal length, all PEs together.
    pub slices: Vec<Times>,
    /// All of it.
    pub all: Times,
}

impl Utilization {
    /// The utilization of a run, over time in `slices` parts.
    #[must_use]
    pub fn of(timeline: &Timeline, slices: usize) -> Self {
        let (begin_ns, end_ns) = timeline.span();
        let mut over_time = Slices::new(begin_ns, end_ns, slices);
        let mut all = Times::default();
        let mut pes = Vec::with_capacity(timeline.tracks().len());
        for track in timeline.tracks() {
            let mut times = Times::default();
            for segment in of_track(track) {
                times.add(segment.state, segment.length_ns());
                over_time.add(&segment);
            }
            State::ALL.iter().for_each(|&s| all.add(s, times.of(s)));
            let (pe, process, dropped) = (track.pe, track.process, track.dropped);
            pes.push(PeTimes { pe, process, events: track.records.len() as u64, dropped, times });
        }
        Self { begin_ns, end_ns, pes, slices: over_time.slices, all }
    }

    /// Largest busy time of a PE over the mean: 1 if the load is balanced, 0 if there is none.
    #[must_use]
    pub fn imbalance(&self) -> f64 {
        let busy = self.pes.iter().map(|p| p.times.busy_ns);
        match (busy.clone().max(), self.all.busy_ns) {
            (Some(max), sum) if sum > 0 => max as f64 * self.pes.len() as f64 / sum as f64,
            _ => 0.0,
        }
    }
}

/// The run in parts of equal length.
struct Slices {
    begin_ns: i64,
    length_ns: i64,
    slices: Vec<Times>,
}

impl Slices {
    fn new(begin_ns: i64, end_ns: i64, count: usize) -> Self {
        let span = end_ns.saturating_sub(begin_ns).max(0);
        // no slice is shorter than a nanosecond
        let count = (count as i64).clamp(0, span);
        let length_ns = if count == 0 { 1 } else { (span as u64).div_ceil(count as u64) as i64 };
        let count = if count == 0 { 0 } else { (span as u64).div_ceil(length_ns as u64) };
        Self { begin_ns, length_ns, slices: vec![Times::default(); count as usize] }
    }

    fn add(&mut self, segment: &Segment) {
        let mut at = segment.begin_ns.max(self.begin_ns);
        while at < segment.end_ns {
            let index = at.saturating_sub(self.begin_ns) / self.length_ns;
            let Some(slice) = self.slices.get_mut(index as usize) else { return };
            let next = self.begin_ns.saturating_add((index + 1).saturating_mul(self.length_ns));
            let end = next.min(segment.end_ns);
            slice.add(segment.state, (end - at) as u64);
            at = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{any_timeline, of, small};
    use proptest::prelude::*;

    #[test]
    fn a_run_is_split_into_its_states() {
        let u = Utilization::of(&small(), 4);
        let times = |busy_ns, overhead_ns, balancing_ns, idle_ns| Times {
            busy_ns,
            overhead_ns,
            balancing_ns,
            idle_ns,
        };
        assert_eq!(u.pes[0].times, times(30_000, 30_000, 20_000, 20_000));
        assert_eq!(u.pes[1].times, times(50_000, 10_000, 0, 40_000));
        assert_eq!(u.all, times(80_000, 40_000, 20_000, 60_000));
        assert_eq!(u.slices[0], times(25_000, 0, 0, 25_000));
        assert_eq!(u.slices[3], times(15_000, 30_000, 5_000, 0));
        assert_eq!(u.imbalance(), 50_000.0 * 2.0 / 80_000.0);
        assert_eq!(u.all.share(State::Busy), 0.4);
    }

    #[test]
    fn a_run_of_nothing_has_no_slices_and_no_shares() {
        let u = Utilization::of(&of(vec![]), 10);
        assert!(u.slices.is_empty() && u.pes.is_empty());
        assert_eq!((u.all.share(State::Idle), u.imbalance()), (0.0, 0.0));
    }

    proptest! {
        #[test]
        fn states_add_up_to_the_covered_time(t in any_timeline(), slices in 0usize..50) {
            let u = Utilization::of(&t, slices);
            for (pe, track) in u.pes.iter().zip(t.tracks()) {
                prop_assert_eq!(pe.times.all_ns(), track.covered_ns());
            }
            let covered: u64 = t.tracks().iter().map(|t| t.covered_ns()).sum();
            prop_assert_eq!(u.all.all_ns(), covered);
            prop_assert!(u.slices.len() <= slices);
            for state in State::ALL {
                let over_time: u64 = u.slices.iter().map(|s| s.of(state)).sum();
                prop_assert_eq!(over_time, if slices == 0 { 0 } else { u.all.of(state) });
            }
            if covered > 0 {
                let sum: f64 = State::ALL.iter().map(|&s| u.all.share(s)).sum();
                prop_assert!((sum - 1.0).abs() < 1e-9);
            }
        }
    }
}
