// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a node that make noise on a job's CPUs.
//!
//! A [`Node`] is a running Linux system (`/`), or a directory with files collected from one. [`examine`] goes through a
//! table of rules ([`RULES`]). A rule is a function of the node. It gives findings, the value that shows there is none, or
//! the reason why it cannot tell. A [`Finding`] has the files and values seen, remedies as data ([`remedy`]) and the
//! sources of noise ([`Touches`]) that a remedy takes away. Costs are computed elsewhere, from traces.
//!
//! Nothing here changes a node.

mod contradiction;
mod default_cpus;
mod distribution;
mod effort;
mod examine;
mod finding;
mod holders;
mod interrupt_table;
mod irq;
mod mobility;
mod node;
mod outcome;
mod parameters;
mod probes;
mod process;
pub mod remedy;
mod root;
mod rules;
mod touches;

pub use examine::{Examination, examine};
pub use finding::{Evidence, Finding, Level, Passed, Subject, Undecided};
pub use holders::undo_file_tasks;
pub use node::{Node, ThreadSeen, TicksSeen};
pub use probes::{ClockState, Probes};
pub use root::{MAX_FILE, MAX_NAMES, Root, Unread};
pub use rules::{RULES, Rule, interrupt_handlers};
pub use touches::{Pattern, Touches};

use std::path::PathBuf;

use colony_node::cpu::CpuSet;

/// The reason why a node cannot be examined.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The root cannot be opened.
    #[error("cannot open the root {}: {source}; name a directory that holds proc and sys", root.display())]
    Root {
        /// The directory.
        root: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The files do not say which CPUs are online.
    #[error(
        "the CPUs of the node below {} are unknown: {reason}; collect at least sys/devices/system/cpu/online",
        root.display()
    )]
    NoCpus {
        /// The directory.
        root: PathBuf,
        /// The value found, or the reason.
        reason: String,
    },
    /// A CPU of the job is not online.
    #[error("CPU {cpu} is not online; online are {online}")]
    NotOnline {
        /// The CPU.
        cpu: usize,
        /// CPUs that are.
        online: CpuSet,
    },
    /// The list of the job's CPUs is empty.
    #[error("the job has no CPU; name at least one")]
    NoJob,
}

impl DoctorError {
    /// Returns `true` if other arguments would have succeeded (exit code 2).
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        !matches!(self, Self::NoCpus { .. })
    }
}
