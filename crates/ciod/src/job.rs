//! A job under way.

use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::control::{self, Order, Report};
use crate::node::{NodeLink, NodeState};
use crate::{CiodError, JobError, JobOutcome};

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
