// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detours of one length at regular intervals, as the detour benchmarks of *Initial Results: Experiments
//! on Watson BlueGene/L* made them by timer interrupts.

use std::fmt;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use super::budget::Budget;
use super::injector::Charge;
use super::schedule::Regular;
use super::session::Session;
use super::{InjectError, Injection, Intervals, Phase, Schedule, Target};

/// Shortest interval that can be asked for: below it a thread is hardly asleep before it is woken.
pub const SHORTEST_INTERVAL_NS: u64 = 20_000;
/// Longest interval.
pub const LONGEST_INTERVAL_NS: u64 = 3_600_000_000_000;

/// Detours to make. The default is 16 µs each millisecond, 10 s long, on the last usable CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DetourPlan {
    /// Length of each detour.
    pub length_ns: u64,
    /// Mean time from start to start.
    pub interval_ns: u64,
    /// The intervals between detours: all the same, or random.
    pub intervals: Intervals,
    /// The phase of the CPUs: all CPUs of all nodes have detours at the same TAI instants, or each CPU has its own.
    pub phase: Phase,
    /// Seed of random phases and intervals.
    pub seed: u64,
    /// This node's number; it makes its random phases differ from another node's.
    pub node: u32,
    /// The CPUs, and the scheduling class of the injectors.
    pub on: Target,
    /// Duration of the injection; `u64::MAX`: until the stop flag is set.
    pub duration_ns: u64,
    /// Duration of the check, in which a victim observes the detours before the run; 0: no check.
    pub check_ns: u64,
}

impl Default for DetourPlan {
    fn default() -> Self {
        Self {
            length_ns: 16_000,
            interval_ns: 1_000_000,
            intervals: Intervals::Fixed,
            phase: Phase::Random,
            seed: 1,
            node: 0,
            on: Target::default(),
            duration_ns: 10_000_000_000,
            check_ns: 1_000_000_000,
        }
    }
}

impl DetourPlan {
    /// Checks that a node can carry the plan out.
    ///
    /// # Errors
    /// An [`InjectError`] says what is wrong with it.
    pub fn validate(&self) -> Result<(), InjectError> {
        let Self { length_ns, interval_ns, .. } = *self;
        if !(SHORTEST_INTERVAL_NS..=LONGEST_INTERVAL_NS).contains(&interval_ns) {
            return Err(InjectError::Interval { interval_ns, shortest_ns: SHORTEST_INTERVAL_NS });
        }
        if length_ns == 0 || length_ns as f64 > Budget::SHARE * interval_ns as f64 {
            return Err(InjectError::Duty { length_ns, interval_ns, limit: Budget::SHARE * 100.0 });
        }
        if length_ns > Budget::LONGEST_NS {
            return Err(InjectError::TooLong { length_ns, limit_ns: Budget::LONGEST_NS });
        }
        if self.duration_ns == 0 {
            return Err(InjectError::Empty { run: "an injection" });
        }
        Ok(())
    }

    /// The instants of the plan's detours on `cpu`, from the first at or after TAI `from_ns`.
    #[must_use]
    pub fn schedule(&self, cpu: usize, from_ns: i64) -> Schedule {
        let Self { length_ns, interval_ns, intervals, phase, seed, node, .. } = *self;
        Schedule::regular(Regular { length_ns, interval_ns, intervals, phase, seed }, node, cpu, from_ns)
    }

    /// Carries the plan out: check, then injection. Blocks until it is over or `stop` is set (then for
    /// up to half a second more).
    ///
    /// # Errors
    /// [`InjectError`] for a plan or a target that cannot be; nothing has been injected then.
    pub fn run(&self, stop: &AtomicBool) -> Result<DetourReport, InjectError> {
        self.validate()?;
        let on = self.on.resolve(self.on.cpus()?)?;
        let make = |cpu, from_ns| self.schedule(cpu, from_ns);
        let session = Session { on, make: &make, patience_ns: self.interval_ns, charge: Charge::Least, stop };
        let injection = session.run(self.check_ns, self.duration_ns)?;
        Ok(DetourReport { schema: DetourReport::SCHEMA.into(), plan: self.clone(), injection })
    }
}

/// Detours asked for, made, and seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DetourReport {
    /// [`DetourReport::SCHEMA`].
    pub schema: String,
    /// The plan.
    pub plan: DetourPlan,
    /// The detours that were made, and those that a program on the CPU observed.
    pub injection: Injection,
}

impl DetourReport {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.inject.detours/1";
}

