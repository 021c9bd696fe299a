// SPDX-License-Identifier: MIT OR Apache-2.0
//! 95 % confidence intervals from slices of time.
//!
//! Sums of few events are skewed, so that a sum ± its standard error does not cover. Sums here have the interval of a
//! gamma distribution of the same mean and variance, the upper end as if one more of the largest had come (Fay and
//! Feuer, "Confidence intervals for directly standardized rates: a method based on the gamma distribution",
//! Statistics in Medicine 16, 1997). Quantiles have the detours whose ranks chance allows (Woodruff, "Confidence
//! intervals for medians and other position measures", JASA 47, 1952). The interval of a difference is put together
//! from both (Zou and Donner, "Construction of confidence limits about effect measures", Statistics in Medicine 27,
//! 2008).

/// The 97.5th percentile of the normal distribution.
const Z: f64 = 1.959_964;

/// A figure of one trace, and between which values it may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    /// As observed.
    pub(super) value: f64,
    /// The ends of its interval; none where there are too few detours for one.
    pub(super) ends: Option<(f64, f64)>,
}

/// The value of a figure in each slice, and the CPU seconds of a slice.
pub(super) struct Rates {
    per_slice: Vec<f64>,
    cpu_s: f64,
}

impl Rates {
    pub(super) fn new(per_slice: Vec<f64>, cpu_s: f64) -> Self {
        Self { per_slice, cpu_s }
    }

    /// By how much the fullest slice is above the mean.
    pub(super) fn largest(&self) -> f64 {
        let most = self.per_slice.iter().copied().fold(0.0, f64::max);
        most - mean(&self.per_slice)
    }

    /// The rate a CPU second, where `largest` may come at once.
    pub(super) fn range(&self, largest: f64) -> Range {
        let sum: f64 = self.per_slice.iter().sum();
        let variance = variance_of_sum(&self.per_slice);
        let low = gamma(sum, variance, -Z);
        let high = gamma(sum + largest, variance + largest * largest, Z);
        let cpu_s = self.cpu_s * self.per_slice.len() as f64;
        Range { value: sum / cpu_s, ends: Some((low / cpu_s, high / cpu_s)) }
    }
}

/// The quantile of a gamma distribution that a normal distribution has at `z` (Wilson and Hilferty's approximation).
fn gamma(mean: f64, variance: f64, z: f64) -> f64 {
    if mean <= 0.0 || variance <= 0.0 {
        return mean;
    }
    let shape = mean * mean / variance;
    mean * (1.0 - 1.0 / (9.0 * shape) + z / (3.0 * shape.sqrt())).max(0.0).powi(3)
}

/// Variance of the sum of values that follow one another: neighbours that are alike say less than as many independent
/// ones (Law, "Simulation modeling and analysis", section 4.4). The interval of a variance known from so many values
/// only is Student's: here the variance is larger instead.
pub(super) fn variance_of_sum(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let neighbours: f64 = values.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum();
    let alike = if squares > 0.0 { (neighbours / squares).clamp(0.0, 1.0) } else { 0.0 };
    // Student's t over z, to first order in 1 / freedom
    let student = 1.0 + (Z * Z + 1.0) / 4.0 / (n - 1.0);
    n * squares / (n - 1.0) * (1.0 + 2.0 * alike) * student * student
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The length that the share `share` of the `sorted` ones does not exceed. `variance` is that of the number of
/// lengths above it; `least` is the shortest length there can be.
pub(super) fn quantile(sorted: &[u64], share: f64, variance: f64, least: u64) -> Range {
    let n = sorted.len();
    let Some(&value) = sorted.get(((n as f64 * share).ceil() as usize).max(1) - 1) else {
        return Range { value: 0.0, ends: None };
    };
    let above = n as f64 * (1.0 - share);
    let far = Z * variance.max(above * share).sqrt();
    let fewest = (above - far).floor();
    // if none may be longer, nothing says how long they are
    let ends = (fewest >= 1.0).then(|| {
        let most = (above + far).ceil() as usize;
        let low = n.checked_sub(most + 1).map_or(least, |i| sorted[i]);
        (low as f64, sorted[n - fewest as usize] as f64)
    });
    Range { value: value as f64, ends }
}

/// The interval of `after` − `before`.
pub(super) fn difference(before: &Range, after: &Range) -> Option<(f64, f64)> {
    let (b, a) = (before.ends?, after.ends?);
    let difference = after.value - before.value;
    let down = (after.value - a.0).hypot(b.1 - before.value);
    let up = (a.1 - after.value).hypot(before.value - b.0);
    Some((difference - down, difference + up))
}

/// Probability that the longest detours of both traces, from `slices` slices of the one observed for `long_s`, are all
/// of this one, if the noise is the same in the other, observed for `other_s`.
pub(super) fn chance_of_longest(slices: usize, long_s: f64, other_s: f64) -> f64 {
    (long_s / (long_s + other_s)).powi(slices.try_into().unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_seen_may_still_come_up_to_three_times_or_so() {
        // of a Poisson distribution the exact upper end is 3.69
        let none = Rates::new(vec![0.0; 20], 1.0).range(1.0);
        let (low, high) = none.ends.expect("always");
        assert_eq!((none.value, low), (0.0, 0.0));
        assert!((high * 20.0 - 3.69).abs() < 0.05, "{high}");
        assert_eq!(Rates::new(vec![0.0; 20], 1.0).range(0.0).ends, Some((0.0, 0.0)));
    }

    #[test]
    fn many_events_have_the_interval_of_a_normal_distribution() {
        let slices: Vec<f64> = (0..100).map(|i| 1000.0 + f64::from(i * 37 % 100) - 49.5).collect();
        let range = Rates::new(slices, 1.0).range(0.0);
        let (low, high) = range.ends.expect("always");
        let half = 1.984 * (100.0f64 * 101.0 / 12.0).sqrt() / 10.0;
        assert!(
            (range.value - low - half).abs() < 0.1 && (high - range.value - half).abs() < 0.1,
            "{range:?}"
        );
    }

    #[test]
    fn correlated_neighbours_widen_the_interval() {
        let apart = [1.0, 3.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0];
        let alike = [1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0];
        assert!(variance_of_sum(&alike) > 2.0 * variance_of_sum(&apart));
        assert_eq!(variance_of_sum(&[5.0]), 0.0);
    }

    #[test]
    fn quantiles_of_few_lengths_have_no_interval() {
        let sorted: Vec<u64> = (1..=1000).collect();
        let median = quantile(&sorted, 0.5, 0.0, 1);
        // ranks of the binomial distribution: 469 and 532
        assert_eq!((median.value, median.ends), (500.0, Some((469.0, 532.0))));
        assert!(quantile(&sorted, 0.99, 0.0, 1).ends.is_some());
        assert_eq!(quantile(&sorted[..100], 0.99, 0.0, 1), Range { value: 99.0, ends: None });
        assert_eq!(quantile(&[], 0.5, 0.0, 1), Range { value: 0.0, ends: None });
        assert_eq!(difference(&median, &quantile(&sorted[..3], 0.5, 0.0, 1)), None);
    }

    #[test]
    fn five_longest_of_one_trace_may_be_chance_and_six_are_not() {
        assert!(chance_of_longest(5, 10.0, 10.0) > 0.025 && chance_of_longest(6, 10.0, 10.0) < 0.025);
        // a trace observed for longer has the longest by chance
        assert!(chance_of_longest(6, 30.0, 10.0) > 0.1);
    }
}
