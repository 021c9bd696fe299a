// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a job: its exit code, and the reason, which is printed once: by the rank that fails, or by the launcher if the
//! rank cannot.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use super::ranks::LOST;
use super::watch::Job;
use crate::report::report_line;

/// The time that ranks have to end by themselves after another has failed.
const GRACE: Duration = Duration::from_secs(2);
/// The time from the end of a rank's process to the end of its connection. The two are seen on different paths if the rank
/// runs on another host.
const LAST_WORDS: Duration = Duration::from_secs(1);

impl Job<'_> {
    /// A rank has failed: the others get a moment to end by themselves. Returns the exit code of the job.
    pub(super) fn end(&mut self, rank: u32, status: ExitStatus) -> u8 {
        self.report_signal(rank, status);
        if self.rules.is_mpi {
            // over MPI, no rank sees that another has failed
            self.connections.end_generation();
        }
        self.leave();
        let (cause, of_cause) = self.cause(rank, status);
        if cause != rank {
            self.report_signal(cause, of_cause);
        }
        self.report_exit(cause, of_cause);
        self.ranks.kill();
        code_of(of_cause)
    }

    /// A rank has ended with the exit code 0 before the program.
    pub(super) fn end_early(&mut self, rank: u32) -> u8 {
        match self.end(rank, ExitStatus::default()) {
            0 => LOST,
            code => code,
        }
    }

    /// A rank has died after others had ended the program: the job cannot be begun again without them.
    pub(super) fn give_up(&mut self) -> u8 {
        self.leave();
        if let Some(death) = self.died {
            report_line!("error: {death} after the program had ended on other ranks");
            return code_of(death.status);
        }
        match self.early_rank() {
            Some(rank) => {
                report_line!("error: rank {rank} ended with exit code 0 before the program; the job ends");
            }
            None => {
                report_line!("error: connections have failed after the program had ended on other ranks");
            }
        }
        1
    }

    /// All ranks have ended with the exit code 0. A rank that called `exit` has not ended the program: the result may be
    /// incomplete.
    pub(super) fn report_early_end(&mut self) {
        if let Some(rank) = self.early_rank() {
            report_line!("warning: rank {rank} ended with exit code 0 before the program");
        }
    }

    /// Gives ranks a moment to end by themselves.
    fn leave(&mut self) {
        let began = Instant::now();
        while began.elapsed() < GRACE && self.ranks.are_running() {
            if self.replaces() {
                let _ = self.connections.accept(&mut self.admission);
                self.connections.refuse_all("other ranks have ended");
            }
            self.pause();
        }
    }

    /// The rank whose failure is the cause. The launcher may have seen first that another rank lost its connection to that rank.
    fn cause(&mut self, rank: u32, status: ExitStatus) -> (u32, ExitStatus) {
        let is_own = |status: &ExitStatus| !status.success() && status.code() != Some(i32::from(LOST));
        if is_own(&status) {
            return (rank, status);
        }
        let ended = self.ranks.ended().unwrap_or_default();
        ended.into_iter().find(|(_, status)| is_own(status)).unwrap_or((rank, status))
    }

    /// Prints the signal that has killed a rank.
    fn report_signal(&self, rank: u32, status: ExitStatus) {
        let Some(signal) = status.signal() else { return };
        let why = match self.rules.restarts {
            0 => String::new(),
            restarts if self.rules.restarted >= restarts => format!(" (restarts used: {restarts})"),
            _ => " (the program has ended on other ranks)".to_owned(),
        };
        report_line!("error: rank {rank} was killed by signal {signal}; the job ends{why}");
    }

    /// Prints why a job ends that no signal has ended, unless a rank has: one that calls `exit` in an entry method cannot.
    fn report_exit(&mut self, rank: u32, status: ExitStatus) {
        if status.signal().is_some() || !self.has_process_for_each_rank() {
            return;
        }
        self.wait_for_last_words(rank);
        if self.connections.have_told() {
            return;
        }
        let is_lost = status.code() == Some(i32::from(LOST));
        let early = if is_lost || status.success() { self.early_rank() } else { None };
        match (early, status.code()) {
            (Some(rank), _) => {
                report_line!("error: rank {rank} ended with exit code 0 before the program; the job ends");
            }
            (None, Some(_)) if is_lost => {
                report_line!("error: rank {rank} has lost its connection to another rank; the job ends");
            }
            (None, Some(code)) if self.connections.is_unfinished(rank) => {
                report_line!(
                    "error: rank {rank} ended with exit code {code} before the program; the job ends"
                );
            }
            _ => {}
        }
    }

    /// The one process of a step of Slurm is no rank. `srun` reports exit codes itself.
    fn has_process_for_each_rank(&self) -> bool {
        self.ranks.0.len() == self.size as usize
    }

    /// A rank that was a part of the job, and has ended with the exit code 0 before the program.
    pub(super) fn early_rank(&mut self) -> Option<u32> {
        if !self.has_process_for_each_rank() {
            return None;
        }
        let ended = self.ranks.ended().unwrap_or_default().into_iter();
        let ranks: Vec<u32> = ended.filter(|(_, status)| status.success()).map(|(rank, _)| rank).collect();
        self.connections.listen();
        ranks.into_iter().find(|rank| {
            if self.connections.is_unfinished(*rank) {
                self.wait_for_last_words(*rank);
            }
            self.connections.is_unfinished(*rank)
        })
    }

    /// Reads what ranks have said, up to the last words of one whose process has ended.
    fn wait_for_last_words(&mut self, rank: u32) {
        let began = Instant::now();
        self.connections.listen();
        while !self.connections.has_left(rank) && began.elapsed() < LAST_WORDS {
            self.pause();
            self.connections.listen();
        }
    }
}

/// The exit code that says how a rank ended, as a shell's.
fn code_of(status: ExitStatus) -> u8 {
    status.signal().map(|signal| 128 + signal).or(status.code()).map_or(1, |code| code as u8)
}
