//! A job under way, and what became of it.

use std::fmt;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::control::{self, Order, Report};
use crate::node::{NodeLink, NodeState};
use crate::{CiodError, JobError};

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// By `exit`, with this code.
    Exited(i32),
    /// By this signal, or by a fault that Linux makes it of.
    Signaled(i32),
    /// With its node, which cannot be used any more.
    Lost(JobError),
}

impl End {
    /// As a shell tells it: the code, or 128 and the signal; 255 for a lost node.
    pub fn code(&self) -> i32 {
        match self {
            Self::Exited(code) => *code,
            Self::Signaled(signal) => 128 + signal,
            Self::Lost(_) => 255,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with {code}"),
            Self::Signaled(signal) => write!(f, "ended by signal {signal}"),
            Self::Lost(why) => write!(f, "is lost: {why}"),
        }
    }
}

/// What the kernel of the node counted while the process ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Timer interrupts.
    pub timer_interrupts: u64,
    /// Other interrupts.
    pub other_interrupts: u64,
    /// Calls done on the node.
    pub local_calls: u64,
    /// Calls shipped.
    pub shipped_calls: u64,
    /// Page faults and other exceptions.
    pub faults: u64,
}

/// What became of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessOutcome {
    /// Its number in the job.
    pub rank: u32,
    /// The node that it ran on.
    pub node: u32,
    /// How it ended.
    pub end: End,
    /// What its node counted.
    pub counters: Counters,
    /// Its registers and the reason, where it ended by a fault or a signal.
    pub crash: Option<String>,
}

/// What became of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobOutcome {
    /// Its processes by rank; none if it did not start.
    pub processes: Vec<ProcessOutcome>,
    /// Why it did not start, or was ended.
    pub error: Option<JobError>,
    /// Nodes that must be started anew.
    pub lost: Vec<u32>,
    /// What the kernels of the nodes said.
    pub log: Vec<String>,
}

impl JobOutcome {
    /// Whether all processes ended by themselves with code 0.
    pub fn success(&self) -> bool {
        self.error.is_none() && self.failed().next().is_none()
    }

    /// The processes that did not end by themselves with code 0.
    pub fn failed(&self) -> impl Iterator<Item = &ProcessOutcome> {
        self.processes.iter().filter(|p| p.end != End::Exited(0))
    }

    /// The code of the first process that failed, as a shell tells it; 1 if the job itself failed.
    pub fn code(&self) -> i32 {
        let failed = self.processes.iter().map(|p| p.end.code()).find(|&code| code != 0);
        failed.unwrap_or(i32::from(self.error.is_some()))
    }
}

impl fmt::Display for JobOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(error) = &self.error {
            writeln!(f, "{error}")?;
        }
        for p in self.failed() {
            writeln!(f, "rank {} (node {}) {}", p.rank, p.node, p.end)?;
            if let Some(crash) = &p.crash {
                writeln!(f, "{crash}")?;
            }
        }
        Ok(())
    }
}

/// A job under way. Dropping it kills its worker, and its nodes are lost unless it had ended.
#[derive(Debug)]
pub struct Job {
    control: UnixStream,
    size: u32,
    nodes: Vec<NodeLink>,
    state: Mutex<State>,
    worker: u32,
}

#[derive(Debug)]
struct State {
    child: Child,
    outcome: JobOutcome,
    started: bool,
    done: bool,
}

impl Job {
    pub(crate) fn new(control: UnixStream, child: Child, nodes: Vec<NodeLink>, size: u32) -> Self {
        let worker = child.id();
        let state = State { child, outcome: JobOutcome::default(), started: false, done: false };
        Self { control, size, nodes, state: Mutex::new(state), worker }
    }

    /// Number of its processes.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Process id of its worker on the I/O node.
    pub fn worker(&self) -> u32 {
        self.worker
    }

    /// Sends Linux signal `signal` to every process; also while another thread waits.
    ///
    /// # Errors
    /// If the job has ended.
    pub fn signal(&self, signal: i32) -> Result<(), CiodError> {
        self.order(signal, None)
    }

