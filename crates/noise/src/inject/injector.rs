//! The injector: a thread that takes its CPU away at the instants of a schedule.

use std::sync::atomic::{AtomicBool, Ordering};

use colony_node::class::{self, Class};
use colony_node::{NodeError, cpu};
use colony_time::clock::Clock;
use colony_time::tsc::{Calibration, Counter, CounterKind, Tsc, Vdso};
use hdrhistogram::Histogram;

use super::budget::Budget;
use super::report::new_histogram;
use super::{InjectError, Schedule};

/// Longest sleep at a stretch: how late a stop is noticed. Detours further apart than this have a wake-up
/// of a few microseconds between them.
const NAP_NS: i64 = 500_000_000;

/// Sleep of an injector whose budget is used up.
const PAUSE_NS: i64 = 1_000_000;

/// Why threads should end before their time: somebody asked, or one of them failed.
#[derive(Clone, Copy)]
pub(super) struct Stop<'a> {
    pub(super) asked: &'a AtomicBool,
    pub(super) failed: &'a AtomicBool,
}

impl Stop<'_> {
    #[inline]
    pub(super) fn is_set(&self) -> bool {
        self.asked.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
    }

    /// Passes a result on; where it is an error, all threads of the run are to end.
    pub(super) fn unless_failed<T, E>(&self, result: Result<T, E>) -> Result<T, E> {
        if result.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        result
    }
}

/// Puts the calling thread into `class`. A thread that is ordinary already keeps its nice value: its user
/// may not be allowed to set another.
pub(super) fn enter(class: Class) -> Result<(), NodeError> {
    match (class, class::get(0)?) {
        (Class::Other(_), Class::Other(_)) => Ok(()),
        _ => class::set_not_inherited(0, class),
    }
}

/// One CPU's injector, ready to go.
pub(super) struct Injector<'a> {
    pub(super) cpu: usize,
    pub(super) class: Class,
    pub(super) schedule: Schedule,
    /// A detour later than this is given up and counted as missed.
    pub(super) patience_ns: u64,
    pub(super) calibration: Calibration,
    /// Counter value at which the schedule begins, and
    pub(super) begin: u64,
    /// counter value at which the run ends, whatever the clocks say.
    pub(super) end: u64,
    /// Remember this many detours one by one.
    pub(super) log: usize,
    pub(super) stop: Stop<'a>,
}

/// What an injector did.
pub(super) struct Injected {
    pub(super) cpu: usize,
    /// Detours made.
    pub(super) made: u64,
    /// Detours given up because their time was long past.
    pub(super) missed: u64,
    /// Detours that the [`Budget`] made shorter.
    pub(super) cut: u64,
    /// Sum of the lengths of all detours that came due.
    pub(super) asked_ns: u64,
    /// Time spun.
    pub(super) busy_ns: u64,
    /// Time from the beginning of the schedule to the end.
    pub(super) elapsed_ns: u64,
    /// Time spun too long, each detour.
    pub(super) spin_error_ns: Histogram<u64>,
    /// Start after the deadline, each detour.
    pub(super) late_ns: Histogram<u64>,
    /// Counter values at start and end of the first detours.
    pub(super) spins: Vec<(u64, u64)>,
    /// Whether more were made than could be remembered.
    pub(super) log_full: bool,
}

impl Injector<'_> {
    /// Makes the calling thread this injector: binds it, gives it its class, and works until the end.
    pub(super) fn run(self) -> Result<Injected, InjectError> {
        cpu::pin(self.cpu)?;
        enter(self.class)?;
        // wake-ups of ordinary threads may come 50 µs late by default; real-time ones have no slack
        // SAFETY: this option takes a number and writes nothing; it concerns the calling thread only.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
        Ok(match self.calibration.kind {
            CounterKind::Tsc => self.inject::<Tsc>(),
            CounterKind::Vdso => self.inject::<Vdso>(),
        })
    }

    fn inject<C: Counter>(mut self) -> Injected {
        let mut budget = Budget::new(self.calibration.from_ns(Budget::LONGEST_NS as f64));
        let mut done = Injected {
            cpu: self.cpu,
            made: 0,
            missed: 0,
            cut: 0,
            asked_ns: 0,
            busy_ns: 0,
            elapsed_ns: 0,
            spin_error_ns: new_histogram(),
            late_ns: new_histogram(),
            spins: vec![(0, 0); self.log],
            log_full: false,
        };
        // written once so that no page fault lengthens a detour
        done.spins.clear();
        done.spin_error_ns.reset();
        done.late_ns.reset();
        let (mut busy, mut asked_counts) = (0u64, 0u64);
        while let Some(due) = self.schedule.next() {
            let Some((start, late_ns)) = self.wait::<C>(due.deadline_ns, &mut budget) else { break };
            // the end of the run is the end of its last detour too
            let asked = self.calibration.from_ns(due.length_ns as f64).min(self.end - start);
            asked_counts += asked;
            if late_ns > self.patience_ns {
                done.missed += 1;
                continue;
            }
            let granted = asked.min(budget.left());
            let until = start + granted;
            let mut now = start;
            while now < until {
                now = C::read();
            }
            done.made += 1;
            done.cut += u64::from(granted < asked);
            done.late_ns.saturating_record(late_ns);
            done.spin_error_ns.saturating_record(self.calibration.to_ns(now - until) as u64);
            busy += now - start;
            if done.spins.len() < self.log {
                done.spins.push((start, now));
            } else {
                done.log_full = true;
            }
            budget.worked(C::read() - start);
        }
        // a schedule of a finite number of detours has an end too, but the run lasts as long as asked
        while self.wait::<C>(i64::MAX, &mut budget).is_some() {}
        done.asked_ns = self.calibration.to_ns(asked_counts) as u64;
        done.busy_ns = self.calibration.to_ns(busy) as u64;
        done.elapsed_ns = self.calibration.to_ns(C::read().min(self.end).saturating_sub(self.begin)) as u64;
        done
    }

    /// Sleeps until TAI `deadline_ns`: the counter right after, and how late that was. `None` at the end of
    /// the run.
    fn wait<C: Counter>(&self, deadline_ns: i64, budget: &mut Budget) -> Option<(u64, u64)> {
        loop {
            let now = C::read();
            if now >= self.end || self.stop.is_set() {
                return None;
            }
            // Sleep is counted on a clock that nobody sets: a step of TAI (leap second table, NTP start)
            // must not keep this thread asleep. Read first, it makes an interruption here a nap too short.
            let monotonic_ns = Clock::Monotonic.now_ns();
            let to_go_ns = deadline_ns.saturating_sub(Clock::Tai.now_ns());
            let exhausted = budget.left() == 0;
            if to_go_ns <= 0 && !exhausted {
                return Some((now, to_go_ns.unsigned_abs()));
            }
            let to_end_ns = self.calibration.to_ns(self.end - now) as i64;
            let nap_ns = if exhausted { PAUSE_NS } else { to_go_ns.min(NAP_NS) };
            Clock::Monotonic.sleep_until(monotonic_ns.saturating_add(nap_ns.min(to_end_ns)));
            budget.slept(C::read() - now);
        }
    }
}
