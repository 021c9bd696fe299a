// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job under way: its workers, one an I/O node, and the thread that listens to them.

use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::eventfd::EventFd;

use crate::control::{self, Order, Report};
use crate::merge::{Merge, Todo};
use crate::node::{self, NodeState};
use crate::part::{Ended, Part, REAP, end, passed, timeout};
use crate::{CiodError, JobError, JobOutcome};

/// A job under way. Dropping it kills its workers, and its nodes are lost unless it had ended.
#[derive(Debug)]
pub struct Job {
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    parts: Vec<Part>,
    size: u32,
    limits: Limits,
    /// A file that is removed before the first program starts.
    mark: Option<PathBuf>,
    /// Rung when there is a limit that the listener does not know.
    alarm: EventFd,
    state: Mutex<State>,
    /// Told after each report of a worker.
    news: Condvar,
    /// Held while all workers are told something, so that all hear it in the same order.
    orders: Mutex<()>,
}

/// Timeouts after which workers that should have ended the job themselves are killed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// After its launch, for nodes that boot.
    pub(crate) ready: Duration,
    /// After its start.
    pub(crate) timeout: Option<Duration>,
    /// After the workers were told to kill all processes, or should have done so.
    pub(crate) kill: Duration,
}

#[derive(Debug)]
struct State {
    /// The workers, as long as nobody has waited for their ends.
    children: Vec<Option<Child>>,
    merge: Merge,
    /// Set at its end.
    outcome: Option<JobOutcome>,
    /// Deadline of the workers, and the error of the job if it passes.
    limit: Option<(Instant, Option<JobError>)>,
    /// Time at which the job ends without its workers, which were killed.
    killed: Option<Instant>,
    /// The error of the job if its workers were killed at a deadline.
    late: Option<JobError>,
}

impl Job {
    pub(crate) fn new(
        parts: Vec<(Part, Child)>,
        alarm: EventFd,
        (size, go_on, mark): (u32, bool, Option<PathBuf>),
        limits: Limits,
    ) -> std::io::Result<Self> {
        let (parts, children): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let mut state = State {
            children: children.into_iter().map(Some).collect(),
            merge: Merge::new(parts.iter().map(|part| part.share.clone()).collect(), go_on),
            outcome: None,
            limit: None,
            killed: None,
            late: None,
        };
        // opening the programs may take long, so that without a time of its own the job has no limit until it starts
        if let Some(timeout) = limits.timeout {
            let left = limits.ready.saturating_add(timeout).saturating_add(limits.kill);
            state.limit(left, Some(JobError::Timeout { seconds: timeout.as_secs_f64() }));
        }
        let (state, news, orders) = (Mutex::new(state), Condvar::new(), Mutex::default());
        let shared = Arc::new(Shared { parts, size, limits, mark, alarm, state, news, orders });
        let listens = shared.clone();
        // dropped if there is no thread, it kills the workers
        let mut job = Self { shared, listener: None };
        job.listener = Some(Builder::new().name("job".into()).spawn(move || listens.listen())?);
        Ok(job)
    }

    /// Number of its processes.
    pub fn size(&self) -> u32 {
        self.shared.size
    }

    /// Its workers: the number of the pset that each serves, and its process id on the I/O node.
    pub fn workers(&self) -> Vec<(u32, u32)> {
        self.shared.parts.iter().map(|part| (part.pset, part.pid)).collect()
    }

    /// Numbers of the nodes that its workers serve: those of all psets in which a process runs.
    pub fn nodes(&self) -> Vec<u32> {
        let mut nodes: Vec<u32> =
            self.shared.parts.iter().flat_map(|part| part.share.iter().map(|(node, _)| *node)).collect();
        nodes.sort_unstable();
        nodes
    }

    /// Sends Linux signal `signal` to every process; also while another thread waits.
    ///
    /// # Errors
    /// If the job has ended.
    pub fn signal(&self, signal: i32) -> Result<(), CiodError> {
        self.shared.order(signal, None)
    }

    /// Sends Linux signal `signal` to the processes of these ranks.
    ///
    /// # Errors
    /// As of [`Job::signal`].
    pub fn signal_ranks(&self, signal: i32, ranks: &[u32]) -> Result<(), CiodError> {
        self.shared.order(signal, Some(ranks))
    }

    /// Kills its workers: the job ends at once, and its nodes are lost. Also while another thread waits.
    pub fn kill(&self) {
        self.shared.lock().kill();
        node::ring(&self.shared.alarm);
    }

