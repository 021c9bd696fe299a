//! Slices of time, and the figures of a choice of them.

use std::collections::HashMap;

use crate::Source;
use crate::trace::{Detour, Trace};

/// A slice is about this long: longer than most timers' periods, so that slices differ by chance alone.
const SLICE_S: f64 = 0.25;

/// Slices of a trace, at least and at most.
const FEWEST: f64 = 20.0;
const MOST: f64 = 100.0;

/// Classes of length up to the 96th percentile, and above it.
const BODY: usize = 500;
const TAIL: usize = 500;

/// Classes of length that both traces share: equally many detours in each, the longest 4 % cut finer, so that
/// quantiles of a choice of slices come from counts alone.
pub(super) struct Lengths {
    /// The longest length of each class, ascending.
    top_ns: Vec<u64>,
}

impl Lengths {
    pub(super) fn of(traces: [&Trace; 2], threshold_ns: u64) -> Self {
        let mut all: Vec<u64> =
            traces.iter().flat_map(|t| long(t, threshold_ns)).map(|d| d.duration_ns).collect();
        all.sort_unstable();
        let at =
            |share: f64| all.get(((all.len() as f64 * share) as usize).min(all.len().max(1) - 1)).copied();
        let body = (1..=BODY).map(|i| 0.96 * i as f64 / BODY as f64);
        let tail = (1..=TAIL).map(|i| 0.96 + 0.04 * i as f64 / TAIL as f64);
        let mut top_ns: Vec<u64> = body.chain(tail).filter_map(at).collect();
        top_ns.dedup();
        Self { top_ns }
    }

    fn class(&self, ns: u64) -> u32 {
        self.top_ns.partition_point(|top| *top < ns) as u32
    }
}

fn long(trace: &Trace, threshold_ns: u64) -> impl Iterator<Item = &Detour> {
    trace.detours.iter().filter(move |d| d.duration_ns >= threshold_ns)
}

/// What happened in one slice of time.
#[derive(Default)]
struct Slice {
    stolen_ns: f64,
    count: u64,
    max_ns: u64,
    /// Class of length and how many, without empty classes.
    lengths: Vec<(u32, u32)>,
    /// By source, in the order of the sources compared.
    stolen_by_source_ns: Vec<f64>,
}

/// A trace cut into slices of equal time.
pub(super) struct Slices {
    slices: Vec<Slice>,
    /// Seconds of CPU time in one slice.
    cpu_s: f64,
}

/// Figures of a choice of slices: stolen share, detours a second, p50, p99, maximum, then a share a source.
pub(super) struct Figures(pub(super) Vec<f64>);

impl Figures {
    /// Figures that do not depend on the sources.
    pub(super) const COMMON: usize = 5;
}

impl Slices {
    pub(super) fn of(trace: &Trace, threshold_ns: u64, lengths: &Lengths, sources: &[Source]) -> Self {
        let observed_s = trace.meta.observed_s;
        let n = (observed_s / SLICE_S).round().clamp(FEWEST, MOST) as usize;
        let slice_ns = observed_s * 1e9 / n as f64;
        let mut slices: Vec<Slice> = Vec::new();
        slices.resize_with(n, || Slice { stolen_by_source_ns: vec![0.0; sources.len()], ..Slice::default() });
        let mut counts: Vec<HashMap<u32, u32>> = vec![HashMap::new(); n];
        let column: Vec<Option<usize>> =
            trace.sources.iter().map(|s| sources.iter().position(|t| t == s)).collect();
        for d in long(trace, threshold_ns) {
            let since = (i128::from(d.start_ns) - i128::from(trace.meta.start_ns)) as f64;
            let i = ((since / slice_ns).max(0.0) as usize).min(n - 1);
            let slice = &mut slices[i];
            slice.stolen_ns += d.duration_ns as f64;
            slice.count += 1;
            slice.max_ns = slice.max_ns.max(d.duration_ns);
            *counts[i].entry(lengths.class(d.duration_ns)).or_default() += 1;
            if let Some(Some(c)) = column.get(usize::from(d.source)) {
                slice.stolen_by_source_ns[*c] += d.duration_ns as f64;
            }
        }
        for (slice, counts) in slices.iter_mut().zip(counts) {
            slice.lengths = counts.into_iter().collect();
        }
        Self { slices, cpu_s: slice_ns / 1e9 * trace.lanes().len().max(1) as f64 }
    }

    pub(super) fn len(&self) -> usize {
        self.slices.len()
    }

    /// Figures of the slices named by `chosen`, each as often as it is named; the maximum is that of the first
    /// `for_max` of them.
    pub(super) fn figures(&self, chosen: &[usize], for_max: usize, lengths: &Lengths) -> Figures {
        let seconds = self.cpu_s * chosen.len() as f64;
        let mut sum = Slice::default();
        sum.stolen_by_source_ns.resize(self.slices.first().map_or(0, |s| s.stolen_by_source_ns.len()), 0.0);
        let mut counts = vec![0u64; lengths.top_ns.len() + 1];
        for (nth, i) in chosen.iter().enumerate() {
            let slice = &self.slices[*i];
            sum.stolen_ns += slice.stolen_ns;
            sum.count += slice.count;
            if nth < for_max {
                sum.max_ns = sum.max_ns.max(slice.max_ns);
            }
            for (class, n) in &slice.lengths {
                counts[*class as usize] += u64::from(*n);
            }
            for (sum, ns) in sum.stolen_by_source_ns.iter_mut().zip(&slice.stolen_by_source_ns) {
                *sum += ns;
            }
        }
        let quantile = |share: f64| {
            let rank = ((sum.count as f64 * share).ceil() as u64).max(1);
            let mut below = 0;
            let class = counts.iter().position(|n| {
                below += n;
                below >= rank
            });
            class.and_then(|c| lengths.top_ns.get(c)).map_or(0.0, |ns| *ns as f64)
        };
        let mut figures = vec![
            sum.stolen_ns / 1e9 / seconds,
            sum.count as f64 / seconds,
            quantile(0.5),
            quantile(0.99),
            sum.max_ns as f64,
        ];
        figures.extend(sum.stolen_by_source_ns.iter().map(|ns| ns / 1e9 / seconds));
        Figures(figures)
    }
}
