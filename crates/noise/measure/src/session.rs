// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs observers and probe together and puts their results together.

use std::collections::BTreeMap;
use std::time::Duration;

use colony_node::class::{self, Class};
use colony_node::cpu;
use colony_node::record::{self, NodeRecord};
use colony_selfish::recorder::Gap;
use colony_time::tsc::{Calibration, ClockMap};

use super::elsewhere::{Elsewhere, still_online};
use super::error::MeasureError;
use super::following::Following;
use super::probing::{Attribution, attach};
use super::report::{self, AttributionReport, CpuReport, Measurement, SourceReport};
use super::results::{Results, seen};
use crate::attrib::join::{Attributed, Seen};
use crate::attrib::spans::Tracker;
use crate::attrib::{Probe, Wanted, attribute};
use crate::selfish::{self, Gaps, ObservedCpu, Observers};
use crate::until::UntilReport;
use colony_trace::Source;
use colony_trace::Trace;

/// The parameters of a measurement.
#[derive(Clone, Debug)]
pub struct Config {
    /// The observers.
    pub observe: selfish::Config,
    /// The probe.
    pub attribution: Attribution,
    /// Number of this node in the trace.
    pub node: u32,
}

/// The interval at which the rings are emptied.
pub(super) const DRAIN_EVERY: Duration = Duration::from_millis(50);
/// The interval at which the end of the observers is looked for, if a detour may end them.
const CHECK_END_EVERY: Duration = Duration::from_millis(2);
/// Drains between two anchors of the clock map: about a second.
const ANCHOR_EVERY: u32 = 20;
/// A warning about a measurement with a condition.
const OBSERVES_EVERY_CPU: &str = "every CPU that this process may use was observed, so a thread of the measurement itself may be the detour that ended it: \
                                  leave a CPU out with --cpus";
/// Most single detours a measurement keeps over all CPUs: 1 GiB.
const MAX_KEPT: usize = 1 << 26;

/// Observers and probe at work.
pub(super) struct Session {
    observers: Observers,
    probe: Option<Probe>,
    no_probe: Option<String>,
    following: Following,
    clocks: ClockMap,
    gaps: Gaps,
    unkept: u64,
    ends_at_detour: bool,
    steal_before: BTreeMap<usize, u64>,
    _elsewhere: Elsewhere,
}

impl Session {
    /// Starts both.
    pub(super) fn start(config: &Config) -> Result<Self, MeasureError> {
        config.observe.check()?;
        let calibration = Calibration::measure();
        let cpus = &config.observe.cpus;
        let wanted = Wanted { stacks: config.observe.until.is_some(), sleep: false };
        let (mut probe, no_probe) = attach(config.attribution, cpus, wanted)?;
        let mut observers = Observers::prepare(&config.observe, calibration)?;
        let elsewhere = Elsewhere::than(cpus);
        let following = Following::new(
            observers.tids().into_iter().map(|(cpu, tid)| (cpu, Tracker::new(tid, config.observe.fifo))),
        );
        let clocks = ClockMap::new(calibration);
        let steal_before = record::steal_ns();
        if let Some(p) = &mut probe {
            p.start();
        }
        observers.go(&config.observe)?;
        let gaps = observers.tids().into_iter().map(|(cpu, _)| (cpu, Vec::new())).collect();
        Ok(Self {
            observers,
            probe,
            no_probe,
            following,
            clocks,
            gaps,
            unkept: 0,
            ends_at_detour: config.observe.until.is_some(),
            steal_before,
            _elsewhere: elsewhere,
        })
    }

    /// Empties the rings. The detours first: then the events of all of them are there too.
    pub(super) fn drain(&mut self) {
        let mut kept: usize = self.gaps.values().map(Vec::len).sum();
        let (gaps, unkept) = (&mut self.gaps, &mut self.unkept);
        self.observers.drain(|cpu, gap| match gaps.get_mut(&cpu) {
            Some(of_cpu) if kept < MAX_KEPT => {
                of_cpu.push(gap);
                kept += 1;
            }
            _ => *unkept += 1,
        });
        if let Some(p) = &mut self.probe {
            self.following.drain(p);
        }
    }

