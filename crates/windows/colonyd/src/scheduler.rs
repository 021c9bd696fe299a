// SPDX-License-Identifier: MIT OR Apache-2.0
//! The job class of the daemon, and the keeper that enforces its windows as long as it has members.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use colony_client::{Backend, KeeperStats};
use colony_ledger::{Affinities, Refused};
use colony_node::NodeError;
use colony_node::cpu::{self, CpuSet};
use colony_node::task::{self, TaskId};
use colony_sched::SchedError;
use colony_sched::agent::RegularClass;
use colony_sched::backend::BackendChoice;
use colony_sched::binding::{self, BindingError};
use colony_sched::ext::ExtOptions;
use colony_sched::job::Job;
use colony_sched::keeper::{Keeper, KeeperConfig};
use colony_time::Windows;

use crate::access;
use crate::guard::Teller;
use crate::metrics::Totals;
use crate::saved::JobFile;

/// Starts a keeper with the first member of the job and stops it after the last.
#[derive(Debug)]
pub(crate) struct Scheduler {
    cpus: CpuSet,
    /// The backend that is asked for, and the settings of the scheduler in the kernel.
    backend: (BackendChoice, ExtOptions),
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The guard, which undoes the bindings if the daemon dies.
    guard: Option<Teller>,
    /// The tasks that were bound to the job's CPUs; the reason where none can be.
    affinities: io::Result<Affinities>,
    /// The file in which the next daemon finds the job.
    file: Option<JobFile>,
    running: Option<Running>,
    /// Statistics of the last keeper, after its end.
    last: KeeperStats,
    /// Statistics of all keepers that have ended.
    before: Totals,
    jobs: u64,
    closed: bool,
}

#[derive(Debug)]
struct Running {
    job: Arc<Job>,
    /// The user whose job it is.
    owner: u32,
    /// `None` while no windows are to be enforced.
    keeper: Option<Keeper>,
    /// The processes that the ledger of affinities knows of.
    announced: Vec<TaskId>,
    /// The processes the file knows of.
    saved: Vec<TaskId>,
}

/// The job and the statistics at one instant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Processes of the job.
    pub(crate) processes: Vec<i32>,
    /// Threads of the job.
    pub(crate) tasks: usize,
    /// True if windows are enforced.
    pub(crate) active: bool,
    /// Statistics of the keeper that runs, or of the last one.
    pub(crate) did: KeeperStats,
    /// Keepers started so far.
    pub(crate) jobs: u64,
}

