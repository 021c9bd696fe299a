// SPDX-License-Identifier: MIT OR Apache-2.0
//! Did the change help? Two traces compared, figure by figure, with what chance alone would do.
//!
//! Each trace is cut into slices of time over all its CPUs: detours that come together stay together. How far the
//! slices differ gives the 95 % confidence interval of each figure, and both traces' intervals that of
//! the difference. Where it lies on one side of 0 the figure changed; else no difference is shown, which is not to
//! say that there is none.

mod interval;
mod slices;

use std::collections::BTreeMap;

use colony_time::text::rounded_ns;
use serde::{Deserialize, Serialize};

use crate::Source;
use crate::trace::Trace;
use interval::{Range, chance_of_longest, difference};
use slices::Slices;

/// Sources compared on their own: those that steal most in either trace.
const MAX_SOURCES: usize = 16;

/// Traces that cannot be compared at all.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DiffError {
    /// No time span to divide by.
    #[error(
        "the {0} trace does not say how long was observed (`observed_s` is {1}): measure with `colony measure`, or add it to the file"
    )]
    NotTimed(&'static str, f64),
}

/// The verdict on one figure. Less noise is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The interval lies below 0; or the longest detours are in the first trace, by more than chance.
    Improved,
    /// The interval lies above 0; or the longest detours are in the second trace.
    Worse,
    /// The interval holds 0, or there are too few detours.
    NoDifferenceShown,
}

impl Verdict {
    /// `improved`, `worse`, `no difference shown`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Improved => "improved",
            Self::Worse => "worse",
            Self::NoDifferenceShown => "no difference shown",
        }
    }
}

/// A figure that is compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Stolen share of the time observed, 0 to 1.
    StolenShare,
    /// Detours a second and CPU.
    DetoursPerS,
    /// Median length of a detour, nanoseconds.
    P50Ns,
    /// Length that 99 % of the detours do not exceed, nanoseconds.
    P99Ns,
    /// Longest detour, nanoseconds. A maximum hangs on one detour and has no interval: its verdict goes by how many
    /// slices of one trace have detours longer than any of the other.
    MaxNs,
    /// Stolen share by one source.
    Source(Source),
}

/// One figure of both traces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The figure.
    pub figure: Figure,
    /// In the first trace; `None` for a length if the trace has no detour.
    pub before: Option<f64>,
    /// In the second trace, likewise.
    pub after: Option<f64>,
    /// `after` − `before`; `None` if one of them is.
    pub difference: Option<f64>,
    /// 95 % confidence interval of the difference, from low to high; none where there are too few detours for one.
    pub interval: Option<(f64, f64)>,
    /// The verdict on the change.
    pub verdict: Verdict,
}

impl Figure {
    /// Returns `true` for the length of a detour, which a trace without detours does not have.
    const fn is_length(&self) -> bool {
        matches!(self, Self::P50Ns | Self::P99Ns | Self::MaxNs)
    }
}

impl Change {
    fn new(
        figure: Figure,
        [before, after]: [f64; 2],
        interval: Option<(f64, f64)>,
        verdict: Verdict,
    ) -> Self {
        let difference = Some(after - before);
        Self { figure, before: Some(before), after: Some(after), difference, interval, verdict }
    }

    /// Removes the figures of the traces that have no detours.
    fn leave_out(&mut self, [has_before, has_after]: [bool; 2]) {
        self.before = self.before.filter(|_| has_before);
        self.after = self.after.filter(|_| has_after);
        self.difference = self.difference.filter(|_| has_before && has_after);
    }
}

/// Two traces compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diff {
    /// [`Diff::SCHEMA`].
    pub schema: String,
    /// Figures of all detours, then of single sources, most stolen first.
    pub changes: Vec<Change>,
    /// Warnings about the validity of the comparison.
    pub warnings: Vec<String>,
    /// Detours shorter than this were left out of both, so that they can be compared.
    pub threshold_ns: u64,
    /// Slices of time each trace was cut into.
    pub slices: (usize, usize),
}

impl Diff {
    /// The schema of a comparison's JSON.
    pub const SCHEMA: &str = "colony.noise.diff/3";

    /// Compares `after` with `before`.
    ///
    /// Traces of different thresholds are compared above the higher one, with a warning, as is everything else
    /// that differs in how they were made.
    ///
    /// # Errors
    /// [`DiffError::NotTimed`].
    pub fn of(before: &Trace, after: &Trace) -> Result<Self, DiffError> {
        for (name, trace) in [("first", before), ("second", after)] {
            let s = trace.meta.observed_s;
            if !(s.is_finite() && s > 0.0) {
                return Err(DiffError::NotTimed(name, s));
            }
        }
        let threshold_ns = before.meta.threshold_ns.max(after.meta.threshold_ns);
        let sources = top_sources(before, after, threshold_ns);
        let cut = [before, after].map(|t| Slices::of(t, threshold_ns, &sources));
        let mut changes = vec![
            of_sums(Figure::StolenShare, cut.each_ref().map(|c| c.per_slice(|s| s.stolen_s))),
            of_sums(Figure::DetoursPerS, cut.each_ref().map(|c| c.per_slice(|s| s.count as f64))),
            of_ranges(Figure::P50Ns, cut.each_ref().map(|c| c.quantile(0.5))),
            of_ranges(Figure::P99Ns, cut.each_ref().map(|c| c.quantile(0.99))),
            of_longest(&cut),
        ];
        let has_detours = cut.each_ref().map(|c| c.longest_ns() > 0);
        for change in changes.iter_mut().filter(|change| change.figure.is_length()) {
            change.leave_out(has_detours);
        }
        changes.extend(sources.into_iter().enumerate().map(|(i, source)| {
            of_sums(Figure::Source(source), cut.each_ref().map(|c| c.per_slice(|s| s.by_source_s[i])))
        }));
        let warnings = warnings(before, after, threshold_ns);
        let slices = (cut[0].len(), cut[1].len());
        Ok(Self { schema: Self::SCHEMA.into(), changes, warnings, threshold_ns, slices })
    }

