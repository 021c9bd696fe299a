// SPDX-License-Identifier: MIT OR Apache-2.0
//! Enforces a job's windows, with the `sched_ext` backend if the kernel supports it and the agent backend otherwise.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use colony_client::{Backend, ExtStats, KeeperStats};
use colony_node::cpu::{self, CpuSet};
use colony_time::Windows;

use crate::SchedError;
use crate::agent::{Agent, AgentConfig, RegularClass};
use crate::backend::BackendChoice;
use crate::binding::keep_off;
use crate::cgroup::ThreadEntry;
use crate::ext::{ExtConfig, ExtError, ExtOptions, ExtScheduler};
use crate::job::Job;

/// Interval at which the end of the scheduler is checked for.
const LOOK: Duration = Duration::from_millis(250);

/// The configuration of a keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeeperConfig {
    /// The backend that is asked for; a keeper cannot be `Daemon` or `None`.
    pub backend: BackendChoice,
    /// The windows.
    pub windows: Windows,
    /// The job's CPUs.
    pub cpus: CpuSet,
    /// The class of job tasks in regular windows, with the agent.
    pub regular: RegularClass,
    /// The way of single threads into the job's group, if the kernel keeps others off the job's CPUs.
    pub entry: Option<ThreadEntry>,
    /// Settings of the scheduler in the kernel.
    pub ext: ExtOptions,
}

/// Keeps the windows while it lives.
#[derive(Debug)]
pub struct Keeper {
    shared: Arc<Shared>,
    watcher: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    job: Arc<Job>,
    inner: Mutex<Inner>,
    stop: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    config: KeeperConfig,
    active: Active,
    /// Statistics of the scheduler in the kernel from before the agent took over.
    ext: Option<ExtStats>,
    warnings: Vec<String>,
}

/// The backend that enforces the windows now, with what it runs.
#[derive(Debug)]
enum Active {
    Ext(ExtScheduler),
    Agent(Box<Agent>),
    None,
}

impl Keeper {
    /// Starts keeping windows for `job`.
    ///
    /// # Errors
    /// [`SchedError::Ext`] where `sched_ext` was asked for and cannot be; else as [`Agent::start`].
    pub fn start(config: KeeperConfig, job: Arc<Job>) -> Result<Self, SchedError> {
        let (active, warnings) = choose(&config, &job)?;
        let watch = matches!(active, Active::Ext(_));
        let inner = Mutex::new(Inner { config, active, ext: None, warnings });
        let shared = Arc::new(Shared { job, inner, stop: AtomicBool::new(false) });
        let watcher = watch.then(|| {
            let shared = Arc::clone(&shared);
            let body = move || shared.watch();
            std::thread::Builder::new().name("colony-keep".into()).spawn(body)
        });
        let watcher = watcher.transpose().map_err(|source| SchedError::System {
            what: "starting the thread that minds the scheduler",
            source,
        })?;
        Ok(Self { shared, watcher })
    }

    /// Changes the windows.
    pub fn set_windows(&self, windows: Windows) {
        let mut inner = self.shared.lock();
        inner.config.windows = windows;
        match &inner.active {
            Active::Ext(ext) => ext.set_windows(windows),
            Active::Agent(agent) => agent.set_windows(windows),
            Active::None => {}
        }
    }

    /// Scans for new tasks of the job now.
    pub fn rescan_tasks(&self) {
        match &self.shared.lock().active {
            Active::Ext(ext) => ext.rescan_tasks(),
            Active::Agent(agent) => agent.rescan_tasks(),
            Active::None => {}
        }
    }

    /// Runs `start` on the calling thread. With the `sched_ext` backend, every process it forks belongs to the job from its
    /// first instruction.
    pub fn following<T>(&self, start: impl FnOnce() -> T) -> T {
        match &self.shared.lock().active {
            Active::Ext(ext) => ext.following(start),
            _ => start(),
        }
    }

