// SPDX-License-Identifier: MIT OR Apache-2.0
//! The distance of a distribution from the times it was fitted to.

use serde::{Deserialize, Serialize};

/// The quality of a distribution's fit to times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Goodness {
    /// Kolmogorov and Smirnov's distance: the largest difference of the two cumulative distributions. Of a
    /// fixed time: the share of times that are another (by more than 2 %).
    pub ks_distance: f64,
    /// Probability that as many draws are further away than that. The parameters were fitted to the same
    /// times, so it is rather too large (Lilliefors 1967): a small one says no, a large one not yes. With
    /// many times any real noise has a small one; see the distance. `None` of a fixed time.
    pub p_value: Option<f64>,
    /// Anderson and Darling's A², which weighs the tails. `None` of a fixed time.
    pub anderson_darling: Option<f64>,
    /// Akaike's information criterion: the smaller, the better. `None` of a fixed time.
    pub aic: Option<f64>,
    /// Standard deviation of the times over their mean.
    pub spread: f64,
}

/// The rating of a distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing speaks against it, or the distributions are never further apart than 5 %.
    Good,
    /// Up to 10 % apart.
    Rough,
    /// Further.
    Poor,
}

impl Goodness {
    /// The rating of the distance of `n` times.
    pub(crate) fn verdict(&self, n: usize) -> Verdict {
        // the distance that one in twenty samples of `n` exceeds
        let chance = if self.p_value.is_some() { 1.36 / (n as f64).sqrt() } else { 0.0 };
        match self.ks_distance {
            d if d <= chance.max(0.05) => Verdict::Good,
            d if d <= chance.max(0.1) => Verdict::Rough,
            _ => Verdict::Poor,
        }
    }
}

/// The largest distance of `cdf` from that of `sorted` times.
pub(crate) fn ks_distance(sorted: &[u64], cdf: impl Fn(f64) -> f64) -> f64 {
    let n = sorted.len() as f64;
    let mut largest: f64 = 0.0;
    let mut before = 0;
    // equal times are one step
    for run in sorted.chunk_by(|a, b| a == b) {
        let after = before + run.len();
        // a time of whole nanoseconds stands for half of one to either side
        let (low, high) = (cdf(run[0] as f64 - 0.5), cdf(run[0] as f64 + 0.5));
        largest = largest.max((low - before as f64 / n).abs()).max((high - after as f64 / n).abs());
        before = after;
    }
    largest
}

/// Probability that `n` draws are further than `distance` from their own distribution (Kolmogorov's
/// limit with the correction for few draws of Stephens 1970).
pub(crate) fn ks_p_value(distance: f64, n: usize) -> f64 {
    let root = (n as f64).sqrt();
    let x = (root + 0.12 + 0.11 / root) * distance;
    if x < 0.2 {
        // the series converges slowly, and the answer is 1 to ten digits
        return 1.0;
    }
    let term = |k: i32| (-1f64).powi(k - 1) * (-2.0 * f64::from(k * k) * x * x).exp();
    (2.0 * (1..=100).map(term).sum::<f64>()).clamp(0.0, 1.0)
}

/// Anderson and Darling's A² (1952) of `sorted` times.
pub(crate) fn anderson_darling(sorted: &[u64], cdf: impl Fn(f64) -> f64) -> f64 {
    let n = sorted.len();
    // ends of the range, where a model says never, are as unlikely as floats tell
    let f = |i: usize| cdf(sorted[i] as f64).clamp(1e-15, 1.0 - 1e-15);
    let term = |i: usize| (2 * i + 1) as f64 * (f(i).ln() + (1.0 - f(n - 1 - i)).ln());
    -(n as f64) - (0..n).map(term).sum::<f64>() / n as f64
}
