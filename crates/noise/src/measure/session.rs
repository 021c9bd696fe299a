//! Runs observers and probe together and puts their results together.

use std::collections::BTreeMap;
use std::time::Duration;

use colony_node::class::{self, Class};
use colony_node::cpu::{self, CpuSet};
use colony_node::record::{self, NodeRecord};
use colony_time::tsc::{Calibration, ClockMap};

use super::report::{self, AttributionReport, CpuReport, Explained, Lengths, Measurement, SourceReport};
use crate::Source;
use crate::attrib::event::Event;
use crate::attrib::join::{Attributed, Seen};
use crate::attrib::spans::Tracker;
use crate::attrib::{self, Probe};
use crate::selfish::{self, Gap, ObservedCpu, Observers, SelfishError, recorder};
use crate::trace::{Detour, Trace, TraceMeta};

/// Whether to look for the sources of detours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attribution {
    /// Where the privileges allow it.
    #[default]
    Auto,
    /// No: the probe costs the measured CPUs some time (0.1–0.6 µs an event).
    Off,
    /// Fail where it is not possible.
    Required,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Config {
    /// The observers.
    pub observe: selfish::Config,
    /// The probe.
    pub attribution: Attribution,
    /// Number of this node in the trace.
    pub node: u32,
}

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The observers.
    #[error(transparent)]
    Selfish(#[from] SelfishError),
    /// The node.
    #[error(transparent)]
    Node(#[from] colony_node::NodeError),
    /// The probe, where it was required.
    #[error(transparent)]
    Probe(#[from] attrib::ProbeError),
    /// A CPU went offline under its observer.
    #[error(
        "CPU {0} went offline during the measurement; its observer ran elsewhere, so the run says nothing; try again without it"
    )]
    Vanished(usize),
}

/// How often the rings are emptied.
const DRAIN_EVERY: Duration = Duration::from_millis(50);
/// Drains between two anchors of the clock map: about a second.
const ANCHOR_EVERY: u32 = 20;
/// Most single detours a measurement keeps over all CPUs: 1 GiB.
const MAX_KEPT: usize = 1 << 26;

/// Measures. `progress` is called about every 50 ms with the time since the start and may end the
/// measurement early by returning `false`; what was measured until then counts.
///
/// # Errors
/// [`MeasureError`]; nothing is left running or changed then.
pub fn measure(
    config: &Config,
    mut progress: impl FnMut(Duration) -> bool,
) -> Result<(Measurement, Trace), MeasureError> {
    config.observe.check()?;
    let node = NodeRecord::now();
    let calibration = Calibration::measure();
    let (mut probe, no_probe) = attach(config)?;
    let mut observers = Observers::prepare(&config.observe, calibration)?;
    let _elsewhere = Elsewhere::than(&config.observe.cpus);
    let mut following = Following::new(&observers, config.observe.fifo);
    let mut gaps: BTreeMap<usize, Vec<Gap>> = BTreeMap::new();
    let mut unkept = 0;
    let steal_before = record::steal_ns();
    let mut clocks = ClockMap::new(calibration);
    if let Some(p) = &mut probe {
        p.start();
    }
    observers.go(&config.observe)?;
    let start = std::time::Instant::now();
    for round in 1.. {
        let done = observers.is_finished();
        std::thread::sleep(if done { Duration::ZERO } else { DRAIN_EVERY });
        if let Some(p) = &mut probe {
            following.drain(p);
        }
        let mut kept: usize = gaps.values().map(Vec::len).sum();
        observers.drain(|cpu, gap| {
            if kept < MAX_KEPT {
                gaps.entry(cpu).or_default().push(gap);
                kept += 1;
            } else {
                unkept += 1;
            }
        });
        if round % ANCHOR_EVERY == 0 {
            clocks.anchor();
        }
        if done {
            break;
        }
        if !progress(start.elapsed()) {
            observers.stop();
        }
    }
    let (seen, rest) = observers.finish()?;
    for (cpu, more) in rest {
        gaps.entry(cpu).or_default().extend(more);
    }
    clocks.anchor();
    let steal_after = record::steal_ns();
    let lost_events = probe.as_mut().map_or(0, |p| following.end(p));
    let online = cpu::online()?;
    if let Some(gone) = config.observe.cpus.iter().find(|&c| !online.contains(c)) {
        return Err(MeasureError::Vanished(gone));
    }
    let steal = |cpu: usize| {
        let at = |m: &BTreeMap<usize, u64>| m.get(&cpu).copied().unwrap_or(0);
        at(&steal_after).saturating_sub(at(&steal_before))
    };
    let mut results =
        Results { config, clocks: &clocks, rows: Vec::new(), causes: BTreeMap::new(), residue_ns: 0 };
    let mut per_cpu = Vec::new();
    for cpu in seen {
        let gaps = gaps.remove(&cpu.cpu).unwrap_or_default();
        results.add(&cpu, &gaps, following.spans(&cpu, &clocks).as_deref(), steal(cpu.cpu));
        per_cpu.push(cpu_report(&cpu, &calibration, steal(cpu.cpu)));
    }
    let attribution = AttributionReport {
        active: probe.is_some(),
        reason: no_probe,
        lost_events,
        missing_tracepoints: probe.as_ref().map(|p| p.missing().to_vec()).unwrap_or_default(),
        explained: Explained::default(),
        explained_without_throttle: Explained::default(),
        residue_ns: results.residue_ns,
    };
    let observer = match config.observe.fifo {
        Some(priority) => Class::Fifo(priority),
        None => class::get(0)?,
    };
    let start_ns = clocks.tai_ns(per_cpu.first().map_or(0, |c: &(CpuReport, u64)| c.1));
    let per_cpu: Vec<CpuReport> = per_cpu.into_iter().map(|(c, _)| c).collect();
    let mut warnings = node.warnings();
    warn(&mut warnings, &per_cpu, lost_events, unkept);
    let mut measurement = Measurement {
        schema: Measurement::SCHEMA.into(),
        cpus: config.observe.cpus.clone(),
        duration_s: config.observe.duration_ns as f64 / 1e9,
        threshold_ns: config.observe.threshold_ns,
        observer,
        start_ns,
        counter: calibration,
        node,
        warnings,
        sources: results.sources(per_cpu.iter().map(|c| c.observed_s).sum()),
        per_cpu,
        attribution,
    };
    let sources = &measurement.sources;
    measurement.attribution.explained = report::explained(sources, None);
    measurement.attribution.explained_without_throttle = report::explained(sources, Some(&Source::Throttle));
    let trace = results.trace(&measurement, unkept);
    Ok((measurement, trace))
}

