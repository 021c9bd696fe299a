// SPDX-License-Identifier: MIT OR Apache-2.0
//! The launcher's view of a job: it waits until all ranks have joined, then until they end, and replaces those that die.

use std::cell::RefCell;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use super::connections::Connections;
use super::error::{LaunchError, system};
use super::hosts::Hosts;
use super::ranks::{Death, LOST, RESIZED, Ranks};
use super::requests::{Requests, ToLauncher};
use crate::report::report_line;
use crate::transport::sockets::stream::Listener;

/// The most ranks of one job.
pub(crate) const MOST_RANKS: u32 = 4096;
/// The longest wait for all ranks to join.
const JOIN: Duration = Duration::from_secs(60);
/// The time that ranks have to end by themselves after another has failed.
const GRACE: Duration = Duration::from_secs(2);
/// The time that a failed rank has to end after another rank has lost it.
const FAILING: Duration = Duration::from_secs(10);
/// The time from the end of a rank's connection to the end of its process, if it has died.
const DYING: Duration = Duration::from_millis(300);
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
}

/// The outcome of waiting for the end of the ranks.
enum Watched {
    /// The job has ended.
    Ended(End),
    /// A rank has died, or connections have failed: the ranks join the job again.
    Again,
}

/// Starts one rank, which has been started so often before, or all of them by Slurm.
pub(crate) type Start<'a> = &'a dyn Fn(u32, u32) -> Result<Child, LaunchError>;

/// A job that runs.
pub(crate) struct Job<'a> {
    start: Start<'a>,
    hosts: &'a RefCell<Hosts>,
    listener: Listener,
    ranks: Ranks,
    connections: Connections,
    requests: Requests,
    /// The number of ranks, and that with which the job is to go on.
    size: u32,
    resize: Option<u32>,
    /// Why the job cannot be resized.
    is_fixed: Option<String>,
    /// The ranks are started by `ssh`.
    is_remote: bool,
    /// How often ranks may be replaced, and how often they have been.
    restarts: u32,
    restarted: u32,
    /// The program has ended on a rank: none is replaced any more.
    is_over: bool,
    /// The last rank that was replaced.
    died: Option<Death>,
}

const WAITING: &str = "waiting for a rank";

