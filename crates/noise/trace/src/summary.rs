// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of a trace: the stolen time in total, by source, by CPU and by window.

use colony_time::{WindowKind, Windows};
use serde::{Deserialize, Serialize};

use crate::Source;
use crate::trace::{Detour, Lane, Trace};

/// Counts and stolen time of some detours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Amount {
    /// Detours.
    pub count: u64,
    /// Detours a second of each CPU observed; `None` if the time is not known.
    pub per_s: Option<f64>,
    /// Their sum.
    pub stolen_ns: u64,
    /// Stolen share of the time observed, 0 to 1; `None` if the time is not known.
    pub stolen_share: Option<f64>,
    /// Shortest; `None` without detours, as for the next three.
    pub min_ns: Option<u64>,
    /// Median.
    pub p50_ns: Option<u64>,
    /// 99 % are at most as long.
    pub p99_ns: Option<u64>,
    /// Longest.
    pub max_ns: Option<u64>,
}

/// The detours of one source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceSummary {
    /// The source.
    pub source: Source,
    /// Its detours.
    #[serde(flatten)]
    pub amount: Amount,
}

/// The detours of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneSummary {
    /// The CPU.
    #[serde(flatten)]
    pub lane: Lane,
    /// Its detours.
    #[serde(flatten)]
    pub amount: Amount,
}

/// The share of the noise that has a source other than `unexplained`, 0 to 1; `None` without noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// Of stolen time.
    pub of_stolen: Option<f64>,
    /// Of detours.
    pub of_detours: Option<f64>,
    /// Of stolen time, detours by `throttle` left out of both sides.
    pub of_stolen_without_throttle: Option<f64>,
    /// Of detours, those by `throttle` left out of both sides.
    pub of_detours_without_throttle: Option<f64>,
}

/// The noise in windows of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WindowShare {
    /// Time in such windows, over all CPUs.
    pub time_ns: u64,
    /// Stolen time in them; a detour over an edge counts on either side with its part there.
    pub stolen_ns: u64,
    /// Stolen share of that time, 0 to 1; `None` without such a window in the observation.
    pub stolen_share: Option<f64>,
    /// Detours that began in them.
    pub detours: u64,
}

/// The noise of a coordinated run, split by window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowSplit {
    /// The windows.
    pub windows: Windows,
    /// In favored windows.
    pub favored: WindowShare,
    /// In regular windows.
    pub regular: WindowShare,
}

/// A trace in figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Seconds each CPU was observed for.
    pub observed_s: f64,
    /// CPUs observed, over all nodes.
    pub cpus: usize,
    /// Detours shorter than this were not looked for.
    pub threshold_ns: u64,
    /// All detours.
    pub total: Amount,
    /// By source, most stolen time first.
    pub sources: Vec<SourceSummary>,
    /// By CPU.
    pub lanes: Vec<LaneSummary>,
    /// The share of the noise that has a source.
    pub explained: Explained,
    /// By window, where the run was coordinated.
    pub windows: Option<WindowSplit>,
    /// Kernel events that were lost: detours may lack their source, or be missing.
    pub lost_events: u64,
    /// Detours that are missing as rows.
    pub dropped: u64,
}

impl Summary {
    /// Sums a trace up; `windows` are those of a coordinated run.
    #[must_use]
    pub fn of(trace: &Trace, windows: Option<Windows>) -> Self {
        let lanes = trace.by_lane();
        let second = trace.meta.observed_s.max(0.0);
        let all_s = second * lanes.len() as f64;
        let sources = by_source(trace, all_s);
        Self {
            observed_s: trace.meta.observed_s,
            cpus: lanes.len(),
            threshold_ns: trace.meta.threshold_ns,
            total: Amount::of(trace.detours.iter().map(|d| d.duration_ns).collect(), all_s),
            explained: Explained::of(&sources),
            sources,
            lanes: lanes
                .iter()
                .map(|(lane, detours)| LaneSummary {
                    lane: *lane,
                    amount: Amount::of(detours.iter().map(|d| d.duration_ns).collect(), second),
                })
                .collect(),
            windows: windows.map(|w| WindowSplit::of(trace, w, lanes.len())),
            lost_events: trace.meta.lost_events,
            dropped: trace.meta.dropped,
        }
    }
}

