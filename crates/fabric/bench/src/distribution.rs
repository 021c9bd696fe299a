// SPDX-License-Identifier: MIT OR Apache-2.0
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How long operations took: a histogram that lost no count, and what is mostly asked of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Operations counted; in a merged distribution those of all ranks.
    pub count: u64,
    /// Mean, from exact sums.
    pub mean_us: f64,
    /// Shortest, exact.
    pub min_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Longest, exact.
    pub max_us: f64,
    /// Buckets of an `HdrHistogram` of three digits: upper bound in nanoseconds, and its count; ascending.
    pub histogram_ns: Vec<(u64, u64)>,
}

impl Distribution {
    /// From ascending buckets and the exact mean and extremes.
    #[must_use]
    pub fn new(histogram_ns: Vec<(u64, u64)>, mean_us: f64, min_us: f64, max_us: f64) -> Self {
        let count = histogram_ns.iter().map(|b| b.1).sum();
        let mut d = Self { count, mean_us, min_us, max_us, histogram_ns, ..Self::default() };
        (d.p50_us, d.p99_us, d.p999_us) = (d.quantile_us(0.5), d.quantile_us(0.99), d.quantile_us(0.999));
        d
    }

    /// The duration that a share `q` (0 to 1) of the operations did not exceed; 0 where there is none.
    #[must_use]
    pub fn quantile_us(&self, q: f64) -> f64 {
        let wanted = ((self.count as f64 * q).ceil() as u64).max(1);
        let mut seen = 0;
        let bucket = self.histogram_ns.iter().find(|(_, n)| {
            seen += n;
            seen >= wanted
        });
        bucket.map_or(0.0, |&(ns, _)| (ns as f64 / 1e3).clamp(self.min_us, self.max_us))
    }

    /// How many operations took at least `ns`, to the histogram's three digits.
    #[must_use]
    pub fn count_from(&self, ns: u64) -> u64 {
        self.histogram_ns.iter().filter(|b| b.0 >= ns).map(|b| b.1).sum()
    }

    /// Adds another distribution's operations.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        if self.count == 0 || other.count == 0 {
            return if self.count == 0 { other } else { self };
        }
        let (a, b) = (self.count as f64, other.count as f64);
        let mean_us = (self.mean_us * a + other.mean_us * b) / (a + b);
        let mut buckets: BTreeMap<u64, u64> = self.histogram_ns.into_iter().collect();
        for (ns, n) in other.histogram_ns {
            *buckets.entry(ns).or_default() += n;
        }
        let (min_us, max_us) = (self.min_us.min(other.min_us), self.max_us.max(other.max_us));
        Self::new(buckets.into_iter().collect(), mean_us, min_us, max_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u32]) -> Distribution {
        let mut buckets = BTreeMap::new();
        for &v in values {
            *buckets.entry(u64::from(v)).or_insert(0) += 1;
        }
        let us = |v: Option<&u32>| v.map_or(0.0, |&v| f64::from(v) / 1e3);
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len().max(1) as f64 / 1e3;
        Distribution::new(
            buckets.into_iter().collect(),
            mean,
            us(values.iter().min()),
            us(values.iter().max()),
        )
    }

    proptest! {
        #[test]
        fn merging_equals_counting_together(
            a in prop::collection::vec(any::<u32>(), 0..50), b in prop::collection::vec(any::<u32>(), 0..50),
        ) {
            let (merged, both) = (of(&a).merged(of(&b)), of(&[a, b].concat()));
            prop_assert!((merged.mean_us - both.mean_us).abs() <= 1e-9 * both.mean_us.max(1.0));
            prop_assert_eq!(Distribution { mean_us: both.mean_us, ..merged }, both);
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_values(mut v in prop::collection::vec(any::<u32>(), 1..200)) {
            let d = of(&v);
            v.sort_unstable();
            prop_assert_eq!(d.p50_us, f64::from(v[v.len().div_ceil(2) - 1]) / 1e3);
            prop_assert_eq!(d.quantile_us(1.0), d.max_us);
            prop_assert_eq!(d.quantile_us(0.0), d.min_us);
        }
    }
}
