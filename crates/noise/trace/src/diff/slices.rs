// SPDX-License-Identifier: MIT OR Apache-2.0
//! Slices of time.

use crate::Source;
use crate::trace::Trace;

use super::interval::{Range, Rates, quantile, variance_of_sum};

/// A slice is about this long: longer than most timers' periods, so that slices differ by chance alone.
const SLICE_S: f64 = 0.25;

/// Slices of a trace, at least and at most.
const FEWEST: f64 = 20.0;
const MOST: f64 = 100.0;

/// The detours of one slice of time.
#[derive(Clone, Default)]
pub(super) struct Slice {
    pub(super) stolen_s: f64,
    pub(super) count: usize,
    max_ns: u64,
    lengths_ns: Vec<u64>,
    /// In the order of the sources compared.
    pub(super) by_source_s: Vec<f64>,
}

/// A trace cut into slices of equal time.
pub(super) struct Slices {
    slices: Vec<Slice>,
    /// Seconds of CPU time in one slice.
    cpu_s: f64,
    /// Lengths of all detours, ascending.
    sorted_ns: Vec<u64>,
    threshold_ns: u64,
}

impl Slices {
    /// Detours of `threshold_ns` and longer of a trace that is timed, and their share by each of `sources`.
    pub(super) fn of(trace: &Trace, threshold_ns: u64, sources: &[Source]) -> Self {
        let observed_s = trace.meta.observed_s;
        let n = (observed_s / SLICE_S).round().clamp(FEWEST, MOST) as usize;
        let slice_ns = observed_s * 1e9 / n as f64;
        let mut slices = vec![Slice { by_source_s: vec![0.0; sources.len()], ..Slice::default() }; n];
        let column: Vec<Option<usize>> =
            trace.sources.iter().map(|s| sources.iter().position(|t| t == s)).collect();
        let mut sorted_ns = Vec::with_capacity(trace.detours.len());
        for d in trace.detours.iter().filter(|d| d.duration_ns >= threshold_ns) {
            let since = (i128::from(d.start_ns) - i128::from(trace.meta.start_ns)) as f64;
            let slice = &mut slices[((since / slice_ns).max(0.0) as usize).min(n - 1)];
            let seconds = d.duration_ns as f64 / 1e9;
            slice.stolen_s += seconds;
            slice.count += 1;
            slice.max_ns = slice.max_ns.max(d.duration_ns);
            slice.lengths_ns.push(d.duration_ns);
            sorted_ns.push(d.duration_ns);
            if let Some(Some(c)) = column.get(usize::from(d.source)) {
                slice.by_source_s[*c] += seconds;
            }
        }
        sorted_ns.sort_unstable();
        let cpu_s = slice_ns / 1e9 * trace.lanes().len().max(1) as f64;
        Self { slices, cpu_s, sorted_ns, threshold_ns }
    }

    pub(super) fn len(&self) -> usize {
        self.slices.len()
    }

    /// CPU seconds of all slices.
    pub(super) fn cpu_s(&self) -> f64 {
        self.cpu_s * self.len() as f64
    }

    /// A figure of each slice.
    pub(super) fn per_slice(&self, of: impl Fn(&Slice) -> f64) -> Rates {
        Rates::new(self.slices.iter().map(of).collect(), self.cpu_s)
    }

    /// The length that the share `share` of the detours does not exceed.
    pub(super) fn quantile(&self, share: f64) -> Range {
        let at = quantile(&self.sorted_ns, share, 0.0, self.threshold_ns).value as u64;
        // detours above it that the slice has more than its share
        let more: Vec<f64> = self
            .slices
            .iter()
            .map(|s| {
                let above = s.lengths_ns.iter().filter(|&&ns| ns > at).count();
                above as f64 - (1.0 - share) * s.count as f64
            })
            .collect();
        quantile(&self.sorted_ns, share, variance_of_sum(&more), self.threshold_ns)
    }

    /// The longest detour, nanoseconds; 0 without any.
    pub(super) fn longest_ns(&self) -> u64 {
        self.sorted_ns.last().copied().unwrap_or(0)
    }

    /// Slices with a detour longer than `ns`.
    pub(super) fn slices_above(&self, ns: u64) -> usize {
        self.slices.iter().filter(|s| s.max_ns > ns).count()
    }
}