    /// Attributes what has been seen since the last call and hands it over, CPU by CPU: the detours, and
    /// the main source of each.
    pub(super) fn step(&mut self, mut take: impl FnMut(usize, &[Seen], &Attributed)) {
        self.drain();
        self.clocks.anchor();
        for (&cpu, gaps) in &mut self.gaps {
            let smallest = self.observers.smallest_loop(cpu);
            let seen = seen(gaps, smallest, &self.clocks);
            let spans = self.following.trackers.get_mut(&cpu);
            // what lies behind the last detour is kept: the next one may have begun in it
            let until_ns =
                seen.last().map_or(i64::MIN, |d| d.start_ns.saturating_add_unsigned(d.duration_ns));
            let spans = spans.map(|t| t.take_until(until_ns)).unwrap_or_default();
            take(cpu, &seen, &attribute(&seen, &spans, 0));
            gaps.clear();
        }
    }

    /// Asks the observers to end.
    pub(super) fn stop(&self) {
        self.observers.stop();
    }

    /// True if the observers have ended.
    pub(super) fn is_finished(&self) -> bool {
        self.observers.is_finished()
    }

    /// The reason for a measurement without a probe.
    pub(super) fn no_probe(&self) -> Option<&str> {
        self.no_probe.as_deref()
    }

    /// Waits for the next drain. Ends early if a detour has ended the observers: the kernel keeps the latest stacks only.
    fn wait(&self) {
        if !self.ends_at_detour {
            return std::thread::sleep(DRAIN_EVERY);
        }
        let start = std::time::Instant::now();
        while start.elapsed() < DRAIN_EVERY && !self.observers.is_finished() {
            std::thread::sleep(CHECK_END_EVERY);
        }
    }

    /// Drains until the observers end, or `progress` says no.
    fn run(&mut self, mut progress: impl FnMut(Duration) -> bool) {
        let start = std::time::Instant::now();
        for round in 1.. {
            let done = self.observers.is_finished();
            if !done {
                self.wait();
            }
            self.drain();
            if round % ANCHOR_EVERY == 0 {
                self.clocks.anchor();
            }
            if done {
                return;
            }
            if !progress(start.elapsed()) {
                self.observers.stop();
            }
        }
    }
}

/// The observer whose detour met the condition first; `None` if none did.
fn first_over_limit(seen: &[ObservedCpu]) -> Option<usize> {
    let over = seen.iter().filter_map(|c| Some((c.over_limit?.end, c.cpu)));
    over.min().map(|(_, cpu)| cpu)
}

/// Keeps the detour that ended the measurement, also if it did not fit in the ring. It is the last of its CPU.
fn keep_last(cpu: &mut ObservedCpu, gaps: &mut Vec<Gap>) {
    let Some(last) = cpu.over_limit.filter(|last| gaps.last() != Some(last)) else { return };
    gaps.push(last);
    cpu.dropped = cpu.dropped.saturating_sub(1);
}

