// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pinned thread for each CPU that sleeps until instants at a fixed interval, and compares them with the clock when it runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use colony_node::class::{self, Class};
use colony_node::cpu;
use colony_time::clock::Clock;
use rtrb::{Consumer, Producer, RingBuffer};

use super::config::{Config, SleeperError};

/// One wake-up of a CPU's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wakeup {
    /// The instant of the timer, `CLOCK_MONOTONIC` nanoseconds.
    pub timer_ns: i64,
    /// Time from that instant until the thread read the clock, nanoseconds.
    pub latency_ns: u64,
}

/// The record of one CPU's thread.
#[derive(Clone, Copy, Debug)]
pub struct Slept {
    /// The CPU.
    pub cpu: usize,
    /// Begin, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: i64,
    /// End.
    pub end_ns: i64,
    /// Instants that passed while the thread waited for an earlier one: it was not woken for them.
    pub missed: u64,
    /// Wake-ups that found the ring full: they are in no figure.
    pub dropped: u64,
    /// The wake-up that met the condition, on which this thread ended.
    pub over_limit: Option<Wakeup>,
}

/// Single wake-ups by CPU, in order.
pub type Wakeups = BTreeMap<usize, Vec<Wakeup>>;

/// Wake-ups that a ring holds: those of ten seconds, in these bounds.
const RING_BOUNDS: (u64, u64) = (1 << 10, 1 << 20);

/// Sleeping threads at work. They end when this is dropped.
pub struct Sleepers {
    shared: Arc<Shared>,
    threads: Vec<(usize, JoinHandle<Result<Slept, SleeperError>>)>,
    rings: Vec<Ring>,
}

/// The reading end of one thread's ring.
struct Ring {
    cpu: usize,
    tid: i32,
    wakeups: Consumer<Wakeup>,
}

struct Shared {
    go: AtomicBool,
    stop: AtomicBool,
    finished: AtomicUsize,
}

impl Sleepers {
    /// Starts a thread on every CPU; returns when all are ready. They wait for [`go`](Self::go).
    ///
    /// # Errors
    /// [`SleeperError`]; nothing is left running then.
    pub fn prepare(config: &Config) -> Result<Self, SleeperError> {
        config.check()?;
        let shared = Shared {
            go: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            finished: AtomicUsize::new(0),
        };
        let mut all = Self { shared: Arc::new(shared), threads: Vec::new(), rings: Vec::new() };
        for (place, cpu) in config.cpus.iter().enumerate() {
            // the CPUs' instants lie apart: timers of all CPUs at once would disturb one another
            let phase_ns = config.interval_ns * place as u64 / config.cpus.len() as u64;
            if !all.start_one(cpu, phase_ns, config)? {
                // one failed to start; `finish` stops the others and says why
                return Err(all.finish().err().unwrap_or(SleeperError::Panicked(cpu)));
            }
        }
        Ok(all)
    }

    /// Returns true if the thread is ready, false if it has ended.
    fn start_one(&mut self, cpu: usize, phase_ns: u64, config: &Config) -> Result<bool, SleeperError> {
        let (give, take) = mpsc::channel();
        let (shared, config) = (Arc::clone(&self.shared), config.clone());
        let thread = std::thread::Builder::new()
            .name(format!("wakeups/{cpu}"))
            .spawn(move || {
                let result = run_sleeper(cpu, phase_ns, &config, &shared, &give);
                shared.finished.fetch_add(1, Ordering::AcqRel);
                result
            })
            .map_err(SleeperError::Thread)?;
        self.threads.push((cpu, thread));
        // a thread that fails before it is ready drops its end of the channel
        let Ok((tid, wakeups)) = take.recv() else { return Ok(false) };
        self.rings.push(Ring { cpu, tid, wakeups });
        Ok(true)
    }

    /// Thread ids, by CPU.
    #[must_use]
    pub fn tids(&self) -> Vec<(usize, i32)> {
        self.rings.iter().map(|r| (r.cpu, r.tid)).collect()
    }

