// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the sleeping threads and the probe together and puts their results together.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use colony_node::class::{self, Class};
use colony_node::cpu::{self, CpuSet};
use colony_node::record::NodeRecord;
use colony_time::clock::Clock;
use colony_trace::Source;

use super::collect::{Collected, attribute_wakeups, seen_of};
use super::config::Config;
use super::report::{WakeupAttribution, WakeupCpu, WakeupMeasurement};
use super::sleepers::{Sleepers, Slept, Wakeups};
use crate::attrib::spans::Tracker;
use crate::attrib::{Probe, Wanted};
use crate::elsewhere::{Elsewhere, still_online};
use crate::error::MeasureError;
use crate::following::Following;
use crate::probing::attach;
use crate::until::{LimitDetour, UntilReport};

/// The interval at which the rings are emptied.
const DRAIN_EVERY: Duration = Duration::from_millis(50);
/// The interval between two checks for threads that have ended or wait: the kernel keeps the latest stacks only.
const CHECK_END_EVERY: Duration = Duration::from_millis(2);

/// Measures wake-up latency. `progress` is called about every 50 ms with the time since the start and may end the measurement
/// early by returning `false`; what was measured until then counts.
///
/// # Errors
/// [`MeasureError`]; nothing is left running or changed then.
pub fn measure(
    config: &Config,
    progress: impl FnMut(Duration) -> bool,
) -> Result<WakeupMeasurement, MeasureError> {
    config.check()?;
    let node = NodeRecord::now();
    let wanted = Wanted { stacks: config.until.is_some(), sleep: true };
    let (probe, no_probe) = attach(config.attribution, &config.cpus, wanted)?;
    let mut sleepers = Sleepers::prepare(config)?;
    let elsewhere = Elsewhere::than(&config.cpus);
    let mut intake = Intake::start(config, &sleepers, probe);
    sleepers.go();
    run(&mut sleepers, &mut intake, progress);
    let finished = intake.finish(sleepers.finish()?);
    drop(elsewhere);
    still_online(&config.cpus)?;
    Ok(finished.report(config, node, no_probe)?)
}

/// Wake-ups and the kernel's events while they arrive.
struct Intake {
    probe: Option<Probe>,
    following: Following,
    wakeups: Wakeups,
    collected: Collected,
}

/// The results of a session.
struct Finished {
    slept: Vec<Slept>,
    probe: Option<Probe>,
    collected: Collected,
    lost_events: u64,
}

impl Intake {
    /// Begins to record events.
    fn start(config: &Config, sleepers: &Sleepers, mut probe: Option<Probe>) -> Self {
        let tracker = |(cpu, tid)| (cpu, Tracker::new(tid, config.fifo).with_idle_states(idle_states(cpu)));
        let following = Following::new(sleepers.tids().into_iter().map(tracker));
        let collected = Collected::new(probe.is_some());
        if let Some(p) = &mut probe {
            p.observers(&sleepers.tids());
            p.start();
        }
        Self { probe, following, wakeups: Wakeups::new(), collected }
    }

    /// Takes in what has happened since the last call. The wake-ups first: then the events before all of them are there too.
    fn step(&mut self, sleepers: &mut Sleepers) {
        let wakeups = &mut self.wakeups;
        sleepers.drain(|cpu, wakeup| wakeups.entry(cpu).or_default().push(wakeup));
        if let Some(p) = &mut self.probe {
            self.following.drain(p);
        }
        self.attribute_wakeups();
    }

    /// Attributes the wake-ups that were taken in, CPU by CPU.
    fn attribute_wakeups(&mut self) {
        for (&cpu, wakeups) in &mut self.wakeups {
            let Some(last) = wakeups.last() else { continue };
            // what lies behind the last wake-up is kept: it belongs to the next one
            let until_ns = last.timer_ns.saturating_add_unsigned(last.latency_ns);
            let tracker = self.following.trackers.get_mut(&cpu);
            let (spans, wakes) =
                tracker.map(|t| (t.take_until(until_ns), t.take_wakes_until(until_ns))).unwrap_or_default();
            self.collected.add(cpu, wakeups, spans, &wakes);
            wakeups.clear();
        }
    }

    /// Takes in the rest, after the threads have ended.
    fn finish(mut self, (slept, rest): (Vec<Slept>, Wakeups)) -> Finished {
        for (cpu, more) in rest {
            self.wakeups.entry(cpu).or_default().extend(more);
        }
        let lost_events = self.probe.as_mut().map_or(0, |p| self.following.end(p));
        self.attribute_wakeups();
        Finished { slept, probe: self.probe, collected: self.collected, lost_events }
    }
}

/// A latency that met the condition ends the measurement, unless threads of this program took the largest part of it.
fn decide(sleepers: &Sleepers, intake: &Intake, paused: &[usize]) {
    for &cpu in paused {
        if intake.collected.is_last_own(cpu) {
            sleepers.go_on(cpu);
        } else {
            return sleepers.stop();
        }
    }
}

/// Steps until the threads end, or `progress` says no.
fn run(sleepers: &mut Sleepers, intake: &mut Intake, mut progress: impl FnMut(Duration) -> bool) {
    let start = Instant::now();
    while !sleepers.is_finished() {
        let step_end = Instant::now() + DRAIN_EVERY;
        while Instant::now() < step_end && !sleepers.is_finished() && sleepers.paused().is_empty() {
            std::thread::sleep(CHECK_END_EVERY);
        }
        let paused = sleepers.paused();
        intake.step(sleepers);
        decide(sleepers, intake, &paused);
        if !progress(start.elapsed()) {
            sleepers.stop();
        }
    }
}

