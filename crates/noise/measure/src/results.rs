// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts the detours of all CPUs together with their sources.

use std::collections::{BTreeMap, BTreeSet};

use colony_time::tsc::ClockMap;

use super::report::{CpuReport, Lengths, Measurement, SourceReport};
use crate::attrib::join::{Attributed, Seen};
use crate::attrib::spans::Span;
use crate::attrib::{Cause, Probe, attribute};
use crate::condition::Condition;
use crate::selfish::{Gap, ObservedCpu, recorder};
use crate::until::{LimitDetour, UntilReport};
use colony_trace::{Class, Detour, Source, Trace, TraceMeta};

/// Gaps as detours on the events' clock.
pub(super) fn seen(gaps: &[Gap], smallest_loop: u64, clocks: &ClockMap) -> Vec<Seen> {
    gaps.iter().map(|gap| seen_one(gap, smallest_loop, clocks)).collect()
}

/// A gap as a detour on the events' clock.
fn seen_one(gap: &Gap, smallest_loop: u64, clocks: &ClockMap) -> Seen {
    Seen {
        start_ns: clocks.monotonic_ns(gap.end.saturating_sub(gap.length)),
        duration_ns: clocks.calibration().to_ns(gap.length.saturating_sub(smallest_loop)) as u64,
    }
}

/// Rows and causes of all CPUs while they come together.
pub(super) struct Results<'a> {
    node: u32,
    clocks: &'a ClockMap,
    rows: Vec<(Detour, Source)>,
    causes: BTreeMap<Source, Cause>,
    classes: BTreeMap<Source, Class>,
    /// Events by source; `None` without attribution.
    events: Option<BTreeMap<Source, u64>>,
    residue_ns: u64,
}

impl<'a> Results<'a> {
    pub(super) fn new(node: u32, clocks: &'a ClockMap, attributed: bool) -> Self {
        let events = attributed.then(BTreeMap::new);
        let (causes, classes) = (BTreeMap::new(), BTreeMap::new());
        Self { node, clocks, rows: Vec::new(), causes, classes, events, residue_ns: 0 }
    }

    /// Takes one CPU's detours and what was on it. Returns the CPU's report, without what our own threads took.
    pub(super) fn add(
        &mut self,
        cpu: &ObservedCpu,
        gaps: &[Gap],
        spans: &[Span],
        steal_ns: u64,
    ) -> CpuReport {
        let seen = seen(gaps, cpu.cost.smallest, self.clocks);
        let Attributed { main, causes, classes, residue_ns, .. } = attribute(&seen, spans, steal_ns);
        self.count(cpu, spans);
        let own = causes.get(&Source::Observer).copied().unwrap_or_default();
        let mut others = recorder::histogram();
        for (seen, _) in seen.iter().zip(&main).filter(|(_, source)| **source != Source::Observer) {
            others.saturating_record(seen.duration_ns);
        }
        let report = CpuReport::of(cpu, self.clocks.calibration(), steal_ns, own, &others);
        for ((gap, seen), source) in gaps.iter().zip(&seen).zip(main) {
            let detour = Detour {
                node: self.node,
                cpu: cpu.cpu as u16,
                start_ns: self.clocks.tai_ns(gap.end.saturating_sub(gap.length)),
                duration_ns: seen.duration_ns,
                source: 0,
            };
            self.rows.push((detour, source));
        }
        for (source, cause) in causes {
            let sum = self.causes.entry(source).or_default();
            sum.stolen_ns += cause.stolen_ns;
            sum.detours += cause.detours;
        }
        self.classes.extend(classes);
        self.residue_ns += residue_ns;
        report
    }

    /// The report of the detour on which the observer of `cpu` ended, after [`add`](Self::add) of that CPU.
    /// The measurement began at `began_ns`, TAI.
    pub(super) fn until(
        &self,
        condition: Condition,
        cpu: &ObservedCpu,
        spans: &[Span],
        began_ns: i64,
        probe: Option<&Probe>,
    ) -> UntilReport {
        let Some(gap) = cpu.over_limit else { return UntilReport::not_reached(condition) };
        let seen = seen_one(&gap, cpu.cost.smallest, self.clocks);
        let start_ns = self.clocks.tai_ns(gap.end.saturating_sub(gap.length));
        let source = probe.and_then(|_| {
            let of_dropped = || attribute(&[seen], spans, 0).main.pop();
            self.source_at(cpu.cpu, start_ns).cloned().or_else(of_dropped)
        });
        let detour = LimitDetour {
            cpu: cpu.cpu,
            start_ns,
            after_ns: u64::try_from(start_ns - began_ns).unwrap_or(0),
            duration_ns: seen.duration_ns,
            source,
            source_ns: None,
        };
        let mut report = UntilReport::reached(condition, detour, seen, spans);
        if let Some(probe) = probe {
            report.add_stack(seen, spans, &probe.stacks(cpu.cpu));
        }
        report
    }

