// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models fitted to measured noise, and how well they fit.
//!
//! A measurement replays as it is ([`Trace`](crate::source::Trace)), but says nothing of what it has not
//! seen. A model is a few numbers, and goes on for ever; whether it is one of the noise that was measured is
//! what its distance from the measurement says.

mod family;
mod goodness;
mod sampling;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use family::Family;
pub use goodness::{Goodness, Verdict};
pub use sampling::Sampling;

use crate::NodeNoise;
use crate::source::{Arrivals, Dist, Model, Noise};

/// Times that cannot be fitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FitError {
    /// Too few of them.
    #[error(
        "{found} {values} are too few to fit a model to ({needed} are needed); measure for longer, or replay the trace"
    )]
    TooFew {
        /// Of what.
        values: &'static str,
        /// Number found.
        found: usize,
        /// Number that a fit needs.
        needed: usize,
    },
    /// All of no length.
    #[error("all {0} times are 0: nothing can be fitted to them")]
    Zeros(usize),
    /// A model that would take all of a CPU, where the measurement did not.
    #[error(
        "the fitted model asks for {percent} % of a CPU, the trace for {measured_percent} %: replay the trace"
    )]
    Load {
        /// Of the model.
        percent: u64,
        /// Of the measurement.
        measured_percent: u64,
    },
}

/// A distribution tried on times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its family.
    pub family: Family,
    /// With its most likely parameters.
    pub dist: Dist,
    /// Distance of the distribution from the times.
    pub goodness: Goodness,
}

/// A distribution fitted to times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DistFit {
    /// The distribution to use: that of the best family, or the times' own quantiles where none fits.
    pub dist: Dist,
    /// The best family first, by Akaike's information criterion.
    pub candidates: Vec<Candidate>,
    /// Rating of the best family's fit.
    pub verdict: Verdict,
    /// Times it was fitted to.
    pub n: usize,
}

impl DistFit {
    /// The best family.
    #[must_use]
    pub fn best(&self) -> Option<&Candidate> {
        self.candidates.first()
    }

    fn is_good(&self, family: Family) -> bool {
        self.verdict == Verdict::Good && self.best().is_some_and(|c| c.family == family)
    }

    /// Akaike's criterion of the best family.
    fn aic(&self) -> f64 {
        self.best().and_then(|c| c.goodness.aic).unwrap_or(f64::INFINITY)
    }
}

/// A model fitted to the noise of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// The model.
    pub model: Model,
    /// Its times between bursts: from start to start, or for a daemon that sleeps from end to start.
    pub gaps: DistFit,
    /// Its lengths.
    pub lengths: DistFit,
    /// Share of the CPUs' time that was stolen.
    pub measured_load: f64,
    /// Share that the model steals.
    pub model_load: f64,
    /// Detours it was fitted to.
    pub detours: usize,
    /// The CPUs differ in the rate or in the mean length of the detours, so that the model, which is for all of them, is that of none.
    #[serde(default)]
    pub has_unlike_cpus: bool,
}

impl Fit {
    /// Rating of the worse of its two fits, and [`Verdict::Poor`] if the CPUs differ. Where a fit is poor, the model has the quantiles
    /// of the times, and may still miss the order in which they follow one another.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let of_cpus = if self.has_unlike_cpus { Verdict::Poor } else { Verdict::Good };
        self.gaps.verdict.max(self.lengths.verdict).max(of_cpus)
    }
}

/// Times needed for a fit.
pub const LEAST_TIMES: usize = 20;

