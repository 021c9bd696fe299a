// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs under way, and the watch over their nodes.
//!
//! A node whose emulator, proxy or kernel has died says nothing more, and the I/O daemon cannot tell that from a
//! program that computes. Whoever waits for the job looks at its nodes meanwhile.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use colony_ciod::{CiodError, Job, JobError, JobOutcome};
use nix::sys::signal::Signal;

use crate::CnkError;
use crate::death::Death;
use crate::life::Life;
use crate::torus::TorusWatch;

/// Period of the checks of nodes.
const CHECK_PERIOD: Duration = Duration::from_millis(100);

/// A job under way. Dropping it kills its workers, and its nodes are lost unless it had ended.
#[derive(Debug)]
pub struct Running {
    job: Job,
    /// Its nodes, and the ranks of each.
    nodes: Vec<(Life, Vec<u32>)>,
    /// The window through which its ranks exchange messages, if their failure ends the job.
    torus: Option<TorusWatch>,
    deaths: Mutex<Vec<Death>>,
}

impl Running {
    pub(crate) fn new(job: Job, nodes: Vec<(Life, Vec<u32>)>, torus: Option<TorusWatch>) -> Self {
        Self { job, nodes, torus, deaths: Mutex::default() }
    }

    /// Number of its processes.
    pub fn size(&self) -> u32 {
        self.job.size()
    }

    /// Its I/O nodes: the number of each pset in which a process runs, and the process id of the worker that serves it.
    pub fn io_nodes(&self) -> Vec<(u32, u32)> {
        self.job.workers()
    }

    /// Sends Linux signal `signal` to every process; also while another thread waits.
    ///
    /// # Errors
    /// If the job has ended.
    pub fn signal(&self, signal: i32) -> Result<(), CnkError> {
        Ok(self.job.signal(signal)?)
    }

    /// Waits until all programs run, or the job has ended; `true` if they ran. A node that dies ends the job: without
    /// it, it would not begin.
    pub fn wait_started(&self) -> bool {
        let end = |_: &[u32]| {
            self.job.kill();
            Ok(())
        };
        self.watched(end, || self.job.wait_started())
    }

    /// Returns `true` if a program may have begun. A job that has ended without that can be launched again.
    pub fn has_begun(&self) -> bool {
        self.job.has_begun()
    }

    /// Waits for the end of the job. Again, it says the same.
    ///
    /// If a node dies, its processes are killed. If they have not ended after the time that the daemon gives a
    /// node (`grace`), they are lost and the job ends, or continues without them if it says so.
    pub fn wait(&self) -> JobOutcome {
        if self.wait_started() {
            let kill = |ranks: &[u32]| self.job.signal_ranks(Signal::SIGKILL as i32, ranks);
            return self.watched(kill, || self.job.wait());
        }
        let mut outcome = self.job.wait();
        // the workers were killed because of it
        if let (Some(JobError::WorkerDied(_)), Some(death)) = (&outcome.error, self.lock().first()) {
            outcome.error = Some(JobError::NodeNotReady(death.node));
        }
        outcome
    }

    /// Waits no longer than this; `None` while the job goes on.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<JobOutcome> {
        self.job.wait_timeout(timeout)
    }

    /// The nodes that have died meanwhile.
    pub fn deaths(&self) -> Vec<Death> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Death>> {
        self.deaths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `wait`, and calls `end` with the ranks of each node that dies meanwhile.
    fn watched<T>(
        &self,
        end: impl Fn(&[u32]) -> Result<(), CiodError> + Send,
        wait: impl FnOnce() -> T,
    ) -> T {
        let (stop, stopped) = channel::<()>();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while stopped.recv_timeout(CHECK_PERIOD) == Err(RecvTimeoutError::Timeout) {
                    self.check_nodes(&end);
                }
            });
            let result = wait();
            drop(stop);
            result
        })
    }

    fn check_nodes(&self, end: impl Fn(&[u32]) -> Result<(), CiodError>) {
        if let Some(torus) = &self.torus {
            let late = torus.check(&self.job.ended());
            if !late.is_empty() {
                let _ = self.job.signal_ranks(Signal::SIGKILL as i32, &late);
            }
        }
        for (life, ranks) in &self.nodes {
            if self.lock().iter().any(|d| d.node == life.number()) {
                continue;
            }
            if let Some(death) = life.death() {
                self.lock().push(death);
                // a job that has ended meanwhile needs no end
                let _ = end(ranks);
            }
        }
    }
}
