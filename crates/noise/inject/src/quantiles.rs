// SPDX-License-Identifier: MIT OR Apache-2.0
//! Distributions of times: histograms, and the figures that are reported of them.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// A histogram of nanoseconds up to a minute, within 0.1 %.
pub(super) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3)
        .unwrap_or_else(|e| unreachable!("these constant bounds are valid: {e}"))
}

/// Quantiles of a measured quantity, nanoseconds, within 0.1 %. All zero if nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Number of values.
    pub count: u64,
    /// The smallest.
    pub min: u64,
    /// The median.
    pub p50: u64,
    /// 99 of 100 are at most this.
    pub p99: u64,
    /// The largest.
    pub max: u64,
    /// The mean.
    pub mean: f64,
}

impl Quantiles {
    /// The quantiles of a histogram.
    #[must_use]
    pub fn of(h: &Histogram<u64>) -> Self {
        if h.is_empty() {
            return Self::default();
        }
        Self {
            count: h.len(),
            min: h.min(),
            p50: h.value_at_quantile(0.5),
            p99: h.value_at_quantile(0.99),
            max: h.max(),
            mean: h.mean(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_measured_is_all_zero() {
        assert_eq!(Quantiles::of(&new_histogram()), Quantiles::default());
    }
}
