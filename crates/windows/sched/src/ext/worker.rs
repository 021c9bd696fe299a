// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that owns the scheduler: it starts it, tells it of new tasks, and minds its end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use colony_client::{ExtStats, RtTask};
use colony_time::Windows;

use super::config::ExtConfig;
use super::demote::Demoted;
use super::error::ExtError;
use super::load::{Ended, Loaded};
use super::{rt, support};
use crate::binding::keep_off;
use crate::job::Job;

/// Interval at which it checks for the scheduler's end and for processes that joined the job.
const LOOK: Duration = Duration::from_millis(250);
/// An ending of the scheduler that took longer is worth a warning.
const LONG_ENDING: Duration = Duration::from_secs(1);
/// Interval at which it searches for real-time tasks.
const LOOK_FOR_RT: Duration = Duration::from_secs(2);
/// Time for which CPUs may go on- and offline before the worker stops loading the scheduler again.
const RESTARTS: Duration = Duration::from_secs(10);

/// A request to the thread.
enum Ask {
    Rescan,
    Windows(Windows),
    /// Sets whether the processes that this thread forks belong to the job.
    Parent(i32, bool, SyncSender<()>),
    Stats(SyncSender<ExtStats>),
    Stop,
}

/// The scheduler, while this value lives; every task of the node is scheduled by it.
///
/// Tasks of the job are those registered in the [`Job`] and their descendants from then on, and those of the
/// configured cgroups. When this value is dropped, or this process dies, the kernel's own scheduler is back.
#[derive(Debug)]
pub struct ExtScheduler {
    ask: Sender<Ask>,
    thread: Option<JoinHandle<ExtStats>>,
    stopped: Arc<Mutex<Option<String>>>,
    is_loaded: Arc<AtomicBool>,
}

impl ExtScheduler {
    /// Starts it.
    ///
    /// # Errors
    /// [`ExtError`] where this kernel cannot, or another scheduler is loaded.
    pub fn start(config: ExtConfig, job: Arc<Job>) -> Result<Self, ExtError> {
        support::check()?;
        let (ask, asked) = channel();
        let (ready, is_ready) = sync_channel(1);
        let stopped = Arc::new(Mutex::new(None));
        let tell = Arc::clone(&stopped);
        let is_loaded = Arc::new(AtomicBool::new(true));
        let tell_loaded = Arc::clone(&is_loaded);
        let body = move || match Loaded::start(&config) {
            Ok(loaded) => {
                keep_off(&config.cpus);
                let mut worker = Worker::new(config, job, loaded, tell, tell_loaded);
                worker.mark();
                worker.look_for_rt();
                let _ = ready.send(Ok(()));
                worker.run(&asked)
            }
            Err(e) => {
                let _ = ready.send(Err(e));
                ExtStats::default()
            }
        };
        let failed = |what: String| ExtError::Load(what);
        let thread = std::thread::Builder::new()
            .name("colony-ext".into())
            .spawn(body)
            .map_err(|e| failed(format!("starting its thread: {e}")))?;
        is_ready.recv().map_err(|_| failed("its thread ended early".into()))??;
        Ok(Self { ask, thread: Some(thread), stopped, is_loaded })
    }

    /// Changes the windows; they hold when the running window of the old ones ends.
    pub fn set_windows(&self, windows: Windows) {
        let _ = self.ask.send(Ask::Windows(windows));
    }

    /// Scans for tasks added to the job now, before the next scan is due.
    pub fn rescan_tasks(&self) {
        let _ = self.ask.send(Ask::Rescan);
    }

    /// Does `start` on this thread; every process it forks is the job's from the fork on.
    pub fn following<T>(&self, start: impl FnOnce() -> T) -> T {
        let follow = |on| {
            let (give, get) = sync_channel(1);
            let _ = self.ask.send(Ask::Parent(nix::unistd::gettid().as_raw(), on, give));
            let _ = get.recv();
        };
        follow(true);
        let started = start();
        follow(false);
        started
    }

