//! A summary of many durations, for reports.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Durations in nanoseconds: quantiles, and counts in buckets an eighth of an octave or less wide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// How many durations.
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
    /// Counts of durations up to a bound and above the bound before it; only buckets that hold any.
    pub buckets: Vec<Bucket>,
}

/// One bucket of a [`Distribution`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// The longest duration counted here.
    pub up_to_ns: u64,
    /// How many.
    pub count: u64,
}

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
            buckets,
        }
    }
}

/// An empty histogram of durations up to an hour, three digits.
pub(crate) fn histogram() -> Histogram<u64> {
    let mut h = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).unwrap_or_else(|_| {
        // the bounds above are valid; this keeps the function total
        Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are allowed"))
    });
    h.auto(false);
    h
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        }
    }
}
