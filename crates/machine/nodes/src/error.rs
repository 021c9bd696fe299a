// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of partitions.

use std::io;
use std::path::PathBuf;

use colony_ciod::{CiodError, JobError};
use colony_vm::VmError;

use crate::death::Death;

/// The reason why a partition does not boot, or a job does not start.
#[derive(Debug, thiserror::Error)]
pub enum CnkError {
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// The action that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The program that boots nodes cannot be used.
    #[error("the program that boots nodes, {}, cannot be started: {source}; it belongs beside ciod", program.display())]
    Boot {
        /// The program.
        program: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// This process may not have the descriptors of so many nodes.
    #[error(
        "{nodes} nodes need {needed} open files, and this process may have {limit}: raise the hard limit \
         (ulimit -Hn {needed}), or take fewer nodes"
    )]
    Descriptors {
        /// Nodes that were asked for.
        nodes: u32,
        /// Descriptors for them, and those that are open.
        needed: u64,
        /// The limit (`RLIMIT_NOFILE`).
        limit: u64,
    },
    /// A wish that no machine fulfills.
    #[error("{0}")]
    Machine(String),
    /// A node died by itself.
    #[error(transparent)]
    Died(#[from] Death),
    /// The I/O daemon refused.
    #[error(transparent)]
    Ciod(#[from] CiodError),
    /// The job does not start.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A node whose emulator did not start the plugin that counts.
    #[error(
        "node {node} has counted nothing: its emulator did not start the plugin; --debug shows its console"
    )]
    NoCounts {
        /// The node.
        node: u32,
    },
    /// The I/O node, a machine of its own, did not run the job.
    #[error("the I/O node: {0}")]
    IoNode(String),
    /// The emulator cannot be started, or has no slot among the virtual machines of this user.
    #[error(transparent)]
    Vm(#[from] VmError),
}

impl CnkError {
    /// Returns `true` if the caller asked for something impossible (exit code 2).
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        match self {
            Self::Machine(_) => true,
            Self::Job(e) => e.is_wrong_use(),
            _ => false,
        }
    }

    /// Returns `true` if the machine has failed, not the job: the same job may run on other nodes, or later.
    #[must_use]
    pub const fn is_of_machine(&self) -> bool {
        match self {
            Self::Machine(_) => false,
            Self::Job(e) => e.is_of_machine(),
            _ => true,
        }
    }

    /// The boot process whose end was the death of a node ([`Death::boot_process`]).
    #[must_use]
    pub const fn boot_process(&self) -> Option<u32> {
        match self {
            Self::Died(death) => death.boot_process(),
            _ => None,
        }
    }

    pub(crate) fn io(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}