    /// The reason for which the kernel ended it, if it did.
    #[must_use]
    pub fn why_stopped(&self) -> Option<String> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns `true` while the scheduler is loaded: not while it waits for one of the job's CPUs to go online.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.is_loaded.load(Ordering::Acquire)
    }

    /// The statistics so far.
    #[must_use]
    pub fn stats(&self) -> ExtStats {
        let (give, get) = sync_channel(1);
        let _ = self.ask.send(Ask::Stats(give));
        get.recv().unwrap_or_default()
    }

    /// Ends it; the kernel's own scheduler is back when this returns.
    #[must_use]
    pub fn stop(mut self) -> ExtStats {
        self.end()
    }

    fn end(&mut self) -> ExtStats {
        let _ = self.ask.send(Ask::Stop);
        self.thread.take().and_then(|t| t.join().ok()).unwrap_or_default()
    }
}

impl Drop for ExtScheduler {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let _ = self.end();
        }
    }
}

struct Worker {
    config: ExtConfig,
    job: Arc<Job>,
    /// `None` after the kernel ended it.
    loaded: Option<Loaded>,
    /// Since when it is to be loaded again, for CPUs came or went.
    restarting: Option<Instant>,
    /// Time during which the kernel was seen to be ending a scheduler.
    unkept: Duration,
    ending: Option<Instant>,
    /// Statistics of the schedulers before this one.
    before: ExtStats,
    started: Instant,
    looked_for_rt: Option<Instant>,
    real_time: Vec<RtTask>,
    demoted: Demoted,
    /// Tasks that carry the mark.
    marked: std::collections::BTreeMap<i32, u64>,
    stopped: Arc<Mutex<Option<String>>>,
    is_loaded: Arc<AtomicBool>,
}

impl Worker {
    fn new(
        config: ExtConfig,
        job: Arc<Job>,
        loaded: Loaded,
        stopped: Arc<Mutex<Option<String>>>,
        is_loaded: Arc<AtomicBool>,
    ) -> Self {
        Self {
            config,
            job,
            loaded: Some(loaded),
            restarting: None,
            unkept: Duration::ZERO,
            ending: None,
            before: ExtStats::default(),
            started: Instant::now(),
            looked_for_rt: None,
            real_time: Vec::new(),
            demoted: Demoted::default(),
            marked: std::collections::BTreeMap::new(),
            stopped,
            is_loaded,
        }
    }

