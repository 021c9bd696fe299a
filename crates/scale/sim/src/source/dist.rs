// SPDX-License-Identifier: MIT OR Apache-2.0
//! Distributions of times.

use serde::{Deserialize, Serialize};

use crate::SimError;
use crate::rng::Key;

/// A distribution of times, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Dist {
    /// Always the same.
    Fixed(#[serde(deserialize_with = "colony_time::notation::ns_or_time")] u64),
    /// Any time from `from_ns` to `to_ns` (the Leibniz daemon of the Colony report: 0 to twice the mean).
    Uniform {
        /// Least.
        from_ns: u64,
        /// Most.
        to_ns: u64,
    },
    /// Exponential.
    Exponential {
        /// Mean.
        mean_ns: f64,
    },
    /// Log-normal.
    LogNormal {
        /// Median.
        median_ns: f64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
    /// Pareto with an upper end: P(X > x) = (least/x)^shape below `most_ns`, all the rest there.
    Pareto {
        /// Least.
        least_ns: f64,
        /// Shape; the smaller, the heavier the tail.
        shape: f64,
        /// Most.
        most_ns: f64,
    },
    /// Quantiles at equal steps of probability, rising, straight lines between: a measured distribution.
    Quantiles(#[serde(deserialize_with = "colony_time::notation::all_ns_or_time")] Vec<u64>),
}

impl Dist {
    /// A time; `key` gives the random numbers, those from `index` on.
    #[must_use]
    pub fn draw(&self, key: Key, index: u64) -> u64 {
        let ns = match self {
            Self::Fixed(ns) => return *ns,
            Self::Uniform { from_ns, to_ns } => {
                *from_ns as f64 + key.uniform(index) * (to_ns.saturating_sub(*from_ns) as f64 + 1.0) - 0.5
            }
            Self::Exponential { mean_ns } => -mean_ns * key.uniform(index).ln(),
            Self::LogNormal { median_ns, sigma } => median_ns * (sigma * normal(key, index)).exp(),
            Self::Pareto { least_ns, shape, most_ns } => {
                (least_ns * key.uniform(index).powf(-1.0 / shape)).min(*most_ns)
            }
            Self::Quantiles(q) => return quantile(q, key.uniform(index)),
        };
        // to the nearest; a float below 0 or beyond u64 becomes the number next to it
        (ns + 0.5) as u64
    }

    /// The mean.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        match self {
            Self::Fixed(ns) => *ns as f64,
            Self::Uniform { from_ns, to_ns } => (*from_ns as f64 + *to_ns as f64) / 2.0,
            Self::Exponential { mean_ns } => *mean_ns,
            Self::LogNormal { median_ns, sigma } => median_ns * (sigma * sigma / 2.0).exp(),
            Self::Pareto { least_ns, shape, most_ns } => pareto_moment(*least_ns, *shape, *most_ns, 1.0),
            Self::Quantiles(q) => {
                let steps = q.windows(2).map(|w| (w[0] as f64 + w[1] as f64) / 2.0);
                steps.sum::<f64>() / (q.len().saturating_sub(1)).max(1) as f64
            }
        }
    }

    /// Share of the mean square that the longest ten of `count` times have, 0 to 1: near 1, ten times decide by how much
    /// means of so many differ, and no interval can be computed from those means. Other distributions than Pareto and the
    /// log-normal have short tails: 0.
    #[must_use]
    pub fn share_of_longest(&self, count: f64) -> f64 {
        let probability = LONGEST / count.max(LONGEST);
        match self {
            Self::Pareto { least_ns, shape, most_ns } => {
                let from_ns = least_ns * probability.powf(-1.0 / shape);
                if from_ns >= *most_ns {
                    return 0.0;
                }
                let all = pareto_moment(*least_ns, *shape, *most_ns, 2.0);
                probability * pareto_moment(from_ns, *shape, *most_ns, 2.0) / all
            }
            // squares of a log-normal number have their weights two sigma further on
            Self::LogNormal { sigma, .. } => above(normal_above(probability) - 2.0 * sigma),
            _ => 0.0,
        }
    }

    /// The rest of a time at an instant that falls into it: of times one after the other, each instant
    /// meets a long one more often than a short one, and any part of it with equal probability (Cox,
    /// "Renewal Theory", 1962, section 5). From 1 to all of the time; `key` gives the random numbers, those
    /// from `index` on.
    #[must_use]
    pub fn rest(&self, key: Key, index: u64) -> u64 {
        let u = key.uniform(index);
        let ns = match self {
            Self::Fixed(ns) => *ns as f64,
            Self::Uniform { from_ns, to_ns } => met(*from_ns as f64, *to_ns as f64, u),
            // it has no memory
            Self::Exponential { mean_ns } => return (-mean_ns * u.ln()).ceil() as u64,
            Self::LogNormal { median_ns, sigma } => {
                median_ns * (sigma * sigma + sigma * normal(key, index)).exp()
            }
            Self::Pareto { least_ns, shape, most_ns } => {
                let (range, least_share) = (most_ns / least_ns, least_ns / self.mean_ns());
                // the share of time in those of the longest length
                let longest = least_share * range.powf(1.0 - shape);
                let v = (u - longest) / (1.0 - longest);
                match 1.0 - shape {
                    _ if v <= 0.0 => *most_ns,
                    power if power.abs() < 1e-9 => least_ns * range.powf(v),
                    power => least_ns * (1.0 + v * (range.powf(power) - 1.0)).powf(1.0 / power),
                }
            }
            Self::Quantiles(q) => quantile_met(q, u),
        };
        (ns * key.uniform(index + 2)).ceil() as u64
    }

    /// The mean length of the time that an instant falls into: the mean square over the mean.
    #[must_use]
    pub fn mean_met_ns(&self) -> f64 {
        match self {
            Self::Fixed(ns) => *ns as f64,
            Self::Uniform { from_ns, to_ns } => {
                let (a, b) = (*from_ns as f64, *to_ns as f64);
                if b > 0.0 { (a * a + a * b + b * b) / (a + b) / 1.5 } else { 0.0 }
            }
            Self::Exponential { mean_ns } => 2.0 * mean_ns,
            Self::LogNormal { median_ns, sigma } => median_ns * (1.5 * sigma * sigma).exp(),
            Self::Pareto { least_ns, shape, most_ns } => {
                pareto_moment(*least_ns, *shape, *most_ns, 2.0) / self.mean_ns()
            }
            Self::Quantiles(q) => {
                let (mut sum, mut squares) = (0.0, 0.0);
                for w in q.windows(2) {
                    let (a, b) = (w[0] as f64, w[1] as f64);
                    sum += a + b;
                    squares += a * a + a * b + b * b;
                }
                if sum > 0.0 { squares / sum / 1.5 } else { 0.0 }
            }
        }
    }

    /// Longest time that makes sense as a parameter: 36 years.
    const MOST_NS: f64 = (1u64 << 60) as f64;

    /// # Errors
    /// [`SimError::Dist`] where a parameter makes no sense.
    pub fn check(&self) -> Result<(), SimError> {
        let bad = |parameter, found| Err(SimError::Dist { parameter, found });
        let positive = |parameter, found: f64| match found > 0.0 && found <= Self::MOST_NS {
            true => Ok(()),
            false => bad(parameter, found),
        };
        match self {
            Self::Fixed(ns) | Self::Uniform { to_ns: ns, .. } if *ns as f64 > Self::MOST_NS => {
                bad("time", *ns as f64)
            }
            Self::Fixed(_) => Ok(()),
            Self::Uniform { from_ns, to_ns } if from_ns <= to_ns => Ok(()),
            Self::Uniform { to_ns, .. } => bad("upper end (below the lower)", *to_ns as f64),
            Self::Exponential { mean_ns } => positive("mean", *mean_ns),
            Self::LogNormal { median_ns, sigma } => {
                positive("median", *median_ns)?;
                positive("sigma", *sigma)?;
                positive("mean", self.mean_ns())
            }
            Self::Pareto { least_ns, shape, most_ns } => {
                positive("least time", *least_ns)?;
                positive("shape", *shape)?;
                positive("longest time", *most_ns)?;
                positive("room between least and most", most_ns - least_ns)
            }
            Self::Quantiles(q) if q.len() < 2 || !q.is_sorted() => {
                bad("list of quantiles (two or more, rising)", q.len() as f64)
            }
            Self::Quantiles(q) => positive("longest time", q.last().map_or(0.0, |&ns| ns as f64)),
        }
    }
}

