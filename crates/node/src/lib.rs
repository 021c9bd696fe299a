//! The node as Linux shows it.
//!
//! Everything that asks the kernel about this machine, or puts a task somewhere on it, goes through
//! here: [CPUs](cpu), [scheduling classes](class), [tasks](task), [privileges](privilege), the
//! [`record`] of the node's state that every result carries, and [files](mod@file) that appear
//! whole or not at all.

pub mod class;
pub mod cpu;
pub mod file;
pub mod privilege;
pub mod record;
pub mod task;

use std::path::PathBuf;

/// What can go wrong when asking the node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A file of `/proc` or `/sys` could not be read, or did not hold what it should.
    #[error("cannot read {path}: {reason}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// A CPU list that is none.
    #[error("`{text}` is no CPU list: {reason}; write one as 0-3,5")]
    CpuList {
        /// The text given.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A CPU that is not there, offline, or closed to this process.
    #[error("CPU {cpu} cannot be used: {reason}; usable here: {usable}")]
    CpuUnusable {
        /// The CPU asked for.
        cpu: usize,
        /// Why not.
        reason: &'static str,
        /// CPUs that are online and allowed.
        usable: cpu::CpuSet,
    },
    /// A system call failed.
    #[error("{what}: {source}{}", hint.map(|h| format!("; {h}")).unwrap_or_default())]
    System {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        source: std::io::Error,
        /// What to do about it.
        hint: Option<&'static str>,
    },
}

impl NodeError {
    /// Whether the caller asked for something that cannot be (exit code 2), rather than the node having failed.
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        matches!(self, Self::CpuList { .. } | Self::CpuUnusable { .. })
    }
}

pub(crate) fn read(path: impl Into<PathBuf>) -> Result<String, NodeError> {
    let path = path.into();
    std::fs::read_to_string(&path).map_err(|e| NodeError::Read { path, reason: e.to_string() })
}