/// Measures. `progress` is called about every 50 ms with the time since the start and may end the
/// measurement early by returning `false`; what was measured until then counts.
///
/// # Errors
/// [`MeasureError`]; nothing is left running or changed then.
pub fn measure(
    config: &Config,
    progress: impl FnMut(Duration) -> bool,
) -> Result<(Measurement, Trace), MeasureError> {
    config.observe.check()?;
    let node = NodeRecord::now();
    let mut session = Session::start(config)?;
    session.run(progress);
    let Session {
        observers,
        mut probe,
        no_probe,
        mut following,
        mut clocks,
        mut gaps,
        unkept,
        steal_before,
        ..
    } = session;
    let (mut seen, rest) = observers.finish()?;
    for (cpu, more) in rest {
        gaps.entry(cpu).or_default().extend(more);
    }
    seen.iter_mut().for_each(|cpu| keep_last(cpu, gaps.entry(cpu.cpu).or_default()));
    clocks.anchor();
    let steal_after = record::steal_ns();
    let steal = |cpu: usize| {
        let at = |m: &BTreeMap<usize, u64>| m.get(&cpu).copied().unwrap_or(0);
        at(&steal_after).saturating_sub(at(&steal_before))
    };
    let lost_events = probe.as_mut().map_or(0, |p| following.end(p));
    still_online(&config.observe.cpus)?;

    let mut results = Results::new(config.node, &clocks, probe.is_some());
    let mut per_cpu: Vec<CpuReport> = Vec::new();
    let start_ns = seen.iter().map(|c| clocks.tai_ns(c.start)).min().unwrap_or_default();
    let last_cpu = first_over_limit(&seen);
    let mut until = config.observe.until.map(UntilReport::not_reached);
    for cpu in &seen {
        let spans = following.spans(cpu, &clocks).unwrap_or_default();
        let gaps = gaps.remove(&cpu.cpu).unwrap_or_default();
        per_cpu.push(results.add(cpu, &gaps, &spans, steal(cpu.cpu)));
        if let Some(until) = until.as_mut().filter(|_| last_cpu == Some(cpu.cpu)) {
            *until = results.until(until.condition, cpu, &spans, start_ns, probe.as_ref());
            if probe.is_none() {
                until.no_stack = Some(
                    no_probe.clone().unwrap_or_else(|| "events of the kernel were not looked for".into()),
                );
            }
        }
    }
    let (sources, measuring_itself) = results.sources(per_cpu.iter().map(|c| c.observed_s).sum());
    let attribution = coverage(probe.as_ref(), no_probe, lost_events, &sources, results.residue_ns());
    let mut warnings = node.warnings();
    if until.as_ref().is_some_and(|until| until.reached)
        && cpu::usable()?.without(&config.observe.cpus).is_empty()
    {
        warnings.push(OBSERVES_EVERY_CPU.into());
    }
    warn(&mut warnings, &per_cpu, lost_events, unkept);
    let measurement = Measurement {
        schema: Measurement::SCHEMA.into(),
        cpus: config.observe.cpus.clone(),
        duration_s: config.observe.duration_ns as f64 / 1e9,
        threshold_ns: config.observe.threshold_ns,
        observer: config.observe.fifo.map_or_else(|| class::get(0), |p| Ok(Class::Fifo(p)))?,
        start_ns,
        counter: *clocks.calibration(),
        node,
        warnings,
        per_cpu,
        attribution,
        sources,
        measuring_itself,
        until,
    };
    let end_ns = seen.iter().map(|c| clocks.tai_ns(c.end)).max().unwrap_or_default();
    let trace = results.trace(&measurement, end_ns, unkept);
    Ok((measurement, trace))
}

/// What the attribution could see, and how much it explains.
fn coverage(
    probe: Option<&Probe>,
    no_probe: Option<String>,
    lost_events: u64,
    sources: &[SourceReport],
    residue_ns: u64,
) -> AttributionReport {
    AttributionReport {
        active: probe.is_some(),
        reason: no_probe,
        lost_events,
        missing_tracepoints: probe.map(|p| p.missing().to_vec()).unwrap_or_default(),
        ipi: probe.map(Probe::ipi_senders),
        explained: report::explained(sources, None),
        explained_without_throttle: report::explained(sources, Some(&Source::Throttle)),
        residue_ns,
    }
}

