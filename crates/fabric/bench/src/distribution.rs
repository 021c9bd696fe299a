// SPDX-License-Identifier: MIT OR Apache-2.0
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Durations of operations: a histogram that lost no count, with its mean, extremes and common quantiles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// Operations counted; in a merged distribution those of all ranks.
    pub count: u64,
    /// Mean, from exact sums.
    pub mean_ns: f64,
    /// Shortest, to the nanosecond.
    pub min_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Longest, to the nanosecond.
    pub max_ns: u64,
    /// Buckets of an `HdrHistogram` of three digits: upper bound in nanoseconds, and its count; ascending.
    pub histogram_ns: Vec<(u64, u64)>,
}

impl Distribution {
    /// From ascending buckets and the exact mean and extremes.
    #[must_use]
    pub fn new(histogram_ns: Vec<(u64, u64)>, mean_ns: f64, min_ns: u64, max_ns: u64) -> Self {
        let count = histogram_ns.iter().map(|b| b.1).sum();
        let mut d = Self { count, mean_ns, min_ns, max_ns, histogram_ns, ..Self::default() };
        (d.p50_ns, d.p99_ns, d.p999_ns) = (d.quantile_ns(0.5), d.quantile_ns(0.99), d.quantile_ns(0.999));
        d
    }

    /// The duration that a share `q` (0 to 1) of the operations did not exceed; 0 where there is none.
    #[must_use]
    pub fn quantile_ns(&self, q: f64) -> u64 {
        let wanted = ((self.count as f64 * q).ceil() as u64).max(1);
        let mut seen = 0;
        let bucket = self.histogram_ns.iter().find(|(_, n)| {
            seen += n;
            seen >= wanted
        });
        bucket.map_or(0, |&(ns, _)| ns.clamp(self.min_ns, self.max_ns))
    }

    /// Number of operations that took at least `ns`, to the histogram's three digits.
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
        let mean_ns = (self.mean_ns * a + other.mean_ns * b) / (a + b);
        let mut buckets: BTreeMap<u64, u64> = self.histogram_ns.into_iter().collect();
        for (ns, n) in other.histogram_ns {
            *buckets.entry(ns).or_default() += n;
        }
        let (min_ns, max_ns) = (self.min_ns.min(other.min_ns), self.max_ns.max(other.max_ns));
        Self::new(buckets.into_iter().collect(), mean_ns, min_ns, max_ns)
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
        let ns = |v: Option<&u32>| v.map_or(0, |&v| u64::from(v));
        let mean = values.iter().map(|&v| f64::from(v)).sum::<f64>() / values.len().max(1) as f64;
        Distribution::new(
            buckets.into_iter().collect(),
            mean,
            ns(values.iter().min()),
            ns(values.iter().max()),
        )
    }

    proptest! {
        #[test]
        fn merging_equals_counting_together(
            a in prop::collection::vec(any::<u32>(), 0..50), b in prop::collection::vec(any::<u32>(), 0..50),
        ) {
            let (merged, both) = (of(&a).merged(of(&b)), of(&[a, b].concat()));
            prop_assert!((merged.mean_ns - both.mean_ns).abs() <= 1e-9 * both.mean_ns.max(1.0));
            prop_assert_eq!(Distribution { mean_ns: both.mean_ns, ..merged }, both);
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_values(mut v in prop::collection::vec(any::<u32>(), 1..200)) {
            let d = of(&v);
            v.sort_unstable();
            prop_assert_eq!(d.p50_ns, u64::from(v[v.len().div_ceil(2) - 1]));
            prop_assert_eq!(d.quantile_ns(1.0), d.max_ns);
            prop_assert_eq!(d.quantile_ns(0.0), d.min_ns);
        }
    }
}
