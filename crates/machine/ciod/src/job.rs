// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job under way.

use std::fmt;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::{Child, ExitStatus};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;

use crate::control::{self, Order, Report};
use crate::node::{self, NodeLink, NodeState};
use crate::outcome::End;
use crate::{CiodError, JobError, JobOutcome};

/// Timeout for a worker to complete a report that it has begun, and to end after its last one.
pub(crate) const SENTENCE: Duration = Duration::from_secs(10);

/// Bytes of nodes' words that are kept of a job.
const LOG: usize = 64 << 10;

/// Timeout for the end of a killed worker. One that takes longer waits in the kernel, maybe for ever: for a file
/// server that does not answer, for example.
const REAP: Duration = Duration::from_secs(5);

/// Between two looks at a worker that was killed: at first, and at most.
const REAP_LOOK: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(5)];

/// A job under way. Dropping it kills its worker, and its nodes are lost unless it had ended.
#[derive(Debug)]
pub struct Job {
    control: UnixStream,
    /// Rung when there is a limit that who listens to the worker does not know.
    alarm: EventFd,
    size: u32,
    nodes: Vec<NodeLink>,
    limits: Limits,
    state: Mutex<State>,
    /// Told after each report of the worker.
    news: Condvar,
    worker: u32,
}

/// Timeouts after which a worker that should have ended the job itself is killed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// After its launch, for nodes that boot.
    pub(crate) ready: Duration,
    /// After its start.
    pub(crate) timeout: Option<Duration>,
    /// After it was told to kill all processes, or should have done so.
    pub(crate) kill: Duration,
}

#[derive(Debug)]
struct State {
    /// The worker, as long as nobody has waited for its end.
    child: Option<Child>,
    outcome: JobOutcome,
    started: bool,
    done: bool,
    /// A thread listens to the worker, without holding the lock.
    listened: bool,
    /// Deadline of the worker, and the error of the job if it passes.
    limit: Option<(Instant, Option<JobError>)>,
    /// Time at which the job ends without its worker, which was killed.
    killed: Option<Instant>,
    /// The error of the job if its worker was killed at a deadline.
    late: Option<JobError>,
    /// Words of nodes that were not kept.
    unlogged: u64,
}

impl Job {
    pub(crate) fn new(
        control: UnixStream,
        alarm: EventFd,
        child: Child,
        nodes: Vec<NodeLink>,
        size: u32,
        limits: Limits,
    ) -> Self {
        let worker = child.id();
        let outcome = JobOutcome::default();
        let mut state = State {
            child: Some(child),
            outcome,
            started: false,
            done: false,
            listened: false,
            limit: None,
            killed: None,
            late: None,
            unlogged: 0,
        };
        // opening the programs may take long, so that without a time of its own the job has no limit until it starts
        if let Some(timeout) = limits.timeout {
            let left = limits.ready.saturating_add(timeout).saturating_add(limits.kill);
            state.limit(left, Some(JobError::Timeout { seconds: timeout.as_secs_f64() }));
        }
        let (state, news) = (Mutex::new(state), Condvar::new());
        Self { control, alarm, size, nodes, limits, state, news, worker }
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

    /// Kills its worker: the job ends at once, and its nodes are lost. Also while another thread waits.
    pub fn kill(&self) {
        self.lock().kill();
        node::ring(&self.alarm);
    }

    fn order(&self, signal: i32, ranks: Option<Vec<u32>>) -> Result<(), CiodError> {
        let signal = match u32::try_from(signal) {
            Ok(signal @ 1..=64) => signal,
            _ => return Err(CiodError::Signal(signal)),
        };
        let kills_all = signal == libc::SIGKILL as u32 && ranks.is_none();
        control::send(&self.control, &Order::Signal { signal, ranks })
            .map_err(CiodError::system("telling the job's worker"))?;
        if kills_all {
            self.lock().limit(self.limits.kill, None);
            node::ring(&self.alarm);
        }
        Ok(())
    }

    /// Waits until all programs run, or the job has ended; `true` if they ran.
    pub fn wait_started(&self) -> bool {
        self.until(None, |s| s.started).started
    }

    /// Waits for the end of the job. Again, it says the same.
    pub fn wait(&self) -> JobOutcome {
        self.until(None, |_| false).outcome.clone()
    }

    /// Waits no longer than this; `None` while the job goes on.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<JobOutcome> {
        let state = self.until(Instant::now().checked_add(timeout), |_| false);
        state.done.then(|| state.outcome.clone())
    }

