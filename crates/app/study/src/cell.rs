// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run of a benchmark as the results keep it.

use colony_bench::{Measurement, Timeline};
use colony_inject::LeibnizReport;
use colony_sched::run::RunReport;
use colony_sim::stats::mean_ci95;

use crate::node::BenchRun;
use crate::noise::bucketed;
use crate::results::{Bucket, Cell, Edges, SchedulerKind, Split};

/// Stretches of a run whose operations are compared: as long as the sleep of the noise daemon, and five periods of windows.
pub(crate) const STRETCH_NS: u64 = 500_000_000;
/// Fewest stretches from which an interval is computed.
const FEWEST_STRETCHES: usize = 5;

/// The part of a run's result that a study keeps.
pub(crate) fn cell(
    run: &BenchRun,
    command: String,
    all: &Measurement,
    report: &RunReport,
    injected: Option<&LeibnizReport>,
) -> Cell {
    let (d, proof) = (&all.all, &report.proof);
    let noise = |r: &LeibnizReport| r.cpus.iter().map(|c| c.noise).sum::<f64>() / r.cpus.len().max(1) as f64;
    Cell {
        command,
        noise_percent: run.injection.percent(),
        achieved_percent: injected.map(|r| 100.0 * noise(r)),
        scheduler: if run.windows.is_some() { SchedulerKind::Coordinated } else { SchedulerKind::Unmodified },
        ops: all.ops,
        mean_ns: d.mean_ns,
        mean_ci95_ns: all.timeline.as_ref().and_then(mean_spread).map(|share| share * d.mean_ns),
        load: None,
        p50_ns: d.p50_ns,
        p99_ns: d.p99_ns,
        p99_9_ns: d.p999_ns,
        max_ns: d.max_ns,
        histogram: bucketed(d.histogram_ns.iter().copied()),
        split: Some(Split {
            stolen_favored_ns: proof.favored.stolen_ns,
            stolen_regular_ns: proof.regular.stolen_ns,
            favored_ns: proof.favored.observed_ns,
            regular_ns: proof.regular.observed_ns,
        }),
        edges: report.agent.as_ref().map(|a| Edges {
            p50_ns: a.lateness.p50_ns,
            p99_ns: a.lateness.p99_ns,
            max_ns: a.lateness.max_ns,
            histogram: edge_buckets(&a.lateness),
        }),
    }
}

/// Half of the 95 % interval of the operations in a stretch of the run, as a share of their mean; `None` if there are fewer than
/// [`FEWEST_STRETCHES`] whole ones. Operations follow one another, so the interval of their time is as wide.
fn mean_spread(timeline: &Timeline) -> Option<f64> {
    // the first and the last are not whole
    let ops: Vec<f64> = timeline.buckets.iter().map(|&(_, ops, _)| ops as f64).collect();
    let whole = ops.get(1..ops.len().checked_sub(1)?)?;
    if whole.len() < FEWEST_STRETCHES {
        return None;
    }
    let (mean, half) = mean_ci95(whole);
    half.filter(|_| mean > 0.0).map(|half| half / mean)
}

/// Lateness of edges as a histogram of results.
pub(crate) fn edge_buckets(lateness: &colony_stats::Distribution) -> Vec<Bucket> {
    let mut low_ns = 0;
    let bucket = |b: &colony_stats::Bucket| {
        let bucket = Bucket { low_ns, high_ns: b.up_to_ns + 1, count: b.count };
        low_ns = b.up_to_ns + 1;
        bucket
    };
    lateness.buckets.iter().map(bucket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_as_precise_as_whole_stretches_are_alike() {
        let of = |ops: &[u64]| {
            let buckets = ops.iter().enumerate().map(|(n, &ops)| (n as i64 * 500_000_000, ops, 0)).collect();
            mean_spread(&Timeline { bucket_ns: STRETCH_NS, buckets })
        };
        // the first and the last stretch are not whole
        assert_eq!(of(&[1, 100, 100, 100, 100, 100, 7]), Some(0.0));
        let spread = of(&[1, 90, 110, 90, 110, 100, 7]).expect("five stretches");
        assert!((spread - 2.776 * 0.1 / 5f64.sqrt()).abs() < 1e-3, "{spread}");
        assert_eq!(of(&[1, 100, 100, 100, 100, 7]), None);
        assert_eq!(of(&[]), None);
    }
}