    /// The backend now: [`Backend::None`] while the scheduler in the kernel waits for a CPU of the job's.
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.shared.lock().active.backend()
    }

    /// Returns `true` while a backend enforces the windows.
    #[must_use]
    pub fn is_running(&self) -> bool {
        match &self.shared.lock().active {
            // the agent takes over when it ends
            Active::Ext(_) => true,
            Active::Agent(agent) => agent.is_running(),
            Active::None => false,
        }
    }

    /// The statistics so far.
    #[must_use]
    pub fn stats(&self) -> KeeperStats {
        self.shared.lock().stats()
    }

    /// Ends it; every task is scheduled as without it when this returns.
    #[must_use]
    pub fn stop(mut self) -> KeeperStats {
        self.end();
        let mut inner = self.shared.lock();
        let active = std::mem::replace(&mut inner.active, Active::None);
        let did = KeeperStats { backend: active.backend(), ..inner.stats() };
        match active {
            Active::Ext(ext) => KeeperStats { sched_ext: Some(ext.stop()), ..did },
            Active::Agent(agent) => KeeperStats { agent: Some(agent.stop()), ..did },
            Active::None => did,
        }
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(watcher) = self.watcher.take() {
            watcher.thread().unpark();
            let _ = watcher.join();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts the backend that is asked for, or the best there is; with what the user should know of the choice.
fn choose(config: &KeeperConfig, job: &Arc<Job>) -> Result<(Active, Vec<String>), SchedError> {
    match config.backend {
        BackendChoice::Auto | BackendChoice::SchedExt => {}
        BackendChoice::Agent => return Ok((agent(config, job)?, Vec::new())),
        BackendChoice::Daemon | BackendChoice::None => {
            return Err(SchedError::Config {
                what: "a keeper of windows is asked for `daemon` or `none`".into(),
                advice: "choose auto, sched_ext or agent",
            });
        }
    }
    let ext = ExtConfig {
        windows: config.windows,
        cpus: config.cpus.clone(),
        entry: config.entry.clone(),
        options: config.ext.clone(),
    };
    let refused = match ExtScheduler::start(ext, Arc::clone(job)) {
        Ok(ext) => return Ok((Active::Ext(ext), Vec::new())),
        Err(e) if config.backend == BackendChoice::SchedExt => return Err(SchedError::Ext(e)),
        Err(e) => e,
    };
    tracing::debug!("the agent keeps the windows: {refused}");
    // a kernel without it is no news; one that has it and does not take it is
    let news = !matches!(refused, ExtError::Kernel | ExtError::Bpf(_));
    let warning = news.then(|| format!("the agent keeps the windows, not the kernel's scheduler: {refused}"));
    Ok((agent(config, job)?, warning.into_iter().collect()))
}

/// Starts the agent, from a thread that may run everywhere, as its own threads must.
fn agent(config: &KeeperConfig, job: &Arc<Job>) -> Result<Active, SchedError> {
    let agent = AgentConfig {
        regular: config.regular,
        entry: config.entry.clone(),
        ..AgentConfig::new(config.windows, config.cpus.clone())
    };
    let start = || {
        let here = cpu::affinity(0)?;
        if !config.cpus.without(&here).is_empty() {
            cpu::bind(0, &cpu::online()?)?;
        }
        Agent::start(agent, Arc::clone(job))
    };
    let started = std::thread::scope(|s| s.spawn(start).join())
        .unwrap_or_else(|_| Err(SchedError::NoRealTime("starting the agent failed".into())))?;
    Ok(Active::Agent(Box::new(started)))
}

impl Active {
    fn backend(&self) -> Backend {
        match self {
            Self::Ext(ext) if ext.is_loaded() => Backend::SchedExt,
            Self::Ext(_) => Backend::None,
            Self::Agent(_) => Backend::Agent,
            Self::None => Backend::None,
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the agent take over when the kernel ends the scheduler.
    fn watch(&self) {
        keep_off(&self.lock().config.cpus.clone());
        while !self.stop.load(Ordering::Acquire) {
            std::thread::park_timeout(LOOK);
            let mut inner = self.lock();
            let Active::Ext(ext) = &inner.active else { return };
            let Some(why) = ext.why_stopped() else { continue };
            inner.take_over(&why, &self.job);
            return;
        }
    }
}

impl Inner {
    fn take_over(&mut self, why: &str, job: &Arc<Job>) {
        if let Active::Ext(ext) = std::mem::replace(&mut self.active, Active::None) {
            self.ext = Some(ext.stop());
        }
        let next = match agent(&self.config, job) {
            Ok(active) => {
                self.active = active;
                "the agent keeps the windows since".into()
            }
            Err(e) => format!("scheduling is plain since, for the agent did not start: {e}"),
        };
        let text = format!("the kernel ended the scheduler ({why}); {next}");
        tracing::error!("{text}");
        self.warnings.push(text);
    }

    fn stats(&self) -> KeeperStats {
        let (mut sched_ext, mut agent) = (self.ext.clone(), None);
        match &self.active {
            Active::Ext(ext) => sched_ext = Some(ext.stats()),
            Active::Agent(running) => agent = Some(running.stats()),
            Active::None => {}
        }
        KeeperStats { backend: self.active.backend(), sched_ext, agent, warnings: self.warnings.clone() }
    }
}
