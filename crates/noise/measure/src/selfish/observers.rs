// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pinned thread per CPU that runs the loop, real-time if asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use colony_node::NodeError;
use colony_node::class::{self, Class};
use colony_node::cpu::{self, CpuSet};
use colony_time::clock::Clock;
use colony_time::text::Ns;
use colony_time::tsc::{Calibration, Counter, CounterKind, Tsc, Vdso};
use hdrhistogram::Histogram;
use rtrb::Consumer;

use colony_selfish::hot::{self, LoopCost};
use colony_selfish::recorder::{Gap, Recorder};

/// The parameters of an observation.
#[derive(Clone, Debug)]
pub struct Config {
    /// CPUs to observe, a thread each.
    pub cpus: CpuSet,
    /// Duration, nanoseconds.
    pub duration_ns: u64,
    /// Gaps shorter than this, the loop's own turn taken off, are not detours. At least [`Config::MIN_THRESHOLD_NS`].
    pub threshold_ns: u64,
    /// `None`: the class the process has; else `SCHED_FIFO` with this priority.
    pub fifo: Option<u8>,
    /// Allows a `SCHED_FIFO` observer to take every CPU of the node.
    pub all_cpus: bool,
    /// Single detours kept per CPU.
    pub ring: usize,
}

impl Config {
    /// The shortest threshold: five turns of the loop.
    pub const MIN_THRESHOLD_NS: u64 = 50;
    /// The longest observation: a day.
    pub const MAX_DURATION_NS: u64 = 86_400 * colony_time::NS_PER_S;
    /// Most single detours kept per CPU: 1 GiB.
    pub const MAX_RING: usize = 1 << 26;
    /// Highest priority of an observer: the watchdog needs one above it.
    pub const MAX_FIFO: u8 = 90;

    /// Checks what can be checked before anything runs.
    ///
    /// # Errors
    /// [`SelfishError`] names the wish that cannot be fulfilled.
    pub fn check(&self) -> Result<(), SelfishError> {
        cpu::check(&self.cpus)?;
        let wish = |parameter, found: &dyn std::fmt::Display, range| SelfishError::Range {
            parameter,
            found: found.to_string(),
            range,
        };
        if self.threshold_ns < Self::MIN_THRESHOLD_NS {
            return Err(wish("the threshold", &Ns(self.threshold_ns), "50 ns or more"));
        }
        if !(1..=Self::MAX_DURATION_NS).contains(&self.duration_ns) {
            return Err(wish("the duration", &Ns(self.duration_ns), "1 ns to 24 h"));
        }
        if !(1..=Self::MAX_RING).contains(&self.ring) {
            return Err(wish("the ring", &self.ring, "1 to 67108864 detours a CPU"));
        }
        if let Some(priority) = self.fifo {
            if !(1..=Self::MAX_FIFO).contains(&priority) {
                return Err(wish("the SCHED_FIFO priority", &priority, "1 to 90"));
            }
            if !self.all_cpus && cpu::online()?.without(&self.cpus).is_empty() {
                return Err(SelfishError::AllCpus);
            }
        }
        Ok(())
    }
}

/// The reasons for an observation to fail.
#[derive(Debug, thiserror::Error)]
pub enum SelfishError {
    /// The node said no.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A wish out of range.
    #[error("{parameter} is {found}; it must be {range}")]
    Range {
        /// The parameter.
        parameter: &'static str,
        /// The wish.
        found: String,
        /// The range of the parameter.
        range: &'static str,
    },
    /// A real-time observer on every CPU would starve the node.
    #[error(
        "a SCHED_FIFO observer on every CPU would stop this node until it ends; leave one out with --cpus, or say --all-cpus"
    )]
    AllCpus,
    /// A thread could not be started.
    #[error("cannot start an observer thread: {0}")]
    Thread(std::io::Error),
    /// An observer died of a bug of ours.
    #[error("the observer of CPU {0} panicked")]
    Panicked(usize),
}

impl SelfishError {
    /// True if the caller's request is impossible (exit code 2), false if the run failed (exit code 1).
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        match self {
            Self::Range { .. } | Self::AllCpus => true,
            Self::Node(e) => e.is_wrong_use(),
            Self::Thread(_) | Self::Panicked(_) => false,
        }
    }
}

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

/// The longest the loop goes without looking at the stop flag.
const LOOK_EVERY_NS: f64 = 10e6;
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
    let look_every = calibration.from_ns(LOOK_EVERY_NS);
    while seen.end < end && !shared.stop.load(Ordering::Relaxed) {
        let s = hot::stretch::<C>(seen.end, end.min(seen.end + look_every), threshold, &mut recorder);
        seen.end = s.last;
        seen.turns += s.turns;
        seen.blind += s.blind;
        seen.smallest = seen.smallest.min(s.smallest);
    }
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
    fn a_real_time_observer_never_takes_all_cpus_unasked() {
        let all = Config { cpus: cpu::online().expect("linux"), fifo: Some(50), ..config() };
        assert!(matches!(all.check(), Err(SelfishError::AllCpus)));
        assert!(Config { all_cpus: true, ..all }.check().is_ok());
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

    #[test]
    fn impossible_wishes_are_refused() {
        for bad in [
            Config { threshold_ns: 49, ..config() },
            Config { duration_ns: 0, ..config() },
            Config { ring: 0, ..config() },
            Config { fifo: Some(91), ..config() },
            Config { cpus: "1000".parse().expect("a list"), ..config() },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
