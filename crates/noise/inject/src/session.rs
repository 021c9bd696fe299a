// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run of injectors: which CPUs, which class, the threads, and a watchdog above them.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::Builder;
use std::time::Duration;

use colony_node::class::{self, Class};
use colony_node::{cpu, cpu::CpuSet, record::NodeRecord};
use colony_time::clock::Clock;
use colony_time::tsc::Calibration;
use serde::{Deserialize, Serialize};

use super::injector::{Charge, Injected, Injector, enter};
use super::report::{CpuInjection, Injection, VictimView};
use super::threads::{INJECTOR, Stop, VICTIM, WATCHDOG, join, spawn};
use super::victim::{self, Seen};
use super::{InjectError, Schedule};

/// Scheduling class of the injectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClassChoice {
    /// `SCHED_FIFO` of [priority 40](Self::PRIORITY) where allowed, else `SCHED_OTHER`, and the report says so.
    #[default]
    Auto,
    /// `SCHED_FIFO` of this priority, or an error.
    Fifo(u8),
    /// `SCHED_OTHER`: detours come when the scheduler lets them, a daemon's way.
    Other,
}

impl ClassChoice {
    /// Above ordinary real-time programs' usual low priorities, below threaded interrupt handlers (50).
    pub const PRIORITY: u8 = 40;
}

impl FromStr for ClassChoice {
    type Err = InjectError;
    fn from_str(text: &str) -> Result<Self, InjectError> {
        let error = || InjectError::Text {
            text: text.into(),
            wanted: "scheduling class",
            notation: "`auto`, `other`, `fifo` or `fifo:40`",
        };
        match text.split_once(':') {
            None if text == "auto" => Ok(Self::Auto),
            None if text == "other" => Ok(Self::Other),
            None if text == "fifo" => Ok(Self::Fifo(Self::PRIORITY)),
            Some(("fifo", priority)) => Ok(Self::Fifo(priority.parse().map_err(|_| error())?)),
            _ => Err(error()),
        }
    }
}

impl fmt::Display for ClassChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Other => f.write_str("other"),
            Self::Fifo(priority) => write!(f, "fifo:{priority}"),
        }
    }
}

/// The CPUs on which detours are injected, and the scheduling class of the injectors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The CPUs; `None` is the last that can be used.
    pub cpus: Option<CpuSet>,
    /// Scheduling class.
    pub class: ClassChoice,
    /// Allows real-time injection on every online CPU.
    pub all_cpus: bool,
}

/// A target found to be possible.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) cpus: CpuSet,
    pub(super) class: Class,
    pub(super) not_real_time: Option<String>,
}

impl Target {
    /// The CPUs meant, checked to be usable.
    pub(super) fn cpus(&self) -> Result<CpuSet, InjectError> {
        let cpus = match &self.cpus {
            Some(cpus) => cpus.clone(),
            None => cpu::usable()?.iter().max().into_iter().collect(),
        };
        cpu::check(&cpus)?;
        Ok(cpus)
    }

    /// Finds the class the injectors get on `cpus`.
    pub(super) fn resolve(&self, cpus: CpuSet) -> Result<Resolved, InjectError> {
        let online = cpu::online()?;
        let all = online.without(&cpus).is_empty();
        let other = |cpus, why| Ok(Resolved { cpus, class: Class::Other(0), not_real_time: why });
        let priority = match self.class {
            ClassChoice::Other => return other(cpus, None),
            ClassChoice::Fifo(priority) => priority,
            ClassChoice::Auto => ClassChoice::PRIORITY,
        };
        // one more is the watchdog's
        if !(1..=98).contains(&priority) {
            return Err(InjectError::Priority { priority });
        }
        if all && !self.all_cpus && self.class == ClassChoice::Auto && online.len() == 1 {
            return other(cpus, Some("this node has one CPU, and all CPUs were not asked for".into()));
        }
        match try_class(Class::Fifo(priority))? {
            Err(error) if self.class == ClassChoice::Auto => other(cpus, Some(error.to_string())),
            Err(error) => Err(error.into()),
            Ok(()) if all && !self.all_cpus => Err(InjectError::AllCpus { cpus }),
            Ok(()) => Ok(Resolved { cpus, class: Class::Fifo(priority), not_real_time: None }),
        }
    }
}

