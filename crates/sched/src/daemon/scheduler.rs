//! The job class of the daemon, and the agent that runs as long as it has members.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use colony_node::NodeError;
use colony_node::cpu::{self, CpuSet};
use colony_node::task;
use colony_time::Windows;

use super::binding::{self, Bound, NoSharedCpu};
use super::guard::Teller;
use crate::SchedError;
use crate::agent::{Agent, AgentConfig, AgentStats};
use crate::job::Job;

/// Starts an agent with the first member of the job and stops it after the last.
#[derive(Debug)]
pub(crate) struct Scheduler {
    cpus: CpuSet,
    /// Who undoes what this does if it cannot do so itself.
    guard: Option<Teller>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    running: Option<Running>,
    /// What the last agent did, after its end.
    last: Option<AgentStats>,
    jobs: u64,
    closed: bool,
}

#[derive(Debug)]
struct Running {
    job: Arc<Job>,
    agent: Agent,
    /// Tasks that were bound to the job's CPUs.
    bound: Vec<Bound>,
    /// The processes the guard knows of.
    told: Vec<i32>,
}

/// What is running now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Processes of the job.
    pub(crate) processes: Vec<i32>,
    /// Threads of the job.
    pub(crate) tasks: usize,
    /// Whether an agent runs.
    pub(crate) active: bool,
    /// The agent's figures; those of the last one where none runs.
    pub(crate) agent: Option<AgentStats>,
    /// Agents started so far.
    pub(crate) jobs: u64,
}

/// Why a process did not become a member.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The daemon is about to end.
    #[error("colonyd is stopping; no process joins any more")]
    Closed,
    /// The process may use none of the job's CPUs.
    #[error(transparent)]
    NoSharedCpu(#[from] NoSharedCpu),
    /// The guard, which would give the process its CPUs back, does not listen.
    #[error("the guard of colonyd does not listen ({0}), so no process joins; start colonyd again")]
    Guard(io::Error),
    /// The agent did not start, or the process is gone.
    #[error(transparent)]
    Sched(#[from] SchedError),
}

impl Scheduler {
    pub(crate) fn new(cpus: CpuSet, guard: Option<Teller>) -> Self {
        Self { cpus, guard, inner: Mutex::default() }
    }

    pub(crate) const fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Makes process `pid` a member, on the job's CPUs; the first one starts the agent with `windows`.
    pub(crate) fn join(&self, pid: i32, windows: Windows) -> Result<(), JoinError> {
        let mut inner = self.lock();
        if inner.closed {
            return Err(JoinError::Closed);
        }
        // the shell that started this daemon may join: what serves the job is no part of it
        let ours = task::tree(std::process::id().cast_signed());
        let changes = binding::plan(pid, &self.cpus, &ours)?;
        if let Some(guard) = self.guard.as_ref().filter(|_| !changes.is_empty()) {
            guard.bound(&changes).map_err(JoinError::Guard)?;
        }
        binding::apply(&changes);
        let joined = inner.join(pid, &self.cpus, windows);
        match (&joined, &mut inner.running) {
            (Ok(()), Some(running)) => {
                binding::prune(&mut running.bound);
                running.bound.extend(changes);
            }
            _ => binding::undo(&changes, &[]),
        }
        Ok(joined?)
    }

    pub(crate) fn set_windows(&self, windows: Windows) {
        if let Some(running) = &self.lock().running {
            running.agent.set_windows(windows);
        }
    }

    /// Stops the agent if its job has no member left, or if it gave up; whether one runs still.
    pub(crate) fn retire(&self) -> bool {
        let mut inner = self.lock();
        inner.retire();
        let Some(running) = &mut inner.running else { return false };
        let now = running.job.processes();
        if let Some(guard) = self.guard.as_ref().filter(|_| !running.bound.is_empty() && now != running.told)
        {
            // without a guard the daemon ends anyway
            let _ = guard.processes(&now);
            running.told = now;
        }
        true
    }

    /// Stops for good: every task is back in its own class and on its own CPUs when this returns.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.stop("colonyd is stopping");
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut inner = self.lock();
        inner.retire();
        let jobs = inner.jobs;
        match &inner.running {
            Some(Running { job, agent, .. }) => Snapshot {
                processes: job.processes(),
                tasks: job.tasks().len(),
                active: true,
                agent: Some(agent.stats()),
                jobs,
            },
            None => Snapshot { agent: inner.last.clone(), jobs, ..Snapshot::default() },
        }
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

/// Starts an agent from a thread that may run everywhere, as the agent's own threads must.
fn start_agent(config: AgentConfig, job: &Arc<Job>) -> Result<Agent, SchedError> {
    let start = || {
        cpu::bind(0, &cpu::online()?)?;
        Agent::start(config, Arc::clone(job))
    };
    std::thread::scope(|s| s.spawn(start).join())
        .unwrap_or_else(|_| Err(SchedError::NoRealTime("starting the agent failed".into())))
}

impl Inner {
    fn join(&mut self, pid: i32, cpus: &CpuSet, windows: Windows) -> Result<(), SchedError> {
        self.retire();
        if let Some(running) = &self.running {
            running.job.add(pid)?;
            running.agent.look();
            return Ok(());
        }
        let job = Arc::new(Job::new());
        job.exclude(std::process::id().cast_signed());
        job.add(pid)?;
        let agent = start_agent(AgentConfig::new(windows, cpus.clone()), &job)?;
        self.running = Some(Running { job, agent, bound: Vec::new(), told: Vec::new() });
        self.jobs += 1;
        tracing::info!("process {pid} is the first of a job on CPU {cpus}: the agent runs");
        Ok(())
    }

    fn retire(&mut self) {
        let Some(Running { job, agent, .. }) = &self.running else { return };
        if !agent.is_running() {
            let reason = agent.stats().stopped.unwrap_or_else(|| "for no reason it knew".into());
            tracing::error!("the agent gave up: {reason}");
            self.stop("it gave up");
        } else if job.is_empty() {
            // the agent's own scanner keeps that up to date
            self.stop("the last process of the job has ended");
        }
    }

    fn stop(&mut self, why: &str) {
        if let Some(Running { job, agent, bound, .. }) = self.running.take() {
            self.last = Some(agent.stop());
            binding::undo(&bound, &job.processes());
            tracing::info!("the agent stops: {why}");
        }
    }
}
