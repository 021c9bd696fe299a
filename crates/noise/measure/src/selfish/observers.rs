// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pinned thread per CPU that runs the loop, real-time if asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use colony_node::NodeError;
use colony_node::class::{self, Class};
use colony_node::cpu;
use colony_time::clock::Clock;
use colony_time::tsc::{Calibration, Counter, CounterKind, Tsc, Vdso};
use hdrhistogram::Histogram;
use rtrb::Consumer;

use colony_selfish::hot::{self, LoopCost};
use colony_selfish::recorder::{Gap, Recorder};

use super::config::{Config, SelfishError};

/// The record of one CPU's observer. Counts are of the counter in use.
#[derive(Debug)]
pub struct ObservedCpu {
    /// The CPU.
    pub cpu: usize,
    /// Thread id of the observer.
    pub tid: i32,
    /// First reading.
    pub start: u64,
    /// Last reading.
    pub end: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// Loop costs, measured before the run.
    pub cost: LoopCost,
    /// Smallest gap of the run itself.
    pub smallest: u64,
    /// Counts spent recording, in which the loop was blind.
    pub blind: u64,
    /// All detours by length, nanoseconds.
    pub histogram: Histogram<u64>,
    /// The sum of all detours, nanoseconds.
    pub stolen_ns: u64,
    /// Detours that found the ring full.
    pub dropped: u64,
    /// The detour that reached the limit, on which this observer ended.
    pub over_limit: Option<Gap>,
}

/// Single detours by CPU, in order.
pub type Gaps = BTreeMap<usize, Vec<Gap>>;

/// Observers at work. Single detours are taken with [`drain`](Self::drain), while they run or after.
pub struct Observers {
    shared: Arc<Shared>,
    threads: Vec<(usize, JoinHandle<Result<ObservedCpu, NodeError>>)>,
    watchdog: Option<JoinHandle<()>>,
    rings: Vec<Ring>,
}

/// The reading end of one observer's ring.
struct Ring {
    cpu: usize,
    tid: i32,
    smallest_loop: u64,
    gaps: Consumer<Gap>,
}

struct Shared {
    go: AtomicBool,
    stop: AtomicBool,
    ready: AtomicUsize,
    finished: AtomicUsize,
}

/// Longest time between two checks of the stop flag.
const CHECK_STOP_EVERY_NS: f64 = 10e6;
/// The same if a detour of another CPU may end the observation.
const CHECK_STOP_EVERY_WITH_LIMIT_NS: f64 = 1e6;
/// Time after the end of the observation for which the watchdog lets an observer go on.
const GRACE_NS: i64 = 500_000_000;