impl Finished {
    fn report(
        self,
        config: &Config,
        node: NodeRecord,
        no_probe: Option<String>,
    ) -> Result<WakeupMeasurement, colony_node::NodeError> {
        let start_ns = self.slept.iter().map(|s| s.start_ns).min().unwrap_or_default();
        let tai_ahead_ns = Clock::Tai.now_ns() - Clock::Monotonic.now_ns();
        let per_cpu: Vec<WakeupCpu> = self.slept.iter().map(|s| self.collected.cpu(s)).collect();
        let sources = self.collected.sources();
        let is_explained = !sources.is_empty();
        let unexplained: f64 =
            sources.iter().filter(|s| s.source == Source::Unexplained).map(|s| s.share).sum();
        let mut warnings = node.warnings();
        warn(&mut warnings, &per_cpu, self.lost_events);
        let without: CpuSet = per_cpu.iter().filter(|c| c.wakeups == 0).map(|c| c.cpu).collect();
        if !without.is_empty() {
            warnings.push(format!("no wake-up on {}: the measurement ended before", without.named()));
        }
        if self.probe.is_none() && cpu::usable()?.without(&config.cpus).is_empty() {
            warnings.push(
                "every CPU that this process may use was measured, so its own threads delay some wake-ups: leave a CPU out with \
                 --cpus"
                    .into(),
            );
        }
        Ok(WakeupMeasurement {
            schema: WakeupMeasurement::SCHEMA.into(),
            cpus: config.cpus.clone(),
            duration_s: config.duration_ns as f64 / 1e9,
            interval_ns: config.interval_ns,
            class: config.fifo.map_or_else(|| class::get(0), |p| Ok(Class::Fifo(p)))?,
            start_ns: start_ns + tai_ahead_ns,
            node,
            warnings,
            per_cpu,
            attribution: WakeupAttribution {
                active: self.probe.is_some(),
                reason: no_probe.clone(),
                lost_events: self.lost_events,
                missing_tracepoints: self.probe.as_ref().map(|p| p.missing().to_vec()).unwrap_or_default(),
                explained: is_explained.then_some(1.0 - unexplained),
            },
            sources,
            longest: self.collected.longest(start_ns, tai_ahead_ns),
            until: self.until(config, start_ns, tai_ahead_ns, no_probe),
        })
    }

    /// The report of the wake-up that ended the measurement; `None` if no condition was given.
    fn until(
        &self,
        config: &Config,
        start_ns: i64,
        tai_ahead_ns: i64,
        no_probe: Option<String>,
    ) -> Option<UntilReport> {
        let condition = config.until?;
        let is_own = |cpu: usize| self.collected.is_last_own(cpu);
        let over = self.slept.iter().filter(|s| !is_own(s.cpu)).filter_map(|s| Some((s.cpu, s.over_limit?)));
        let first = over.min_by_key(|(_, w)| w.timer_ns.saturating_add_unsigned(w.latency_ns));
        let Some((cpu, wakeup)) = first else { return Some(UntilReport::not_reached(condition)) };
        let (seen, spans) = (seen_of(wakeup), self.collected.recent_spans(cpu));
        let mut attributed = self.probe.as_ref().map(|_| attribute_wakeups(&[wakeup], &spans));
        let source = attributed.as_mut().and_then(|of_wakeup| of_wakeup.main.pop());
        let cause = attributed.as_ref().zip(source.as_ref()).and_then(|(all, source)| all.causes.get(source));
        let source_ns = cause.map(|cause| cause.stolen_ns).filter(|ns| *ns > 0);
        let wait = LimitDetour {
            cpu,
            start_ns: wakeup.timer_ns + tai_ahead_ns,
            after_ns: u64::try_from(wakeup.timer_ns - start_ns).unwrap_or(0),
            duration_ns: wakeup.latency_ns,
            source,
            source_ns,
        };
        let mut report = UntilReport::reached(condition, wait, seen, &spans);
        match &self.probe {
            Some(probe) => report.add_stack(seen, &spans, &probe.stacks(cpu)),
            None => {
                let not_looked = || "events of the kernel were not looked for".into();
                report.no_stack = Some(no_probe.unwrap_or_else(not_looked));
            }
        }
        Some(report)
    }
}

/// The names of a CPU's idle states, by number. Empty if the kernel has no driver for them: then there is one state without a name.
fn idle_states(cpu: usize) -> Vec<String> {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
    let name = |state: usize| fs::read_to_string(Path::new(&folder).join(format!("state{state}/name"))).ok();
    (0..).map_while(name).map(|name| name.trim().to_owned()).collect()
}

fn warn(warnings: &mut Vec<String>, per_cpu: &[WakeupCpu], lost_events: u64) {
    let dropped: u64 = per_cpu.iter().map(|c| c.dropped).sum();
    if dropped > 0 {
        warnings.push(format!(
            "{dropped} wake-ups found no room and are in no figure: this process had no CPU to read them on; leave one out with --cpus"
        ));
    }
    if lost_events > 0 {
        warnings.push(format!(
            "{lost_events} kernel events were lost: parts of some latencies are unexplained for it"
        ));
    }
}