impl Amount {
    /// Sums lengths up over `seconds` of observed CPU time.
    #[must_use]
    pub fn of(mut lengths_ns: Vec<u64>, seconds: f64) -> Self {
        let stolen_ns = lengths_ns.iter().fold(0u64, |sum, ns| sum.saturating_add(*ns));
        let over = |value: f64| (seconds > 0.0).then_some(value / seconds);
        let mut length = |q| (!lengths_ns.is_empty()).then(|| quantile(&mut lengths_ns, q));
        let [min_ns, p50_ns, p99_ns, max_ns] = [0.0, 0.5, 0.99, 1.0].map(&mut length);
        Self {
            count: lengths_ns.len() as u64,
            per_s: over(lengths_ns.len() as f64),
            stolen_ns,
            stolen_share: over(stolen_ns as f64 / 1e9),
            min_ns,
            p50_ns,
            p99_ns,
            max_ns,
        }
    }
}

/// The smallest of `values` that a share `q` of them does not exceed; 0 of none. Reorders `values`.
pub(crate) fn quantile(values: &mut [u64], q: f64) -> u64 {
    let rank = (values.len() as f64 * q).ceil() as usize;
    let index = rank.clamp(1, values.len().max(1)) - 1;
    if values.is_empty() { 0 } else { *values.select_nth_unstable(index).1 }
}

fn by_source(trace: &Trace, seconds: f64) -> Vec<SourceSummary> {
    let mut lengths: Vec<Vec<u64>> = vec![Vec::new(); trace.sources.len()];
    for d in &trace.detours {
        if let Some(l) = lengths.get_mut(usize::from(d.source)) {
            l.push(d.duration_ns);
        }
    }
    let mut sources: Vec<SourceSummary> = trace
        .sources
        .iter()
        .zip(lengths)
        .map(|(source, l)| SourceSummary { source: source.clone(), amount: Amount::of(l, seconds) })
        .collect();
    sources.sort_by_key(|s| std::cmp::Reverse(s.amount.stolen_ns));
    sources
}

impl Explained {
    fn of(sources: &[SourceSummary]) -> Self {
        let share = |figure: fn(&Amount) -> u64, with_throttle: bool| {
            let counted = sources.iter().filter(|s| with_throttle || s.source != Source::Throttle);
            let (mut named, mut all) = (0.0, 0.0);
            for s in counted {
                let value = figure(&s.amount) as f64;
                all += value;
                named += if s.source == Source::Unexplained { 0.0 } else { value };
            }
            (all > 0.0).then(|| named / all)
        };
        Self {
            of_stolen: share(|a| a.stolen_ns, true),
            of_detours: share(|a| a.count, true),
            of_stolen_without_throttle: share(|a| a.stolen_ns, false),
            of_detours_without_throttle: share(|a| a.count, false),
        }
    }
}

impl WindowSplit {
    fn of(trace: &Trace, windows: Windows, cpus: usize) -> Self {
        let start = trace.meta.start_ns;
        let observed_ns = (trace.meta.observed_s.max(0.0) * 1e9) as u64;
        let favored_ns = windows.favored_time_between(start, start.saturating_add_unsigned(observed_ns));
        let times = |ns: u64| ns.saturating_mul(cpus as u64);
        let mut favored = WindowShare { time_ns: times(favored_ns), ..WindowShare::default() };
        let mut regular =
            WindowShare { time_ns: times(observed_ns.saturating_sub(favored_ns)), ..WindowShare::default() };
        for d in &trace.detours {
            let inside = favored_part_ns(&windows, d);
            favored.stolen_ns = favored.stolen_ns.saturating_add(inside);
            regular.stolen_ns = regular.stolen_ns.saturating_add(d.duration_ns - inside);
            match windows.kind(d.start_ns) {
                WindowKind::Favored => favored.detours += 1,
                WindowKind::Regular => regular.detours += 1,
            }
        }
        for share in [&mut favored, &mut regular] {
            share.stolen_share = (share.time_ns > 0).then(|| share.stolen_ns as f64 / share.time_ns as f64);
        }
        Self { windows, favored, regular }
    }
}

