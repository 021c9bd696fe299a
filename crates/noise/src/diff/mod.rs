//! Did the change help? Two traces compared, figure by figure, with what chance alone would do.
//!
//! Each trace is cut into slices of time over all its CPUs. Slices are drawn anew with replacement, some
//! thousand times (a block bootstrap: detours that come together stay together), and the spread of a figure's
//! difference over the draws gives its 95 % confidence interval. Where the interval lies on one side of 0 the
//! figure changed; else no difference is shown, which is not to say that there is none.

mod slices;

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::Source;
use crate::trace::Trace;
use slices::{Figures, Lengths, Slices};

/// Sources compared on their own: those that steal most in either trace.
const MAX_SOURCES: usize = 16;

/// How to compare.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Draws of the bootstrap.
    pub resamples: u32,
    /// Seed of the draws: the same seed gives the same intervals.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { resamples: 2000, seed: 1 }
    }
}

/// Traces that cannot be compared at all.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DiffError {
    /// No time span to divide by.
    #[error(
        "the {0} trace does not say how long was observed (`observed_s` is {1}): measure with `colony measure`, or add it to the file"
    )]
    NotTimed(&'static str, f64),
    /// No resamples, or more than anybody waits for.
    #[error("{0} resamples give no interval; choose 1 to {MAX_RESAMPLES}")]
    Resamples(u32),
}

/// Most resamples of the bootstrap.
const MAX_RESAMPLES: u32 = 100_000;

impl DiffError {
    /// Whether the caller asked for something that cannot be (exit code 2), rather than the traces being wrong.
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        matches!(self, Self::Resamples(_))
    }
}

/// What a comparison of one figure comes to. Less noise is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The interval lies below 0.
    Improved,
    /// The interval lies above 0.
    Worse,
    /// The interval holds 0.
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
    /// Longest detour, nanoseconds. A maximum hangs on one detour: its interval is a hint only.
    MaxNs,
    /// Stolen share by one source.
    Source(Source),
}

/// One figure of both traces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Which.
    pub figure: Figure,
    /// In the first trace.
    pub before: f64,
    /// In the second.
    pub after: f64,
    /// `after` − `before`.
    pub difference: f64,
    /// 95 % confidence interval of the difference, from low to high.
    pub interval: (f64, f64),
    /// What that says.
    pub verdict: Verdict,
}

/// Two traces compared.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Diff {
    /// [`Diff::SCHEMA`].
    pub schema: String,
    /// Figures of all detours, then of single sources, most stolen first.
    pub changes: Vec<Change>,
    /// Why the comparison should be read with care.
    pub warnings: Vec<String>,
    /// Detours shorter than this were left out of both, so that they can be compared.
    pub threshold_ns: u64,
    /// Slices of time each trace was cut into.
    pub slices: (usize, usize),
    /// How it was compared.
    pub options: Options,
}

impl Diff {
    /// The schema of a comparison's JSON.
    pub const SCHEMA: &str = "colony.noise.diff/1";

    /// Compares `after` with `before`.
    ///
    /// Traces of different thresholds are compared above the higher one, with a warning, as is everything else
    /// that differs in how they were made.
    ///
    /// # Errors
    /// [`DiffError::NotTimed`].
    pub fn of(before: &Trace, after: &Trace, options: Options) -> Result<Self, DiffError> {
        if !(1..=MAX_RESAMPLES).contains(&options.resamples) {
            return Err(DiffError::Resamples(options.resamples));
        }
        for (name, trace) in [("first", before), ("second", after)] {
            let s = trace.meta.observed_s;
            if !(s.is_finite() && s > 0.0) {
                return Err(DiffError::NotTimed(name, s));
            }
        }
        let threshold_ns = before.meta.threshold_ns.max(after.meta.threshold_ns);
        let lengths = Lengths::of([before, after], threshold_ns);
        let sources = top_sources(before, after, threshold_ns);
        let cut = [before, after].map(|t| Slices::of(t, threshold_ns, &lengths, &sources));
        let mut draws: Vec<Vec<f64>> = vec![Vec::new(); Figures::COMMON + sources.len()];
        let mut random = ChaCha8Rng::seed_from_u64(options.seed);
        for _ in 0..options.resamples {
            let [a, b] = [&cut[0], &cut[1]].map(|s| {
                let drawn: Vec<usize> = (0..s.len()).map(|_| random.random_range(0..s.len())).collect();
                // the maximum of a full draw is nearly always the same: half a draw shows how much hangs on
                // one slice
                s.figures(&drawn, drawn.len() / 2, &lengths)
            });
            draws.iter_mut().zip(a.0.iter().zip(&b.0)).for_each(|(d, (a, b))| d.push(b - a));
        }
        let [a, b] =
            [&cut[0], &cut[1]].map(|s| s.figures(&(0..s.len()).collect::<Vec<_>>(), s.len(), &lengths));
        let common = [Figure::StolenShare, Figure::DetoursPerS, Figure::P50Ns, Figure::P99Ns, Figure::MaxNs];
        let figures = common.into_iter().chain(sources.into_iter().map(Figure::Source));
        let changes = figures
            .zip(a.0.iter().zip(&b.0))
            .zip(draws)
            .map(|((figure, (a, b)), draws)| change(figure, *a, *b, draws))
            .collect();
        let warnings = warnings(before, after, threshold_ns);
        let slices = (cut[0].len(), cut[1].len());
        Ok(Self { schema: Self::SCHEMA.into(), changes, warnings, threshold_ns, slices, options })
    }

    /// The comparison of one figure.
    #[must_use]
    pub fn get(&self, figure: &Figure) -> Option<&Change> {
        self.changes.iter().find(|c| c.figure == *figure)
    }
}

fn change(figure: Figure, before: f64, after: f64, mut draws: Vec<f64>) -> Change {
    draws.sort_unstable_by(f64::total_cmp);
    let at =
        |q: f64| draws.get((q * (draws.len().max(1) - 1) as f64).round() as usize).copied().unwrap_or(0.0);
    let interval = (at(0.025), at(0.975));
    let verdict = match interval {
        (_, high) if high < 0.0 => Verdict::Improved,
        (low, _) if low > 0.0 => Verdict::Worse,
        _ => Verdict::NoDifferenceShown,
    };
    Change { figure, before, after, difference: after - before, interval, verdict }
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

/// What differs in how the traces were made.
fn warnings(before: &Trace, after: &Trace, threshold_ns: u64) -> Vec<String> {
    let (a, b) = (&before.meta, &after.meta);
    let mut found = Vec::new();
    if a.threshold_ns != b.threshold_ns {
        found.push(format!(
            "thresholds differ ({} ns and {} ns): detours below {threshold_ns} ns are left out of both",
            a.threshold_ns, b.threshold_ns
        ));
    }
    let mut differs = |what: &str, a: String, b: String| {
        if a != b {
            found.push(format!("{what} differs: {a} and {b}"));
        }
    };
    let class = |m: &crate::TraceMeta| m.observer.map_or_else(|| "unknown".into(), |c| c.to_string());
    differs("the observer's scheduling class", class(a), class(b));
    differs("the number of CPUs", before.lanes().len().to_string(), after.lanes().len().to_string());
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
            found.push(format!("the {name} trace lacks {} detours that did not fit its ring", meta.dropped));
        }
        if meta.observed_s < 2.0 {
            found.push(format!("the {name} trace is short ({:.1} s): intervals are rough", meta.observed_s));
        }
    }
    found
}

#[cfg(test)]
mod tests;
