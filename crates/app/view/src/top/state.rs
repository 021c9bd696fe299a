// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of `colony top`: frames added up.

use std::collections::{BTreeMap, VecDeque};

use colony_measure::{Frame, FrameCpu};
use colony_trace::Source;

use super::InForce;

/// Decades of detour length in the histogram: 10 ns to 10 s.
pub(super) const DECADES: usize = 9;
/// Looks the trend line holds.
const TREND: usize = 240;

/// The present look and the sum since the start.
#[derive(Debug)]
pub struct State {
    /// New frames are not shown while this is set.
    pub paused: bool,
    pub(super) not_attributed: Option<String>,
    pub(super) windows: Option<InForce>,
    pub(super) cpus: Vec<FrameCpu>,
    pub(super) span_ns: u64,
    /// Stolen nanoseconds by source since the start.
    pub(super) sources: BTreeMap<Source, u64>,
    pub(super) observed_ns: u64,
    /// Detours by decade of their length since the start.
    pub(super) decades: [u64; DECADES],
    /// Stolen share of each look, in millionths.
    pub(super) trend: VecDeque<u64>,
}

impl State {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(not_attributed: Option<&str>) -> Self {
        Self {
            paused: false,
            not_attributed: not_attributed.map(str::to_owned),
            windows: None,
            cpus: Vec::new(),
            span_ns: 1,
            sources: BTreeMap::new(),
            observed_ns: 0,
            decades: [0; DECADES],
            trend: VecDeque::new(),
        }
    }

    /// Forgets the sums.
    pub fn reset(&mut self) {
        *self = Self { paused: self.paused, ..Self::new(self.not_attributed.as_deref()) };
    }

    /// Takes what happened since the last look.
    pub fn add(&mut self, frame: &Frame, windows: Option<InForce>) {
        if self.paused {
            return;
        }
        self.windows = windows;
        self.cpus.clone_from(&frame.cpus);
        self.span_ns = frame.span_ns;
        self.observed_ns += frame.span_ns * frame.cpus.len() as u64;
        for (source, ns) in &frame.sources {
            *self.sources.entry(source.clone()).or_default() += ns;
        }
        for v in frame.lengths.iter_recorded() {
            let decade = (v.value_iterated_to().max(1).ilog10() as usize).saturating_sub(1);
            self.decades[decade.min(DECADES - 1)] += v.count_since_last_iteration();
        }
        let stolen: u64 = frame.cpus.iter().map(|c| c.stolen_ns).sum();
        let all = frame.span_ns * frame.cpus.len().max(1) as u64;
        self.trend.push_back((u128::from(stolen) * 1_000_000 / u128::from(all.max(1))) as u64);
        if self.trend.len() > TREND {
            self.trend.pop_front();
        }
    }
}
