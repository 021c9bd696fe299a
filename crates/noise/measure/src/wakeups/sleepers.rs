// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pinned thread for each CPU that sleeps until instants at a fixed interval, and compares them with the clock when it runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
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
    /// The wake-up that met the condition, on which this thread ended; `None` if it ended for another reason.
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
    pause: Arc<AtomicBool>,
}

struct Shared {
    go: AtomicBool,
    stop: AtomicBool,
    finished: AtomicUsize,
    /// Begin of the measurement on all CPUs, `CLOCK_MONOTONIC` nanoseconds; written before `go`.
    start_ns: AtomicI64,
}

/// Time from the word to begin until the measurement begins, for threads to get ready.
const LEAD_NS: i64 = 5_000_000;

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
            start_ns: AtomicI64::new(0),
        };
        let mut all = Self { shared: Arc::new(shared), threads: Vec::new(), rings: Vec::new() };
        for (place, cpu) in config.cpus.iter().enumerate() {
            // the CPUs' instants lie apart: timers of all CPUs at once would disturb one another
            let phase_ns = config.interval_ns * (place as u64 + 1) / config.cpus.len() as u64;
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
        let pause = Arc::new(AtomicBool::new(false));
        let place = Place { cpu, phase_ns, pause: Arc::clone(&pause) };
        let (shared, config) = (Arc::clone(&self.shared), config.clone());
        let thread = std::thread::Builder::new()
            .name(format!("wakeups/{cpu}"))
            .spawn(move || {
                let result = run_sleeper(&place, &config, &shared, &give);
                shared.finished.fetch_add(1, Ordering::AcqRel);
                result
            })
            .map_err(SleeperError::Thread)?;
        self.threads.push((cpu, thread));
        // a thread that fails before it is ready drops its end of the channel
        let Ok((tid, wakeups)) = take.recv() else { return Ok(false) };
        self.rings.push(Ring { cpu, tid, wakeups, pause });
        Ok(true)
    }

    /// Thread ids, by CPU.
    #[must_use]
    pub fn tids(&self) -> Vec<(usize, i32)> {
        self.rings.iter().map(|r| (r.cpu, r.tid)).collect()
    }

    /// Lets all threads begin, at the same instant.
    pub fn go(&self) {
        self.shared.start_ns.store(Clock::Monotonic.now_ns() + LEAD_NS, Ordering::Release);
        self.shared.go.store(true, Ordering::Release);
        self.unpark();
    }

    fn unpark(&self) {
        self.threads.iter().for_each(|(_, thread)| thread.thread().unpark());
    }

    /// CPUs whose latest wake-up met the condition: their threads wait for [`go_on`](Self::go_on) or [`stop`](Self::stop).
    #[must_use]
    pub fn paused(&self) -> Vec<usize> {
        self.rings.iter().filter(|r| r.pause.load(Ordering::Acquire)).map(|r| r.cpu).collect()
    }

    /// Lets the thread of a CPU continue, as if its latest wake-up had not met the condition.
    pub fn go_on(&self, cpu: usize) {
        self.rings.iter().filter(|r| r.cpu == cpu).for_each(|r| r.pause.store(false, Ordering::Release));
        self.unpark();
    }

    /// True if every thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.shared.finished.load(Ordering::Acquire) >= self.threads.len()
    }

    /// Asks all threads to end at their next instant.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.go.store(true, Ordering::Release);
        self.unpark();
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

/// The place of one thread among the others.
struct Place {
    cpu: usize,
    /// Its first instant, nanoseconds after the begin.
    phase_ns: u64,
    /// Set by the thread as a latency meets the condition; it waits while this is set.
    pause: Arc<AtomicBool>,
}

/// The thread of one CPU, from its start to its end.
fn run_sleeper(
    place: &Place,
    config: &Config,
    shared: &Shared,
    give: &mpsc::Sender<(i32, Consumer<Wakeup>)>,
) -> Result<Slept, SleeperError> {
    let cpu = place.cpu;
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
    // the owner waits for the ring; an owner that has ended needs no thread either
    let _ = give.send((nix::unistd::gettid().as_raw(), wakeups));
    while !shared.go.load(Ordering::Acquire) {
        std::thread::park();
    }
    let slept = sleep_repeatedly(place, config, shared, &mut ring);
    if config.fifo.is_some() {
        class::set(0, before)?;
    }
    Ok(slept)
}