    /// Sends Linux signal `signal` to the processes of these ranks.
    ///
    /// # Errors
    /// As of [`Job::signal`].
    pub fn signal_ranks(&self, signal: i32, ranks: &[u32]) -> Result<(), CiodError> {
        self.order(signal, Some(ranks.to_vec()))
    }

    fn order(&self, signal: i32, ranks: Option<Vec<u32>>) -> Result<(), CiodError> {
        let signal = match u32::try_from(signal) {
            Ok(signal @ 1..=64) => signal,
            _ => return Err(CiodError::Signal(signal)),
        };
        control::send(&self.control, &Order::Signal { signal, ranks })
            .map_err(CiodError::system("telling the job's worker"))
    }

    /// Waits until all programs run, or the job has ended; `true` if they ran.
    pub fn wait_started(&self) -> bool {
        let mut state = self.lock();
        while !state.started && !state.done {
            self.hear(&mut state);
        }
        state.started
    }

    /// Waits for the end of the job. Again, it says the same.
    pub fn wait(&self) -> JobOutcome {
        let mut state = self.lock();
        while !state.done {
            self.hear(&mut state);
        }
        state.outcome.clone()
    }

    /// Waits no longer than this; `None` while the job goes on.
    pub fn wait_timeout(&self, patience: Duration) -> Option<JobOutcome> {
        let deadline = std::time::Instant::now() + patience;
        let mut state = self.lock();
        while !state.done {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if !self.speaks(left) {
                return None;
            }
            self.hear(&mut state);
        }
        Some(state.outcome.clone())
    }

    /// Whether the worker says something within that time.
    fn speaks(&self, patience: Duration) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        use std::os::fd::AsFd as _;
        let mut fds = [PollFd::new(self.control.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(patience + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        // a signal to this process shortens the wait: the caller looks at the clock again
        poll(&mut fds, timeout).is_ok_and(|n| n > 0)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one report.
    fn hear(&self, state: &mut State) {
        match control::receive(&self.control) {
            Ok(Some(Report::Started)) => state.started = true,
            Ok(Some(Report::Ended(outcome))) => {
                // the worker is the user: it has no say about other jobs' nodes, or without end
                let all = &mut state.outcome.processes;
                if outcome.rank < self.size && all.iter().all(|p| p.rank != outcome.rank) {
                    all.push(*outcome);
                }
            }
            Ok(Some(Report::Log { node, text })) => {
                if state.outcome.log.len() < 10_000 {
                    state.outcome.log.push(format!("node {node}: {text}"));
                }
            }
            Ok(Some(Report::Lost { node })) => {
                if self.nodes.iter().any(|n| n.number() == node) && !state.outcome.lost.contains(&node) {
                    state.outcome.lost.push(node);
                }
            }
            Ok(Some(Report::Done(error))) => self.finish(state, error, true),
            Ok(None) | Err(_) => self.finish(state, None, false),
        }
    }

    /// The worker has said its last word, or has died without one.
    fn finish(&self, state: &mut State, error: Option<JobError>, orderly: bool) {
        state.done = true;
        if !orderly {
            let _ = state.child.kill();
        }
        let status = state.child.wait();
        state.outcome.error = error;
        if !orderly {
            let how = status.map_or_else(|e| e.to_string(), |s| s.to_string());
            state.outcome.error = Some(JobError::WorkerDied(how));
            state.outcome.lost = self.nodes.iter().map(NodeLink::number).collect();
        }
        state.outcome.processes.sort_by_key(|p| p.rank);
        state.outcome.lost.sort_unstable();
        for node in &self.nodes {
            // what the next job finds is clean, or the node is not given out again
            let lost = state.outcome.lost.contains(&node.number()) || node.clear().is_err();
            *node.lock() = if lost { NodeState::Lost } else { NodeState::Free };
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.done {
            return;
        }
        let _ = state.child.kill();
        let _ = state.child.wait();
        for node in &self.nodes {
            *node.lock() = NodeState::Lost;
        }
    }
}