impl fmt::Display for DetourReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = &self.plan;
        let about = if p.intervals == Intervals::Exponential { "about " } else { "" };
        write!(
            f,
            "detours of {} us, {about}every {} us, {} phase, seed {}: ",
            p.length_ns as f64 / 1e3,
            p.interval_ns as f64 / 1e3,
            p.phase,
            p.seed
        )?;
        self.injection.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClassChoice;
    use colony_time::clock::Clock;
    use std::sync::atomic::Ordering;

    fn short() -> DetourPlan {
        DetourPlan { duration_ns: 300_000_000, check_ns: 300_000_000, ..DetourPlan::default() }
    }

    #[test]
    fn impossible_wishes_are_refused() {
        let ok = DetourPlan::default();
        assert!(ok.validate().is_ok());
        let refused = [
            DetourPlan { length_ns: 0, ..ok.clone() },
            DetourPlan { length_ns: ok.interval_ns, ..ok.clone() },
            DetourPlan { length_ns: 950_000, ..ok.clone() },
            DetourPlan { interval_ns: 0, ..ok.clone() },
            DetourPlan { interval_ns: u64::MAX, ..ok.clone() },
            DetourPlan { length_ns: 1_000_000_000, interval_ns: 3_000_000_000, ..ok.clone() },
            DetourPlan { duration_ns: 0, ..ok.clone() },
        ];
        for plan in refused {
            let text = plan.validate().expect_err("impossible").to_string();
            let advice = ["choose", "at most", "instead", "inject with"];
            assert!(advice.iter().any(|a| text.contains(a)), "{text}");
        }
    }

    #[test]
    fn every_detour_due_is_made_or_counted_as_missed() {
        let plan = DetourPlan { on: Target { class: ClassChoice::Other, ..Target::default() }, ..short() };
        let report = plan.run(&AtomicBool::new(false)).expect("a possible plan");
        let [c] = &report.injection.cpus[..] else { panic!("one CPU: {report}") };
        assert!((1..=301).contains(&c.made) && c.made + c.missed <= 301, "{report}");
        assert_eq!((c.spin_error_ns.count, c.late_ns.count), (c.made, c.made));
        assert!(c.duty > 0.0 && c.duty_asked <= 0.0161, "{report}");
        let json = serde_json::to_string(&report).expect("serialisable");
        let back: DetourReport = serde_json::from_str(&json).expect("own JSON");
        assert_eq!(back.plan, plan);
    }

    #[test]
    fn time_in_which_others_had_the_cpu_is_no_noise_made() {
        let cpu = Target::default().cpus().expect("this thread runs somewhere").first().expect("one");
        let plan = DetourPlan {
            length_ns: 8_000_000,
            interval_ns: 20_000_000,
            duration_ns: 600_000_000,
            check_ns: 0,
            on: Target { class: ClassChoice::Other, ..Target::default() },
            ..DetourPlan::default()
        };
        let stop = AtomicBool::new(false);
        let busy = || {
            colony_node::cpu::pin(cpu).expect("usable");
            let before_ns = Clock::ThreadCpu.now_ns();
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            Clock::ThreadCpu.now_ns() - before_ns
        };
        let before_ns = Clock::MonotonicRaw.now_ns();
        let (report, others_ns) = std::thread::scope(|s| {
            let others = [s.spawn(busy), s.spawn(busy), s.spawn(busy)];
            let report = plan.run(&AtomicBool::new(false)).expect("a possible plan");
            stop.store(true, Ordering::Relaxed);
            (report, others.map(|o| o.join().expect("no panic")).iter().sum::<i64>())
        });
        let wall_ns = Clock::MonotonicRaw.now_ns() - before_ns;
        let [c] = &report.injection.cpus[..] else { panic!("one CPU: {report}") };
        let made_ns = c.duty * report.injection.elapsed_s * 1e9;
        assert!(made_ns + others_ns as f64 <= 1.02 * wall_ns as f64, "{others_ns} of {wall_ns} ns: {report}");
        assert!(c.made == 0 || c.duty > 0.0, "{report}");
        assert!(c.duty <= c.cpu_share + 0.01, "{report}");
    }

    #[test]
    fn a_victim_sees_the_detours_at_least_as_long_as_asked() {
        let report = short().run(&AtomicBool::new(false)).expect("a possible plan");
        let [v] = &report.injection.check[..] else { panic!("one CPU: {report}") };
        // the victim may find its CPU taken by others: then detours are buried, but they never vanish
        assert!(v.seen + v.buried <= v.made && v.made - v.seen - v.buried <= 1, "{report}");
        if v.seen > 0 {
            assert!(v.length_ns.min as f64 >= 0.99 * 16_000.0, "{report}");
        }
    }

    #[test]
    fn a_stop_ends_it_before_its_time() {
        let stop = AtomicBool::new(true);
        let plan = DetourPlan { duration_ns: u64::MAX, ..DetourPlan::default() };
        let report = plan.run(&stop).expect("a possible plan");
        assert!(report.injection.stopped);
        assert_eq!(report.injection.cpus[0].made, 0);
    }
}