fn warn(warnings: &mut Vec<String>, per_cpu: &[CpuReport], lost_events: u64, unkept: u64) {
    let dropped: u64 = per_cpu.iter().map(|c| c.dropped).sum::<u64>() + unkept;
    if dropped > 0 {
        warnings.push(format!(
            "{dropped} single detours did not fit in the ring (--ring): counted, but not in the trace"
        ));
    }
    if lost_events > 0 {
        warnings.push(format!("{lost_events} kernel events were lost: some detours are unexplained for it"));
    }
    let steal_ns: u64 = per_cpu.iter().map(|c| c.steal_ns).sum();
    if steal_ns > 0 {
        warnings.push(format!("the hypervisor took {} ms for others during the run", steal_ns / 1_000_000));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn config(seconds: f64) -> Config {
        let last = cpu::usable().expect("linux").iter().last().expect("a CPU");
        Config {
            observe: selfish::Config {
                cpus: [last].into_iter().collect(),
                duration_ns: (seconds * 1e9) as u64,
                threshold_ns: 100,
                fifo: None,
                all_cpus: false,
                ring: 1 << 18,
                until: None,
            },
            attribution: Attribution::Auto,
            node: 7,
        }
    }

    #[test]
    fn report_and_trace_agree() {
        let (m, trace) = measure(&config(0.5), |_| true).expect("measures");
        let [cpu] = &m.per_cpu[..] else { panic!("one CPU") };
        let own = m.measuring_itself.clone();
        let own_detours = own.as_ref().map_or(0, |o| o.detours);
        assert_eq!(trace.detours.len() as u64 + cpu.dropped, cpu.detours + own_detours);
        assert!(trace.detours.iter().all(|d| d.node == 7 && d.duration_ns >= 100));
        assert!(trace.detours.is_sorted_by_key(|d| d.start_ns));
        let stated = trace.meta.classes.keys().collect::<BTreeSet<_>>();
        assert_eq!(
            stated,
            trace.sources.iter().collect(),
            "the measurement states the class of every source"
        );
        let of_node: u64 = m.sources.iter().map(|s| s.stolen_ns).sum();
        let by_source = of_node + cpu.own_ns;
        assert_eq!(own.map_or(0, |o| o.stolen_ns), cpu.own_ns);
        let rows: u64 = trace.detours.iter().map(|d| d.duration_ns).sum();
        assert_eq!(by_source, rows, "every nanosecond has one source");
        assert!(cpu.dropped > 0 || of_node == cpu.stolen_ns);
        if m.attribution.active {
            let timer = m.sources.iter().find(|s| s.source.to_string() == "irq:local_timer");
            assert!(timer.is_some_and(|t| t.stolen_ns > 0), "a busy CPU has its tick: {:?}", m.sources);
            assert!(timer.is_some_and(|t| t.events >= Some(1)), "and its tick is counted: {:?}", m.sources);
            let untold = |s: &Source| matches!(s, Source::Unexplained | Source::Hypervisor);
            assert!(m.sources.iter().all(|s| s.events.is_none() == untold(&s.source)), "{:?}", m.sources);
        } else {
            eprintln!("no attribution: {:?}", m.attribution.reason);
            assert!(m.sources.iter().all(|s| matches!(s.source, Source::Unexplained | Source::Hypervisor)));
        }
    }

    #[test]
    fn time_of_the_measuring_threads_is_no_noise_of_the_node() {
        let all = cpu::usable().expect("linux");
        let mut config = config(1.0);
        config.observe.cpus = all;
        // nowhere else to go for the thread that empties the rings
        let (m, trace) = measure(&config, |_| true).expect("measures");
        let Some(own) = m.measuring_itself else {
            assert!(!m.attribution.active, "{:?}", m.attribution);
            eprintln!("no attribution: {:?}", m.attribution.reason);
            return;
        };
        assert!(own.events > Some(0), "{own:?}");
        assert!(m.sources.iter().all(|s| s.source != Source::Observer), "{:?}", m.sources);
        let rows = trace.detours.iter().filter(|d| *trace.source(d) == Source::Observer).count() as u64;
        assert_eq!(rows, own.detours);
        assert_eq!(m.per_cpu.iter().map(|c| c.own_ns).sum::<u64>(), own.stolen_ns);
    }

    #[test]
    fn a_measurement_can_be_ended_early() {
        let (m, _) = measure(&config(3600.0), |t| t < Duration::from_millis(100)).expect("measures");
        assert!(m.per_cpu[0].observed_s < 1800.0);
    }

    #[test]
    fn without_attribution_nothing_is_explained() {
        let off = Config { attribution: Attribution::Off, ..config(0.1) };
        let (m, _) = measure(&off, |_| true).expect("measures");
        assert!(!m.attribution.active && m.attribution.reason.is_some());
    }
}
