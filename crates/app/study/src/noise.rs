// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a noise trace to what a study keeps of it.

use std::collections::BTreeMap;

use colony_trace::summary::{SourceSummary, Summary};
use colony_trace::{Source, Trace};

use crate::results::{Bucket, Noise, SourceRow, TimelinePoint};

/// Longest detours kept in the timeline.
pub const TIMELINE_LONGEST: usize = 4000;
/// Others kept, evenly spread.
pub const TIMELINE_OTHERS: usize = 2000;

/// The report's view of a trace: sources, lengths, a bounded timeline. Explained shares and periodicity
/// are the attribution's to say: they are left empty.
#[must_use]
pub fn summarise(trace: &Trace, command: &str) -> Noise {
    let trace = &trace.clone().without(&Source::Observer);
    let (meta, sources) = (&trace.meta, by_source(trace));
    let lengths = trace.detours.iter().map(|d| (d.duration_ns, 1));
    let stolen_ns = trace.stolen_ns();
    let observed_ns = meta.observed_s * 1e9 * meta.cpus.len().max(1) as f64;
    Noise {
        command: command.into(),
        observed_s: meta.observed_s,
        cpus: meta.cpus.to_string(),
        threshold_ns: meta.threshold_ns,
        smallest_loop_ns: meta.smallest_loop_ns,
        detours: trace.detours.len() as u64 + meta.dropped,
        dropped: meta.dropped,
        lost_events: meta.lost_events,
        stolen_share: if observed_ns > 0.0 { stolen_ns as f64 / observed_ns } else { 0.0 },
        measuring_share: None,
        explained: None,
        periodic: Vec::new(),
        timeline: timeline(trace, &sources),
        sources,
        histogram: bucketed(lengths),
    }
}

/// The sources of a trace that have detours, most stolen time first, then by name.
fn by_source(trace: &Trace) -> Vec<SourceRow> {
    // a source without detours has no longest
    let row = |s: &SourceSummary| {
        Some(SourceRow {
            source: s.source.to_string(),
            events: None,
            count: s.amount.count,
            stolen_ns: s.amount.stolen_ns,
            max_ns: s.amount.max_ns?,
        })
    };
    let summary = Summary::of(trace, None);
    let mut rows: Vec<SourceRow> = summary.sources.iter().filter_map(row).collect();
    rows.sort_by(|a, b| b.stolen_ns.cmp(&a.stolen_ns).then_with(|| a.source.cmp(&b.source)));
    rows
}

/// Bounds of the bucket of a length: eight a factor of two, whole nanoseconds.
fn bucket_of(ns: u64) -> (u64, u64) {
    let shift = ns.max(1).ilog2().saturating_sub(3);
    let low = ns >> shift << shift;
    (low, low.saturating_add(1 << shift))
}

/// Counted values (nanoseconds) in the buckets of every histogram of a study.
#[must_use]
pub fn bucketed(counts: impl IntoIterator<Item = (u64, u64)>) -> Vec<Bucket> {
    let mut buckets = BTreeMap::new();
    for (ns, n) in counts {
        *buckets.entry(bucket_of(ns)).or_insert(0) += n;
    }
    buckets.into_iter().map(|((low_ns, high_ns), count)| Bucket { low_ns, high_ns, count }).collect()
}

fn timeline(trace: &Trace, sources: &[SourceRow]) -> Vec<TimelinePoint> {
    let index: BTreeMap<&str, u16> =
        sources.iter().zip(0..).map(|(row, i): (_, u16)| (row.source.as_str(), i)).collect();
    let mut longest: Vec<usize> = (0..trace.detours.len()).collect();
    longest.sort_by_key(|&i| std::cmp::Reverse(trace.detours[i].duration_ns));
    let mut kept: Vec<usize> = longest.iter().take(TIMELINE_LONGEST).copied().collect();
    // the order by length carries no order in time: every n-th is a fair sample of all lengths
    let others = longest.get(TIMELINE_LONGEST..).unwrap_or_default();
    kept.extend(others.iter().step_by(others.len().div_ceil(TIMELINE_OTHERS).max(1)));
    kept.sort_unstable();
    kept.iter()
        .map(|&i| {
            let d = &trace.detours[i];
            TimelinePoint {
                start_ns: u64::try_from(d.start_ns.saturating_sub(trace.meta.start_ns)).unwrap_or(0),
                duration_ns: d.duration_ns,
                cpu: d.cpu,
                source: index.get(trace.source(d).to_string().as_str()).copied().unwrap_or(0),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use colony_trace::{Detour, TraceMeta};

    /// A trace of 1,000 ns from 5,000 ns on; a detour is its start, its length, and 1 for the timer's.
    fn trace(detours: &[(i64, u64, u16)]) -> Trace {
        let meta = TraceMeta {
            cpus: "0-1".parse().expect("a list"),
            observed_s: 1e-6,
            start_ns: 5_000,
            dropped: 3,
            ..TraceMeta::default()
        };
        let row = |&(start_ns, duration_ns, source): &(i64, u64, u16)| Detour {
            node: 0,
            cpu: 0,
            start_ns,
            duration_ns,
            source,
        };
        let sources = vec![Source::Unexplained, Source::Irq("timer".into())];
        Trace::from_parts(meta, sources, detours.iter().map(row).collect()).expect("sources are there")
    }

    #[test]
    fn a_trace_is_summed_up_by_source() {
        let n = summarise(&trace(&[(5_010, 100, 1), (5_200, 40, 0), (5_400, 20, 1)]), "colony measure");
        assert_eq!(
            (n.sources[0].source.as_str(), n.sources[0].count, n.sources[0].stolen_ns),
            ("irq:timer", 2, 120)
        );
        assert_eq!((n.detours, n.timeline.len(), n.timeline[0].start_ns), (6, 3, 10));
        assert_eq!(n.sources[usize::from(n.timeline[1].source)].source, "unexplained");
        assert!((n.stolen_share - 0.08).abs() < 1e-12);
        assert_eq!(n.histogram.iter().map(|b| b.count).sum::<u64>(), 3);
        assert!(n.histogram.iter().all(|b| b.low_ns < b.high_ns));
    }

    #[test]
    fn a_long_trace_keeps_its_longest_and_a_sample() {
        let many: Vec<_> = (0..50_000).map(|i| (5_000 + i, 100 + (i as u64 * 7919) % 10_000, 0)).collect();
        let n = summarise(&trace(&many), "");
        assert!(
            n.timeline.len() <= TIMELINE_LONGEST + TIMELINE_OTHERS && n.timeline.len() > TIMELINE_LONGEST
        );
        let longest = many.iter().map(|d| d.1).max();
        assert_eq!(n.timeline.iter().map(|p| p.duration_ns).max(), longest);
        assert!(n.timeline.iter().any(|p| p.duration_ns < 1_000), "short ones are sampled");
    }
}
