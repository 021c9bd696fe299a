// SPDX-License-Identifier: MIT OR Apache-2.0
//! The injector: a thread that takes its CPU away at the instants of a schedule.

use colony_node::class::{self, Class};
use colony_node::{NodeError, cpu};
use colony_time::clock::Clock;
use colony_time::tsc::{Calibration, Counter, CounterKind, Tsc, Vdso};
use hdrhistogram::Histogram;

use super::budget::Budget;
use super::quantiles::new_histogram;
use super::threads::Stop;
use super::{InjectError, Schedule};

/// Longest sleep at a stretch: how late a stop is noticed. Detours further apart than this have a wake-up
/// of a few microseconds between them.
const NAP_NS: i64 = 500_000_000;

/// Sleep of an injector whose budget is used up.
const PAUSE_NS: i64 = 1_000_000;

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
    /// The part of falling asleep and waking up that counts as the detour's.
    pub(super) charge: Charge,
    pub(super) calibration: Calibration,
    /// Counter value at which the schedule begins, and
    pub(super) begin: u64,
    /// counter value at which the run ends, whatever the clocks say.
    pub(super) end: u64,
    /// Remember this many detours one by one.
    pub(super) log: usize,
    pub(super) stop: Stop<'a>,
}

/// The record of one injector.
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
    /// CPU time of the detours made.
    pub(super) busy_ns: u64,
    /// CPU time of the thread, from the beginning of the schedule to the end: detours, sleeping and waking up.
    pub(super) cpu_ns: u64,
    /// Time from the beginning of the schedule to the end.
    pub(super) elapsed_ns: u64,
    /// CPU time taken beyond the length asked for, each detour.
    pub(super) spin_error_ns: Histogram<u64>,
    /// Start after the deadline, each detour.
    pub(super) late_ns: Histogram<u64>,
    /// Counter values at start and end of the first detours.
    pub(super) spins: Vec<(u64, u64)>,
    /// True if the injector made more detours than its log holds.
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
        let mut budget = Budget::new(Budget::LONGEST_NS);
        let mut done = Injected {
            cpu: self.cpu,
            made: 0,
            missed: 0,
            cut: 0,
            asked_ns: 0,
            busy_ns: 0,
            cpu_ns: 0,
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
        let cpu_before_ns = Clock::ThreadCpu.now_ns();
        let mut waking = Waking::new(self.charge, cpu_before_ns);
        while let Some(due) = self.schedule.next() {
            let Some(woken) = self.wait::<C>(due.deadline_ns, &mut budget, &mut waking) else { break };
            // the end of the run is the end of its last detour too
            let to_end_ns = self.calibration.to_ns(self.end - woken.at) as u64;
            let asked_ns = due.length_ns.min(to_end_ns);
            done.asked_ns += asked_ns;
            if woken.late_ns > self.patience_ns {
                done.missed += 1;
                continue;
            }
            let granted_ns = asked_ns.min(budget.left());
            let (worked_ns, end) = self.work::<C>(&woken, granted_ns);
            waking.since_ns = woken.cpu_ns.saturating_add_unsigned(worked_ns);
            done.made += 1;
            done.cut += u64::from(granted_ns < asked_ns);
            done.busy_ns += worked_ns;
            done.late_ns.saturating_record(woken.late_ns);
            done.spin_error_ns.saturating_record(worked_ns.saturating_sub(granted_ns));
            if done.spins.len() < self.log {
                done.spins.push((woken.at, end));
            } else {
                done.log_full = true;
            }
            budget.worked(worked_ns);
        }
        // a schedule of a finite number of detours has an end too, but the run lasts as long as asked
        while self.wait::<C>(i64::MAX, &mut budget, &mut waking).is_some() {}
        done.cpu_ns = since_ns(cpu_before_ns);
        done.elapsed_ns = self.calibration.to_ns(C::read().min(self.end).saturating_sub(self.begin)) as u64;
        done
    }

    /// Works until this thread has had `length_ns` of CPU time since it woke up, or until the end of the run.
    /// Other tasks may run meanwhile: their time does not count. Returns the CPU time and the counter at the end.
    fn work<C: Counter>(&self, woken: &Woken, length_ns: u64) -> (u64, u64) {
        loop {
            let worked_ns = since_ns(woken.cpu_ns);
            let mut now = C::read();
            if worked_ns >= length_ns || now >= self.end || self.stop.is_set() {
                return (worked_ns, now);
            }
            let until = (now + self.calibration.from_ns((length_ns - worked_ns) as f64)).min(self.end);
            while now < until {
                now = C::read();
            }
        }
    }

    /// Sleeps until TAI `deadline_ns`. `None` at the end of the run.
    fn wait<C: Counter>(&self, deadline_ns: i64, budget: &mut Budget, waking: &mut Waking) -> Option<Woken> {
        let mut slept = 0;
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
                let cpu_ns = waking.begin_ns(Clock::ThreadCpu.now_ns(), slept);
                return Some(Woken { at: now, late_ns: to_go_ns.unsigned_abs(), cpu_ns });
            }
            let to_end_ns = self.calibration.to_ns(self.end - now) as i64;
            let nap_ns = if exhausted { PAUSE_NS } else { to_go_ns.min(NAP_NS) };
            let cpu_before_ns = Clock::ThreadCpu.now_ns();
            Clock::Monotonic.sleep_until(monotonic_ns.saturating_add(nap_ns.min(to_end_ns)));
            slept = waking.slept(since_ns(cpu_before_ns));
            budget.slept(self.calibration.to_ns(C::read() - now) as u64);
        }
    }
}

