// SPDX-License-Identifier: MIT OR Apache-2.0
//! Outcomes of jobs and of their processes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::JobError;

/// The end of a process.
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

/// Counters of the node's kernel for the run of a process.
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

/// The outcome of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessOutcome {
    /// Its number in the job.
    pub rank: u32,
    /// The node that it ran on.
    pub node: u32,
    /// Its end.
    pub end: End,
    /// The counters of its node.
    pub counters: Counters,
    /// Its registers and the reason, where it ended by a fault or a signal.
    pub crash: Option<String>,
}

/// The exit code of a process that ends because another one of its job has failed, in programs of `colony-runtime`.
pub const LOST: i32 = 141;

/// The outcome of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobOutcome {
    /// Its processes by rank; none if it did not start.
    pub processes: Vec<ProcessOutcome>,
    /// The reason why it did not start, or was ended.
    pub error: Option<JobError>,
    /// Nodes that must be started anew.
    pub lost: Vec<u32>,
    /// Messages of the nodes' kernels.
    pub log: Vec<String>,
}

impl JobOutcome {
    /// Returns `true` if all processes ended by themselves with code 0.
    pub fn success(&self) -> bool {
        self.error.is_none() && self.failed().next().is_none()
    }

    /// The ranks that have ended, and whether each ended by itself with code 0.
    pub(crate) fn exits(&self) -> Vec<(u32, bool)> {
        self.processes.iter().map(|p| (p.rank, p.end == End::Exited(0))).collect()
    }

    /// The processes that did not end by themselves with code 0.
    pub fn failed(&self) -> impl Iterator<Item = &ProcessOutcome> {
        self.processes.iter().filter(|p| p.end != End::Exited(0))
    }

    /// Those that failed by themselves, not because another one did: with the code [`LOST`], or killed by the job after the
    /// first had failed. All if there is no such process.
    pub fn causes(&self) -> impl Iterator<Item = &ProcessOutcome> {
        let weight = |p: &ProcessOutcome| match p.end {
            End::Exited(LOST) => 0,
            End::Signaled(libc::SIGKILL) => 1,
            _ => 2,
        };
        let most = self.failed().map(weight).max();
        self.failed().filter(move |p| Some(weight(p)) == most)
    }

    /// The code of the first process that failed by itself, as a shell tells it; 1 if the job itself failed.
    pub fn code(&self) -> i32 {
        let failed = self.causes().map(|p| p.end.code()).find(|&code| code != 0);
        failed.unwrap_or(i32::from(self.error.is_some()))
    }
}

impl fmt::Display for JobOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(error) = &self.error {
            writeln!(f, "{error}")?;
        }
        for p in self.causes() {
            writeln!(f, "rank {} (node {}) {}", p.rank, p.node, p.end)?;
            if let Some(crash) = &p.crash {
                writeln!(f, "{crash}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(ends: &[End]) -> JobOutcome {
        let process = |(rank, end): (u32, &End)| ProcessOutcome {
            rank,
            node: rank,
            end: end.clone(),
            counters: Counters::default(),
            crash: None,
        };
        JobOutcome { processes: (0..).zip(ends).map(process).collect(), ..JobOutcome::default() }
    }

    #[test]
    fn processes_that_the_job_has_killed_are_no_causes_of_its_end() {
        let (killed, lost) = (End::Signaled(libc::SIGKILL), End::Exited(LOST));
        for (ends, code, causes) in [
            (vec![killed.clone(), End::Exited(7), killed.clone()], 7, vec![1]),
            (vec![killed.clone(), End::Signaled(libc::SIGTERM)], 143, vec![1]),
            (vec![killed.clone(), killed.clone()], 137, vec![0, 1]),
            (vec![lost.clone(), killed.clone()], 137, vec![1]),
            (vec![lost.clone(), lost], LOST, vec![0, 1]),
            (vec![End::Exited(0), killed], 137, vec![1]),
            (vec![End::Exited(0)], 0, vec![]),
        ] {
            let outcome = outcome(&ends);
            assert_eq!(outcome.code(), code, "{ends:?}");
            assert_eq!(outcome.causes().map(|p| p.rank).collect::<Vec<u32>>(), causes, "{ends:?}");
        }
    }
}
