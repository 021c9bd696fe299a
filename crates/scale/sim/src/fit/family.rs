// SPDX-License-Identifier: MIT OR Apache-2.0
//! Families of distributions, with their most likely parameters.

use libm::erfc;
use serde::{Deserialize, Serialize};

use super::Candidate;
use super::goodness::{Goodness, anderson_darling, ks_distance, ks_p_value};
use crate::source::Dist;

/// A family of distributions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// One time.
    Fixed,
    /// All times in a range alike.
    Uniform,
    /// Exponential: of arrivals, a Poisson process.
    Exponential,
    /// Log-normal.
    LogNormal,
    /// Pareto.
    Pareto,
}

/// A time is the fixed one when it is no further from the median than this share of it …
const SAME: f64 = 0.02;
/// … and times are fixed when no larger share of them is another.
const OTHERS: f64 = 0.05;

/// … and their standard deviation is no larger than this share of their mean: a few long ones may be most of the time.
const SPREAD: f64 = 0.25;

/// Most quantiles that a distribution keeps.
const QUANTILES: usize = 1025;

/// All families on `sorted` times, not all of them 0, the best first.
pub(crate) fn candidates(sorted: &[u64]) -> Vec<Candidate> {
    let m = Moments::of(sorted);
    let mut found: Vec<Candidate> = [Family::Uniform, Family::Exponential, Family::LogNormal, Family::Pareto]
        .into_iter()
        .filter_map(|family| {
            let dist = m.most_likely(family)?;
            let goodness = m.goodness(&dist, sorted);
            (dist.check().is_ok() && goodness.aic.is_some_and(f64::is_finite)).then_some(Candidate {
                family,
                dist,
                goodness,
            })
        })
        .collect();
    found.sort_by(|a, b| a.goodness.aic.unwrap_or(0.0).total_cmp(&b.goodness.aic.unwrap_or(0.0)));
    let fixed = m.fixed(sorted);
    match fixed.goodness.ks_distance <= OTHERS && fixed.goodness.spread <= SPREAD {
        true => found.insert(0, fixed),
        false => found.push(fixed),
    }
    found
}

/// The times' own distribution.
pub(crate) fn quantiles(sorted: &[u64]) -> Dist {
    let last = sorted.len() - 1;
    let steps = last.min(QUANTILES - 1);
    Dist::Quantiles(
        (0..=steps).map(|i| sorted[(i as u128 * last as u128 / steps as u128) as usize]).collect(),
    )
}

/// The moments from which the most likely parameters follow.
struct Moments {
    n: f64,
    least: f64,
    most: f64,
    mean: f64,
    sd: f64,
    ln_mean: f64,
    ln_sd: f64,
    /// Times that are the longest one.
    at_most: f64,
}

/// Times of no length count as half a nanosecond.
fn at(ns: u64) -> f64 {
    (ns as f64).max(0.5)
}

impl Moments {
    fn of(sorted: &[u64]) -> Self {
        let n = sorted.len() as f64;
        let mean_of = |f: &dyn Fn(u64) -> f64| sorted.iter().map(|&ns| f(ns)).sum::<f64>() / n;
        let mean = mean_of(&|ns| ns as f64);
        let ln_mean = mean_of(&|ns| at(ns).ln());
        let most = sorted[sorted.len() - 1];
        Self {
            n,
            least: at(sorted[0]),
            most: at(most),
            mean,
            sd: mean_of(&|ns| (ns as f64 - mean).powi(2)).sqrt(),
            ln_mean,
            ln_sd: mean_of(&|ns| (at(ns).ln() - ln_mean).powi(2)).sqrt(),
            at_most: sorted.iter().rev().take_while(|&&ns| ns == most).count() as f64,
        }
    }