/// Tries to give a thread of this process the class.
fn try_class(class: Class) -> Result<Result<(), colony_node::NodeError>, InjectError> {
    let name = "the thread that tries the scheduling class";
    let thread = Builder::new()
        .spawn(move || class::set_not_inherited(0, class))
        .map_err(|source| InjectError::Thread { thread: name, source })?;
    thread.join().map_err(|_| InjectError::Panicked { thread: name })
}

/// Time the threads get to start in before the first detour.
const SETUP_NS: i64 = 5_000_000;
/// Gaps below this are the victim's own loop.
const VICTIM_THRESHOLD_NS: f64 = 1_000.0;
/// Gaps, and detours, a check keeps for each CPU.
const CHECK_ROOM: usize = 1 << 16;
/// Time after the end of the run at which the watchdog takes the real-time class from injectors that still run.
const GRACE: Duration = Duration::from_secs(2);

/// A schedule for a CPU, from an instant.
pub(super) type Make<'a> = &'a (dyn Fn(usize, i64) -> Schedule + Sync);

/// Runs of injectors on the same CPUs by the same schedules.
pub(super) struct Session<'a> {
    pub(super) on: Resolved,
    pub(super) make: Make<'a>,
    pub(super) patience_ns: u64,
    pub(super) charge: Charge,
    pub(super) stop: &'a AtomicBool,
}

struct Round {
    start_ns: i64,
    injected: Vec<Injected>,
    seen: Vec<Seen>,
    watchdog: bool,
}

impl Session<'_> {
    /// Checks for `check_ns` with a victim on each CPU, then injects for `duration_ns`.
    pub(super) fn run(self, check_ns: u64, duration_ns: u64) -> Result<Injection, InjectError> {
        let calibration = Calibration::measure();
        let node = NodeRecord::now();
        let tai_apart = || Clock::Tai.now_ns() - Clock::Monotonic.now_ns();
        let before_ns = tai_apart();
        let check = match check_ns {
            0 => Vec::new(),
            _ => {
                let round = self.round(&calibration, check_ns, true)?;
                let pairs = round.injected.iter().zip(&round.seen);
                pairs.map(|(done, seen)| VictimView::of(done, seen, &calibration)).collect()
            }
        };
        let round = self.round(&calibration, duration_ns, false)?;
        let mut warnings = node.warnings();
        if tai_apart().abs_diff(before_ns) > 1_000_000 {
            warnings.push("the TAI clock was set during the run: detours were missed or held back".into());
        }
        if round.watchdog {
            warnings.push("injectors overran their end; the watchdog took their real-time class away".into());
        }
        let elapsed_ns = round.injected.iter().map(|i| i.elapsed_ns).max().unwrap_or(0);
        Ok(Injection {
            class: self.on.class,
            not_real_time: self.on.not_real_time,
            start_ns: round.start_ns,
            elapsed_s: elapsed_ns as f64 / 1e9,
            stopped: self.stop.load(Ordering::Relaxed),
            cpus: round.injected.iter().map(CpuInjection::of).collect(),
            check,
            warnings,
            node,
        })
    }

    fn round(&self, calibration: &Calibration, ns: u64, victims: bool) -> Result<Round, InjectError> {
        let start_ns = Clock::Tai.now_ns() + SETUP_NS;
        let begin = calibration.kind.read() + calibration.from_ns(SETUP_NS as f64);
        let end = begin.saturating_add(calibration.from_ns(ns as f64));
        let failed = AtomicBool::new(false);
        let stop = Stop { asked: self.stop, failed: &failed };
        std::thread::scope(|scope| {
            let (alive, watched) = mpsc::channel();
            let watchdog = match self.on.class {
                Class::Fifo(priority) => {
                    let deadline_after = Duration::from_nanos(ns).saturating_add(GRACE);
                    Some(spawn(scope, stop, WATCHDOG, move || watch(watched, priority + 1, deadline_after))?)
                }
                _ => None,
            };
            let mut threads = Vec::new();
            for cpu in self.on.cpus.iter() {
                let seen = match victims {
                    true => Some(spawn(scope, stop, VICTIM, move || victim_on(cpu, calibration, end, stop))?),
                    false => None,
                };
                let injector = Injector {
                    cpu,
                    class: self.on.class,
                    schedule: (self.make)(cpu, start_ns),
                    patience_ns: self.patience_ns,
                    charge: self.charge,
                    calibration: *calibration,
                    begin,
                    end,
                    log: if victims { CHECK_ROOM } else { 0 },
                    stop,
                };
                let alive = alive.clone();
                let injected = spawn(scope, stop, INJECTOR, move || {
                    // SAFETY: gettid has no arguments and cannot fail.
                    let _ = alive.send(unsafe { libc::gettid() });
                    stop.unless_failed(injector.run())
                })?;
                threads.push((injected, seen));
            }
            drop(alive);
            let mut round = Round { start_ns, injected: Vec::new(), seen: Vec::new(), watchdog: false };
            for (injected, seen) in threads {
                round.injected.push(join(injected, INJECTOR)??);
                if let Some(seen) = seen {
                    round.seen.push(join(seen, VICTIM)??);
                }
            }
            if let Some(watchdog) = watchdog {
                round.watchdog = join(watchdog, WATCHDOG)?;
            }
            Ok(round)
        })
    }
}

