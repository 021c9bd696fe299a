// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports: the plan, the detours that were made, and those that a program on the CPU observed.

use std::fmt;

use colony_node::{class::Class, record::NodeRecord};
use colony_time::tsc::Calibration;
use serde::{Deserialize, Serialize};

use super::injector::Injected;
use super::quantiles::{Quantiles, new_histogram};
use super::victim::Seen;

/// The detours that the injector of one CPU made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuInjection {
    /// The CPU.
    pub cpu: usize,
    /// Detours made.
    pub made: u64,
    /// Detours given up: the injector came so late that the next was due (or, replaying, over 1 ms late).
    pub missed: u64,
    /// Detours made shorter than asked, so that the CPU stays usable (at most 90 %, 500 ms on end).
    pub cut: u64,
    /// Share of the CPU that the detours due would have taken.
    pub duty_asked: f64,
    /// Share of the CPU that the detours made took, by the thread's CPU time: time in which another task had
    /// the CPU does not count.
    pub duty: f64,
    /// Share of the CPU that the injector's thread took in all: `duty`, falling asleep and waking up.
    #[serde(default)]
    pub cpu_share: f64,
    /// CPU time a detour took beyond its length.
    pub spin_error_ns: Quantiles,
    /// Lateness: time from the instant of the schedule to the start of the detour.
    pub late_ns: Quantiles,
}

impl CpuInjection {
    pub(super) fn of(done: &Injected) -> Self {
        let share = |ns: u64| if done.elapsed_ns == 0 { 0.0 } else { ns as f64 / done.elapsed_ns as f64 };
        Self {
            cpu: done.cpu,
            made: done.made,
            missed: done.missed,
            cut: done.cut,
            duty_asked: share(done.asked_ns),
            duty: share(done.busy_ns),
            cpu_share: share(done.cpu_ns),
            spin_error_ns: Quantiles::of(&done.spin_error_ns),
            late_ns: Quantiles::of(&done.late_ns),
        }
    }
}

/// The detours that a program of the ordinary class observed on an injected CPU, in a check before the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VictimView {
    /// The CPU.
    pub cpu: usize,
    /// Seconds it looked.
    pub observed_s: f64,
    /// Share of that time it had the CPU.
    pub had_cpu: f64,
    /// Detours made while it looked.
    pub made: u64,
    /// Of these, seen as a detour of their own.
    pub seen: u64,
    /// Of these, hidden with others in one longer detour (another task had the CPU).
    pub buried: u64,
    /// Detours asked for per second.
    pub asked_per_s: f64,
    /// Detours seen per second, the buried ones not counted.
    pub seen_per_s: f64,
    /// Length of the detours seen: what was spun, and the two switches of task around it.
    pub length_ns: Quantiles,
    /// From start to start of detours seen one after the other.
    pub interval_ns: Quantiles,
    /// Gaps of more than a microsecond that were not injected: the node's own noise.
    pub foreign: u64,
}

impl VictimView {
    /// Lays the gaps the victim saw over the detours made; both read the same counter of the same CPU.
    pub(super) fn of(done: &Injected, seen: &Seen, calibration: &Calibration) -> Self {
        let (first, mut last) = seen.span;
        // where a list is full, only the time it covers counts
        let covered = [
            done.log_full.then(|| done.spins.last().map(|s| s.1)),
            seen.full.then(|| seen.gaps.last().map(|g| g.end)),
        ];
        covered.into_iter().flatten().flatten().for_each(|end| last = last.min(end));
        let looked_at: Vec<_> =
            done.spins.iter().filter(|(start, end)| *start >= first && *end <= last).collect();
        let (mut length_ns, mut interval_ns) = (new_histogram(), new_histogram());
        let (mut alone, mut buried, mut foreign) = (0, 0, 0);
        let (mut previous, mut gone) = (None, 0);
        let mut spins = looked_at.iter().peekable();
        for gap in seen.gaps.iter().take_while(|g| g.end <= last) {
            gone += gap.end - gap.start;
            while spins.next_if(|(start, _)| *start < gap.start).is_some() {}
            let mut inside = 0;
            while spins.next_if(|(_, end)| *end <= gap.end).is_some() {
                inside += 1;
            }
            match inside {
                0 => foreign += 1,
                1 => {
                    alone += 1;
                    length_ns.saturating_record(calibration.to_ns(gap.end - gap.start) as u64);
                    if let Some(before) = previous.replace(gap.start) {
                        interval_ns.saturating_record(calibration.to_ns(gap.start - before) as u64);
                    }
                }
                more => {
                    buried += more;
                    previous = None;
                }
            }
        }
        let observed_s = calibration.to_ns(last.saturating_sub(first)) / 1e9;
        let per_s = |n: u64, s: f64| if s > 0.0 { n as f64 / s } else { 0.0 };
        Self {
            cpu: done.cpu,
            observed_s,
            had_cpu: 1.0 - gone as f64 / last.saturating_sub(first).max(1) as f64,
            made: looked_at.len() as u64,
            seen: alone,
            buried,
            asked_per_s: per_s(done.made + done.missed, done.elapsed_ns as f64 / 1e9),
            seen_per_s: per_s(alone, observed_s),
            length_ns: Quantiles::of(&length_ns),
            interval_ns: Quantiles::of(&interval_ns),
            foreign,
        }
    }
}

