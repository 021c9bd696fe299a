// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of a measurement, for tables and for `--json`.

use colony_node::class::Class;
use colony_node::cpu::CpuSet;
use colony_node::record::NodeRecord;
use colony_time::tsc::Calibration;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::attrib::{Cause, IpiReport};
use crate::selfish::ObservedCpu;
use crate::until::UntilReport;
use colony_trace::Source;

/// The result of one measurement, with all it takes to run it again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    /// `colony.measure/1`.
    pub schema: String,
    /// CPUs observed.
    pub cpus: CpuSet,
    /// Seconds asked for.
    pub duration_s: f64,
    /// Shortest detour looked for.
    pub threshold_ns: u64,
    /// Scheduling class of the observer.
    pub observer: Class,
    /// Start, TAI nanoseconds.
    pub start_ns: i64,
    /// The counter and its rate.
    pub counter: Calibration,
    /// The node's state before the run.
    pub node: NodeRecord,
    /// Warnings about the validity of the result.
    pub warnings: Vec<String>,
    /// The detours that the observer of each CPU saw.
    pub per_cpu: Vec<CpuReport>,
    /// The coverage of the attribution.
    pub attribution: AttributionReport,
    /// All CPUs, by source, most stolen time first; without `measuring_itself`.
    pub sources: Vec<SourceReport>,
    /// The time that threads of the measuring program took from the observers. It is part of no other figure here, and in
    /// the trace it has the source `observer`. `None` without attribution: then it is part of the other figures.
    #[serde(default)]
    pub measuring_itself: Option<SourceReport>,
    /// The detour that ended the measurement; `None` if no condition was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<UntilReport>,
}

/// The detours that the observer of one CPU saw.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CpuReport {
    /// The CPU.
    pub cpu: usize,
    /// Seconds observed.
    pub observed_s: f64,
    /// Seconds of them spent recording, in which the loop was blind.
    pub blind_s: f64,
    /// Detours seen, without those of which the measuring program's own threads took the largest part.
    pub detours: u64,
    /// Their sum over the time observed, 0 to 1.
    pub stolen_share: f64,
    /// Their sum, nanoseconds; without `own_ns`.
    pub stolen_ns: u64,
    /// Taken by the measuring program's own threads, nanoseconds.
    #[serde(default)]
    pub own_ns: u64,
    /// Lengths of the detours.
    pub lengths: Lengths,
    /// Detours that found the ring full: counted above, missing in the trace.
    pub dropped: u64,
    /// Time the hypervisor says it took, nanoseconds; its grain is 10 ms.
    pub steal_ns: u64,
    /// The loop's smallest turn, taken off every detour, nanoseconds.
    pub smallest_loop_ns: f64,
    /// Mean turn of the loop where nothing disturbs it.
    pub loop_ns: f64,
    /// Mean turn of a loop that only reads the counter, timed in the same run.
    pub bare_loop_ns: f64,
    /// `loop_ns / bare_loop_ns`.
    pub loop_ratio: f64,
}

/// Lengths of detours in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lengths {
    /// Shortest.
    pub min_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Longest.
    pub max_ns: u64,
}

impl Lengths {
    /// The lengths a histogram holds; all 0 where it is empty.
    #[must_use]
    pub fn of(h: &Histogram<u64>) -> Self {
        if h.is_empty() {
            return Self::default();
        }
        Self {
            min_ns: h.min(),
            p50_ns: h.value_at_quantile(0.5),
            p99_ns: h.value_at_quantile(0.99),
            max_ns: h.max(),
        }
    }
}

/// The coverage of the attribution.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AttributionReport {
    /// True if the probe ran.
    pub active: bool,
    /// The reason if it did not run, and the remedy.
    pub reason: Option<String>,
    /// Kernel events that were lost.
    pub lost_events: u64,
    /// Tracepoints this kernel does not have.
    pub missing_tracepoints: Vec<String>,
    /// Senders of interprocessor interrupts to the observed CPUs; `None` without attribution.
    #[serde(default)]
    pub ipi: Option<IpiReport>,
    /// Share explained, all sources counted.
    pub explained: Explained,
    /// Share explained with `throttle` left out of the sum and of what is explained: a real-time
    /// observer makes it itself.
    pub explained_without_throttle: Explained,
    /// Nanoseconds of kernel entry and exit around the events; counted with their sources.
    pub residue_ns: u64,
}

