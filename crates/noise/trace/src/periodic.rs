// SPDX-License-Identifier: MIT OR Apache-2.0
//! Periodic detours of a trace: "1000 Hz, 1.4 µs each, phase-locked".
//!
//! A timer leaves detours at `phase + k · period`. The search takes candidate periods from the commonest
//! distances between detours and from the usual timer rates, refines each by folding the detours at it over
//! longer and longer stretches of time, and keeps the one that explains most.
//!
//! The test is on ticks, not on detours: of the ticks a period would have, how many have a detour beside
//! them, and how likely is that for detours at random instants (Chernoff's bound of the binomial tail, times
//! the number of periods and phases tried)? A burst is beside one tick only, so bursts make no period.

mod candidates;
mod fold;
mod unlocked;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Source;
use crate::trace::{Detour, Lane, Trace};

/// Periods looked for in one group of detours.
const MAX_PERIODS: usize = 5;

/// The fewest ticks that make a period.
const MIN_TICKS: usize = 8;

/// Detours that come periodically.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Period {
    /// Ticks a second.
    pub hz: f64,
    /// Time from tick to tick, nanoseconds.
    pub period_ns: f64,
    /// A tick's distance from the first detour given, `0..period_ns`. Of the first tick where not locked.
    pub phase_ns: f64,
    /// Detours that are ticks.
    pub count: usize,
    /// Share of the ticks to be expected that were seen: a kernel that stops its tick when idle leaves some out.
    pub occupancy: f64,
    /// Median length of the ticks.
    pub median_ns: u64,
    /// Sum of the ticks' lengths.
    pub stolen_ns: u64,
    /// Spread (robust standard deviation) of the ticks around their instants; where not locked, of the
    /// distance from tick to tick.
    pub jitter_ns: f64,
    /// True if the ticks stay at one phase over the whole run, as those of a timer do. A task that sleeps for a fixed time
    /// after each of its runs is periodic without being locked.
    pub locked: bool,
    /// Vector strength R of the group at this frequency when the period was found, 0 to 1; other detours of
    /// the group lower it.
    pub strength: f64,
    /// Natural logarithm of the chance that random detours would look so, corrected for the trials.
    pub ln_p: f64,
}

impl fmt::Display for Period {
    /// `1000 Hz, 1.4 µs each, phase-locked`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.hz.round();
        if (self.hz - whole).abs() < 2e-4 * self.hz {
            write!(f, "{whole} Hz")?;
        } else if self.hz >= 1.0 {
            write!(f, "{:.*} Hz", if self.hz < 100.0 { 2 } else { 1 }, self.hz)?;
        } else {
            write!(f, "every {}", Length(self.period_ns))?;
        }
        write!(f, ", {} each, ", Length(self.median_ns as f64))?;
        f.write_str(if self.locked { "phase-locked" } else { "not phase-locked" })?;
        if self.occupancy < 0.95 {
            write!(f, ", {:.0} % of its ticks seen", 100.0 * self.occupancy)?;
        }
        Ok(())
    }
}

/// A length of time in two or three figures.
struct Length(f64);

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            ..1e3 => return write!(f, "{:.0} ns", self.0),
            ..1e6 => (self.0 / 1e3, "µs"),
            ..1e9 => (self.0 / 1e6, "ms"),
            _ => (self.0 / 1e9, "s"),
        };
        write!(f, "{value:.*} {unit}", if value < 10.0 { 1 } else { 0 })
    }
}

/// A period of one CPU's detours of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The CPU.
    pub lane: Lane,
    /// The source of the detours.
    pub source: Source,
    /// The period.
    pub period: Period,
}

impl fmt::Display for Finding {
    /// `CPU 1, unexplained: 1000 Hz, 1.4 µs each, phase-locked`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}: {}", self.lane, self.source, self.period)
    }
}

/// Up to five periods in detours that start at `starts_ns` (ascending) and last `durations_ns`, the one that
/// explains most first. Each is looked for in what the ones before leave.
#[must_use]
pub fn find(starts_ns: &[i64], durations_ns: &[u64]) -> Vec<Period> {
    let mut events = Events::new(starts_ns.iter().copied().zip(durations_ns.iter().copied()));
    search(&mut events, MAX_PERIODS)
}

/// The periods of each CPU and source, by stolen time. `unexplained` detours are searched together first, then
/// what is left by class of length (below 1 µs, 10 µs, …): different timers make detours of different length.
#[must_use]
pub fn of_trace(trace: &Trace) -> Vec<Finding> {
    let mut findings = Vec::new();
    if trace.meta.has_random_instants {
        return findings;
    }
    for (lane, mut detours) in trace.by_lane() {
        detours.sort_by_key(|d| d.source);
        for group in detours.chunk_by(|a, b| a.source == b.source) {
            let source = trace.source(&group[0]);
            let mut periods = Vec::new();
            let mut events = Events::of(group.iter());
            periods.extend(search(&mut events, MAX_PERIODS));
            if *source == Source::Unexplained {
                for class in events.by_length() {
                    let room = MAX_PERIODS - periods.len().min(MAX_PERIODS);
                    periods.extend(search(&mut { class }, room));
                }
            }
            findings.extend(periods.into_iter().map(|period| Finding {
                lane,
                source: source.clone(),
                period,
            }));
        }
    }
    findings.sort_by_key(|f| std::cmp::Reverse(f.period.stolen_ns));
    findings
}