/// A thread that has just woken up for a detour.
struct Woken {
    /// Counter value.
    at: u64,
    /// Time after the detour's instant.
    late_ns: u64,
    /// The thread's CPU time when the detour began.
    cpu_ns: i64,
}

/// The part of the CPU time for falling asleep and waking up that counts as the detour's: a program on that CPU loses it
/// too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charge {
    /// The least that was seen, so that no detour is shorter than asked for.
    Least,
    /// All of it, so that the thread takes as much CPU time as asked for in all. A detour shorter than waking up
    /// takes as long as that.
    All,
}

/// The CPU time that falling asleep and waking up take.
struct Waking {
    charge: Charge,
    /// CPU time of the thread when its last detour ended.
    since_ns: i64,
    naps: u32,
    least_ns: u64,
}

impl Waking {
    /// The first naps find their code and data in no cache.
    const SETTLE: u32 = 4;

    fn new(charge: Charge, since_ns: i64) -> Self {
        Self { charge, since_ns, naps: 0, least_ns: u64::MAX }
    }

    /// Takes what a nap took; returns the least that one takes, 0 while that is not known.
    fn slept(&mut self, took_ns: u64) -> u64 {
        self.naps = self.naps.saturating_add(1);
        if self.naps <= Self::SETTLE {
            return 0;
        }
        self.least_ns = self.least_ns.min(took_ns);
        self.least_ns
    }

    /// The CPU time at which a detour begins for which the thread is awake at `now_ns`, after a nap that takes
    /// `least_ns` or more.
    fn begin_ns(&self, now_ns: i64, least_ns: u64) -> i64 {
        match self.charge {
            Charge::Least => now_ns.saturating_sub_unsigned(least_ns),
            Charge::All => self.since_ns,
        }
    }
}

/// CPU time of this thread since it was `before_ns`.
fn since_ns(before_ns: i64) -> u64 {
    Clock::ThreadCpu.now_ns().saturating_sub(before_ns).max(0).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detour_is_charged_the_least_or_all_that_waking_up_took() {
        let mut waking = Waking::new(Charge::Least, 10_000);
        let least: Vec<u64> = [900, 100, 800, 700, 600, 650, 500, 900].map(|ns| waking.slept(ns)).into();
        assert_eq!(least, [0, 0, 0, 0, 600, 600, 500, 500]);
        assert_eq!(waking.begin_ns(12_000, 500), 11_500);
        assert_eq!(Waking { charge: Charge::All, ..waking }.begin_ns(12_000, 500), 10_000);
    }
}