/// Sleeps from instant to instant until the duration is over, or the owner says stop.
fn sleep_repeatedly(place: &Place, config: &Config, shared: &Shared, ring: &mut Producer<Wakeup>) -> Slept {
    let limit_ns = config.until.map_or(u64::MAX, |until| until.at_least_ns());
    let interval_ns = config.interval_ns.cast_signed();
    let start_ns = shared.start_ns.load(Ordering::Acquire);
    let end_ns = start_ns.saturating_add_unsigned(config.duration_ns);
    let mut slept =
        Slept { cpu: place.cpu, start_ns, end_ns: start_ns, missed: 0, dropped: 0, over_limit: None };
    // the number of instants from this one on that are over, without those after the end of the measurement
    let passed = |timer_ns: i64, now_ns: i64| (now_ns.min(end_ns) - timer_ns).div_euclid(interval_ns) + 1;
    let mut timer_ns = start_ns.saturating_add_unsigned(place.phase_ns);
    let late = passed(timer_ns, Clock::Monotonic.now_ns()).max(0);
    slept.missed += late.cast_unsigned();
    timer_ns += late * interval_ns;
    while timer_ns <= end_ns && !shared.stop.load(Ordering::Acquire) {
        Clock::Monotonic.sleep_until(timer_ns);
        slept.end_ns = Clock::Monotonic.now_ns();
        if shared.stop.load(Ordering::Acquire) {
            break;
        }
        let latency_ns = slept.end_ns.saturating_sub(timer_ns).max(0).cast_unsigned();
        let wakeup = Wakeup { timer_ns, latency_ns };
        slept.dropped += u64::from(ring.push(wakeup).is_err());
        let over = passed(timer_ns, slept.end_ns).max(1);
        slept.missed += over.cast_unsigned() - 1;
        timer_ns += over * interval_ns;
        if latency_ns >= limit_ns {
            if is_final(place, shared) {
                slept.over_limit = Some(wakeup);
                break;
            }
            // the thread did not wait for the instants in this pause, so they are not missed
            timer_ns += passed(timer_ns, Clock::Monotonic.now_ns()).max(0) * interval_ns;
        }
    }
    slept
}

/// Waits for the owner's word on a latency that met the condition: true if it ends the measurement.
fn is_final(place: &Place, shared: &Shared) -> bool {
    place.pause.store(true, Ordering::Release);
    while place.pause.load(Ordering::Acquire) {
        if shared.stop.load(Ordering::Acquire) {
            return true;
        }
        std::thread::park();
    }
    false
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
    fn a_thread_waits_for_the_word_on_a_latency_that_meets_the_condition() {
        let config = Config {
            duration_ns: crate::selfish::Config::MAX_DURATION_NS,
            until: Some("latency >= 1ns".parse().expect("a condition")),
            ..config()
        };
        let mut sleepers = Sleepers::prepare(&config).expect("threads start");
        sleepers.go();
        let mut seen = Vec::new();
        for round in 1..4 {
            while sleepers.paused().is_empty() {
                std::thread::yield_now();
            }
            sleepers.drain(|_, wakeup| seen.push(wakeup));
            assert_eq!(seen.len(), round, "it waits");
            if round < 3 {
                sleepers.paused().into_iter().for_each(|cpu| sleepers.go_on(cpu));
            }
        }
        sleepers.stop();
        let (slept, rest) = sleepers.finish().expect("threads end");
        assert_eq!((slept[0].over_limit, rest.len()), (seen.last().copied(), 0));
    }

    #[test]
    fn the_instants_of_the_cpus_lie_apart_by_the_same_time() {
        let cpus = cpu::usable().expect("linux");
        let (n, config) = (cpus.len() as i64, Config { cpus: cpus.clone(), ..config() });
        let (slept, wakeups) = run(&config);
        assert!(slept.iter().all(|s| s.start_ns == slept[0].start_ns));
        for (place, cpu) in (1..).zip(cpus.iter()) {
            let first = wakeups[&cpu].first().expect("one").timer_ns - slept[0].start_ns;
            assert_eq!(first.rem_euclid(1_000_000), (1_000_000 * place / n).rem_euclid(1_000_000));
        }
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