/// The share of the noise that has a source other than `unexplained`, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// Of the stolen time.
    pub stolen: f64,
    /// Of the detours.
    pub detours: f64,
}

/// The detours of one source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceReport {
    /// The source.
    pub source: Source,
    /// The number of times that the source ran on the observed CPUs, in detours or in gaps below the threshold; `None` if
    /// no event of the kernel shows it.
    #[serde(default)]
    pub events: Option<u64>,
    /// Detours of which it is the largest part.
    pub detours: u64,
    /// Its time in detours, with what was nested in it taken out, nanoseconds; 0 where all its events were in
    /// gaps below the threshold.
    pub stolen_ns: u64,
    /// That over the time observed on all CPUs, 0 to 1.
    pub stolen_share: f64,
    /// Lengths of the detours of which it is the largest part.
    pub lengths: Lengths,
}

impl CpuReport {
    /// The report of one CPU's observer. `own` is the time that our own threads took, `others` are the lengths of the other
    /// detours that are rows.
    pub(super) fn of(
        cpu: &ObservedCpu,
        calibration: &Calibration,
        steal_ns: u64,
        own: Cause,
        others: &Histogram<u64>,
    ) -> Self {
        let detours = cpu.histogram.len().saturating_sub(own.detours);
        let stolen_ns = cpu.stolen_ns.saturating_sub(own.stolen_ns);
        // the histogram of all is whole where rows are missing
        let lengths = if others.len() == detours { others } else { &cpu.histogram };
        let observed_ns = calibration.to_ns(cpu.end - cpu.start);
        let ns_per_count = calibration.to_ns(1);
        Self {
            cpu: cpu.cpu,
            observed_s: observed_ns / 1e9,
            blind_s: calibration.to_ns(cpu.blind) / 1e9,
            detours,
            stolen_share: stolen_ns as f64 / observed_ns.max(1.0),
            stolen_ns,
            own_ns: own.stolen_ns,
            lengths: Lengths::of(lengths),
            dropped: cpu.dropped,
            steal_ns,
            smallest_loop_ns: ns_per_count * cpu.cost.smallest as f64,
            loop_ns: ns_per_count * cpu.cost.measuring,
            bare_loop_ns: ns_per_count * cpu.cost.bare,
            loop_ratio: cpu.cost.measuring / cpu.cost.bare,
        }
    }
}

impl Measurement {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.measure/1";

    /// Stolen share over all CPUs, 0 to 1.
    #[must_use]
    pub fn stolen_share(&self) -> f64 {
        let stolen: u64 = self.per_cpu.iter().map(|c| c.stolen_ns).sum();
        let observed: f64 = self.per_cpu.iter().map(|c| c.observed_s).sum();
        if observed > 0.0 { stolen as f64 / 1e9 / observed } else { 0.0 }
    }
}

/// The share of `sources` that is explained, leaving `without` out altogether.
pub(super) fn explained(sources: &[SourceReport], without: Option<&Source>) -> Explained {
    let counted = || sources.iter().filter(|s| Some(&s.source) != without);
    let share = |value: fn(&SourceReport) -> u64| {
        let all: u64 = counted().map(value).sum();
        let open: u64 = counted().filter(|s| s.source == Source::Unexplained).map(value).sum();
        if all == 0 { 1.0 } else { 1.0 - open as f64 / all as f64 }
    };
    Explained { stolen: share(|s| s.stolen_ns), detours: share(|s| s.detours) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_the_throttle_out_changes_the_sum_and_the_explained() {
        let s = |source: &str, detours, stolen_ns| SourceReport {
            source: source.into(),
            events: None,
            detours,
            stolen_ns,
            stolen_share: 0.0,
            lengths: Lengths::default(),
        };
        let all = [s("throttle", 1, 800), s("irq:local_timer", 3, 100), s("unexplained", 1, 100)];
        assert_eq!(explained(&all, None), Explained { stolen: 0.9, detours: 0.8 });
        assert_eq!(explained(&all, Some(&Source::Throttle)), Explained { stolen: 0.5, detours: 0.75 });
        assert_eq!(explained(&[], None), Explained { stolen: 1.0, detours: 1.0 });
    }
}