/// Attaches the probe, or says why not.
fn attach(config: &Config) -> Result<(Option<Probe>, Option<String>), MeasureError> {
    match config.attribution {
        Attribution::Off => Ok((None, Some("switched off (--no-attribution)".into()))),
        Attribution::Required => Ok((Some(Probe::attach(&config.observe.cpus)?), None)),
        Attribution::Auto => Ok(match Probe::attach(&config.observe.cpus) {
            Ok(probe) => (Some(probe), None),
            Err(e) => (None, Some(e.to_string())),
        }),
    }
}

/// Keeps the calling thread off the measured CPUs while there are others; puts it back when dropped.
struct Elsewhere(Option<CpuSet>);

impl Elsewhere {
    fn than(measured: &CpuSet) -> Self {
        let before = cpu::affinity(0).ok();
        let others = cpu::usable().map(|u| u.without(measured)).unwrap_or_default();
        // if it does not work the thread shows up in the result, by its name
        let moved = !others.is_empty() && cpu::bind(0, &others).is_ok();
        Self(before.filter(|_| moved))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = cpu::bind(0, before);
        }
    }
}

/// Follows the events of each CPU while they arrive.
struct Following {
    trackers: BTreeMap<usize, Tracker>,
    batch: BTreeMap<usize, Vec<Event>>,
}

impl Following {
    fn new(observers: &Observers, fifo: Option<u8>) -> Self {
        let trackers =
            observers.tids().into_iter().map(|(cpu, tid)| (cpu, Tracker::new(tid, fifo))).collect();
        Self { trackers, batch: BTreeMap::new() }
    }

    fn drain(&mut self, probe: &mut Probe) {
        probe.drain(|cpu, event| self.batch.entry(cpu).or_default().push(event));
        for (cpu, events) in &mut self.batch {
            events.sort_by_key(|e| e.at_ns);
            if let Some(tracker) = self.trackers.get_mut(cpu) {
                events.drain(..).for_each(|e| tracker.event(&e));
            }
        }
    }

    /// The last events; returns how many were lost.
    fn end(&mut self, probe: &mut Probe) -> u64 {
        probe.stop();
        // twice: a place still being filled the first time is full or lost the second
        self.drain(probe);
        self.drain(probe);
        probe.lost() + self.trackers.values().map(Tracker::unkept).sum::<u64>()
    }

    /// The spans of one CPU; `None` where nothing was followed.
    fn spans(&mut self, cpu: &ObservedCpu, clocks: &ClockMap) -> Option<Vec<attrib::spans::Span>> {
        let tracker = self.trackers.remove(&cpu.cpu)?;
        Some(tracker.finish(clocks.monotonic_ns(cpu.end)))
    }
}

/// Rows and causes of all CPUs while they come together.
struct Results<'a> {
    config: &'a Config,
    clocks: &'a ClockMap,
    rows: Vec<(Detour, Source)>,
    causes: BTreeMap<Source, attrib::Cause>,
    residue_ns: u64,
}