impl Observers {
    /// Starts a thread on every CPU, touches all memory, measures the loop; returns when all are ready.
    /// They wait for [`go`](Self::go).
    ///
    /// # Errors
    /// [`SelfishError`]; nothing is left running then.
    pub fn prepare(config: &Config, calibration: Calibration) -> Result<Self, SelfishError> {
        config.check()?;
        let shared = Arc::new(Shared {
            go: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            ready: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
        });
        let mut all = Self { shared, threads: Vec::new(), watchdog: None, rings: Vec::new() };
        for cpu in config.cpus.iter() {
            all.start_one(cpu, config, calibration)?;
        }
        while all.shared.ready.load(Ordering::Acquire) < config.cpus.len() {
            if all.threads.iter().any(|(_, t)| t.is_finished()) {
                // one failed to start; `finish` stops the others and says why
                return Err(all.finish().err().unwrap_or(SelfishError::AllCpus));
            }
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        Ok(all)
    }

    fn start_one(
        &mut self,
        cpu: usize,
        config: &Config,
        calibration: Calibration,
    ) -> Result<(), SelfishError> {
        let (give, take) = std::sync::mpsc::channel();
        let (shared, config) = (Arc::clone(&self.shared), config.clone());
        let thread = std::thread::Builder::new()
            .name(format!("selfish/{cpu}"))
            .spawn(move || {
                cpu::pin(cpu)?;
                let result = match calibration.kind {
                    CounterKind::Tsc => observe::<Tsc>(cpu, &config, calibration, &shared, &give),
                    CounterKind::Vdso => observe::<Vdso>(cpu, &config, calibration, &shared, &give),
                };
                shared.finished.fetch_add(1, Ordering::AcqRel);
                result
            })
            .map_err(SelfishError::Thread)?;
        self.threads.push((cpu, thread));
        // a thread that fails before it has a ring drops its end of the channel
        if let Ok((tid, smallest_loop, gaps)) = take.recv() {
            self.rings.push(Ring { cpu, tid, smallest_loop, gaps });
        }
        Ok(())
    }

    /// Thread ids of the observers, by CPU.
    #[must_use]
    pub fn tids(&self) -> Vec<(usize, i32)> {
        self.rings.iter().map(|r| (r.cpu, r.tid)).collect()
    }

    /// The smallest turn of a CPU's loop, in counts; 0 where none runs there.
    #[must_use]
    pub fn smallest_loop(&self, cpu: usize) -> u64 {
        self.rings.iter().find(|r| r.cpu == cpu).map_or(0, |r| r.smallest_loop)
    }

    /// Lets all observers start together, and the watchdog of a real-time run with them.
    ///
    /// # Errors
    /// [`SelfishError::Thread`] where the watchdog cannot start; then the observers do not either.
    pub fn go(&mut self, config: &Config) -> Result<(), SelfishError> {
        if let Some(priority) = config.fifo {
            let shared = Arc::clone(&self.shared);
            let (tids, until) =
                (self.tids(), Clock::Monotonic.now_ns() + config.duration_ns as i64 + GRACE_NS);
            let watchdog = std::thread::Builder::new().name("watchdog".into()).spawn(move || {
                // above the observers, so that it runs on their CPUs if it must; without the
                // privilege there are no real-time observers to watch either
                let _ = class::set(0, Class::Fifo(priority + 5));
                while Clock::Monotonic.now_ns() < until
                    && shared.finished.load(Ordering::Acquire) < tids.len()
                {
                    Clock::Monotonic.sleep_until(until.min(Clock::Monotonic.now_ns() + 20_000_000));
                }
                shared.stop.store(true, Ordering::Release);
                for (_, tid) in tids {
                    let _ = class::set(tid, Class::Other(0));
                }
            });
            self.watchdog = Some(watchdog.map_err(SelfishError::Thread)?);
        }
        self.shared.go.store(true, Ordering::Release);
        Ok(())
    }

    /// True if every observer has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.shared.finished.load(Ordering::Acquire) >= self.threads.len()
    }

    /// Returns `true` if the observers were asked to end early: by [`stop`](Self::stop), or by a detour that reached the limit.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    /// Asks all observers to end early.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
    }

    /// Hands over the single detours recorded since the last call.
    pub fn drain(&mut self, mut take: impl FnMut(usize, Gap)) {
        for ring in &mut self.rings {
            while let Ok(gap) = ring.gaps.pop() {
                take(ring.cpu, gap);
            }
        }
    }

    /// Waits for the end and returns what each CPU's observer saw, and the detours not drained before.
    ///
    /// # Errors
    /// The first observer's error, after all have ended.
    pub fn finish(mut self) -> Result<(Vec<ObservedCpu>, Gaps), SelfishError> {
        if !self.shared.go.load(Ordering::Acquire) {
            self.shared.stop.store(true, Ordering::Release);
            self.shared.go.store(true, Ordering::Release);
        }
        let mut seen = Vec::new();
        let mut failed = None;
        for (cpu, thread) in self.threads.drain(..) {
            match thread.join() {
                Ok(Ok(observed)) => seen.push(observed),
                Ok(Err(e)) => failed = failed.or(Some(SelfishError::Node(e))),
                Err(_) => failed = failed.or(Some(SelfishError::Panicked(cpu))),
            }
        }
        self.shared.finished.store(usize::MAX, Ordering::Release);
        if let Some(watchdog) = self.watchdog.take() {
            // it cannot fail: it only sleeps and demotes
            let _ = watchdog.join();
        }
        let mut rest = Gaps::new();
        self.drain(|cpu, gap| rest.entry(cpu).or_default().push(gap));
        failed.map_or(Ok((seen, rest)), Err)
    }
}

