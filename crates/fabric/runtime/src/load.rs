// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPU time of entry methods, without the noise of the node.
//!
//! A system call a message would cost more than many entry methods take. So laps between messages are read from the
//! counter of the processor. Only a lap of more than 20 µs reads the thread's CPU clock as well: what the counter says
//! beyond that clock since its last reading was taken from the thread, and is not load.

use colony_time::clock::Clock;
use colony_time::tsc::CounterKind;

/// Laps of more than this are compared with the thread's CPU clock, in nanoseconds.
const LONG_NS: u64 = 20_000;
/// The counter is calibrated once it has run for this long, in nanoseconds.
const CALIBRATION_NS: i64 = 2_000_000;

/// Measures laps.
#[derive(Debug)]
pub(crate) struct LoadClock {
    kind: CounterKind,
    /// Nanoseconds a count; until it is calibrated, that of a fast processor, so that laps are rather compared too often.
    ns_per_count: f64,
    long: u64,
    is_calibrated: bool,
    began: (u64, i64),
    lap: u64,
    /// The counter and the thread's CPU clock when both were read last.
    anchor: (u64, i64),
    /// Time taken from the thread while it had work, in seconds.
    pub(crate) stolen: f64,
    /// When the interval began.
    interval: i64,
}

impl Default for LoadClock {
    fn default() -> Self {
        // a compute node's clock is that counter, and reading the clock there is a system call
        let kind = if colony_torus::is_node() { CounterKind::Tsc } else { CounterKind::best() };
        let now = kind.read();
        let ns_per_count = if kind == CounterKind::Tsc { 0.25 } else { 1.0 };
        Self {
            kind,
            ns_per_count,
            long: (LONG_NS as f64 / ns_per_count) as u64,
            is_calibrated: kind != CounterKind::Tsc,
            began: (now, Clock::Monotonic.now_ns()),
            lap: now,
            anchor: (now, thread_cpu_ns()),
            stolen: 0.0,
            interval: Clock::Monotonic.now_ns(),
        }
    }
}

/// The CPU time of this thread.
fn thread_cpu_ns() -> i64 {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(0, |t| t.tv_sec() * 1_000_000_000 + t.tv_nsec())
}

impl LoadClock {
    /// Ends a lap. Returns the CPU seconds of this thread since the last one ended.
    #[inline]
    pub(crate) fn lap(&mut self) -> f64 {
        let now = self.kind.read();
        let counts = now.saturating_sub(self.lap);
        self.lap = now;
        if counts > self.long {
            return self.long_lap(now, counts);
        }
        counts as f64 * self.ns_per_count * 1e-9
    }

    #[cold]
    fn long_lap(&mut self, now: u64, counts: u64) -> f64 {
        self.calibrate(now);
        let wall = counts as f64 * self.ns_per_count;
        let cpu = thread_cpu_ns();
        let (counter, before) = self.anchor;
        self.anchor = (now, cpu);
        // a system without such a clock gives 0 always
        if cpu == 0 {
            return wall * 1e-9;
        }
        let since = now.saturating_sub(counter) as f64 * self.ns_per_count;
        let stolen = (since - (cpu - before) as f64).clamp(0.0, wall);
        self.stolen += stolen * 1e-9;
        (wall - stolen) * 1e-9
    }

    fn calibrate(&mut self, now: u64) {
        if self.is_calibrated {
            return;
        }
        let elapsed = Clock::Monotonic.now_ns() - self.began.1;
        let counts = now.saturating_sub(self.began.0);
        if elapsed > CALIBRATION_NS && counts > 0 {
            self.ns_per_count = elapsed as f64 / counts as f64;
            self.long = (LONG_NS as f64 / self.ns_per_count) as u64;
            self.is_calibrated = true;
        }
    }

    /// The seconds that were taken from the thread in this interval, and the length of the interval so far.
    pub(crate) fn interval(&self) -> (f64, f64) {
        (self.stolen, (Clock::Monotonic.now_ns() - self.interval) as f64 * 1e-9)
    }

    /// Begins an interval.
    pub(crate) fn begin_interval(&mut self) {
        self.interval = Clock::Monotonic.now_ns();
        self.stolen = 0.0;
    }

    /// Begins a lap after the thread has waited: waiting is neither load nor stolen.
    pub(crate) fn resume(&mut self) {
        let now = self.kind.read();
        self.calibrate(now);
        self.lap = now;
        self.anchor = (now, thread_cpu_ns());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_thread_does_not_run_is_no_load() {
        let mut clock = LoadClock::default();
        let began = std::time::Instant::now();
        std::thread::sleep(std::time::Duration::from_millis(30));
        let slept = began.elapsed().as_secs_f64();
        let load = clock.lap();
        let wall = began.elapsed().as_secs_f64();
        assert!(load < wall / 3.0, "{load} of {wall}");
        assert!(clock.stolen > slept / 2.0, "{} of {slept}", clock.stolen);
        assert!(load + clock.stolen <= wall * 1.05, "the parts are at most the whole");
    }

    #[test]
    fn work_is_load() {
        let mut clock = LoadClock::default();
        std::thread::sleep(std::time::Duration::from_millis(3));
        clock.lap();
        let before = thread_cpu_ns();
        let mut sum = 0u64;
        while thread_cpu_ns() - before < 5_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let used = (thread_cpu_ns() - before) as f64 * 1e-9;
        let load = clock.lap();
        assert!(load > used * 0.8 && load < used * 1.5, "{load} of {used}");
    }

    #[test]
    fn waiting_is_neither_load_nor_stolen() {
        let mut clock = LoadClock::default();
        std::thread::sleep(std::time::Duration::from_millis(10));
        let began = std::time::Instant::now();
        clock.resume();
        let load = clock.lap();
        let since = began.elapsed().as_secs_f64();
        // another task may have had the processor in between
        assert!(load + clock.stolen <= since * 1.05, "{load} + {} of {since}", clock.stolen);
    }
}