    /// The ranks that have ended so far, and whether each ended by itself with code 0. Known to this only while a thread
    /// waits.
    pub fn ended(&self) -> Vec<(u32, bool)> {
        self.lock().outcome.processes.iter().map(|p| (p.rank, p.end == End::Exited(0))).collect()
    }

    /// Returns `true` if its end is known here.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().done
    }

    /// Waits until it is so, the job has ended, or that time has come and the worker says nothing. Of all threads
    /// that wait, one listens to the worker.
    fn until(&self, at: Option<Instant>, so: fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while !state.done && !so(&state) {
            let limit = state.limit.as_ref().map(|(at, _)| *at);
            let limit = limit.into_iter().chain(state.killed).min();
            let heard = if state.listened {
                state = self.listened(state, at);
                false
            } else {
                state.listened = true;
                drop(state);
                let speaks = self.speaks(at.into_iter().chain(limit).min());
                state = self.lock();
                state.listened = false;
                state.keep_limit();
                if speaks {
                    self.hear(&mut state);
                } else if state.killed.is_some_and(passed) {
                    self.finish(&mut state, None);
                }
                self.news.notify_all();
                speaks
            };
            if !heard && at.is_some_and(passed) {
                break;
            }
        }
        state
    }

    /// Waits for what the thread has heard that listens.
    fn listened<'a>(&self, state: MutexGuard<'a, State>, at: Option<Instant>) -> MutexGuard<'a, State> {
        match at.map(|at| at.saturating_duration_since(Instant::now())) {
            None => self.news.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(left) => self.news.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
        }
    }

    /// Waits for a report of the worker, until then at most; returns `true` if there is one. A signal to this process may
    /// end the wait early.
    fn speaks(&self, at: Option<Instant>) -> bool {
        let mut fds =
            [&self.control.as_fd(), &self.alarm.as_fd()].map(|fd| PollFd::new(*fd, PollFlags::POLLIN));
        // a signal to this process shortens the wait, too
        let _ = poll(&mut fds, timeout(at));
        let [speaks, alarm] = fds.map(|fd| fd.any() == Some(true));
        if alarm {
            let _ = self.alarm.read();
        }
        speaks
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one report.
    fn hear(&self, state: &mut State) {
        match control::receive(&self.control) {
            Ok(Some(Report::Started)) => {
                state.started = true;
                if let Some(timeout) = self.limits.timeout {
                    let error = JobError::Timeout { seconds: timeout.as_secs_f64() };
                    state.limit(timeout.saturating_add(self.limits.kill), Some(error));
                }
            }
            Ok(Some(Report::Ended(outcome))) => {
                // the worker is the user: it has no say about other jobs' nodes, or without end
                let all = &mut state.outcome.processes;
                if outcome.rank < self.size && all.iter().all(|p| p.rank != outcome.rank) {
                    all.push(*outcome);
                }
            }
            Ok(Some(Report::Log { node, text })) => {
                state.log(format!("node {node}: {text}"));
            }
            Ok(Some(Report::Lost { node })) => {
                if self.nodes.iter().any(|n| n.number() == node) && !state.outcome.lost.contains(&node) {
                    state.outcome.lost.push(node);
                }
            }
            Ok(Some(Report::Done(error))) => self.finish(state, Some(error)),
            Ok(None) | Err(_) => self.finish(state, None),
        }
    }

    /// The worker has said its last word, or has died without one.
    fn finish(&self, state: &mut State, last: Option<Option<JobError>>) {
        state.done = true;
        if last.is_some() {
            self.gone();
        }
        let status = state.child.take().map_or(Ended::Unknown("it was waited for before".into()), end);
        let said_all = last.is_some();
        state.outcome.error = last.unwrap_or_else(|| {
            Some(state.late.take().unwrap_or_else(|| JobError::WorkerDied(status.to_string())))
        });
        // a worker that is still there has the nodes' memory
        if !said_all || matches!(status, Ended::Stuck) {
            state.outcome.lost = self.nodes.iter().map(NodeLink::number).collect();
        }
        if state.unlogged > 0 {
            let more =
                format!("{} more reports of nodes are not kept: {LOG} bytes a job are", state.unlogged);
            state.outcome.log.push(more);
        }
        state.outcome.processes.sort_by_key(|p| p.rank);
        state.outcome.lost.sort_unstable();
        for node in &self.nodes {
            // what the next job finds is clean, or the node is not given out again
            let lost = state.outcome.lost.contains(&node.number()) || node.clear().is_err();
            *node.lock() = if lost { NodeState::Lost } else { NodeState::Free };
        }
    }

    /// Waits until the worker has closed its end, but not for ever.
    fn gone(&self) {
        let at = Instant::now() + SENTENCE;
        let mut fds = [PollFd::new(self.control.as_fd(), PollFlags::empty())];
        while poll(&mut fds, timeout(Some(at))).is_err() && !passed(at) {}
    }
}

