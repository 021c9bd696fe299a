// SPDX-License-Identifier: MIT OR Apache-2.0
//! In-process detours: a timer's signal interrupts the rank, and its handler spins (Initial Results:
//! Experiments on Watson BlueGene/L: "artificially introducing detours via timer interrupts").

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use colony_time::NS_PER_S;
use colony_time::clock::Clock;
use colony_time::tsc::{Calibration, Counter, CounterKind, Tsc, Vdso};

use crate::{DetourRecord, Detours};

/// Lengths kept for the median.
const KEPT: usize = 4096;

/// The state that the handler reads and writes. The handler runs on one thread, the one that the timer signals, so plain
/// stores would do; atomics make them visible to that same thread outside the handler.
struct Shared {
    vdso: AtomicBool,
    length: AtomicU64,
    timer: AtomicUsize,
    timing: AtomicBool,
    ran: AtomicU64,
    timed: AtomicU64,
    missed: AtomicU64,
    sum: AtomicU64,
    timed_sum: AtomicU64,
    max: AtomicU64,
    last: [AtomicU32; KEPT],
}

static SHARED: Shared = Shared {
    vdso: AtomicBool::new(false),
    length: AtomicU64::new(0),
    timer: AtomicUsize::new(0),
    timing: AtomicBool::new(false),
    ran: AtomicU64::new(0),
    timed: AtomicU64::new(0),
    missed: AtomicU64::new(0),
    sum: AtomicU64::new(0),
    timed_sum: AtomicU64::new(0),
    max: AtomicU64::new(0),
    last: [const { AtomicU32::new(0) }; KEPT],
};

/// Says whether operations are being timed: only detours that begin then have an effect on the result.
#[inline]
pub(crate) fn timing(on: bool) {
    SHARED.timing.store(on, Relaxed);
}

extern "C" fn on_timer(_signal: libc::c_int) {
    // only async-signal-safe calls: the counter (rdtsc, or clock_gettime), timer_getoverrun, atomics
    // SAFETY: the location of this thread's errno is always valid.
    let errno = unsafe { *libc::__errno_location() };
    if SHARED.vdso.load(Relaxed) {
        detour::<Vdso>()
    } else {
        detour::<Tsc>()
    }
    // SAFETY: as above; what was interrupted finds its errno as it was.
    unsafe { *libc::__errno_location() = errno };
}

#[inline(always)]
fn detour<C: Counter>() {
    let start = C::read();
    let s = &SHARED;
    let timing = s.timing.load(Relaxed);
    let length = s.length.load(Relaxed);
    // the counting is part of the detour
    let n = add(&s.ran, 1);
    // SAFETY: async-signal-safe by POSIX; a timer deleted meanwhile gives an error, which is -1.
    let overrun = unsafe { libc::timer_getoverrun(s.timer.load(Relaxed) as libc::timer_t) };
    add(&s.missed, u64::try_from(overrun).unwrap_or(0));
    let mut took = 0;
    while took < length {
        took = C::read().saturating_sub(start);
    }
    add(&s.sum, took);
    s.max.store(s.max.load(Relaxed).max(took), Relaxed);
    s.last[n as usize % KEPT].store(u32::try_from(took).unwrap_or(u32::MAX), Relaxed);
    if timing {
        add(&s.timed, 1);
        add(&s.timed_sum, took);
    }
}

/// Adds without a locked instruction: there is one writer. Gives the value before.
fn add(to: &AtomicU64, n: u64) -> u64 {
    let before = to.load(Relaxed);
    to.store(before + n, Relaxed);
    before
}

/// A timer that makes detours in the calling thread until it is dropped.
pub(crate) struct Timer {
    id: libc::timer_t,
    calibration: Calibration,
}

impl Timer {
    /// Starts the detours of `rank`.
    pub(crate) fn start(
        d: &Detours,
        seed: u64,
        rank: u32,
        calibration: &Calibration,
    ) -> Result<Self, String> {
        let error = |what| format!("{what} for the detours: {}", std::io::Error::last_os_error());
        reset(calibration, d.length_ns);
        let signal = libc::SIGRTMIN() + 4;
        // SAFETY: an all-zero sigaction is valid; it is filled in below.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_timer as extern "C" fn(libc::c_int) as usize;
        // a system call the signal interrupts goes on afterwards: MPI need not know of it
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: `action` is valid, and its handler is async-signal-safe.
        if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(error("installing a signal handler"));
        }
        // SAFETY: an all-zero sigevent is valid; it is filled in below.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        // helper threads of the MPI library are not to be disturbed instead
        event.sigev_notify_thread_id = nix::unistd::gettid().as_raw();
        let mut id: libc::timer_t = std::ptr::null_mut();
        // SAFETY: `event` is valid and `id` can be written to.
        if unsafe { libc::timer_create(libc::CLOCK_TAI, &raw mut event, &raw mut id) } != 0 {
            return Err(error("creating a timer"));
        }
        let timer = Self { id, calibration: *calibration };
        SHARED.timer.store(id as usize, Relaxed);
        let first_ns = d.first_ns(Clock::Tai.now_ns(), seed, rank);
        let times =
            libc::itimerspec { it_value: timespec(first_ns), it_interval: timespec(d.every_ns as i64) };
        // SAFETY: the timer exists, and `times` is valid.
        let set =
            unsafe { libc::timer_settime(id, libc::TIMER_ABSTIME, &raw const times, std::ptr::null_mut()) };
        if set != 0 {
            return Err(error("setting a timer"));
        }
        Ok(timer)
    }

    /// Ends the detours and says how they were.
    pub(crate) fn stop(self) -> DetourRecord {
        let (calibration, s) = (self.calibration, &SHARED);
        drop(self);
        let ns = |counts: u64| calibration.to_ns(counts);
        let ran = s.ran.load(Relaxed);
        let kept = usize::try_from(ran).unwrap_or(usize::MAX).min(KEPT);
        let mut last: Vec<u32> = s.last[..kept].iter().map(|l| l.load(Relaxed)).collect();
        last.sort_unstable();
        DetourRecord {
            timed: s.timed.load(Relaxed),
            ran,
            missed: s.missed.load(Relaxed),
            mean_ns: ns(s.sum.load(Relaxed)) / ran.max(1) as f64,
            p50_ns: last.get(kept / 2).map_or(0, |&l| ns(l.into()).round() as u64),
            max_ns: ns(s.max.load(Relaxed)).round() as u64,
            stolen_s: ns(s.timed_sum.load(Relaxed)) / 1e9,
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: the timer exists until here. The handler stays: a signal may be on its way.
        unsafe { libc::timer_delete(self.id) };
    }
}

fn reset(calibration: &Calibration, length_ns: u64) {
    let s = &SHARED;
    s.vdso.store(calibration.kind == CounterKind::Vdso, Relaxed);
    s.length.store(calibration.from_ns(length_ns as f64), Relaxed);
    for count in [&s.ran, &s.timed, &s.missed, &s.sum, &s.timed_sum, &s.max] {
        count.store(0, Relaxed);
    }
    // also faults the pages in: a handler that faults is a longer detour
    s.last.iter().for_each(|l| l.store(0, Relaxed));
}

fn timespec(ns: i64) -> libc::timespec {
    libc::timespec { tv_sec: ns / NS_PER_S as i64, tv_nsec: ns % NS_PER_S as i64 }
}