fn victim_on(cpu: usize, calibration: &Calibration, end: u64, stop: Stop<'_>) -> Result<Seen, InjectError> {
    stop.unless_failed(cpu::pin(cpu).and_then(|()| enter(Class::Other(0))))?;
    Ok(victim::suffer(calibration, VICTIM_THRESHOLD_NS, end, CHECK_ROOM, stop))
}

/// Above the injectors: takes them their real-time class when they are still there after `deadline_after`.
/// Returns whether it had to. Each injector sends its thread number; the channel closes when all are done.
fn watch(injectors: mpsc::Receiver<i32>, priority: u8, deadline_after: Duration) -> bool {
    // a watchdog of a lower class is better than none
    let _ = class::set_not_inherited(0, Class::Fifo(priority));
    let since = std::time::Instant::now();
    let mut threads = Vec::new();
    loop {
        match injectors.recv_timeout(deadline_after.saturating_sub(since.elapsed())) {
            Ok(thread) => threads.push(thread),
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => {
                // one that has just ended is no loss
                threads.iter().for_each(|&t| drop(class::set(t, Class::Other(0))));
                return true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(cpus: CpuSet, class: ClassChoice, all_cpus: bool) -> Result<Resolved, InjectError> {
        Target { cpus: None, class, all_cpus }.resolve(cpus)
    }

    fn may_be_real_time() -> bool {
        let allowed = matches!(try_class(Class::Fifo(1)), Ok(Ok(())));
        if !allowed {
            colony_testing::skip("needs the right to real-time classes");
        }
        allowed
    }

    #[test]
    fn without_a_choice_the_last_usable_cpu_is_taken() {
        let cpus = Target::default().cpus().expect("this thread runs somewhere");
        assert_eq!(
            cpus.iter().collect::<Vec<_>>(),
            [cpu::usable().expect("some").iter().max().expect("one")]
        );
    }

    #[test]
    fn cpus_that_are_not_there_are_refused() {
        for cpus in [CpuSet::default(), CpuSet::from_iter([CpuSet::LIMIT - 1])] {
            assert!(matches!(
                Target { cpus: Some(cpus), ..Target::default() }.cpus(),
                Err(InjectError::Node(_))
            ));
        }
    }

    #[test]
    fn real_time_injection_on_all_cpus_needs_all_cpus() {
        let all = cpu::online().expect("/sys is there");
        if !may_be_real_time() {
            return;
        }
        assert!(matches!(on(all.clone(), ClassChoice::Fifo(1), false), Err(InjectError::AllCpus { .. })));
        assert_eq!(on(all.clone(), ClassChoice::Fifo(1), true).expect("allowed").class, Class::Fifo(1));
        assert_eq!(on(all, ClassChoice::Other, false).expect("harmless").class, Class::Other(0));
    }

    #[test]
    fn a_class_is_read_as_it_is_printed() {
        for class in [ClassChoice::Auto, ClassChoice::Other, ClassChoice::Fifo(7)] {
            assert_eq!(class.to_string().parse::<ClassChoice>().expect("own print"), class);
        }
        assert!(["", "fifo:", "fifo:x", "rr", "fifo:300"].iter().all(|t| t.parse::<ClassChoice>().is_err()));
        assert!(on(CpuSet::from_iter([0]), ClassChoice::Fifo(99), true).is_err());
    }

    #[test]
    fn the_watchdog_bites_only_an_injector_that_stays() {
        let (alive, watched) = mpsc::channel();
        drop(alive);
        assert!(!watch(watched, 2, Duration::from_secs(60)));
        let (_alive, watched) = mpsc::channel();
        assert!(watch(watched, 2, Duration::from_millis(1)));
    }
}