/// Detours that no period explains yet.
struct Events {
    /// Start, nanoseconds after the first detour of the group.
    at: Vec<f64>,
    length_ns: Vec<u64>,
}

impl Events {
    fn new(detours: impl Iterator<Item = (i64, u64)>) -> Self {
        let mut detours = detours.peekable();
        let first = detours.peek().map_or(0, |d| d.0);
        // an i64 distance of two i64 may not fit, a double's precision is enough for it
        let (at, length_ns) =
            detours.map(|(start, length)| ((i128::from(start) - i128::from(first)) as f64, length)).unzip();
        Self { at, length_ns }
    }

    fn of<'a>(detours: impl Iterator<Item = &'a Detour>) -> Self {
        Self::new(detours.map(|d| (d.start_ns, d.duration_ns)))
    }

    /// Takes out the events at `members` (ascending).
    fn remove(&mut self, members: &[usize]) {
        let mut gone = members.iter().copied().peekable();
        let stays: Vec<bool> = (0..self.at.len()).map(|i| gone.next_if_eq(&i).is_none()).collect();
        let mut i = stays.iter();
        self.at.retain(|_| *i.next().unwrap_or(&true));
        let mut i = stays.iter();
        self.length_ns.retain(|_| *i.next().unwrap_or(&true));
    }

    /// The same events, a group a decade of length.
    fn by_length(&self) -> Vec<Self> {
        let class = |ns: u64| ns.max(100).ilog10();
        let mut classes: Vec<u32> = self.length_ns.iter().map(|&ns| class(ns)).collect();
        classes.sort_unstable();
        classes.dedup();
        let of = |wanted| {
            let pairs = self.at.iter().zip(&self.length_ns).filter(|(_, ns)| class(**ns) == wanted);
            let (at, length_ns) = pairs.map(|(at, ns)| (*at, *ns)).unzip();
            Self { at, length_ns }
        };
        classes.into_iter().map(of).collect()
    }
}

/// A period and the events that are its ticks.
struct Found {
    period: Period,
    members: Vec<usize>,
}

fn search(events: &mut Events, most: usize) -> Vec<Period> {
    let mut found: Vec<Period> = Vec::new();
    for _ in 0..2 * MAX_PERIODS {
        if found.len() >= most || events.at.len() < MIN_TICKS {
            break;
        }
        // ticks that wander are better told by their distances, where those are regular
        let comb = fold::find(events);
        let next = match comb {
            Some(found) if found.period.locked => Some(found),
            comb => unlocked::find(events).or(comb),
        };
        let Some(next) = next else { break };
        events.remove(&next.members);
        if !found.iter().any(|p| echoes(p, &next.period)) {
            found.push(next.period);
        }
    }
    found
}

/// True if `later` is a remainder of `earlier`: the outliers of the same ticks, or the noise around them, which has gaps
/// at the ticks that were taken out.
fn echoes(earlier: &Period, later: &Period) -> bool {
    let apart = (earlier.phase_ns - later.phase_ns).rem_euclid(earlier.period_ns) / earlier.period_ns;
    let (a, b) = (earlier.period_ns, later.period_ns);
    let ratio = (a / b).max(b / a);
    let related = (ratio - ratio.round()).abs() < 1e-3 * ratio;
    let same_rate = related && ratio < 1.5;
    (same_rate && (!later.locked || apart.min(1.0 - apart) < 0.1))
        || (related && later.jitter_ns > 0.03 * a.min(b))
}

/// Length of the ticks: their median and sum.
fn lengths(events: &Events, members: &[usize]) -> (u64, u64) {
    let mut ns: Vec<u64> = members.iter().map(|&i| events.length_ns[i]).collect();
    let sum = ns.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
    let middle = ns.len() / 2;
    let median = if ns.is_empty() { 0 } else { *ns.select_nth_unstable(middle).1 };
    (median, sum)
}

/// Vector strength of instants at a period: 1 where all are at one phase, near 0 where they are at any.
fn vector_strength(at: &[f64], period: f64) -> f64 {
    let (mut x, mut y) = (0.0, 0.0);
    for t in at {
        let (sin, cos) = ((t / period).fract() * std::f64::consts::TAU).sin_cos();
        (x, y) = (x + cos, y + sin);
    }
    f64::hypot(x, y) / at.len().max(1) as f64
}

/// Logarithm of an upper bound of the chance to hit at least `hits` of `trials` with probability `q` each
/// (Chernoff); 0 where as many are to be expected.
fn ln_tail(hits: f64, trials: f64, q: f64) -> f64 {
    let (share, q) = (hits / trials, q.clamp(1e-12, 1.0));
    if trials <= 0.0 || share <= q {
        return 0.0;
    }
    let term = |a: f64, b: f64| if a <= 0.0 { 0.0 } else { a * (a / b).ln() };
    -trials * (term(share, q) + term(1.0 - share, 1.0 - q))
}

/// Median and robust standard deviation; reorders `values`.
fn center_and_spread(values: &mut [f64]) -> (f64, f64) {
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let middle = values.len() / 2;
    let median = *values.select_nth_unstable_by(middle, f64::total_cmp).1;
    let mut off: Vec<f64> = values.iter().map(|v| (v - median).abs()).collect();
    (median, 1.4826 * *off.select_nth_unstable_by(middle, f64::total_cmp).1)
}

#[cfg(test)]
mod tests;