    /// Waits until all programs run, or the job has ended; `true` if they ran.
    pub fn wait_started(&self) -> bool {
        self.shared.until(None, |s| s.merge.has_started()).merge.has_started()
    }

    /// Returns `true` if a program may have begun. A job that has ended without that can be launched again.
    pub fn has_begun(&self) -> bool {
        self.shared.lock().merge.has_begun()
    }

    /// Waits for the end of the job. Again, it says the same.
    pub fn wait(&self) -> JobOutcome {
        self.shared.until(None, |_| false).outcome.clone().unwrap_or_default()
    }

    /// Waits no longer than this; `None` while the job goes on.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<JobOutcome> {
        self.shared.until(Instant::now().checked_add(timeout), |_| false).outcome.clone()
    }

    /// The ranks that have ended so far, and whether each ended by itself with code 0.
    pub fn ended(&self) -> Vec<(u32, bool)> {
        let state = self.shared.lock();
        match &state.outcome {
            Some(outcome) => outcome.exits(),
            None => state.merge.ended(),
        }
    }

    /// Returns `true` if it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.shared.lock().outcome.is_some()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is so, the job has ended, or that time has come.
    fn until(&self, at: Option<Instant>, so: fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while state.outcome.is_none() && !so(&state) {
            state = match at.map(|at| at.saturating_duration_since(Instant::now())) {
                None => self.news.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => break,
                Some(left) => self.news.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        state
    }

    fn order(&self, signal: i32, ranks: Option<&[u32]>) -> Result<(), CiodError> {
        let signal = match u32::try_from(signal) {
            Ok(signal @ 1..=64) => signal,
            _ => return Err(CiodError::Signal(signal)),
        };
        self.tell(&Order::Signal { signal, ranks: ranks.map(<[u32]>::to_vec) }, ranks)
            .map_err(CiodError::system("telling the job's workers"))?;
        if signal == libc::SIGKILL as u32 && ranks.is_none() {
            self.lock().limit(self.limits.kill, None);
            node::ring(&self.alarm);
        }
        Ok(())
    }

    /// Tells the workers of these ranks, or all, something. It is an error if none hears it.
    fn tell(&self, order: &Order, ranks: Option<&[u32]>) -> std::io::Result<()> {
        let _orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut is_heard, mut refused) = (false, Ok(()));
        for part in self.parts.iter().filter(|part| part.has_any(ranks)) {
            match control::send(&part.control, order) {
                Ok(()) => is_heard = true,
                Err(e) => refused = Err(e),
            }
        }
        if is_heard { Ok(()) } else { refused }
    }

    /// Listens to the workers until the job has ended.
    fn listen(&self) {
        loop {
            let (open, at) = {
                let state = self.lock();
                if state.outcome.is_some() {
                    return;
                }
                let limit = state.limit.as_ref().map(|(at, _)| *at);
                (state.merge.open(), limit.into_iter().chain(state.killed).min())
            };
            let speak = self.speak(&open, at);
            let mut state = self.lock();
            if state.outcome.is_some() {
                return;
            }
            state.keep_limit();
            for part in speak {
                self.hear(&mut state, part);
            }
            if state.killed.is_some_and(passed) {
                for part in state.merge.open() {
                    self.over(&mut state, part, None);
                }
            }
            if state.merge.open().is_empty() {
                self.finish(&mut state);
            }
            drop(state);
            self.news.notify_all();
        }
    }

    /// Waits for reports of these workers, until then at most; the workers that have some.
    fn speak(&self, open: &[usize], at: Option<Instant>) -> Vec<usize> {
        let controls = open.iter().map(|&part| self.parts[part].control.as_fd());
        let all = controls.chain([self.alarm.as_fd()]);
        let mut fds: Vec<_> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // a signal to this process shortens the wait, too
        if poll(&mut fds, timeout(at)).is_err() {
            return Vec::new();
        }
        let mut speak: Vec<bool> = fds.iter().map(|fd| fd.any() == Some(true)).collect();
        if speak.pop() == Some(true) {
            let _ = self.alarm.read();
        }
        open.iter().zip(speak).filter(|(_, speaks)| *speaks).map(|(part, _)| *part).collect()
    }

    /// Takes one report.
    fn hear(&self, state: &mut State, part: usize) {
        match control::receive(&self.parts[part].control) {
            Ok(Some(Report::Done(error))) => self.over(state, part, Some(error)),
            Ok(Some(report)) => {
                let todo = state.merge.hear(part, report);
                self.act(state, todo);
            }
            Ok(None) | Err(_) => self.over(state, part, None),
        }
    }

    fn act(&self, state: &mut State, todo: Todo) {
        // a worker that hears nothing any more has ended, which is found when it is listened to
        match todo {
            Todo::Nothing => {}
            Todo::Start => {
                if let Err(why) = self.unmark() {
                    state.merge.give_up_start();
                    state.late = Some(JobError::System(why));
                    state.kill();
                    return;
                }
                let _ = self.tell(&Order::Start, None);
                if let Some(timeout) = self.limits.timeout {
                    let error = JobError::Timeout { seconds: timeout.as_secs_f64() };
                    state.limit(timeout.saturating_add(self.limits.kill), Some(error));
                }
            }
            Todo::KillAll => {
                let _ = self.tell(&Order::Signal { signal: libc::SIGKILL as u32, ranks: None }, None);
                state.limit(self.limits.kill, None);
            }
        }
    }

    /// Removes the mark of a job whose programs have not begun.
    fn unmark(&self) -> Result<(), String> {
        match self.mark.as_ref().map(|mark| (mark, std::fs::remove_file(mark))) {
            Some((mark, Err(error))) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("the job does not start, since {} cannot be removed: {error}", mark.display()))
            }
            _ => Ok(()),
        }
    }

    /// A worker has said its last word, or has died without one.
    fn over(&self, state: &mut State, number: usize, last: Option<Option<JobError>>) {
        let part = &self.parts[number];
        if last.is_some() {
            part.gone();
        }
        let status =
            state.children[number].take().map_or(Ended::Unknown("it was waited for before".into()), end);
        part.hang_up();
        // a worker that is still there has the nodes' memory
        let died = match &last {
            None => Some(status.to_string()),
            // as a relay says of the worker that it stands for
            Some(Some(JobError::WorkerDied(why))) => Some(why.clone()),
            Some(_) => None,
        };
        let is_lost = died.is_some() || matches!(status, Ended::Stuck);
        let error = match died {
            None => last.flatten(),
            Some(why) => Some(state.late.clone().unwrap_or_else(|| {
                let is_one_of_many = self.parts.len() > 1 && state.killed.is_none();
                if is_one_of_many {
                    JobError::IoNodeFailed { pset: part.pset, why }
                } else {
                    JobError::WorkerDied(why)
                }
            })),
        };
        let todo = state.merge.over(number, error, is_lost);
        self.act(state, todo);
    }

    /// All workers have ended.
    fn finish(&self, state: &mut State) {
        let outcome = state.merge.outcome();
        for node in self.parts.iter().flat_map(|part| &part.nodes) {
            // what the next job finds is clean, or the node is not given out again
            let lost = outcome.lost.contains(&node.number()) || node.clear().is_err();
            *node.lock() = if lost { NodeState::Lost } else { NodeState::Free };
        }
        state.outcome = Some(outcome);
    }
}