/// The error with which a process did not become a member.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The daemon is about to end.
    #[error("colonyd is stopping; no process joins any more")]
    Closed,
    /// Another user's job runs.
    #[error(
        "user {owner}'s job runs, and user {uid} may not join it; wait until it has ended, or have root register the process"
    )]
    OtherUser {
        /// The user who wants to join.
        uid: u32,
        /// The user whose job it is.
        owner: u32,
    },
    /// The process may use none of the job's CPUs, or nobody could give them back to it.
    #[error(transparent)]
    Binding(#[from] BindingError),
    /// The guard, which would give the process its CPUs back, does not listen.
    #[error("the guard of colonyd does not listen ({0}), so no process joins; start colonyd again")]
    Guard(io::Error),
    /// The agent did not start, or the process is gone.
    #[error(transparent)]
    Sched(#[from] SchedError),
}

impl Scheduler {
    pub(crate) fn new(
        cpus: CpuSet,
        backend: (BackendChoice, ExtOptions),
        guard: Option<Teller>,
        file: JobFile,
    ) -> Self {
        let inner = Inner {
            affinities: affinities(guard.as_ref()),
            guard,
            file: Some(file),
            running: None,
            last: KeeperStats::default(),
            before: Totals::default(),
            jobs: 0,
            closed: false,
        };
        Self { cpus, backend, inner: Mutex::new(inner) }
    }

    pub(crate) const fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Makes process `pid` a member, on the job's CPUs, as user `uid` asks; the first one has `windows` kept, if
    /// any are to be. The job is the user's whose process was the first: of the others, only root may add to it.
    pub(crate) fn join(&self, pid: i32, uid: u32, windows: Option<Windows>) -> Result<(), JoinError> {
        let owner = access::status(pid).map_or(uid, |s| s.uids[0]);
        self.join_job_of(owner, pid, uid, windows)
    }

    fn join_job_of(&self, owner: u32, pid: i32, uid: u32, windows: Option<Windows>) -> Result<(), JoinError> {
        let mut inner = self.lock();
        if inner.closed {
            return Err(JoinError::Closed);
        }
        inner.retire();
        if let Some(owner) = inner.running.as_ref().map(|r| r.owner).filter(|&o| uid != 0 && uid != o) {
            return Err(JoinError::OtherUser { uid, owner });
        }
        // the shell that started this daemon may join: what serves the job is no part of it
        let ours = task::tree(std::process::id().cast_signed());
        let changes = binding::plan(pid, &self.cpus, &ours)?;
        inner.bind(&changes)?;
        let joined = inner.join(owner, pid, windows.map(|w| self.keeper_config(w)));
        match &joined {
            Ok(()) => inner.save(),
            Err(_) => inner.give_back(&changes.into_iter().map(|(task, _)| task).collect::<Vec<_>>()),
        }
        Ok(joined?)
    }

    /// Takes over the job that the daemon before this one saved. Returns whether there is one.
    pub(crate) fn rejoin(&self, windows: Option<Windows>) -> bool {
        let file = self.lock().file.clone();
        let Some(saved) = file.as_ref().and_then(JobFile::load) else {
            file.iter().for_each(JobFile::remove);
            return false;
        };
        let mut members = 0;
        for process in &saved.processes {
            match self.join_job_of(saved.owner, process.tid, 0, windows) {
                Ok(()) => members += 1,
                Err(e) => tracing::warn!("process {} does not rejoin the job: {e}", process.tid),
            }
        }
        tracing::info!("the job of user {} goes on with {members} processes", saved.owner);
        members > 0
    }

    fn keeper_config(&self, windows: Windows) -> KeeperConfig {
        let (backend, ext) = self.backend.clone();
        KeeperConfig {
            backend,
            windows,
            cpus: self.cpus.clone(),
            regular: RegularClass::Idle,
            entry: None,
            ext,
        }
    }

    /// Changes the windows, or enforces none from now on.
    pub(crate) fn set_windows(&self, windows: Option<Windows>) {
        let mut inner = self.lock();
        let Some(Running { job, keeper, .. }) = &mut inner.running else { return };
        match (keeper.take(), windows) {
            (Some(running), Some(windows)) => {
                running.set_windows(windows);
                *keeper = Some(running);
            }
            (Some(running), None) => inner.ended(running),
            (None, Some(windows)) => match Keeper::start(self.keeper_config(windows), Arc::clone(job)) {
                Ok(started) => *keeper = Some(started),
                Err(e) => tracing::error!("windows could be kept again, but nothing keeps them: {e}"),
            },
            (None, None) => {}
        }
    }

    /// Stops the keeper if the job has no member left, or if the keeper has stopped. Returns whether a job still runs.
    pub(crate) fn retire(&self) -> bool {
        let mut inner = self.lock();
        inner.retire();
        inner.announce();
        inner.save();
        inner.running.is_some()
    }

    /// Stops for good: every task is back in its own class and on its own CPUs when this returns.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        // what is in the file stays: the next daemon has the job go on
        inner.file = None;
        inner.stop("colonyd is stopping");
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.lock().snapshot()
    }

    /// The state of the running job, and the totals of all keepers since the start.
    pub(crate) fn totals(&self) -> (Snapshot, Totals) {
        // held over both, lest a keeper that ends in between counts twice or not at all
        let mut inner = self.lock();
        let now = inner.snapshot();
        let mut totals = inner.before.clone();
        if now.active {
            totals.add(&now.did);
        }
        (now, totals)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leaves the job's CPUs to the job and its agent, as long as there are others: so the files answer also while
/// a job holds its CPUs. For the calling thread, and those it starts.
pub(crate) fn make_room(cpus: &CpuSet) -> Result<(), NodeError> {
    let rest = cpu::online()?.without(cpus);
    if rest.is_empty() { Ok(()) } else { cpu::bind(0, &rest) }
}

/// What the daemon changes of affinities, once its guard knows of it; else why tasks cannot be bound.
fn affinities(guard: Option<&Teller>) -> io::Result<Affinities> {
    let affinities = Affinities::new()?;
    guard.map_or(Ok(()), |guard| guard.affinities(affinities.owner()))?;
    Ok(affinities)
}

impl Inner {
    /// Binds tasks that join.
    fn bind(&mut self, changes: &[(TaskId, CpuSet)]) -> Result<(), JoinError> {
        if changes.is_empty() {
            return Ok(());
        }
        if let Some(guard) = &self.guard {
            guard.change().map_err(JoinError::Guard)?;
        }
        let affinities = self.affinities.as_mut().map_err(|e| io::Error::new(e.kind(), e.to_string()));
        let refused = affinities.and_then(|a| a.bind(changes)).map_err(BindingError::Ledger)?;
        for Refused { task, reason } in refused {
            tracing::debug!("task {} stays where it is: {reason}", task.tid);
        }
        Ok(())
    }

    /// Has the ledger know the processes of the job, by which orphans of tasks that were bound are found.
    fn announce(&mut self) {
        let Self { affinities: Ok(affinities), running: Some(running), .. } = self else { return };
        let now = running.job.process_ids();
        if !affinities.is_used() || now == running.announced {
            return;
        }
        match affinities.set_members(&now) {
            // another program holds the ledger: the next look tells it
            Err(e) if e.kind() == io::ErrorKind::TimedOut => return,
            Err(e) => tracing::warn!("orphans of the job may stay on its CPUs: {e}"),
            Ok(()) => {}
        }
        running.announced = now;
    }

    /// Gives tasks that were bound their CPUs back.
    fn give_back(&mut self, tasks: &[TaskId]) {
        let Ok(affinities) = &mut self.affinities else { return };
        colony_ledger::report(affinities.release_tasks(tasks));
    }

    fn join(&mut self, owner: u32, pid: i32, config: Option<KeeperConfig>) -> Result<(), SchedError> {
        if let Some(running) = &self.running {
            running.job.add(pid)?;
            if let Some(keeper) = &running.keeper {
                keeper.rescan_tasks();
            }
            return Ok(());
        }
        let job = Arc::new(Job::new());
        job.exclude(std::process::id().cast_signed());
        job.add(pid)?;
        let keeper = config.map(|config| Keeper::start(config, Arc::clone(&job))).transpose()?;
        let backend = keeper.as_ref().map_or(Backend::None, Keeper::backend);
        tracing::info!("process {pid} is the first of a job; backend: {backend:?}");
        self.running = Some(Running { job, owner, keeper, announced: Vec::new(), saved: Vec::new() });
        self.jobs += 1;
        Ok(())
    }

    fn snapshot(&mut self) -> Snapshot {
        self.retire();
        let jobs = self.jobs;
        match &self.running {
            Some(Running { job, keeper, .. }) => Snapshot {
                processes: job.processes(),
                tasks: job.tasks().len(),
                active: keeper.is_some(),
                did: keeper.as_ref().map_or_else(|| self.last.clone(), Keeper::stats),
                jobs,
            },
            None => Snapshot { did: self.last.clone(), jobs, ..Snapshot::default() },
        }
    }

    fn retire(&mut self) {
        let Some(Running { job, keeper, .. }) = &self.running else { return };
        if keeper.is_none() {
            job.refresh();
        }
        if let Some(keeper) = keeper.as_ref().filter(|k| !k.is_running()) {
            let did = keeper.stats();
            let reason = did.agent.and_then(|a| a.stopped).or_else(|| did.warnings.last().cloned());
            tracing::error!(
                "the windows are kept no more: {}",
                reason.as_deref().unwrap_or("for no known reason")
            );
            self.stop("it gave up");
        } else if job.is_empty() {
            // the keeper keeps that up to date
            self.stop("the last process of the job has ended");
        }
    }

    fn ended(&mut self, keeper: Keeper) {
        self.last = keeper.stop();
        self.before.add(&self.last);
    }

    /// Writes the processes of the job into the file, if they have changed.
    fn save(&mut self) {
        let Self { file: Some(file), running: Some(running), .. } = self else { return };
        let now = running.job.process_ids();
        if now == running.saved {
            return;
        }
        if let Err(e) = file.save(running.owner, &now) {
            tracing::warn!("a colonyd that starts later will not know of this job: {e}");
            self.file = None;
            return;
        }
        running.saved = now;
    }

    fn stop(&mut self, why: &str) {
        if let Some(keeper) = self.running.as_mut().and_then(|running| running.keeper.take()) {
            self.ended(keeper);
        }
        // processes of the last moment included
        self.announce();
        if self.running.take().is_some() {
            if let Ok(affinities) = &mut self.affinities {
                colony_ledger::report(affinities.release());
            }
            self.file.iter().for_each(JobFile::remove);
            tracing::info!("windows are kept no more: {why}");
        }
    }
}