    /// The source of a detour of `cpu` that begins at this TAI instant; `None` if its row was dropped.
    fn source_at(&self, cpu: usize, start_ns: i64) -> Option<&Source> {
        let is_it = |d: &Detour| usize::from(d.cpu) == cpu && d.start_ns == start_ns;
        self.rows.iter().rev().find(|(d, _)| is_it(d)).map(|(_, source)| source)
    }

    /// Counts the events that began while the CPU was observed.
    fn count(&mut self, cpu: &ObservedCpu, spans: &[Span]) {
        let observed = self.clocks.monotonic_ns(cpu.start)..self.clocks.monotonic_ns(cpu.end);
        let Some(events) = &mut self.events else { return };
        for span in spans.iter().filter(|s| s.begins && observed.contains(&s.start_ns)) {
            match events.get_mut(&span.origin.source) {
                Some(n) => *n += 1,
                None => drop(events.insert(span.origin.source.clone(), 1)),
            }
        }
    }

    /// Time spent entering and leaving the kernel.
    pub(super) fn residue_ns(&self) -> u64 {
        self.residue_ns
    }

    /// All sources, most stolen time first, and what our own threads took; `None` without attribution.
    pub(super) fn sources(&self, observed_s: f64) -> (Vec<SourceReport>, Option<SourceReport>) {
        let mut lengths: BTreeMap<&Source, hdrhistogram::Histogram<u64>> = BTreeMap::new();
        for (detour, source) in &self.rows {
            lengths.entry(source).or_insert_with(recorder::histogram).saturating_record(detour.duration_ns);
        }
        let report = |source: &Source| {
            let cause = self.causes.get(source).copied().unwrap_or_default();
            SourceReport {
                source: source.clone(),
                events: self.events_of(source),
                detours: cause.detours,
                stolen_ns: cause.stolen_ns,
                stolen_share: cause.stolen_ns as f64 / 1e9 / observed_s.max(f64::MIN_POSITIVE),
                lengths: lengths.get(source).map(Lengths::of).unwrap_or_default(),
            }
        };
        // a source all of whose events were below the threshold has no cause
        let names: BTreeSet<&Source> =
            self.causes.keys().chain(self.events.iter().flat_map(BTreeMap::keys)).collect();
        let mut all: Vec<SourceReport> =
            names.into_iter().filter(|s| **s != Source::Observer).map(report).collect();
        all.sort_by_key(|s| std::cmp::Reverse(s.stolen_ns));
        (all, self.events.is_some().then(|| report(&Source::Observer)))
    }

    /// Events of a source; `None` where the kernel tells none.
    fn events_of(&self, source: &Source) -> Option<u64> {
        match source {
            Source::Unexplained | Source::Hypervisor => None,
            _ => self.events.as_ref().map(|e| e.get(source).copied().unwrap_or(0)),
        }
    }

    /// The rows as a trace. The last CPU was observed until `end_ns`.
    pub(super) fn trace(mut self, m: &Measurement, end_ns: i64, unkept: u64) -> Trace {
        let longest_s = m.per_cpu.iter().map(|c| c.observed_s).fold(0.0, f64::max);
        let meta = TraceMeta {
            schema: TraceMeta::SCHEMA.into(),
            tsc_hz: m.counter.hz,
            threshold_ns: m.threshold_ns,
            smallest_loop_ns: m.per_cpu.iter().map(|c| c.smallest_loop_ns).fold(f64::INFINITY, f64::min),
            cpus: m.cpus.clone(),
            observed_s: observed_s(longest_s, end_ns.saturating_sub(m.start_ns) as f64 * 1e-9),
            start_ns: m.start_ns,
            lost_events: m.attribution.lost_events,
            dropped: m.per_cpu.iter().map(|c| c.dropped).sum::<u64>() + unkept,
            observer: Some(m.observer),
            node: Some(m.node.clone()),
            classes: BTreeMap::new(),
            notes: Vec::new(),
            has_random_instants: false,
        };
        let mut trace = Trace::collect(meta, self.rows);
        let named: BTreeSet<&Source> = trace.sources.iter().collect();
        self.classes.retain(|source, _| named.contains(source));
        trace.meta.classes = self.classes;
        trace
    }
}

/// The span of a trace whose CPUs were observed for `longest_s` at most, and together for `whole_s`, from the first beginning to the
/// last end. CPUs begin together, except on a machine so busy that one begins much later: then the whole span is taken, so that no
/// detour lies outside of the observation.
fn observed_s(longest_s: f64, whole_s: f64) -> f64 {
    const LATE_S: f64 = 0.1;
    if whole_s > longest_s + LATE_S { whole_s } else { longest_s }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_begins_late_makes_the_observation_longer_and_ordinary_differences_do_not() {
        assert_eq!(observed_s(1.0, 1.000_2), 1.0);
        assert_eq!(observed_s(1.003, 2.5), 2.5);
    }
}
