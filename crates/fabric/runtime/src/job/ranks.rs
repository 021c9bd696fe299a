// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes of a job's ranks.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use colony_node::task;

use super::process::Process;

/// The exit code of a rank that ends because another has failed and has said why.
pub const LOST: u8 = 141;
/// The exit code of a rank that has to be replaced: the job begins anew, and the rank cannot.
pub const AGAIN: u8 = 142;
/// The exit code of a rank that ends so that the job goes on with another number of ranks.
pub const RESIZED: u8 = 143;
/// The exit code of `ssh` if the connection ends, or if a signal kills the remote process.
const SSH_LOST: i32 = 255;

/// The processes by rank. Those that still run when this is dropped are killed.
pub(crate) struct Ranks(pub(crate) Vec<Process>);

/// A rank's process that has ended, and may be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Death {
    pub(crate) rank: u32,
    pub(crate) status: ExitStatus,
}

impl Ranks {
    /// Kills those that still run. As long as they run, the launcher keeps its connections to them: a rank that loses
    /// the launcher reports that as an error.
    pub(crate) fn kill(&mut self) {
        self.0.iter_mut().for_each(Process::kill);
        self.0.iter_mut().for_each(Process::wait);
    }

    /// Kills one rank.
    pub(crate) fn kill_one(&mut self, rank: u32) {
        if let Some(process) = self.0.get_mut(rank as usize) {
            process.kill();
            process.wait();
        }
    }

    /// Returns `true` if a rank's process is stopped, as by `SIGSTOP`. The process of a remote rank is not seen.
    pub(crate) fn is_stopped(&self, rank: u32) -> bool {
        let Some(id) = self.0.get(rank as usize).and_then(Process::id) else { return false };
        task::stat(id.cast_signed()).is_ok_and(|stat| stat.is_stopped())
    }

    /// The exit statuses of the ranks that have ended.
    pub(crate) fn ended(&mut self) -> io::Result<Vec<(u32, ExitStatus)>> {
        let mut ended = Vec::new();
        for (rank, process) in (0..).zip(&mut self.0) {
            if let Some(status) = process.try_wait()? {
                ended.push((rank, status));
            }
        }
        Ok(ended)
    }

    /// Returns `true` if some still run.
    pub(crate) fn are_running(&mut self) -> bool {
        self.0
            .iter_mut()
            .any(|process| process.try_wait().is_ok_and(|status| status.is_none()) && !process.is_lost())
    }

    /// Returns `true` if the agent of a rank has ended, as all do with `mpirun`.
    pub(crate) fn are_lost(&self) -> bool {
        self.0.iter().any(Process::is_lost)
    }

    /// The first rank that failed. One that failed by itself comes before those that only lost another.
    pub(crate) fn first_failure(&mut self) -> io::Result<Option<(u32, ExitStatus)>> {
        let mut lost = None;
        for (rank, status) in self.ended()? {
            match status.code() {
                Some(0) => {}
                Some(code) if code == i32::from(LOST) => lost = Some((rank, status)),
                _ => return Ok(Some((rank, status))),
            }
        }
        Ok(lost)
    }

    /// Ranks that have died. `remote`: they are started by `ssh`.
    pub(crate) fn deaths(&mut self, remote: bool) -> io::Result<Vec<Death>> {
        let ended = self.ended()?.into_iter();
        Ok(ended.filter_map(|(rank, status)| Death::of(rank, status, remote)).collect())
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Death {
    /// The death of a rank that a signal has killed, or that asks for a replacement. A rank that ends otherwise has not
    /// died. `remote`: it was started by `ssh`.
    pub(crate) fn of(rank: u32, status: ExitStatus, remote: bool) -> Option<Self> {
        let code = status.code();
        let died =
            status.signal().is_some() || code == Some(i32::from(AGAIN)) || remote && code == Some(SSH_LOST);
        died.then_some(Self { rank, status })
    }

    /// The rank has died by itself, and not to begin the job anew.
    pub(crate) fn is_failure(&self) -> bool {
        self.status.code() != Some(i32::from(AGAIN))
    }
}

impl std::fmt::Display for Death {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.status.signal() {
            Some(signal) => write!(f, "rank {} was killed by signal {signal}", self.rank),
            None => write!(f, "rank {} was lost with its host or connection", self.rank),
        }
    }
}
