// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent: coordinated windows from user space, for kernels without `sched_ext`.
//!
//! At every window edge, counted in TAI and so the same instant on every node, the job's tasks are
//! switched: in a favored window they are `SCHED_FIFO`, above everything else; in a regular window they
//! are in a low class, and everything else goes first (Colony Linux kernel technical report, section
//! 3.2; an agent beside the kernel is what its section 2.4 started from).

mod bandwidth;
mod config;
mod confine;
mod contenders;
mod edges;
mod scanner;
mod slots;
mod table;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::Instant;

use colony_client::AgentStats;
use colony_node::NodeError;
use colony_node::class::{self, Class};
use colony_node::cpu;
use colony_node::record::NodeRecord;
use colony_time::{Windows, clock};
use nix::sys::mman::{MlockAllFlags, mlockall, munlockall};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::SchedError;
use crate::job::Job;
use crate::restore::put_back;
use crate::undo::{TASKS, UndoFile, release, restore_tasks};
use bandwidth::Bandwidth;
use confine::Confinement;
use contenders::Contenders;
use edges::{Counts, EDGE_THREAD, EdgeThread, Record, Shared};
use scanner::{Findings, Pace, Scanner, start_guardian, starter};
use slots::Slots;
use table::Table;

pub use config::{AgentConfig, RegularClass};

/// Edges a thread can record before the scanner collects them: 20 s of windows of 10 ms.
const RECORDS: usize = 4096;
/// New windows that can be under way to a thread.
const NEWS: usize = 64;

/// A running agent; dropping it stops it.
#[derive(Debug)]
pub struct Agent {
    shared: Arc<Shared>,
    findings: Arc<Mutex<Findings>>,
    /// The way to each edge thread: new windows, and waking it up to look.
    threads: Mutex<Vec<(Producer<Windows>, Thread)>>,
    scanner: Option<JoinHandle<()>>,
    started: Instant,
    warnings: Vec<String>,
}

impl Agent {
    /// Starts switching the tasks of `job`.
    ///
    /// The memory of this process is locked while the agent runs: a page fault at an edge would make it late.
    ///
    /// # Errors
    /// [`SchedError::Config`] for impossible priorities or CPUs, [`SchedError::NoRealTime`] without the
    /// privilege, [`SchedError::Guardian`] where the guardian cannot be started.
    pub fn start(config: AgentConfig, job: Arc<Job>) -> Result<Self, SchedError> {
        check(&config)?;
        try_classes(&config)?;
        let mut warnings = warnings(&config.windows);
        let locked = MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE | on_fault();
        if let Err(e) = mlockall(locked) {
            warnings
                .push(format!("memory is not locked ({e}): an edge may be late by a page fault (ulimit -l)"));
        }
        // a job that holds this process's parent must not hold the agent
        job.exclude(std::process::id().cast_signed());
        // before the tasks' own classes are read
        drop(restore_tasks(None));
        job.begin_switching();
        let undo = UndoFile::new(TASKS);
        if let Err(e) = &undo {
            warnings.push(format!(
                "there is no undo file ({e}): if agent and guardian are killed at once, tasks stay in the class they \
                 have then"
            ));
        }
        let undo = undo.ok();
        let starter = starter(&config, undo.as_ref().map(|undo| undo.path().to_owned()))?;
        if let Some(group) = release::new_job_group() {
            job.gather(group);
        }
        let guardian = start_guardian(&starter, &job)?;
        let shared = Arc::new(Shared {
            table: Table::new(config.favored_priority, config.regular, &config.cpus),
            stop: AtomicBool::new(false),
            counts: Counts::new(config.cpus.len() + 1),
        });
        let Threads { handles, ways, records } = start_threads(&config, &shared)?;
        let findings = Arc::new(Mutex::new(Findings::new(config.windows, records)));
        let confinement = Confinement::new(&config.cpus);
        let bandwidth = Bandwidth::new(config.cpus.len());
        let scanner = Scanner {
            config,
            job,
            shared: Arc::clone(&shared),
            findings: Arc::clone(&findings),
            guardian,
            starter,
            threads: handles,
            slots: Slots::default(),
            pace: Pace::default(),
            confinement,
            bandwidth,
            contenders: Contenders::default(),
            undo,
            guardian_gone: Arc::default(),
        };
        let scanner = spawn("colony-scan".into(), move || scanner.run())?;
        let threads = Mutex::new(ways);
        Ok(Self { shared, findings, threads, scanner: Some(scanner), started: Instant::now(), warnings })
    }