impl Drop for Observers {
    fn drop(&mut self) {
        // also on an early return: no observer may outlive its owner
        self.shared.stop.store(true, Ordering::Release);
        self.shared.go.store(true, Ordering::Release);
        for (_, thread) in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn gettid() -> i32 {
    // SAFETY: gettid has no arguments and cannot fail.
    unsafe { libc::gettid() }
}

fn observe<C: Counter>(
    cpu: usize,
    config: &Config,
    calibration: Calibration,
    shared: &Shared,
    give: &std::sync::mpsc::Sender<(i32, u64, Consumer<Gap>)>,
) -> Result<ObservedCpu, NodeError> {
    let tid = gettid();
    let cost = hot::cost::<C>();
    let ns_per_count = calibration.to_ns(1);
    let (mut recorder, mut consumer) = Recorder::new(config.ring, ns_per_count, cost.smallest);
    // the code that records is in memory, too, before the run
    let now = C::read();
    hot::stretch::<C>(now, now + calibration.from_ns(20e3), 0, &mut recorder);
    recorder.clear(&mut consumer);
    if let Some(until) = config.until {
        recorder.set_limit(until.at_least_ns());
    }
    // the owner waits for the ring; if it is gone, so is the reason to observe
    let _ = give.send((tid, cost.smallest, consumer));
    if let Some(priority) = config.fifo {
        // before `ready`, so that a missing privilege is told before anything starts
        class::set(0, Class::Fifo(priority))?;
        class::set(0, Class::Other(0))?;
    }
    let mut seen = ObservedCpu {
        cpu,
        tid,
        start: 0,
        end: 0,
        turns: 0,
        cost,
        smallest: u64::MAX,
        blind: 0,
        histogram: super::recorder::histogram(),
        stolen_ns: 0,
        dropped: 0,
        over_limit: None,
    };
    shared.ready.fetch_add(1, Ordering::AcqRel);
    while !shared.go.load(Ordering::Acquire) {
        std::hint::spin_loop();
    }
    if let Some(priority) = config.fifo {
        class::set(0, Class::Fifo(priority))?;
    }
    let threshold = calibration.at_least_ns(config.threshold_ns as f64) + cost.smallest;
    seen.start = C::read();
    seen.end = seen.start;
    let end = seen.start + calibration.at_least_ns(config.duration_ns as f64);
    let check_every =
        calibration.from_ns(config.until.map_or(CHECK_STOP_EVERY_NS, |_| CHECK_STOP_EVERY_WITH_LIMIT_NS));
    while seen.end < end && !shared.stop.load(Ordering::Relaxed) {
        let s = hot::stretch::<C>(seen.end, end.min(seen.end + check_every), threshold, &mut recorder);
        seen.end = s.last;
        seen.turns += s.turns;
        seen.blind += s.blind;
        seen.smallest = seen.smallest.min(s.smallest);
        if recorder.over_limit().is_some() {
            shared.stop.store(true, Ordering::Release);
        }
    }
    seen.over_limit = recorder.over_limit();
    if config.fifo.is_some() {
        class::set(0, Class::Other(0))?;
    }
    seen.dropped = recorder.dropped();
    seen.stolen_ns = recorder.stolen_ns();
    seen.histogram = recorder.into_histogram();
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let last = cpu::usable().expect("linux").iter().last().expect("a CPU");
        Config {
            cpus: [last].into_iter().collect(),
            duration_ns: 50_000_000,
            threshold_ns: 50,
            fifo: None,
            all_cpus: false,
            ring: 1 << 12,
            until: None,
        }
    }

    fn run(config: &Config) -> (Vec<ObservedCpu>, Gaps) {
        let mut o = Observers::prepare(config, Calibration::measure()).expect("observers start");
        o.go(config).expect("watchdog starts");
        o.finish().expect("observers end")
    }

    #[test]
    fn an_observer_sees_its_whole_time_and_every_detour_once() {
        let config = config();
        let (seen, gaps) = run(&config);
        let [cpu] = &seen[..] else { panic!("one CPU was asked for") };
        assert!(Calibration::measure().to_ns(cpu.end - cpu.start) >= 49.9e6);
        let gaps = gaps.get(&cpu.cpu).map(Vec::as_slice).unwrap_or_default();
        assert_eq!(gaps.len() as u64 + cpu.dropped, cpu.histogram.len());
        assert!(gaps.iter().all(|g| g.end <= cpu.end && g.length > cpu.cost.smallest));
    }

    /// Waits until no thread has these numbers any more: the kernel takes one off its list soon after it was joined.
    fn wait_for_end(tids: &[(usize, i32)]) {
        assert!(!tids.is_empty());
        while tids.iter().any(|&(_, tid)| colony_node::task::stat(tid).is_ok()) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn stopping_and_dropping_end_the_threads() {
        // a day
        let long = Config { duration_ns: Config::MAX_DURATION_NS, ..config() };
        let calibration = Calibration::measure();
        let mut o = Observers::prepare(&long, calibration).expect("observers start");
        let waiting = o.tids();
        drop(o);
        wait_for_end(&waiting);
        o = Observers::prepare(&long, calibration).expect("observers start");
        o.go(&long).expect("goes");
        let running = o.tids();
        drop(o);
        wait_for_end(&running);
        o = Observers::prepare(&long, calibration).expect("observers start");
        o.go(&long).expect("goes");
        assert!(!o.is_finished());
        o.stop();
        let (seen, _) = o.finish().expect("ends");
        assert!(calibration.to_ns(seen[0].end - seen[0].start) < long.duration_ns as f64);
    }

    #[test]
    fn a_detour_of_the_limit_ends_the_observers_of_all_cpus() {
        let long = Config {
            cpus: cpu::usable().expect("linux"),
            duration_ns: Config::MAX_DURATION_NS,
            until: Some("detour >= 50ns".parse().expect("a condition")),
            ..config()
        };
        // a day without a detour of 50 ns is not to be expected
        let (seen, gaps) = run(&long);
        assert_eq!(seen.len(), long.cpus.len());
        let over: Vec<&ObservedCpu> = seen.iter().filter(|c| c.over_limit.is_some()).collect();
        assert!(!over.is_empty());
        for cpu in over {
            assert_eq!(gaps.get(&cpu.cpu).and_then(|of_cpu| of_cpu.last()), cpu.over_limit.as_ref());
        }
    }

    #[test]
    fn a_real_time_observer_ends_in_its_own_class_again() {
        if !colony_node::privilege::Privileges::here().real_time || cpu::online().expect("linux").len() < 2 {
            colony_testing::skip("needs CAP_SYS_NICE and two CPUs");
            return;
        }
        let config = Config { fifo: Some(10), duration_ns: Config::MAX_DURATION_NS, ..config() };
        let cpu = config.cpus.iter().next().expect("a CPU");
        let shared = Shared {
            go: AtomicBool::new(true),
            stop: AtomicBool::new(false),
            ready: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
        };
        let (give, take) = std::sync::mpsc::channel();
        let (calibration, stop) = (Calibration::measure(), &shared.stop);
        let after = std::thread::scope(|threads| {
            let observer = threads.spawn(|| {
                cpu::pin(cpu)?;
                observe::<Vdso>(cpu, &config, calibration, &shared, &give)?;
                class::get(gettid())
            });
            let (tid, ..) = take.recv().expect("it starts");
            while !observer.is_finished() && class::get(tid).ok() != Some(Class::Fifo(10)) {
                std::thread::yield_now();
            }
            let observed = !observer.is_finished();
            stop.store(true, Ordering::Release);
            (observed, observer.join().expect("no panic"))
        });
        assert!(matches!(after, (true, Ok(Class::Other(0)))), "{after:?}");
    }
}
