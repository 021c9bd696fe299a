// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of a measurement of wake-up latency, for tables and for `--json`.

use colony_node::class::Class;
use colony_node::cpu::CpuSet;
use colony_node::record::NodeRecord;
use colony_trace::Source;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::selfish::recorder;
use crate::until::UntilReport;

/// The result of one measurement of wake-up latency.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WakeupMeasurement {
    /// `colony.wakeups/1`.
    pub schema: String,
    /// CPUs measured.
    pub cpus: CpuSet,
    /// Seconds asked for.
    pub duration_s: f64,
    /// Time between two instants of a CPU's timer, nanoseconds.
    pub interval_ns: u64,
    /// Scheduling class of the threads.
    pub class: Class,
    /// Start, TAI nanoseconds.
    pub start_ns: i64,
    /// The node's state before the run.
    pub node: NodeRecord,
    /// Warnings about the validity of the result.
    pub warnings: Vec<String>,
    /// The latencies of each CPU.
    pub per_cpu: Vec<WakeupCpu>,
    /// The coverage of the attribution.
    pub attribution: WakeupAttribution,
    /// All CPUs, by source, most time first; empty without attribution.
    pub sources: Vec<WakeupSource>,
    /// The longest latencies of all CPUs, the longest first.
    pub longest: Vec<LongestWakeup>,
    /// The wake-up that ended the measurement; `None` if no condition was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<UntilReport>,
}

impl WakeupMeasurement {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.wakeups/1";
}

/// The wake-ups of one CPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WakeupCpu {
    /// The CPU.
    pub cpu: usize,
    /// Seconds from the begin of its thread to the end.
    pub observed_s: f64,
    /// Wake-ups that the latencies are of.
    pub wakeups: u64,
    /// Instants of the timer that passed while the thread waited for an earlier one.
    pub missed: u64,
    /// Wake-ups that found no room and are in no figure.
    pub dropped: u64,
    /// Wake-ups that threads of the measuring program delayed most: in no other figure. `None` without attribution: then they are
    /// among the others.
    pub measuring_itself: Option<u64>,
    /// From the instant of the timer to the interrupt that made the thread ready to run, as far as events of the kernel show
    /// it; `None` if they show none.
    pub interrupt: Option<Latencies>,
    /// From the instant of the timer to the thread; `None` if there was no wake-up.
    pub thread: Option<Latencies>,
    /// The latencies to the thread as pairs of a latency in nanoseconds, exact to three digits, and the number of wake-ups
    /// with it.
    pub histogram: Vec<(u64, u64)>,
}

/// A distribution of latencies, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// The number of them.
    pub count: u64,
    /// Shortest.
    pub min_ns: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile; `None` for fewer than 100.
    pub p99_ns: Option<u64>,
    /// 99.9th percentile; `None` for fewer than 1,000.
    pub p999_ns: Option<u64>,
    /// Longest.
    pub max_ns: u64,
}

impl Latencies {
    /// Summary of a distribution; `None` if the distribution is empty.
    #[must_use]
    pub fn of(d: &Distribution) -> Option<Self> {
        let h = &d.histogram;
        // the histogram rounds to three digits, so that a quantile could exceed the longest
        let exact = |q| h.value_at_quantile(q).clamp(d.min_ns, d.max_ns);
        let quantile = |q, at_least| (h.len() >= at_least).then(|| exact(q));
        Some(Self {
            count: Some(h.len()).filter(|&n| n > 0)?,
            min_ns: d.min_ns,
            mean_ns: d.sum_ns as f64 / h.len() as f64,
            p50_ns: exact(0.5),
            p99_ns: quantile(0.99, 100),
            p999_ns: quantile(0.999, 1_000),
            max_ns: d.max_ns,
        })
    }
}

/// Latencies while they come together: quantiles to three digits, shortest, longest and sum exactly.
#[derive(Clone, Debug)]
pub struct Distribution {
    histogram: Histogram<u64>,
    min_ns: u64,
    max_ns: u64,
    sum_ns: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        Self { histogram: recorder::histogram(), min_ns: u64::MAX, max_ns: 0, sum_ns: 0 }
    }
}

impl Distribution {
    /// Adds one latency.
    pub fn add(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// Pairs of a latency, to three digits, and the number of wake-ups with it.
    #[must_use]
    pub fn pairs(&self) -> Vec<(u64, u64)> {
        self.histogram.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect()
    }
}

/// The coverage of the attribution.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WakeupAttribution {
    /// True if the probe ran.
    pub active: bool,
    /// The reason if it did not run, and the remedy.
    pub reason: Option<String>,
    /// Kernel events that were lost.
    pub lost_events: u64,
    /// Tracepoints this kernel does not have.
    pub missing_tracepoints: Vec<String>,
    /// Share of all latency that has a source other than `unexplained`, 0 to 1; `None` without attribution or wake-ups.
    pub explained: Option<f64>,
}

/// The part of one source in all latencies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WakeupSource {
    /// The source. `idle:STATE`: the processor left this idle state; `idle`: the kernel's idle task before and after it;
    /// `observer`: other threads of the measuring program.
    pub source: Source,
    /// Wake-ups in which this source took the largest part.
    pub wakeups: u64,
    /// Time of this source in the latencies of all wake-ups, nanoseconds.
    pub time_ns: u64,
    /// `time_ns` over the sum of all latencies, 0 to 1.
    pub share: f64,
    /// The longest latency in which this source took the largest part; `None` if there is none.
    pub longest_ns: Option<u64>,
}

/// One of the longest latencies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LongestWakeup {
    /// The CPU.
    pub cpu: usize,
    /// The instant of the timer, TAI nanoseconds.
    pub timer_ns: i64,
    /// The instant of the timer, nanoseconds after the start of the measurement.
    pub after_ns: u64,
    /// From that instant to the thread, nanoseconds.
    pub latency_ns: u64,
    /// From that instant to the timer's interrupt, nanoseconds; `None` if no event of the kernel shows the interrupt.
    pub interrupt_ns: Option<u64>,
    /// Parts of the latency by source, the longest first; empty without attribution.
    pub parts: Vec<DelayPart>,
}

/// The part of one source in a latency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DelayPart {
    /// The source.
    pub source: Source,
    /// Time of this source in the latency, nanoseconds.
    pub duration_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_that_too_few_wakeups_show_is_not_known() {
        let mut d = Distribution::default();
        assert_eq!(Latencies::of(&d), None);
        (1..100).for_each(|ns| d.add(ns));
        let few = Latencies::of(&d).expect("some");
        assert_eq!((few.count, few.min_ns, few.p50_ns, few.max_ns), (99, 1, 50, 99));
        assert_eq!((few.p99_ns, few.p999_ns), (None, None));
        d.add(100);
        assert_eq!(Latencies::of(&d).and_then(|l| l.p99_ns), Some(99));
    }

    #[test]
    fn one_latency_is_its_own_shortest_median_and_longest() {
        let mut d = Distribution::default();
        d.add(27_272_167);
        let l = Latencies::of(&d).expect("one");
        assert_eq!([l.min_ns, l.p50_ns, l.max_ns], [27_272_167; 3]);
    }
}