    /// Works until asked to stop; what was done.
    fn run(&mut self, asked: &Receiver<Ask>) -> ExtStats {
        loop {
            match asked.recv_timeout(LOOK) {
                Ok(Ask::Rescan) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Ask::Windows(windows)) => {
                    self.config.windows = windows;
                    if let Some(loaded) = &mut self.loaded {
                        loaded.set_windows(&windows);
                    }
                }
                Ok(Ask::Parent(tid, on, reply)) => {
                    if let Some(loaded) = &self.loaded {
                        loaded.mark(tid, None, on);
                    }
                    let _ = reply.send(());
                    continue;
                }
                Ok(Ask::Stats(reply)) => {
                    let _ = reply.send(self.stats());
                }
                Ok(Ask::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    let stats = self.stats();
                    self.loaded = None;
                    return stats;
                }
            }
            self.demoted.beat();
            self.measure_ending();
            self.handle_end();
            self.is_loaded.store(self.loaded.is_some(), Ordering::Release);
            self.mark();
            if let Some(loaded) = &mut self.loaded {
                loaded.watch_limits();
            }
            self.look_for_rt();
        }
    }

    /// Tells the kernel of the job's tasks that it does not know: those it forks are known by themselves.
    fn mark(&mut self) {
        self.job.refresh();
        let Some(loaded) = &self.loaded else { return };
        let tasks = self.job.tasks();
        for task in &tasks {
            if self.marked.get(&task.tid) != Some(&task.start_ticks)
                && loaded.mark(task.tid, Some(task.start_ticks), true)
            {
                self.marked.insert(task.tid, task.start_ticks);
            }
        }
        let there: std::collections::BTreeSet<i32> = tasks.iter().map(|t| t.tid).collect();
        self.marked.retain(|tid, _| there.contains(tid));
    }

    fn look_for_rt(&mut self) {
        if self.looked_for_rt.is_some_and(|at| at.elapsed() < LOOK_FOR_RT) {
            return;
        }
        self.looked_for_rt = Some(Instant::now());
        let ours = std::process::id().cast_signed();
        self.real_time = rt::tasks_on(&self.config.cpus, ours);
        let asked = &self.config.options.demote;
        let named = self.real_time.extract_if(.., |t| !t.kernel && rt::is_named(t, asked)).collect();
        self.demoted.demote(named);
    }

    /// Measures the time in which the kernel is ending the scheduler: it can be long if a CPU goes offline.
    fn measure_ending(&mut self) {
        let ending = self.loaded.is_some() && support::ending();
        if let Some(since) = self.ending.take() {
            self.unkept += since.elapsed();
        }
        self.ending = ending.then(Instant::now);
    }

    /// Handles the scheduler's end: loads it again after CPUs went on- or offline, and records any other reason.
    fn handle_end(&mut self) {
        if let Some(ended) = self.loaded.as_ref().and_then(Loaded::ended) {
            self.before = self.accounts();
            self.loaded = None;
            self.marked.clear();
            match ended {
                Ended::Because(why) => self.give_up(why),
                Ended::Restart => self.restarting = Some(Instant::now()),
            }
        }
        let Some(since) = self.restarting else { return };
        // the job's tasks may run elsewhere meanwhile, scheduled as without windows
        if self.is_without_cpu() {
            self.restarting = Some(Instant::now());
            return;
        }
        match self.restart() {
            Ok(()) => self.restarting = None,
            // more CPUs may be on their way: the next look tries again, questions are answered until then
            Err(_) if since.elapsed() < RESTARTS => {}
            Err(e) => {
                self.restarting = None;
                self.give_up(format!("CPUs came or went, and it could not be loaded again: {e}"));
            }
        }
    }

    /// Returns `true` if every CPU of the job is offline.
    fn is_without_cpu(&self) -> bool {
        colony_node::cpu::online().is_ok_and(|online| self.config.cpus.and(&online).is_empty())
    }

    fn give_up(&self, why: String) {
        tracing::warn!("the kernel ended the sched_ext scheduler: {why}");
        *self.stopped.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    fn restart(&mut self) -> Result<(), ExtError> {
        let online = colony_node::cpu::online().map_err(|e| ExtError::Load(e.to_string()))?;
        let mut config = self.config.clone();
        config.cpus = config.cpus.and(&online);
        self.loaded = Some(Loaded::start(&config)?);
        self.before.restarts += 1;
        self.mark();
        Ok(())
    }

    /// A warning about real-time tasks: the kernel's own run rarely, and no scheduler can hold them.
    fn above_us(&self) -> Option<String> {
        let job = self.job.tasks();
        let foreign = |t: &&RtTask| !t.kernel && !job.iter().any(|j| j.tid == t.tid);
        let mut names: Vec<String> =
            self.real_time.iter().filter(foreign).map(|t| format!("{} ({})", t.comm, t.class)).collect();
        names.dedup();
        let first = names.first()?.split(' ').next().unwrap_or_default().to_owned();
        let more = if names.len() > 5 { format!(" and {} more", names.len() - 5) } else { String::new() };
        names.truncate(5);
        Some(format!(
            "real-time tasks are above this scheduler, so no window holds them on the job's CPUs: {}{more}; keep \
             them off these CPUs, or have them scheduled ordinarily meanwhile (--demote {first})",
            names.join(", ")
        ))
    }

    /// Statistics of all schedulers so far, as the kernel counts them.
    fn accounts(&self) -> ExtStats {
        let mut accounts = self.before.clone();
        if let Some(loaded) = &self.loaded {
            accounts.add(loaded.stats());
        }
        accounts
    }

    fn stats(&self) -> ExtStats {
        let mut stats = self.accounts();
        stats.cpus = self.config.cpus.clone();
        stats.real_time.clone_from(&self.real_time);
        stats.demoted.clone_from(&self.demoted.tasks);
        stats.warnings.extend(self.demoted.problem.clone());
        stats.warnings.extend(self.above_us());
        let unkept = self.unkept + self.ending.map_or(Duration::ZERO, |since| since.elapsed());
        if unkept > LONG_ENDING {
            stats.warnings.push(format!(
                "no windows were kept for {:.1} s: so long the kernel was ending the scheduler, as it does when CPUs \
                 come or go",
                unkept.as_secs_f64()
            ));
        }
        if self.restarting.is_some() && self.is_without_cpu() {
            stats.warnings.push(format!(
                "no windows are kept: the job's CPUs ({}) are offline; they are kept again when one of them is back \
                 (echo 1 > /sys/devices/system/cpu/cpuN/online)",
                self.config.cpus
            ));
        }
        stats.wall_ns = self.started.elapsed().as_nanos() as u64;
        stats.stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner).clone();
        stats
    }
}