/// The part of a detour that lies in favored windows.
fn favored_part_ns(windows: &Windows, d: &Detour) -> u64 {
    windows.favored_time_between(d.start_ns, d.end_ns()).min(d.duration_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::TraceBuilder;
    use crate::trace::synthetic::{any_trace, meta};
    use colony_time::DutyCycle;
    use proptest::prelude::*;

    fn trace(rows: &[(u16, i64, u64, &str)], observed_s: f64) -> Trace {
        let mut b = TraceBuilder::new();
        for &(cpu, start_ns, duration_ns, source) in rows {
            let source = b.source(&source.into()).expect("few");
            b.push(Detour { node: 0, cpu, start_ns, duration_ns, source }).expect("few");
        }
        let mut meta = meta(2, observed_s);
        meta.start_ns = 0;
        b.build(meta).expect("sources are there")
    }

    /// No detour in a time that is known.
    const NONE_SEEN: Amount = Amount {
        count: 0,
        per_s: Some(0.0),
        stolen_ns: 0,
        stolen_share: Some(0.0),
        min_ns: None,
        p50_ns: None,
        p99_ns: None,
        max_ns: None,
    };

    #[test]
    fn a_time_that_is_not_known_gives_no_rate() {
        let s = Amount::of(vec![100], 0.0);
        assert_eq!((s.per_s, s.stolen_share, s.max_ns), (None, None, Some(100)));
    }

    #[test]
    fn stolen_time_is_summed_by_source_and_cpu() {
        let rows = [
            (0, 10, 100, "irq:eth0"),
            (0, 20, 300, "unexplained"),
            (0, 30, 200, "irq:eth0"),
            (0, 40, 1400, "throttle"),
        ];
        let s = Summary::of(&trace(&rows, 1e-3), None);
        assert_eq!(
            (s.total.count, s.total.stolen_ns, s.total.min_ns, s.total.p50_ns, s.total.max_ns),
            (4, 2000, Some(100), Some(200), Some(1400))
        );
        // two CPUs for a millisecond each
        assert!(
            s.total.stolen_share.is_some_and(|share| (share - 1e-3).abs() < 1e-12)
                && s.total.per_s.is_some_and(|rate| (rate - 2000.0).abs() < 1e-6),
            "{s:?}"
        );
        assert_eq!(s.sources[0].source, Source::Throttle, "most stolen first");
        assert_eq!(s.lanes.len(), 2, "a quiet CPU is there too");
        assert!(s.lanes[0].amount.stolen_share.is_some_and(|share| (share - 2e-3).abs() < 1e-12));
        assert_eq!(s.lanes[1].amount, NONE_SEEN);
        assert_eq!(s.explained.of_stolen, Some(1700.0 / 2000.0));
        assert_eq!(s.explained.of_detours, Some(0.75));
        assert_eq!(s.explained.of_stolen_without_throttle, Some(0.5));
        assert_eq!(s.explained.of_detours_without_throttle, Some(2.0 / 3.0));
    }

    #[test]
    fn a_quiet_trace_has_a_summary() {
        let s = Summary::of(&trace(&[], 1.0), None);
        assert_eq!((s.total, s.explained), (NONE_SEEN, Explained::default()));
        let json = serde_json::to_string(&s).expect("plain data");
        assert!(
            json.contains(r#""per_s":0.0,"stolen_ns":0,"stolen_share":0.0,"min_ns":null,"p50_ns":null"#),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<Summary>(&json).expect("own JSON"), s);
    }

    #[test]
    fn noise_is_split_by_window() {
        let windows = Windows::new(1000, DutyCycle::Ns(800), 0).expect("valid");
        // one inside a favored window, one inside a regular one, one half in each
        let rows = [(0, 100, 50, "nmi"), (0, 850, 60, "nmi"), (1, 750, 100, "nmi")];
        let split = Summary::of(&trace(&rows, 1e-5), Some(windows)).windows.expect("asked for");
        assert_eq!((split.favored.stolen_ns, split.favored.detours), (100, 2));
        assert_eq!((split.regular.stolen_ns, split.regular.detours), (110, 1));
        assert_eq!((split.favored.time_ns, split.regular.time_ns), (16_000, 4_000));
    }

    proptest! {
        #[test]
        fn parts_add_up(trace in any_trace(60), period in 2u64..1_000_000, share in 0.01..0.99f64) {
            let favored = ((period as f64 * share) as u64).clamp(1, period - 1);
            let windows = Windows::new(period, DutyCycle::Ns(favored), 5).expect("valid");
            let s = Summary::of(&trace, Some(windows));
            let sum = |parts: Vec<u64>| parts.into_iter().fold(0u64, u64::saturating_add);
            prop_assert_eq!(sum(s.sources.iter().map(|s| s.amount.stolen_ns).collect()), s.total.stolen_ns);
            prop_assert_eq!(sum(s.lanes.iter().map(|s| s.amount.stolen_ns).collect()), s.total.stolen_ns);
            prop_assert_eq!(s.lanes.iter().map(|s| s.amount.count).sum::<u64>(), s.total.count);
            let w = s.windows.expect("asked for");
            prop_assert_eq!(sum(vec![w.favored.stolen_ns, w.regular.stolen_ns]), s.total.stolen_ns);
            prop_assert_eq!(w.favored.detours + w.regular.detours, s.total.count);
            prop_assert!(s.total.min_ns <= s.total.p50_ns && s.total.p50_ns <= s.total.p99_ns);
            prop_assert!(s.total.p99_ns <= s.total.max_ns);
        }
    }
}