impl Results<'_> {
    fn add(&mut self, cpu: &ObservedCpu, gaps: &[Gap], spans: Option<&[attrib::spans::Span]>, steal_ns: u64) {
        let calibration = self.clocks.calibration();
        let length_ns = |g: &Gap| calibration.to_ns(g.length.saturating_sub(cpu.cost.smallest)) as u64;
        let seen: Vec<Seen> = gaps
            .iter()
            .map(|g| Seen {
                start_ns: self.clocks.monotonic_ns(g.end.saturating_sub(g.length)),
                duration_ns: length_ns(g),
            })
            .collect();
        let Attributed { main, causes, residue_ns, .. } =
            attrib::attribute(&seen, spans.unwrap_or(&[]), steal_ns);
        for (gap, source) in gaps.iter().zip(main) {
            let detour = Detour {
                node: self.config.node,
                cpu: cpu.cpu as u16,
                start_ns: self.clocks.tai_ns(gap.end.saturating_sub(gap.length)),
                duration_ns: length_ns(gap),
                source: 0,
            };
            self.rows.push((detour, source));
        }
        for (source, cause) in causes {
            let sum = self.causes.entry(source).or_default();
            sum.stolen_ns += cause.stolen_ns;
            sum.detours += cause.detours;
        }
        self.residue_ns += residue_ns;
    }

    fn sources(&self, observed_s: f64) -> Vec<SourceReport> {
        let mut lengths: BTreeMap<&Source, hdrhistogram::Histogram<u64>> = BTreeMap::new();
        for (detour, source) in &self.rows {
            lengths.entry(source).or_insert_with(recorder::histogram).saturating_record(detour.duration_ns);
        }
        let mut all: Vec<SourceReport> = self
            .causes
            .iter()
            .map(|(source, cause)| SourceReport {
                source: source.clone(),
                detours: cause.detours,
                stolen_ns: cause.stolen_ns,
                stolen_share: cause.stolen_ns as f64 / 1e9 / observed_s.max(f64::MIN_POSITIVE),
                lengths: lengths.get(source).map(Lengths::of).unwrap_or_default(),
            })
            .collect();
        all.sort_by_key(|s| std::cmp::Reverse(s.stolen_ns));
        all
    }

    fn trace(self, m: &Measurement, unkept: u64) -> Trace {
        let meta = TraceMeta {
            schema: TraceMeta::SCHEMA.into(),
            tsc_hz: m.counter.hz,
            threshold_ns: m.threshold_ns,
            smallest_loop_ns: m.per_cpu.iter().map(|c| c.smallest_loop_ns).fold(f64::INFINITY, f64::min),
            cpus: m.cpus.clone(),
            observed_s: m.per_cpu.iter().map(|c| c.observed_s).fold(0.0, f64::max),
            start_ns: m.start_ns,
            lost_events: m.attribution.lost_events,
            dropped: m.per_cpu.iter().map(|c| c.dropped).sum::<u64>() + unkept,
            observer: Some(m.observer),
            node: Some(m.node.clone()),
        };
        Trace::collect(meta, self.rows)
    }
}

fn cpu_report(cpu: &ObservedCpu, calibration: &Calibration, steal_ns: u64) -> (CpuReport, u64) {
    let observed_ns = calibration.to_ns(cpu.end - cpu.start);
    let stolen_ns = cpu.stolen_ns;
    let report = CpuReport {
        cpu: cpu.cpu,
        observed_s: observed_ns / 1e9,
        blind_s: calibration.to_ns(cpu.blind) / 1e9,
        detours: cpu.histogram.len(),
        stolen_share: stolen_ns as f64 / observed_ns.max(1.0),
        stolen_ns,
        lengths: Lengths::of(&cpu.histogram),
        dropped: cpu.dropped,
        steal_ns,
        smallest_loop_ns: calibration.to_ns(1) * cpu.cost.smallest as f64,
        loop_ns: calibration.to_ns(1) * cpu.cost.measuring,
        bare_loop_ns: calibration.to_ns(1) * cpu.cost.bare,
        loop_ratio: cpu.cost.measuring / cpu.cost.bare,
    };
    (report, cpu.start)
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
            },
            attribution: Attribution::Auto,
            node: 7,
        }
    }

    #[test]
    fn report_and_trace_tell_the_same_story() {
        let (m, trace) = measure(&config(0.5), |_| true).expect("measures");
        let [cpu] = &m.per_cpu[..] else { panic!("one CPU") };
        assert_eq!(trace.detours.len() as u64 + cpu.dropped, cpu.detours);
        assert!(trace.detours.iter().all(|d| d.node == 7 && d.duration_ns >= 100));
        assert!(trace.detours.is_sorted_by_key(|d| d.start_ns));
        let by_source: u64 = m.sources.iter().map(|s| s.stolen_ns).sum();
        let rows: u64 = trace.detours.iter().map(|d| d.duration_ns).sum();
        assert_eq!(by_source, rows, "every nanosecond has one source");
        assert!(cpu.dropped > 0 || by_source == cpu.stolen_ns);
        if m.attribution.active {
            let timer = m.sources.iter().find(|s| s.source.to_string() == "irq:local_timer");
            assert!(timer.is_some_and(|t| t.stolen_ns > 0), "a busy CPU has its tick: {:?}", m.sources);
        } else {
            eprintln!("no attribution: {:?}", m.attribution.reason);
            assert!(m.sources.iter().all(|s| matches!(s.source, Source::Unexplained | Source::Hypervisor)));
        }
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