    /// Changes the windows; the first edge of the new ones is the next to be kept.
    pub fn set_windows(&self, windows: Windows) {
        self.findings().windows = windows;
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for (news, thread) in threads.iter_mut() {
            // full only if a thread has not run through 64 changes
            while news.push(windows).is_err() && !self.shared.stop.load(Ordering::Acquire) {
                thread.unpark();
                std::thread::yield_now();
            }
            thread.unpark();
        }
        self.rescan_tasks();
    }

    /// Scans for new tasks now, before the next scan is due.
    pub fn rescan_tasks(&self) {
        if let Some(scanner) = &self.scanner {
            scanner.thread().unpark();
        }
    }

    /// Returns `true` while it switches tasks. After it has stopped, [`AgentStats::stopped`] has the reason.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.shared.stop.load(Ordering::Acquire)
    }

    /// The statistics so far.
    #[must_use]
    pub fn stats(&self) -> AgentStats {
        let counts = &self.shared.counts;
        let mut found = self.findings();
        found.collect();
        let errno = counts.errno.load(Ordering::Relaxed);
        let last_error = if found.overflow > 0 {
            Some(format!("the job has more than {} tasks", Table::CAPACITY))
        } else {
            (errno != 0).then(|| format!("switching a task: {}", std::io::Error::from_raw_os_error(errno)))
        };
        let mut warnings = self.warnings.clone();
        for warning in found.warnings.iter().cloned().chain(self::warnings(&found.windows)) {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        AgentStats {
            edges: counts.edges.load(Ordering::Relaxed),
            missed: counts.missed.load(Ordering::Relaxed),
            lateness: (&found.lateness).into(),
            switching: (&found.switching).into(),
            switches: counts.switches.load(Ordering::Relaxed),
            tasks: found.tasks,
            joined: found.joined,
            settled: counts.settled.load(Ordering::Relaxed),
            errors: counts.errors.load(Ordering::Relaxed) + found.overflow,
            last_error,
            guardian_restarts: found.guardian_restarts,
            cpu_ns: counts.cpu_ns.iter().map(|c| c.load(Ordering::Relaxed)).sum(),
            wall_ns: self.started.elapsed().as_nanos() as u64,
            stopped: found.stopped.clone(),
            warnings,
        }
    }

    /// Puts every task back into its own class and ends.
    #[must_use]
    pub fn stop(mut self) -> AgentStats {
        self.end();
        self.stats()
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(scanner) = self.scanner.take() {
            scanner.thread().unpark();
            // if it panicked, its end of the guardian's link is closed and the guardian has acted
            let _ = scanner.join();
            let _ = munlockall();
        }
    }

    fn findings(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.end();
    }
}

/// Locks pages as they are first used, instead of filling in every stack and arena now.
fn on_fault() -> MlockAllFlags {
    MlockAllFlags::from_bits_retain(libc::MCL_ONFAULT)
}

fn check(config: &AgentConfig) -> Result<(), SchedError> {
    if config.entry.is_none() {
        cpu::check(&config.cpus)?;
    }
    let (favored, agent) = (config.favored_priority, config.agent_priority);
    // job tasks that share a CPU take turns one step above their priority
    if favored < 1 || agent <= favored.saturating_add(1) || agent > 99 {
        return Err(SchedError::Config {
            what: format!("priority {agent} for the agent and {favored} for the job cannot work"),
            advice: "choose 1 to 97 for the job and one at least 2 higher, up to 99, for the agent",
        });
    }
    Ok(())
}

