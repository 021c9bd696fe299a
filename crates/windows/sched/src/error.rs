// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io;

use colony_node::NodeError;

use crate::limits::LimitError;

/// A failure to schedule a job.
#[derive(Debug, thiserror::Error)]
pub enum SchedError {
    /// The node said no.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// No real-time class: the agent cannot hold anything back.
    #[error(
        "the agent cannot use SCHED_FIFO: {0}; run as root, with CAP_SYS_NICE, or with a real-time limit \
         (ulimit -r 90); in a control group of cgroup v1 it also needs cpu.rt_runtime_us"
    )]
    NoRealTime(String),
    /// A configuration that cannot work.
    #[error("{what}; {advice}")]
    Config {
        /// The problem that was found.
        what: String,
        /// The remedy.
        advice: &'static str,
    },
    /// Windows that would starve the node.
    #[error("{0}; or only measure them (--backend none)")]
    Limits(#[from] LimitError),
    /// The process to join the job is gone or is none.
    #[error("process {0} cannot join the job: there is no such process; write the number of a running one")]
    NoProcess(i32),
    /// The scheduler in the kernel did not start.
    #[error(transparent)]
    Ext(#[from] crate::ext::ExtError),
    /// The guardian did not start, so the agent does not either.
    #[error(
        "the guardian, which puts tasks back if the agent dies, did not start: {0}; the agent does not run without it"
    )]
    Guardian(String),
    /// The program to run did not start.
    #[error("cannot run `{command}`: {source}; is it installed and executable?")]
    Command {
        /// The program.
        command: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The BPF programs behind the proof did not load.
    #[error("the BPF proof did not start: {0}")]
    Bpf(String),
    /// `colonyd` did not take the job.
    #[error("colonyd: {0}; or run without it: --backend agent")]
    Daemon(String),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl SchedError {
    /// Returns `true` if the caller asked for something impossible (exit code 2), and `false` if the run has failed.
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        match self {
            Self::Config { .. } | Self::Limits(_) => true,
            Self::Ext(e) => matches!(e, crate::ext::ExtError::Config { .. }),
            Self::Node(e) => e.is_wrong_use(),
            _ => false,
        }
    }

    pub(crate) fn system(what: &'static str) -> impl Fn(nix::errno::Errno) -> Self {
        move |e| Self::System { what, source: e.into() }
    }
}