impl State {
    /// Keeps words of a node, as far as there is room.
    fn log(&mut self, text: String) {
        let kept: usize = self.outcome.log.iter().map(|t| t.len() + size_of::<String>()).sum();
        if self.unlogged == 0 && kept + text.len() <= LOG {
            self.outcome.log.push(text);
        } else {
            self.unlogged += 1;
        }
    }

    /// Gives the worker no longer than this from now on.
    fn limit(&mut self, left: Duration, error: Option<JobError>) {
        let Some(at) = Instant::now().checked_add(left) else { return };
        if self.limit.as_ref().is_none_or(|(old, _)| at < *old) {
            self.limit = Some((at, error));
        }
    }

    /// Ends a worker whose time is over: then it says nothing more, after what it has said before.
    fn keep_limit(&mut self) {
        if let Some((_, error)) = self.limit.take_if(|(at, _)| passed(*at)) {
            self.late = self.late.take().or(error);
            self.kill();
        }
    }

    fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
        }
        let at = Instant::now() + REAP;
        self.killed = Some(self.killed.map_or(at, |old| old.min(at)));
    }
}

fn passed(at: Instant) -> bool {
    at <= Instant::now()
}

/// Until that time, rounded up: an early look would find nothing.
fn timeout(at: Option<Instant>) -> PollTimeout {
    let Some(at) = at else { return PollTimeout::NONE };
    match at.saturating_duration_since(Instant::now()) {
        Duration::ZERO => PollTimeout::ZERO,
        left => PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX),
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.done {
            return;
        }
        if let Some(child) = state.child.take() {
            end(child);
        }
        for node in &self.nodes {
            *node.lock() = NodeState::Lost;
        }
    }
}

/// The end of a worker.
enum Ended {
    Status(ExitStatus),
    /// It was killed, and is still there.
    Stuck,
    /// The system does not say.
    Unknown(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => status.fmt(f),
            Self::Stuck => write!(
                f,
                "killed, and still there after {} s: it waits in the kernel, for a file server that does not answer \
                 for example",
                REAP.as_secs()
            ),
            Self::Unknown(why) => f.write_str(why),
        }
    }
}

/// Kills a worker and waits for its end; one that does not end in time is waited for in the background.
fn end(mut child: Child) -> Ended {
    let _ = child.kill();
    let at = Instant::now() + REAP;
    let [mut pause, longest] = REAP_LOOK;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ended::Status(status),
            Ok(None) if passed(at) => break,
            Ok(None) => std::thread::sleep(pause),
            Err(e) => return Ended::Unknown(e.to_string()),
        }
        pause = longest.min(pause * 2);
    }
    // without a thread, it stays a zombie until this process ends
    let _ = std::thread::Builder::new().name("reaper".into()).spawn(move || child.wait());
    Ended::Stuck
}
