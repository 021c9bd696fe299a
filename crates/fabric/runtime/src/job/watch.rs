// SPDX-License-Identifier: MIT OR Apache-2.0
//! The launcher's view of a job: it waits until all ranks have joined, then until they end, and replaces those that die.

use std::cell::RefCell;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::connections::Connections;
use super::error::{LaunchError, system};
use super::hosts::Hosts;
use super::process::Process;
use super::ranks::{Death, LOST, RESIZED, Ranks};
use super::requests::{Requests, ToLauncher};
use super::vitals::Suspects;
use crate::report::report_line;
use crate::transport::sockets::admission::Admission;

/// The most ranks of one job.
pub(crate) const MOST_RANKS: u32 = 4096;
/// The longest wait for all ranks to join.
const JOIN: Duration = Duration::from_secs(60);
/// The time from the failure of a rank to the end of `mpirun`, if that is its cause: PMIx ends processes without `mpirun`.
const SETTLING: Duration = Duration::from_millis(100);
/// The time that a failed rank has to end after another rank has lost it.
const FAILING: Duration = Duration::from_secs(10);
/// The time from the end of a rank's connection to the end of its process, if it has died.
pub(super) const DYING: Duration = Duration::from_millis(300);
/// The time from one look at the ranks to the next, for each [`MANY`] ranks.
const LOOK: Duration = Duration::from_millis(1);
const MANY: u32 = 128;

/// The outcome of waiting for all ranks to join.
enum Gathered {
    /// All have joined.
    All,
    /// The job has ended.
    Ended(End),
}

/// The end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With this exit code.
    Code(u8),
    /// It goes on with so many ranks, from its last checkpoint on disk.
    Resized(u32),
    /// All ranks begin again, from the last checkpoint on disk; so many ranks have been replaced.
    Again(u32),
    /// `mpirun` or an agent has ended; so many ranks have been replaced, and the program may have ended on a rank.
    Lost { restarted: u32, is_over: bool },
}

/// The stage of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not all ranks have joined it.
    Begins,
    Runs,
    /// The program has ended on a rank.
    Over,
}

/// The rules of a job.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// How often ranks may be replaced, and how often they have been.
    pub(crate) restarts: u32,
    pub(crate) restarted: u32,
    /// The ranks are started by `ssh`.
    pub(crate) is_remote: bool,
    /// The ranks are started by agents: until all have joined, none is replaced, since MPI waits for it.
    pub(crate) is_mpi: bool,
    /// The job goes on from a checkpoint on disk.
    pub(crate) has_checkpoint: bool,
    /// Why the job cannot be resized.
    pub(crate) is_fixed: Option<String>,
}

/// The outcome of waiting for the end of the ranks.
pub(super) enum Watched {
    /// The job has ended.
    Ended(End),
    /// A rank has died, or connections have failed: the ranks join the job again.
    Again,
}

/// Starts one rank, which has been started so often before, or all of them by Slurm.
pub(crate) type Start<'a> = &'a dyn Fn(u32, u32) -> Result<Process, LaunchError>;

/// A job that runs.
pub(crate) struct Job<'a> {
    pub(super) start: Start<'a>,
    pub(super) hosts: &'a RefCell<Hosts>,
    /// Returns `true` if `mpirun` has ended.
    pub(super) is_lost: &'a dyn Fn() -> bool,
    pub(super) admission: Admission,
    pub(super) ranks: Ranks,
    pub(super) connections: Connections,
    requests: Requests,
    /// The number of ranks, and that with which the job is to go on.
    pub(super) size: u32,
    resize: Option<u32>,
    pub(super) rules: Rules,
    stage: Stage,
    /// When the first rank was seen to have failed, over MPI.
    failed_since: Option<Instant>,
    /// Ranks that are silent.
    pub(super) suspects: Suspects,
    /// The last rank that was replaced.
    pub(super) died: Option<Death>,
}

pub(super) const WAITING: &str = "waiting for a rank";