    /// The comparison of one figure.
    #[must_use]
    pub fn get(&self, figure: &Figure) -> Option<&Change> {
        self.changes.iter().find(|c| c.figure == *figure)
    }
}

/// The change of a rate, from both traces' slices.
fn of_sums(figure: Figure, rates: [interval::Rates; 2]) -> Change {
    // what one trace saw happen at once can happen in the other
    let largest = rates[0].largest().max(rates[1].largest());
    of_ranges(figure, rates.map(|r| r.range(largest)))
}

fn of_ranges(figure: Figure, [before, after]: [Range; 2]) -> Change {
    let interval = difference(&before, &after);
    let verdict = match interval {
        Some((_, high)) if high < 0.0 => Verdict::Improved,
        Some((low, _)) if low > 0.0 => Verdict::Worse,
        _ => Verdict::NoDifferenceShown,
    };
    Change::new(figure, [before.value, after.value], interval, verdict)
}

/// The change of the longest detour.
fn of_longest(cut: &[Slices; 2]) -> Change {
    let [before, after] = cut.each_ref().map(Slices::longest_ns);
    let by_chance = |longer: &Slices, other: &Slices| {
        chance_of_longest(longer.slices_above(other.longest_ns()), longer.cpu_s(), other.cpu_s())
    };
    let verdict = if by_chance(&cut[0], &cut[1]) < 0.025 {
        Verdict::Improved
    } else if by_chance(&cut[1], &cut[0]) < 0.025 {
        Verdict::Worse
    } else {
        Verdict::NoDifferenceShown
    };
    Change::new(Figure::MaxNs, [before as f64, after as f64], None, verdict)
}

/// Sources that steal most, over both traces.
fn top_sources(before: &Trace, after: &Trace, threshold_ns: u64) -> Vec<Source> {
    let mut stolen: BTreeMap<&Source, u64> = BTreeMap::new();
    for trace in [before, after] {
        for d in trace.detours.iter().filter(|d| d.duration_ns >= threshold_ns) {
            let sum = stolen.entry(trace.source(d)).or_default();
            *sum = sum.saturating_add(d.duration_ns);
        }
    }
    let mut ranked: Vec<(u64, &Source)> = stolen.into_iter().map(|(s, ns)| (ns, s)).collect();
    ranked.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    ranked.into_iter().take(MAX_SOURCES).map(|(_, s)| s.clone()).collect()
}

/// Warnings about differences in how the traces were made.
fn warnings(before: &Trace, after: &Trace, threshold_ns: u64) -> Vec<String> {
    let (a, b) = (&before.meta, &after.meta);
    let mut found = Vec::new();
    if a.threshold_ns != b.threshold_ns {
        found.push(format!(
            "thresholds differ ({} and {}): detours below {} are left out of both",
            rounded_ns(a.threshold_ns as f64),
            rounded_ns(b.threshold_ns as f64),
            rounded_ns(threshold_ns as f64)
        ));
    }
    let mut differs = |property: &str, a: String, b: String| {
        if a != b {
            found.push(format!("{property} differs: {a} and {b}"));
        }
    };
    let class = |m: &crate::TraceMeta| m.observer.map_or_else(|| "unknown".into(), |c| c.to_string());
    differs("the observer's scheduling class", class(a), class(b));
    match before.lanes().len() == after.lanes().len() {
        true => differs("the set of CPUs", a.cpus.to_string(), b.cpus.to_string()),
        false => {
            differs("the number of CPUs", before.lanes().len().to_string(), after.lanes().len().to_string())
        }
    }
    if let (Some(a), Some(b)) = (&a.node, &b.node) {
        differs("the host", a.host.clone(), b.host.clone());
        differs("the processor", a.cpu_model.clone(), b.cpu_model.clone());
    }
    let ratio = a.observed_s / b.observed_s;
    if !(0.5..=2.0).contains(&ratio) {
        found.push(format!(
            "one trace is much shorter ({:.1} s and {:.1} s): its longest detour is no fair match",
            a.observed_s, b.observed_s
        ));
    }
    for (name, meta) in [("first", a), ("second", b)] {
        if meta.dropped > 0 {
            found.push(format!("the {name} trace lacks detours that did not fit its ring: {}", meta.dropped));
        }
        if meta.observed_s < 2.0 {
            found.push(format!("the {name} trace is short ({:.1} s): intervals are rough", meta.observed_s));
        }
    }
    found
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod coverage_tests;