/// Fits a model to the detours of one source on the CPUs of a node, all CPUs alike.
///
/// Arrivals are periodic, a Poisson process, or a renewal process with log-normal, uniform or Pareto gaps,
/// counted from start to start, or from end to start (a daemon that sleeps after its work) where that is
/// clearly more likely. Whole traces of many sources are best fitted a source at a time.
///
/// ```
/// use colony_sim::{CpuNoise, NodeNoise, fit};
/// use colony_sim::noise::Detour;
/// let tick = |i: u64| Detour { start_ns: i * 1_000_000 + 40 * (i % 3), duration_ns: 1500 };
/// let fit = fit::fit(&NodeNoise::new(vec![CpuNoise::new(1_000_000_000, (0..1000).map(tick))?])?)?;
/// assert_eq!(fit.gaps.best().map(|c| c.family), Some(fit::Family::Fixed));
/// assert_eq!(fit.verdict(), fit::Verdict::Good);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`FitError`] where there are too few detours, or no model keeps the load below that of a whole CPU.
pub fn fit(noise: &NodeNoise) -> Result<Fit, FitError> {
    let detours = || noise.cpus().iter().flat_map(|c| c.detours());
    let lengths: Vec<u64> = detours().map(|d| d.duration_ns).collect();
    let (mut gaps, mut sleeps) = (Vec::new(), Vec::new());
    for pair in noise.cpus().iter().flat_map(|c| c.detours().windows(2)) {
        gaps.push(pair[1].start_ns - pair[0].start_ns);
        sleeps.push(pair[1].start_ns - pair[0].start_ns - pair[0].duration_ns);
    }
    let lengths = fit_times("detours", lengths)?;
    let (gaps, sleeps) =
        (fit_times("gaps between detours", gaps)?, fit_times("gaps between detours", sleeps)?);
    let asleep = sleeps_after_work(&gaps, &sleeps);
    let gaps = if asleep { sleeps } else { gaps };
    let arrivals = if asleep { Arrivals::AfterSleep } else { Arrivals::Every }(gaps.dist.clone());
    let model = Model { arrivals, length: lengths.dist.clone() };
    let (measured_load, model_load) = (noise.stolen_share(), model.load());
    if model.check().is_err() {
        let percent = |share: f64| (share * 100.0).round() as u64;
        return Err(FitError::Load {
            percent: percent(model_load),
            measured_percent: percent(measured_load),
        });
    }
    let has_unlike_cpus = has_unlike_cpus(noise);
    Ok(Fit { model, detours: lengths.n, gaps, lengths, measured_load, model_load, has_unlike_cpus })
}

/// CPUs are unlike if a rate, or a mean length of enough detours, is more than this many times another.
const UNLIKE: f64 = 2.0;

/// True if the CPUs differ in the rate or in the mean length of their detours by more than chance.
fn has_unlike_cpus(noise: &NodeNoise) -> bool {
    let counts = || noise.cpus().iter().map(|cpu| cpu.detours().len() as f64);
    let (fewest, most) = (counts().fold(f64::INFINITY, f64::min), counts().fold(0.0, f64::max));
    // four standard deviations of the difference of two Poisson counts: bursts vary more, and there are many pairs of CPUs
    let differ_in_rate = most > UNLIKE * fewest && most - fewest > 4.0 * (most + fewest).sqrt();
    let enough = noise.cpus().iter().filter(|cpu| cpu.detours().len() >= LEAST_TIMES);
    let lengths = enough.map(|cpu| cpu.stolen_ns() as f64 / cpu.detours().len() as f64);
    let (shortest, longest) =
        lengths.fold((f64::INFINITY, 0.0f64), |(least, most), ns| (least.min(ns), most.max(ns)));
    differ_in_rate || longest > UNLIKE * 2.0 * shortest
}

/// True if the source sleeps after its work: gaps fit better from the end of a detour than from its start.
fn sleeps_after_work(gaps: &DistFit, sleeps: &DistFit) -> bool {
    // both are likelihoods of the same arrivals; a tie goes to the simpler process
    const CLEARLY: f64 = 10.0;
    let fixed = |f: &DistFit| f.best().filter(|c| c.family == Family::Fixed).map(|c| c.goodness.spread);
    match (fixed(gaps), fixed(sleeps)) {
        (Some(of_gaps), Some(of_sleeps)) => of_sleeps < of_gaps,
        (None, Some(_)) => true,
        (Some(_), None) => false,
        // the pauses of a Poisson process are exponential too, and fit better where detours were joined
        (None, None) if gaps.is_good(Family::Exponential) && sleeps.is_good(Family::Exponential) => false,
        (None, None) => sleeps.aic() + CLEARLY < gaps.aic(),
    }
}

/// Fits a distribution to times: of the families the one with the least Akaike criterion (maximum
/// likelihood, less a price for parameters), or a fixed time where nearly all times are one. Where even
/// that family is far from the times, their own quantiles are the distribution.
///
/// # Errors
/// [`FitError::TooFew`] below [`LEAST_TIMES`], [`FitError::Zeros`].
pub fn fit_dist(times_ns: &[u64]) -> Result<DistFit, FitError> {
    fit_times("times", times_ns.to_vec())
}

fn fit_times(values: &'static str, mut times: Vec<u64>) -> Result<DistFit, FitError> {
    let n = times.len();
    if n < LEAST_TIMES {
        return Err(FitError::TooFew { values, found: n, needed: LEAST_TIMES });
    }
    times.sort_unstable();
    if times[n - 1] == 0 {
        return Err(FitError::Zeros(n));
    }
    let candidates = family::candidates(&times);
    let verdict = candidates.first().map_or(Verdict::Poor, |c| c.goodness.verdict(n));
    let dist = match candidates.first() {
        Some(best) if verdict != Verdict::Poor => best.dist.clone(),
        _ => family::quantiles(&times),
    };
    Ok(DistFit { dist, candidates, verdict, n })
}