    fn most_likely(&self, family: Family) -> Option<Dist> {
        (self.most > self.least).then_some(match family {
            Family::Fixed => Dist::Fixed(self.mean.round() as u64),
            Family::Uniform => {
                Dist::Uniform { from_ns: self.least.floor() as u64, to_ns: self.most.round() as u64 }
            }
            Family::Exponential => Dist::Exponential { mean_ns: self.mean },
            Family::LogNormal => Dist::LogNormal { median_ns: self.ln_mean.exp(), sigma: self.ln_sd },
            Family::Pareto => Dist::Pareto {
                least_ns: self.least,
                shape: self.below_most() / (self.n * (self.ln_mean - self.least.ln())),
                most_ns: self.most,
            },
        })
    }

    /// Times that a Pareto distribution does not cut at its end: one longest time is just that.
    fn below_most(&self) -> f64 {
        if self.at_most > 1.0 { self.n - self.at_most } else { self.n }
    }

    /// Logarithm of the likelihood of all times.
    fn ln_likelihood(&self, dist: &Dist) -> f64 {
        let ln_tau = std::f64::consts::TAU.ln();
        match dist {
            Dist::Uniform { from_ns, to_ns } => -self.n * ((to_ns - from_ns) as f64 + 1.0).ln(),
            Dist::Exponential { mean_ns } => -self.n * (mean_ns.ln() + 1.0),
            Dist::LogNormal { sigma, .. } => -self.n * (self.ln_mean + sigma.ln() + ln_tau / 2.0 + 0.5),
            Dist::Pareto { least_ns, shape, most_ns } => {
                let (below, cut) = (self.below_most(), self.n - self.below_most());
                let ln_below = self.n * self.ln_mean - cut * most_ns.ln();
                below * (shape.ln() + shape * least_ns.ln()) - (shape + 1.0) * ln_below
                    + cut * shape * (least_ns / most_ns).ln()
            }
            Dist::Fixed(_) | Dist::Quantiles(_) => f64::NAN,
        }
    }

    fn goodness(&self, dist: &Dist, sorted: &[u64]) -> Goodness {
        let cdf = |x: f64| cdf(dist, x);
        let ks_distance = ks_distance(sorted, cdf);
        let parameters = if matches!(dist, Dist::Exponential { .. }) { 1.0 } else { 2.0 };
        Goodness {
            ks_distance,
            p_value: Some(ks_p_value(ks_distance, sorted.len())),
            anderson_darling: Some(anderson_darling(sorted, cdf)),
            aic: Some(2.0 * parameters - 2.0 * self.ln_likelihood(dist)),
            spread: self.sd / self.mean,
        }
    }

    /// One time for all. It is the mean, so that a model loses nothing of the load.
    fn fixed(&self, sorted: &[u64]) -> Candidate {
        let median = sorted[sorted.len() / 2] as f64;
        // clocks tell whole nanoseconds
        let room = (median * SAME).max(1.0);
        let others = sorted.iter().filter(|&&ns| (ns as f64 - median).abs() > room).count();
        let goodness = Goodness {
            ks_distance: others as f64 / self.n,
            p_value: None,
            anderson_darling: None,
            aic: None,
            spread: self.sd / self.mean,
        };
        Candidate { family: Family::Fixed, dist: Dist::Fixed(self.mean.round() as u64), goodness }
    }
}

/// Probability of at most `x`.
fn cdf(dist: &Dist, x: f64) -> f64 {
    match dist {
        Dist::Uniform { from_ns, to_ns } => {
            // whole nanoseconds, each with half of one to either side
            ((x - *from_ns as f64 + 0.5) / ((to_ns - from_ns) as f64 + 1.0)).clamp(0.0, 1.0)
        }
        _ if x <= 0.0 => 0.0,
        Dist::Exponential { mean_ns } => -(-x / mean_ns).exp_m1(),
        Dist::LogNormal { median_ns, sigma } => {
            erfc(-(x / median_ns).ln() / (sigma * std::f64::consts::SQRT_2)) / 2.0
        }
        Dist::Pareto { most_ns, .. } if x >= *most_ns => 1.0,
        Dist::Pareto { least_ns, shape, .. } => (1.0 - (least_ns / x).powf(*shape)).max(0.0),
        Dist::Fixed(ns) => f64::from(u8::from(x >= *ns as f64)),
        Dist::Quantiles(_) => f64::NAN,
    }
}
