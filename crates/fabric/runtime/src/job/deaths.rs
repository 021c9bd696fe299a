// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks that have died, or do not respond: the launcher replaces them, or all ranks begin again.

use std::time::{Duration, Instant};

use super::error::{LaunchError, system};
use super::process::Process;
use super::ranks::Death;
use super::vitals::{Judgement, STOPPED};
use super::watch::{DYING, End, Job, Stage, WAITING, Watched};
use crate::report::report_line;

impl Job<'_> {
    /// Returns `true` if no rank can be replaced, since MPI waits in its initialization until all ranks have come.
    pub(super) fn is_bound(&self) -> bool {
        self.rules.is_mpi && self.stage() == Stage::Begins
    }

    /// The end of a job of MPI that cannot replace a rank: not all have joined it, or an agent has ended.
    pub(super) fn begins_again(&mut self) -> Result<Option<End>, LaunchError> {
        if self.ranks.are_lost() || (self.is_lost)() {
            self.ranks.kill();
            return Ok(Some(End::Lost { restarted: self.rules.restarted, is_over: self.is_over() }));
        }
        if !self.is_bound() {
            return Ok(None);
        }
        let deaths = self.ranks.deaths(false).map_err(system(WAITING))?;
        let Some(death) = deaths.into_iter().find(|death| self.can_replace(death)) else { return Ok(None) };
        self.rules.restarted += u32::from(death.is_failure());
        let (restarted, restarts) = (self.rules.restarted, self.rules.restarts);
        report_line!(
            "warning: {death} before all ranks had joined the job; all begin again, restart {restarted} of {restarts}"
        );
        self.ranks.kill();
        Ok(Some(End::Again(restarted)))
    }

    /// Returns `true` if a rank that has died is to be replaced.
    pub(super) fn can_replace(&self, death: &Death) -> bool {
        let is_allowed = self.rules.restarted < self.rules.restarts || !death.is_failure();
        self.replaces() && is_allowed && !self.is_over()
    }

    /// Kills a rank that does not respond. A rank on the launcher's host may live, though it is silent.
    pub(super) fn kill_silent(&mut self) {
        let silent = self.connections.silent();
        for rank in self.suspects.keep_only(&silent) {
            report_line!("rank {rank} goes on");
        }
        for (rank, silence) in silent {
            let process = self.ranks.0.get(rank as usize).and_then(Process::id);
            let process = process.filter(|_| !self.rules.is_remote).map(u32::cast_signed);
            let times = (self.connections.looked(), self.stop_limit());
            let ms = silence.as_millis();
            match self.suspects.judge((rank, silence), process, times) {
                Judgement::Alive => {}
                Judgement::Stopped { pid, by_debugger: true } => {
                    report_line!(
                        "warning: a debugger has stopped rank {rank} (process {pid}) for {ms} ms: the job waits for it"
                    );
                }
                Judgement::Stopped { pid, by_debugger: false } => report_line!(
                    "warning: rank {rank} (process {pid}) has been stopped for {ms} ms, and counts as dead after {:.1} s; \
                     continue it by kill -CONT {pid}",
                    self.stop_limit().as_secs_f64()
                ),
                Judgement::Dead => {
                    report_line!("warning: rank {rank} has not responded for {ms} ms: killed");
                    self.ranks.kill_one(rank);
                    self.suspects.forget(rank);
                    return;
                }
            }
        }
    }

    /// The time after which a stopped rank counts as dead.
    fn stop_limit(&self) -> Duration {
        self.connections.timeout().unwrap_or(STOPPED)
    }

    /// Replaces ranks that have died, as often as is allowed. Returns `true` if it has replaced any.
    pub(super) fn replace_dead(&mut self) -> Result<bool, LaunchError> {
        let deaths = self.ranks.deaths(self.rules.is_remote).map_err(system(WAITING))?;
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
            self.rules.restarted += 1;
            let mut hosts = self.hosts.borrow_mut();
            let new = if has_come { None } else { hosts.lose(death.rank) };
            let place = new.map(|host| format!(" on {host}")).unwrap_or_default();
            report_line!(
                "warning: {death}; restart {} of {}{place}",
                self.rules.restarted,
                self.rules.restarts
            );
        }
        let start = self.connections.start_again(death.rank);
        let process = (self.start)(death.rank, start)?;
        if let Some(place) = self.ranks.0.get_mut(death.rank as usize) {
            *place = process;
        }
        self.died = Some(*death);
        Ok(())
    }

    /// Kills a rank without heartbeats that does not greet the launcher: its process is stopped for too long, or it is late. A rank that runs a long entry method has heartbeats.
    pub(super) fn kill_stuck(&mut self, stopped: &mut Option<(u32, Instant)>, is_late: bool) {
        let missing = self.connections.missing();
        let silent: Vec<u32> = missing.into_iter().filter(|rank| self.connections.has_left(*rank)).collect();
        let found = silent.iter().copied().find(|rank| is_late || self.ranks.is_stopped(*rank));
        match (found, &stopped) {
            (None, _) => *stopped = None,
            (Some(rank), Some((known, since)))
                if *known == rank && since.elapsed() > if is_late { DYING } else { self.stop_limit() } =>
            {
                report_line!("warning: rank {rank} does not join the job: killed");
                self.ranks.kill_one(rank);
                *stopped = None;
            }
            (Some(rank), Some((known, _))) if *known == rank => {}
            (Some(rank), _) => *stopped = Some((rank, Instant::now())),
        }
    }

    /// A rank has left its connections, and no rank has died: all join again.
    pub(super) fn rejoin(&mut self) -> Watched {
        const WHAT: &str = "connections between ranks have failed";
        if self.rules.restarted == self.rules.restarts {
            report_line!("error: {WHAT}; the job ends (restarts used: {})", self.rules.restarts);
            self.ranks.kill();
            return Watched::Ended(End::Code(1));
        }
        self.rules.restarted += 1;
        report_line!("warning: {WHAT}; restart {} of {}", self.rules.restarted, self.rules.restarts);
        Watched::Again
    }
}