/// A standard normal number, from the uniform ones `index` and the next (Box and Muller 1958).
pub(crate) fn normal(key: Key, index: u64) -> f64 {
    let (a, b) = (key.uniform(index), key.uniform(index + 1));
    (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

fn quantile(q: &[u64], u: f64) -> u64 {
    let at = u * (q.len().saturating_sub(1)) as f64;
    let i = at as usize;
    match (q.get(i), q.get(i + 1)) {
        (Some(&a), Some(&b)) => (a as f64 + (b as f64 - a as f64) * at.fract()).round() as u64,
        (Some(&a), None) => a,
        _ => 0,
    }
}

/// Times that are too few to know the spread of a mean that they decide.
const LONGEST: f64 = 10.0;

/// The probability that a standard normal number is above `z`.
fn above(z: f64) -> f64 {
    libm::erfc(z / std::f64::consts::SQRT_2) / 2.0
}

/// The number that a standard normal one is above with this probability, to a thousandth.
fn normal_above(probability: f64) -> f64 {
    let (mut low, mut high) = (-40.0, 40.0);
    while high - low > 0.001 {
        let z = f64::midpoint(low, high);
        if above(z) > probability { low = z } else { high = z }
    }
    low
}

/// Mean of the `k`th power of a Pareto number with an upper end.
fn pareto_moment(least: f64, shape: f64, most: f64, k: f64) -> f64 {
    let (ln_range, power) = ((most / least).ln(), k - shape);
    let at_the_end = (power * ln_range).exp();
    let below = if power.abs() < 1e-9 { ln_range } else { (at_the_end - 1.0) / power };
    least.powf(k) * (shape * below + at_the_end)
}

/// A number from `a` to `b`, each with a probability in proportion to it.
fn met(a: f64, b: f64, u: f64) -> f64 {
    (a * a + u * (b * b - a * a)).sqrt()
}

/// A number of the distribution of quantiles `q`, each with a probability in proportion to it.
fn quantile_met(q: &[u64], u: f64) -> f64 {
    let steps = || q.windows(2).map(|w| (w[0] as f64, w[1] as f64));
    let mut left = u * steps().map(|(a, b)| a + b).sum::<f64>();
    for (a, b) in steps() {
        if left < a + b {
            return met(a, b, left / (a + b));
        }
        left -= a + b;
    }
    q.last().map_or(0.0, |&ns| ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of each kind.
    fn all() -> [Dist; 8] {
        [
            Dist::Fixed(1000),
            Dist::Uniform { from_ns: 0, to_ns: 20_000 },
            Dist::Exponential { mean_ns: 5000.0 },
            Dist::LogNormal { median_ns: 3000.0, sigma: 0.8 },
            Dist::Pareto { least_ns: 1000.0, shape: 1.5, most_ns: 1e5 },
            Dist::Pareto { least_ns: 1000.0, shape: 1.0, most_ns: 1e5 },
            Dist::Pareto { least_ns: 1000.0, shape: 2.0, most_ns: 1e5 },
            Dist::Quantiles(vec![1000, 1500, 9000]),
        ]
    }

    #[test]
    fn the_rest_of_a_time_is_distributed_as_in_a_renewal_process() {
        for d in all() {
            let (key, n) = (Key::new(11), 400_000);
            // squares of the times of a long row over the row: the mean time around an instant
            let times: Vec<f64> = (0..n).map(|i| d.draw(key.part(i), 0) as f64).collect();
            let met = times.iter().map(|t| t * t).sum::<f64>() / times.iter().sum::<f64>();
            assert!((met / d.mean_met_ns() - 1.0).abs() < 0.05, "{d:?}: {met} {}", d.mean_met_ns());
            // and the share of its instants that have no more than some time left
            let mut rests: Vec<u64> = (0..n).map(|i| d.rest(Key::new(12).part(i), 0)).collect();
            rests.sort_unstable();
            for tenth in 1..10 {
                let limit = rests[rests.len() * tenth / 10] as f64;
                let share = times.iter().map(|t| t.min(limit)).sum::<f64>() / times.iter().sum::<f64>();
                assert!((share - tenth as f64 / 10.0).abs() < 0.01, "{d:?}: {tenth} {share}");
            }
            assert!(rests[0] > 0, "{d:?}");
        }
    }

    #[test]
    fn random_times_have_the_mean_of_their_distribution() {
        for d in all() {
            d.check().expect("sound");
            let (key, n) = (Key::new(3), 400_000);
            let mean = (0..n).map(|i| d.draw(key.part(i), 0) as f64).sum::<f64>() / n as f64;
            assert!((mean / d.mean_ns() - 1.0).abs() < 0.02, "{d:?}: {mean} {}", d.mean_ns());
        }
    }

    #[test]
    fn senseless_parameters_are_refused() {
        for d in [
            Dist::Uniform { from_ns: 2, to_ns: 1 },
            Dist::Exponential { mean_ns: f64::NAN },
            Dist::LogNormal { median_ns: -1.0, sigma: 1.0 },
            Dist::Pareto { least_ns: 5.0, shape: 1.0, most_ns: 5.0 },
            Dist::Quantiles(vec![3]),
            Dist::Quantiles(vec![3, 2]),
            Dist::Quantiles(vec![0, 0]),
            Dist::Fixed(u64::MAX),
            Dist::Uniform { from_ns: 0, to_ns: u64::MAX },
            Dist::Exponential { mean_ns: 1e30 },
            Dist::LogNormal { median_ns: 1000.0, sigma: 50.0 },
            Dist::Pareto { least_ns: 1.0, shape: 1.0, most_ns: f64::INFINITY },
        ] {
            assert!(d.check().is_err(), "{d:?}");
        }
    }
}