    /// Lets all threads begin.
    pub fn go(&self) {
        self.shared.go.store(true, Ordering::Release);
        self.threads.iter().for_each(|(_, thread)| thread.thread().unpark());
    }

    /// True if every thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.shared.finished.load(Ordering::Acquire) >= self.threads.len()
    }

    /// Asks all threads to end at their next instant.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.go();
    }

    /// Hands over the wake-ups since the last call.
    pub fn drain(&mut self, mut take: impl FnMut(usize, Wakeup)) {
        for ring in &mut self.rings {
            while let Ok(wakeup) = ring.wakeups.pop() {
                take(ring.cpu, wakeup);
            }
        }
    }

    /// Waits for the end and returns the record of each CPU's thread, and the wake-ups not drained before.
    ///
    /// # Errors
    /// The first thread's error, after all have ended.
    pub fn finish(mut self) -> Result<(Vec<Slept>, Wakeups), SleeperError> {
        if !self.shared.go.load(Ordering::Acquire) {
            self.stop();
        }
        let mut slept = Vec::new();
        let mut failed = None;
        for (cpu, thread) in self.threads.drain(..) {
            match thread.join() {
                Ok(Ok(one)) => slept.push(one),
                Ok(Err(e)) => failed = failed.or(Some(e)),
                Err(_) => failed = failed.or(Some(SleeperError::Panicked(cpu))),
            }
        }
        let mut rest = Wakeups::new();
        self.drain(|cpu, wakeup| rest.entry(cpu).or_default().push(wakeup));
        failed.map_or(Ok((slept, rest)), Err)
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        // also on an early return: no thread may outlive its owner
        self.stop();
        for (_, thread) in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The thread of one CPU, from its start to its end.
fn run_sleeper(
    cpu: usize,
    phase_ns: u64,
    config: &Config,
    shared: &Shared,
    give: &mpsc::Sender<(i32, Consumer<Wakeup>)>,
) -> Result<Slept, SleeperError> {
    cpu::pin(cpu)?;
    // the kernel delays timers of ordinary threads by 50 µs at most, to join them: a choice of each program, and not latency
    nix::sys::prctl::set_timerslack(1).map_err(|error| SleeperError::TimerSlack { cpu, error })?;
    let before = class::get(0)?;
    if let Some(priority) = config.fifo {
        class::set(0, Class::Fifo(priority))?;
    }
    let of_ten_seconds = 10 * colony_time::NS_PER_S / config.interval_ns;
    let capacity = of_ten_seconds.clamp(RING_BOUNDS.0, RING_BOUNDS.1) as usize;
    let (mut ring, mut wakeups) = RingBuffer::new(capacity);
    // every page is touched now, not by a fault in the middle of the run
    while ring.push(Wakeup { timer_ns: 0, latency_ns: 0 }).is_ok() {}
    while wakeups.pop().is_ok() {}
    // the owner waits for the ring; if it is gone, so is the reason to go on
    let _ = give.send((nix::unistd::gettid().as_raw(), wakeups));
    while !shared.go.load(Ordering::Acquire) {
        std::thread::park();
    }
    let slept = sleep_repeatedly(cpu, phase_ns, config, shared, &mut ring);
    if config.fifo.is_some() {
        class::set(0, before)?;
    }
    Ok(slept)
}

/// Sleeps from instant to instant until the duration is over, the owner says stop, or a latency meets the condition.
fn sleep_repeatedly(
    cpu: usize,
    phase_ns: u64,
    config: &Config,
    shared: &Shared,
    ring: &mut Producer<Wakeup>,
) -> Slept {
    let limit_ns = config.until.map_or(u64::MAX, |until| until.at_least_ns());
    let interval_ns = config.interval_ns as i64;
    let start_ns = Clock::Monotonic.now_ns();
    let end_ns = start_ns.saturating_add_unsigned(config.duration_ns);
    let mut slept = Slept { cpu, start_ns, end_ns: start_ns, missed: 0, dropped: 0, over_limit: None };
    let mut timer_ns = start_ns.saturating_add_unsigned(config.interval_ns + phase_ns);
    while timer_ns <= end_ns {
        Clock::Monotonic.sleep_until(timer_ns);
        slept.end_ns = Clock::Monotonic.now_ns();
        if shared.stop.load(Ordering::Acquire) {
            break;
        }
        let latency_ns = slept.end_ns.saturating_sub(timer_ns).max(0).cast_unsigned();
        let wakeup = Wakeup { timer_ns, latency_ns };
        slept.dropped += u64::from(ring.push(wakeup).is_err());
        if latency_ns >= limit_ns {
            slept.over_limit = Some(wakeup);
            shared.stop.store(true, Ordering::Release);
            break;
        }
        // instants behind the end of the measurement belong to nobody
        slept.missed += ((slept.end_ns.min(end_ns) - timer_ns).max(0) / interval_ns).cast_unsigned();
        timer_ns += ((slept.end_ns - timer_ns).max(0) / interval_ns + 1) * interval_ns;
    }
    slept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probing::Attribution;

    fn config() -> Config {
        let last = cpu::usable().expect("linux").iter().last().expect("a CPU");
        Config {
            cpus: [last].into_iter().collect(),
            duration_ns: 100_000_000,
            interval_ns: 1_000_000,
            fifo: None,
            until: None,
            attribution: Attribution::Off,
        }
    }

    fn run(config: &Config) -> (Vec<Slept>, Wakeups) {
        let sleepers = Sleepers::prepare(config).expect("threads start");
        sleepers.go();
        sleepers.finish().expect("threads end")
    }

    #[test]
    fn every_instant_of_the_timer_is_a_wakeup_or_missed() {
        let (slept, wakeups) = run(&config());
        let [one] = &slept[..] else { panic!("one CPU was asked for") };
        let all = &wakeups[&one.cpu];
        assert!(all.windows(2).all(|two| two[1].timer_ns >= two[0].end_ns()), "{all:?}");
        assert!(all.windows(2).all(|two| (two[1].timer_ns - two[0].timer_ns) % 1_000_000 == 0));
        assert_eq!(all.len() as u64 + one.missed + one.dropped, 100);
        assert!(all.iter().all(|w| w.timer_ns >= one.start_ns && w.end_ns() <= one.end_ns));
    }

    impl Wakeup {
        fn end_ns(self) -> i64 {
            self.timer_ns.saturating_add_unsigned(self.latency_ns)
        }
    }

    #[test]
    fn a_latency_of_the_limit_ends_the_threads_of_all_cpus() {
        let config = Config {
            cpus: cpu::usable().expect("linux"),
            duration_ns: crate::selfish::Config::MAX_DURATION_NS,
            until: Some("latency >= 1ns".parse().expect("a condition")),
            ..config()
        };
        let (slept, wakeups) = run(&config);
        assert_eq!(slept.len(), config.cpus.len());
        let over: Vec<&Slept> = slept.iter().filter(|s| s.over_limit.is_some()).collect();
        assert!(!over.is_empty());
        assert!(over.iter().all(|s| wakeups[&s.cpu].last().copied() == s.over_limit));
    }

    #[test]
    fn threads_that_are_stopped_or_dropped_end() {
        let day = Config { duration_ns: crate::selfish::Config::MAX_DURATION_NS, ..config() };
        drop(Sleepers::prepare(&day).expect("threads start"));
        let sleepers = Sleepers::prepare(&day).expect("threads start");
        sleepers.go();
        assert!(!sleepers.is_finished());
        sleepers.stop();
        let (slept, _) = sleepers.finish().expect("threads end");
        assert!(slept[0].end_ns - slept[0].start_ns < day.duration_ns.cast_signed());
    }
}