/// Goes through all classes on a thread of its own: what fails here would fail at an edge.
fn try_classes(config: &AgentConfig) -> Result<(), SchedError> {
    let (favored, agent, regular) = (config.favored_priority, config.agent_priority, config.regular);
    let classes = move || -> Result<(), String> {
        let own = class::get(0).map_err(|e| e.to_string())?;
        class::set_not_inherited(0, Class::Fifo(agent)).map_err(|e| e.to_string())?;
        if regular == RegularClass::Idle {
            put_back(0, Class::Idle, false).map_err(|e| e.to_string())?;
        }
        class::set_not_inherited(0, Class::Fifo(favored)).map_err(|e| {
            format!("{e} (out of SCHED_IDLE it needs CAP_SYS_NICE; the regular class `own` does not)")
        })?;
        put_back(0, own, false).map_err(|e| format!("going back to {own}: {e}"))
    };
    let tried = spawn("colony-try".into(), classes)?.join();
    tried.unwrap_or_else(|_| Err("the trial thread failed".into())).map_err(SchedError::NoRealTime)
}

/// The threads at the edges, and the ways to and from each.
#[derive(Default)]
struct Threads {
    handles: Vec<JoinHandle<()>>,
    ways: Vec<(Producer<Windows>, Thread)>,
    records: Vec<Consumer<Record>>,
}

/// Starts the thread of each CPU; all of them are ready, or none is left.
fn start_threads(config: &AgentConfig, shared: &Arc<Shared>) -> Result<Threads, SchedError> {
    let mut threads = Threads::default();
    for (home, cpu) in config.cpus.iter().enumerate() {
        if let Err(e) = start_thread(&mut threads, home, cpu, config, shared) {
            shared.stop.store(true, Ordering::Release);
            for handle in threads.handles {
                handle.thread().unpark();
                let _ = handle.join();
            }
            return Err(e);
        }
    }
    Ok(threads)
}

fn start_thread(
    threads: &mut Threads,
    home: usize,
    cpu: usize,
    config: &AgentConfig,
    shared: &Arc<Shared>,
) -> Result<(), SchedError> {
    let (record, recorded) = RingBuffer::new(RECORDS);
    let (tell, news) = RingBuffer::new(NEWS);
    let thread = EdgeThread {
        cpu,
        home,
        priority: config.agent_priority,
        entry: config.entry.clone(),
        windows: config.windows,
        met_ns: clock::Clock::Tai.now_ns(),
        shared: Arc::clone(shared),
        records: record,
        news,
        turn: (0, 0),
    };
    let (ready, is_ready) = sync_channel(1);
    let handle = spawn(format!("{EDGE_THREAD}{cpu}"), move || thread.run(&ready))?;
    threads.ways.push((tell, handle.thread().clone()));
    threads.handles.push(handle);
    threads.records.push(recorded);
    wait_for(&is_ready)
}

fn wait_for(ready: &Receiver<Result<(), NodeError>>) -> Result<(), SchedError> {
    match ready.recv() {
        Ok(prepared) => prepared.map_err(|e| {
            // its own hint would say the same again
            let why = match e {
                NodeError::System { what, source, .. } => format!("{what}: {source}"),
                e => e.to_string(),
            };
            SchedError::NoRealTime(why)
        }),
        Err(_) => Err(SchedError::NoRealTime("a thread of the agent ended early".into())),
    }
}

fn spawn<T: Send + 'static>(
    name: String,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, SchedError> {
    std::thread::Builder::new()
        .name(name)
        .spawn(body)
        .map_err(|source| SchedError::System { what: "starting a thread of the agent", source })
}

/// Warnings for the user about these windows on this node.
fn warnings(windows: &Windows) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(share) = NodeRecord::now().rt_share.filter(|&share| windows.duty() > share) {
        found.push(format!(
            "the duty cycle {:.1} % is over the kernel's real-time share of {:.1} %: the rest of each second goes to \
             others wherever in a window it falls (sched_rt_runtime_us, the fair server); choose a smaller one",
            windows.duty() * 100.0,
            share * 100.0
        ));
    }
    let limit = getrlimit(Resource::RLIMIT_RTTIME).map_or(RLIM_INFINITY, |(soft, _)| soft);
    if limit != RLIM_INFINITY {
        found.push(format!(
            "real-time tasks are killed here after {limit} µs without a pause (RLIMIT_RTTIME), and in a favored \
             window the job is real-time; lift it (ulimit -R unlimited)"
        ));
    }
    if clock::tai_offset_s() == 0 {
        found.push(
            "the kernel does not know the TAI offset: windows are counted in UTC here; other nodes agree only \
             if theirs do not know it either (an NTP or PTP daemon sets it)"
                .into(),
        );
    }
    found
}