impl<'a> Job<'a> {
    /// Starts the processes of a job.
    pub(crate) fn start(
        (start, hosts): (Start<'a>, &'a RefCell<Hosts>),
        (listener, connections, requests): (Listener, Connections, Requests),
        (processes, size): (u32, u32),
        (restarts, is_remote, is_fixed): (u32, bool, Option<String>),
    ) -> Result<Self, LaunchError> {
        listener.set_nonblocking(true).map_err(system("listening"))?;
        let ranks = Ranks(Vec::new());
        let (restarted, is_over, died) = (0, false, None);
        let mut job = Self {
            start,
            hosts,
            listener,
            ranks,
            connections,
            requests,
            size,
            resize: None,
            is_fixed,
            is_remote,
            restarts,
            restarted,
            is_over,
            died,
        };
        for rank in 0..processes {
            let child = start(rank, 0)?;
            job.ranks.0.push(child);
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
            let answer =
                match (&self.is_fixed, u32::try_from(to).ok().filter(|to| (1..=MOST_RANKS).contains(to))) {
                    (Some(why), _) => Err(why.clone()),
                    _ if self.resize.is_some() => Err("the job is being resized".to_owned()),
                    _ if self.is_over => Err("the program has ended".to_owned()),
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
                if self.replace_dead()? {
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
            if began.elapsed() > JOIN && generation == 0 {
                self.ranks.kill();
                return Err(LaunchError::Wrong(
                    "not all ranks have joined the job within a minute".to_owned(),
                ));
            }
            if !self.connections.accept(&self.listener).map_err(system("taking a rank's connection"))? {
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

    /// A rank has died after others had ended the program: the job cannot be begun again without them.
    fn give_up(&mut self) -> u8 {
        self.leave();
        let Some(death) = self.died else { return 1 };
        report_line!("error: {death} after the program had ended on other ranks");
        code_of(death.status)
    }

    /// Gives ranks a moment to end by themselves.
    fn leave(&mut self) {
        let began = Instant::now();
        while began.elapsed() < GRACE && self.ranks.are_running() {
            if self.replaces() {
                let _ = self.connections.accept(&self.listener);
                self.connections.refuse_all("other ranks have ended");
            }
            self.pause();
        }
    }

    /// Waits until the next look at the ranks. A look at many takes long.
    fn pause(&self) {
        std::thread::sleep(LOOK * (1 + self.ranks.0.len() as u32 / MANY));
    }

    /// Ranks that die are replaced.
    fn replaces(&self) -> bool {
        self.restarts > 0
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
        Ok(failure.filter(|(rank, status)| {
            let death = Death::of(*rank, *status, self.is_remote);
            !death.is_some_and(|death| self.can_replace(&death))
        }))
    }

    /// Returns `true` if a rank that has died is to be replaced.
    fn can_replace(&self, death: &Death) -> bool {
        let is_allowed = self.restarted < self.restarts || !death.is_failure();
        self.replaces() && is_allowed && !self.is_over
    }

    /// Kills ranks that do not respond, and replaces those that have died, as often as is allowed. Returns `true` if it
    /// has replaced any.
    fn replace_dead(&mut self) -> Result<bool, LaunchError> {
        if let Some((rank, silence)) = self.connections.silent() {
            report_line!("warning: rank {rank} has not responded for {} ms: killed", silence.as_millis());
            self.ranks.kill_one(rank);
        }
        let deaths = self.ranks.deaths(self.is_remote).map_err(system(WAITING))?;
        let mut any = false;
        for death in deaths {
            let has_come = self.connections.forget(death.rank);
            if self.can_replace(&death) {
                self.replace(&death, has_come)?;
                any = true;
            }
        }
        Ok(any)
    }

    /// Starts a rank again; on another host, if it has not come from the one that it was started on.
    fn replace(&mut self, death: &Death, has_come: bool) -> Result<(), LaunchError> {
        if death.is_failure() {
            self.restarted += 1;
            let mut hosts = self.hosts.borrow_mut();
            let new = if has_come { None } else { hosts.lose(death.rank) };
            let place = new.map(|host| format!(" on {host}")).unwrap_or_default();
            report_line!("warning: {death}; restart {} of {}{place}", self.restarted, self.restarts);
        }
        let start = self.connections.start_again(death.rank);
        let child = (self.start)(death.rank, start)?;
        if let Some(place) = self.ranks.0.get_mut(death.rank as usize) {
            *place = child;
        }
        self.died = Some(*death);
        Ok(())
    }

    /// Kills a rank without heartbeats that does not greet the launcher: its process is stopped for longer than `DYING`, or
    /// it is late. A rank that runs a long entry method has heartbeats.
    fn kill_stuck(&mut self, stopped: &mut Option<(u32, Instant)>, is_late: bool) {
        let missing = self.connections.missing();
        let silent: Vec<u32> = missing.into_iter().filter(|rank| self.connections.has_left(*rank)).collect();
        let found = silent.iter().copied().find(|rank| is_late || self.ranks.is_stopped(*rank));
        match (found, &stopped) {
            (None, _) => *stopped = None,
            (Some(rank), Some((known, since))) if *known == rank && since.elapsed() > DYING => {
                report_line!("warning: rank {rank} does not join the job: killed");
                self.ranks.kill_one(rank);
                *stopped = None;
            }
            (Some(rank), Some((known, _))) if *known == rank => {}
            (Some(rank), _) => *stopped = Some((rank, Instant::now())),
        }
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
                self.is_over |= self.connections.are_done() || !succeeded.is_empty();
                if !self.is_over && self.replace_dead()? {
                    return Ok(Watched::Again);
                }
                if !self.is_over && broken && broken_since.get_or_insert_with(Instant::now).elapsed() > DYING
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
                None if succeeded.len() == self.ranks.0.len() => return Ok(Watched::Ended(End::Code(0))),
                None => {}
            }
            self.pause();
        }
    }

    /// A rank has left its connections, and no rank has died: all join again.
    fn rejoin(&mut self) -> Watched {
        const WHAT: &str = "connections between ranks have failed";
        if self.restarted == self.restarts {
            report_line!("error: {WHAT}; the job ends (restarts used: {})", self.restarts);
            self.ranks.kill();
            return Watched::Ended(End::Code(1));
        }
        self.restarted += 1;
        report_line!("warning: {WHAT}; restart {} of {}", self.restarted, self.restarts);
        Watched::Again
    }

    /// A rank has failed: the others get a moment to end by themselves.
    fn end(&mut self, rank: u32, status: ExitStatus) -> u8 {
        if let Some(signal) = status.signal() {
            let why = match self.restarts {
                0 => String::new(),
                restarts if self.restarted >= restarts => format!(" (restarts used: {restarts})"),
                _ => " (the program has ended on other ranks)".to_owned(),
            };
            report_line!("error: rank {rank} was killed by signal {signal}; the job ends{why}");
        }
        self.leave();
        // the code of a rank that failed by itself says more than that of one that lost it
        let ended = self.ranks.ended().unwrap_or_default();
        let mut codes = ended.into_iter().filter_map(|(_, status)| status.code());
        let own = codes.find(|&code| code != 0 && code != i32::from(LOST));
        self.ranks.kill();
        match (status.signal(), own) {
            (None, Some(code)) => code as u8,
            _ => code_of(status),
        }
    }
}

/// The exit code that says how a rank ended, as a shell's.
fn code_of(status: ExitStatus) -> u8 {
    status.signal().map(|signal| 128 + signal).or(status.code()).map_or(1, |code| code as u8)
}