impl<'a> Job<'a> {
    /// Starts the processes of a job.
    pub(crate) fn start(
        (start, hosts, is_lost): (Start<'a>, &'a RefCell<Hosts>, &'a dyn Fn() -> bool),
        (admission, connections, requests): (Admission, Connections, Requests),
        (processes, size): (u32, u32),
        rules: Rules,
    ) -> Result<Self, LaunchError> {
        let mut job = Self {
            start,
            hosts,
            is_lost,
            admission,
            ranks: Ranks(Vec::new()),
            connections,
            requests,
            size,
            resize: None,
            rules,
            stage: Stage::Begins,
            failed_since: None,
            suspects: Suspects::default(),
            died: None,
        };
        for rank in 0..processes {
            let process = start(rank, 0)?;
            job.ranks.0.push(process);
        }
        Ok(job)
    }

    /// Runs the job to its end.
    pub(crate) fn run(&mut self) -> Result<End, LaunchError> {
        for generation in 0.. {
            // a program that uses no other rank may end before all have come
            if let Gathered::Ended(end) = self.gather(generation)? {
                return Ok(end);
            }
            self.stage = Stage::Runs;
            if self.resize.is_some() {
                self.connections.ask_to_leave();
            }
            if let Watched::Ended(end) = self.watch()? {
                return Ok(end);
            }
            self.connections.end_generation();
        }
        Ok(End::Code(1))
    }

    /// Takes requests, and waits for the end of all ranks once one has left to be resized.
    fn resize(&mut self) -> Result<Option<End>, LaunchError> {
        while let Some(waiting) = self.requests.next() {
            let ToLauncher::Resize(by) = waiting.request;
            let to = i64::from(self.size).saturating_add(by);
            let answer = match (
                &self.rules.is_fixed,
                u32::try_from(to).ok().filter(|to| (1..=MOST_RANKS).contains(to)),
            ) {
                (Some(why), _) => Err(why.clone()),
                _ if self.resize.is_some() => Err("the job is being resized".to_owned()),
                _ if self.is_over() => Err("the program has ended".to_owned()),
                (None, None) => Err(format!("{to} ranks are asked for; 1 to {MOST_RANKS} are possible")),
                (None, Some(to)) => {
                    self.resize = Some(to);
                    self.connections.ask_to_leave();
                    Ok((self.size, to))
                }
            };
            waiting.answer(&answer);
        }
        let Some(to) = self.resize else { return Ok(None) };
        let ended = self.ranks.ended().map_err(system(WAITING))?;
        if !ended.iter().any(|(_, status)| status.code() == Some(i32::from(RESIZED))) {
            return Ok(None);
        }
        let began = Instant::now();
        while self.ranks.are_running() && began.elapsed() < JOIN {
            self.pause();
        }
        self.ranks.kill();
        Ok(Some(End::Resized(to)))
    }

    /// Waits until all ranks have said hello, and sends each the addresses of all.
    fn gather(&mut self, generation: u32) -> Result<Gathered, LaunchError> {
        let mut began = Instant::now();
        let mut stopped = None;
        while !self.connections.are_complete() {
            if let Some(end) = self.resize()? {
                return Ok(Gathered::Ended(end));
            }
            if self.replaces() {
                self.connections.listen();
                self.kill_silent();
                if let Some(end) = self.begins_again()? {
                    return Ok(Gathered::Ended(end));
                }
                if !self.is_bound() && self.replace_dead()? {
                    began = Instant::now();
                }
            }
            if let Some((rank, status)) = self.failure()? {
                return Ok(Gathered::Ended(End::Code(self.end(rank, status))));
            }
            let ended = self.succeeded()?;
            if ended.len() == self.ranks.0.len() {
                return Ok(Gathered::Ended(End::Code(0)));
            }
            if generation > 0 && (self.connections.are_done() || !ended.is_empty()) {
                return Ok(Gathered::Ended(End::Code(self.give_up())));
            }
            // none of them may join: then all of them end
            if let Some(rank) = ended.first()
                && self.connections.has_hello()
            {
                self.ranks.kill();
                return Err(LaunchError::Wrong(format!(
                    "rank {rank} has ended without joining the job: is it a program of colony-runtime?"
                )));
            }
            if self.replaces() {
                self.kill_stuck(&mut stopped, began.elapsed() > JOIN && generation > 0);
            }
            // without a hello, a job of MPI may have another program
            let may_wait = self.rules.is_mpi && !self.connections.has_hello();
            if began.elapsed() > JOIN && generation == 0 && !may_wait {
                return self.end_incomplete().map(Gathered::Ended);
            }
            let accepted = self.connections.accept(&mut self.admission);
            if !accepted.map_err(system("taking a rank's connection"))? {
                self.pause();
            }
        }
        self.connections.answer(generation).map_err(|why| {
            // each rank ends by itself; one that does not is killed
            self.ranks.kill();
            LaunchError::Wrong(why)
        })?;
        Ok(Gathered::All)
    }

    /// Not all ranks have joined the job in time: all begin again from the checkpoint on disk from which the job goes on.
    ///
    /// # Errors
    /// There is no checkpoint, or no restart is left.
    fn end_incomplete(&mut self) -> Result<End, LaunchError> {
        const WHAT: &str = "not all ranks have joined the job within a minute";
        self.ranks.kill();
        if !self.rules.has_checkpoint || self.rules.restarted >= self.rules.restarts {
            let missing = self.connections.missing();
            return Err(LaunchError::Wrong(format!("{WHAT}: ranks {missing:?} are missing")));
        }
        self.rules.restarted += 1;
        let Rules { restarts, restarted, .. } = self.rules;
        report_line!(
            "warning: {WHAT}; all begin again from the checkpoint on disk, restart {restarted} of {restarts}"
        );
        Ok(End::Again(restarted))
    }

    /// Waits until the next look at the ranks. A look at many takes long.
    pub(super) fn pause(&self) {
        std::thread::sleep(LOOK * (1 + self.ranks.0.len() as u32 / MANY));
    }

    /// Ranks that die are replaced.
    pub(super) fn replaces(&self) -> bool {
        self.rules.restarts > 0
    }

    /// The program has ended on a rank: none is replaced any more.
    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    /// The ranks that have ended successfully.
    fn succeeded(&mut self) -> Result<Vec<u32>, LaunchError> {
        let ended = self.ranks.ended().map_err(system(WAITING))?;
        Ok(ended.into_iter().filter(|(_, status)| status.success()).map(|(rank, _)| rank).collect())
    }

    /// The first rank that failed. A rank that has died since [`replace_dead`](Self::replace_dead) is replaced by the next
    /// call of that, and one that has left since [`resize`](Self::resize) is seen by the next call of that.
    fn failure(&mut self) -> Result<Option<(u32, ExitStatus)>, LaunchError> {
        let failure = self.ranks.first_failure().map_err(system(WAITING))?;
        let left = self.resize.map(|_| i32::from(RESIZED));
        let failure = failure.filter(|(_, status)| left.is_none() || status.code() != left);
        let failure = failure.filter(|(rank, status)| {
            let death = Death::of(*rank, *status, self.rules.is_remote);
            !death.is_some_and(|death| self.can_replace(&death))
        });
        let is_settled = !self.rules.is_mpi
            || failure.is_none()
            || self.failed_since.get_or_insert_with(Instant::now).elapsed() > SETTLING;
        Ok(failure.filter(|_| is_settled))
    }

    /// Waits for the end of all ranks.
    fn watch(&mut self) -> Result<Watched, LaunchError> {
        let (mut lost_since, mut broken_since) = (None::<Instant>, None::<Instant>);
        loop {
            if let Some(end) = self.resize()? {
                return Ok(Watched::Ended(end));
            }
            let succeeded = self.succeeded()?;
            if self.replaces() {
                let broken = self.connections.listen();
                // a rank that has left the job cannot join it again
                if self.connections.are_done() || !succeeded.is_empty() {
                    self.stage = Stage::Over;
                }
                // also one that stops while it leaves the program
                self.kill_silent();
                if !self.is_over() && self.replace_dead()? {
                    return Ok(Watched::Again);
                }
                if !self.is_over()
                    && broken
                    && broken_since.get_or_insert_with(Instant::now).elapsed() > DYING
                {
                    return Ok(self.rejoin());
                }
            }
            match self.failure()? {
                // the rank that failed may still be ending: its code or signal is that of the job
                Some((rank, status)) => {
                    let is_lost = status.code() == Some(i32::from(LOST));
                    let since = lost_since.get_or_insert_with(Instant::now);
                    if !is_lost || !self.ranks.are_running() || since.elapsed() > FAILING {
                        return Ok(Watched::Ended(End::Code(self.end(rank, status))));
                    }
                }
                None if succeeded.len() == self.ranks.0.len() => {
                    self.report_early_end();
                    return Ok(Watched::Ended(End::Code(0)));
                }
                None => {}
            }
            if let Some(end) = self.begins_again()? {
                return Ok(Watched::Ended(end));
            }
            // over MPI, no other rank sees that; where ranks are replaced, the others wait for the launcher
            if (self.rules.is_mpi || self.replaces())
                && !succeeded.is_empty()
                && let Some(rank) = self.early_rank()
            {
                return Ok(Watched::Ended(End::Code(self.end_early(rank))));
            }
            self.pause();
        }
    }
}
