// SPDX-License-Identifier: MIT OR Apache-2.0
//! Distributions of durations, as reports give them.
//!
//! A [`Distribution`] is a summary: quantiles, and counts in buckets. Two of them can be merged. The feature `record` adds
//! [`histogram`], which durations are recorded in, and the conversion from it.

pub mod text;

use std::collections::BTreeMap;

#[cfg(feature = "record")]
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Durations in nanoseconds: quantiles, and counts in buckets an eighth of an octave or less wide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// The number of durations.
    pub count: u64,
    /// The smallest.
    pub min_ns: u64,
    /// Half are at most this long.
    pub p50_ns: u64,
    /// Nine of ten are at most this long.
    pub p90_ns: u64,
    /// 99 of 100 are at most this long.
    pub p99_ns: u64,
    /// The largest.
    pub max_ns: u64,
    /// All of them together, to three digits.
    #[serde(default)]
    pub sum_ns: u64,
    /// Counts of durations up to a bound and above the bound before it; only buckets that hold any.
    pub buckets: Vec<Bucket>,
}

/// One bucket of a [`Distribution`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// The longest duration counted here.
    pub up_to_ns: u64,
    /// The number of durations in it.
    pub count: u64,
}

#[cfg(feature = "record")]
impl From<&Histogram<u64>> for Distribution {
    fn from(h: &Histogram<u64>) -> Self {
        if h.is_empty() {
            return Self::default();
        }
        let buckets = h
            .iter_log(64, 2f64.powf(0.125))
            .map(|v| Bucket { up_to_ns: v.value_iterated_to(), count: v.count_since_last_iteration() })
            .filter(|b| b.count > 0)
            .collect();
        Self {
            count: h.len(),
            min_ns: h.min(),
            p50_ns: h.value_at_quantile(0.5),
            p90_ns: h.value_at_quantile(0.9),
            p99_ns: h.value_at_quantile(0.99),
            max_ns: h.max(),
            sum_ns: h.iter_recorded().fold(0, |sum: u64, v| {
                sum.saturating_add(v.value_iterated_to().saturating_mul(v.count_at_value()))
            }),
            buckets,
        }
    }
}

impl Distribution {
    /// Adds the durations of another one. Quantiles are then known as well as the buckets tell them.
    pub fn merge(&mut self, other: &Self) {
        if self.count == 0 || other.count == 0 {
            if self.count == 0 {
                self.clone_from(other);
            }
            return;
        }
        let mut buckets = BTreeMap::new();
        for b in self.buckets.iter().chain(&other.buckets) {
            *buckets.entry(b.up_to_ns).or_insert(0u64) += b.count;
        }
        self.count += other.count;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.buckets = buckets.into_iter().map(|(up_to_ns, count)| Bucket { up_to_ns, count }).collect();
        [self.p50_ns, self.p90_ns, self.p99_ns] = [0.5, 0.9, 0.99].map(|q| self.quantile_ns(q));
    }

    /// The bound of the bucket that the quantile lies in.
    fn quantile_ns(&self, quantile: f64) -> u64 {
        let rank = (self.count as f64 * quantile).ceil() as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().find(|b| {
            seen += b.count;
            seen >= rank
        });
        bucket.map_or(self.max_ns, |b| b.up_to_ns.clamp(self.min_ns, self.max_ns))
    }

    /// Counts by powers of two: the upper bound of each octave that holds any, in nanoseconds, and its count; ascending.
    #[must_use]
    pub fn octaves(&self) -> Vec<(u64, u64)> {
        let mut octaves = BTreeMap::new();
        for b in &self.buckets {
            *octaves.entry(b.up_to_ns.max(1).next_power_of_two()).or_insert(0) += b.count;
        }
        octaves.into_iter().collect()
    }

    /// Counts up to each of `bounds_ns` (nanoseconds, ascending) and above the bound before it, and last the count above all
    /// of them. A bucket counts where its upper bound lies.
    #[must_use]
    pub fn counts_up_to(&self, bounds_ns: &[u64]) -> Vec<u64> {
        let mut counts = vec![0; bounds_ns.len() + 1];
        for b in &self.buckets {
            counts[bounds_ns.partition_point(|&bound| bound < b.up_to_ns)] += b.count;
        }
        counts
    }
}

/// An empty histogram of durations up to an hour (nanoseconds), three digits.
#[cfg(feature = "record")]
#[must_use]
pub fn histogram() -> Histogram<u64> {
    let mut h = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).unwrap_or_else(|_| {
        // the bounds above are valid; this keeps the function total
        Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are allowed"))
    });
    h.auto(false);
    h
}

#[cfg(all(test, feature = "record"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_are_kept_by_octave_and_by_bound() {
        let bucket = |up_to_ns, count| Bucket { up_to_ns, count };
        let buckets = vec![bucket(0, 1), bucket(3, 2), bucket(4, 4), bucket(5, 8), bucket(1000, 16)];
        let d = Distribution { buckets, ..Distribution::default() };
        assert_eq!(d.octaves(), [(1, 1), (4, 6), (8, 8), (1024, 16)]);
        assert_eq!(d.counts_up_to(&[4, 100]), [7, 8, 16]);
    }

    #[test]
    fn nothing_recorded_is_all_zero() {
        assert_eq!(Distribution::from(&histogram()), Distribution::default());
    }

    proptest! {
        #[test]
        fn buckets_lose_no_count(values in prop::collection::vec(0u64..10_000_000_000, 1..200)) {
            let mut h = histogram();
            values.iter().for_each(|&v| h.saturating_record(v));
            let d = Distribution::from(&h);
            prop_assert_eq!(d.buckets.iter().map(|b| b.count).sum::<u64>(), values.len() as u64);
            prop_assert!(d.min_ns <= d.p50_ns && d.p50_ns <= d.p99_ns && d.p99_ns <= d.max_ns);
            let sum = values.iter().sum::<u64>();
            prop_assert!(d.sum_ns.abs_diff(sum) <= sum / 500 + values.len() as u64);
        }

        #[test]
        fn two_merged_are_as_one(
            a in prop::collection::vec(1u64..10_000_000_000, 0..100),
            b in prop::collection::vec(1u64..10_000_000_000, 0..100),
        ) {
            let of = |values: &mut dyn Iterator<Item = &u64>| {
                let mut h = histogram();
                values.for_each(|&v| h.saturating_record(v));
                Distribution::from(&h)
            };
            let both = of(&mut a.iter().chain(&b));
            let mut merged = of(&mut a.iter());
            merged.merge(&of(&mut b.iter()));
            prop_assert_eq!((merged.count, merged.min_ns, merged.max_ns), (both.count, both.min_ns, both.max_ns));
            prop_assert_eq!((&merged.buckets, merged.sum_ns), (&both.buckets, both.sum_ns));
            // a bucket is an eighth of an octave wide: 2^(1/8) is 1.09
            for (m, b) in [(merged.p50_ns, both.p50_ns), (merged.p99_ns, both.p99_ns)] {
                prop_assert!(m as f64 <= b as f64 * 1.1 + 70.0 && b as f64 <= m as f64 * 1.1 + 70.0, "{m} {b}");
            }
        }
    }
}