/// The result of a run of injectors, with the limits of its validity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Injection {
    /// Scheduling class of the injectors.
    pub class: Class,
    /// The reason for a class that is not real-time; `None` if it is real-time, or was chosen not to be.
    pub not_real_time: Option<String>,
    /// TAI nanoseconds at which the schedules begin.
    pub start_ns: i64,
    /// Seconds injected.
    pub elapsed_s: f64,
    /// True if the stop flag ended the run.
    pub stopped: bool,
    /// The detours that the injector of each CPU made.
    pub cpus: Vec<CpuInjection>,
    /// The detours that programs on these CPUs observed in the check before the run; empty without a check.
    pub check: Vec<VictimView>,
    /// Warnings about the validity of the figures.
    pub warnings: Vec<String>,
    /// The node.
    pub node: NodeRecord,
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| ns as f64 / 1e3;
        writeln!(f, "{:.1} s as {}", self.elapsed_s, self.class)?;
        writeln!(
            f,
            "{:>4} {:>9} {:>8} {:>6} {:>22} {:>19} {:>19}",
            "CPU", "made", "missed", "cut", "duty/asked/of CPU %", "too long p50/99 us", "late p50/99 us"
        )?;
        for c in &self.cpus {
            writeln!(
                f,
                "{:>4} {:>9} {:>8} {:>6} {:>22} {:>19} {:>19}",
                c.cpu,
                c.made,
                c.missed,
                c.cut,
                format!("{:.3}/{:.3}/{:.3}", c.duty * 100.0, c.duty_asked * 100.0, c.cpu_share * 100.0),
                format!("{:.2}/{:.2}", us(c.spin_error_ns.p50), us(c.spin_error_ns.p99)),
                format!("{:.1}/{:.1}", us(c.late_ns.p50), us(c.late_ns.p99)),
            )?;
        }
        for v in &self.check {
            writeln!(
                f,
                "seen by a program on CPU {} ({:.0} % of the time): {:.0} of {:.0} a second, length p50/99 {:.1}/{:.1} us, \
                 interval p50 {:.1} us; {} hidden in longer detours, {} not ours",
                v.cpu,
                v.had_cpu * 100.0,
                v.seen_per_s,
                v.asked_per_s,
                us(v.length_ns.p50),
                us(v.length_ns.p99),
                us(v.interval_ns.p50),
                v.buried,
                v.foreign
            )?;
        }
        if let Some(why) = &self.not_real_time {
            writeln!(f, "note: not real-time: {why}")?;
        }
        self.warnings.iter().try_for_each(|w| writeln!(f, "note: {w}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::victim::Gap;
    use colony_time::tsc::CounterKind;

    fn injected(spins: Vec<(u64, u64)>) -> Injected {
        Injected {
            cpu: 0,
            made: spins.len() as u64,
            missed: 0,
            cut: 0,
            asked_ns: 0,
            busy_ns: 0,
            cpu_ns: 0,
            elapsed_ns: 1_000_000_000,
            spin_error_ns: new_histogram(),
            late_ns: new_histogram(),
            spins,
            log_full: false,
        }
    }

    #[test]
    fn gaps_are_classified_by_the_detours_inside_them() {
        let calibration = Calibration::measure_kind(CounterKind::Vdso);
        let done = injected(vec![(50, 60), (1_000, 1_100), (2_000, 2_100), (5_000, 5_100), (5_200, 5_300)]);
        let gap = |start, end| Gap { start, end };
        let gaps = vec![gap(990, 1_120), gap(1_500, 1_700), gap(1_995, 2_110), gap(4_000, 9_000)];
        // the first detour came before the victim looked
        let seen = Seen { span: (100, 10_000), gaps, full: false };
        let view = VictimView::of(&done, &seen, &calibration);
        assert_eq!((view.made, view.seen, view.buried, view.foreign), (4, 2, 2, 1));
        assert_eq!((view.length_ns.min, view.interval_ns.p50), (115, 1_005));
        assert_eq!(view.had_cpu, 1.0 - (130 + 200 + 115 + 5_000) as f64 / 9_900.0);
        // a list that is full says nothing of the time after it
        let view = VictimView::of(&Injected { log_full: true, ..done }, &seen, &calibration);
        assert_eq!((view.made, view.seen, view.buried, view.foreign), (4, 2, 0, 1));
    }

    #[test]
    fn an_injector_that_had_no_time_made_no_noise() {
        let done = Injected { elapsed_ns: 0, ..injected(Vec::new()) };
        assert_eq!(CpuInjection::of(&done).duty, 0.0);
    }
}