impl State {
    /// Gives the workers no longer than this from now on.
    fn limit(&mut self, left: Duration, error: Option<JobError>) {
        let Some(at) = Instant::now().checked_add(left) else { return };
        if self.limit.as_ref().is_none_or(|(old, _)| at < *old) {
            self.limit = Some((at, error));
        }
    }

    /// Ends workers whose time is over: then they say nothing more, after what they have said before.
    fn keep_limit(&mut self) {
        if let Some((_, error)) = self.limit.take_if(|(at, _)| passed(*at)) {
            self.late = self.late.take().or(error);
            self.kill();
        }
    }

    fn kill(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill();
        }
        let at = Instant::now() + REAP;
        self.killed = Some(self.killed.map_or(at, |old| old.min(at)));
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if state.outcome.is_none() {
            state.kill();
            for child in &mut state.children {
                child.take().map(end);
            }
            self.shared.parts.iter().for_each(Part::hang_up);
            for node in self.shared.parts.iter().flat_map(|part| &part.nodes) {
                *node.lock() = NodeState::Lost;
            }
            state.outcome = Some(JobOutcome::default());
        }
        drop(state);
        node::ring(&self.shared.alarm);
        if let Some(listener) = self.listener.take() {
            // it has nothing to say
            let _ = listener.join();
        }
    }
}
