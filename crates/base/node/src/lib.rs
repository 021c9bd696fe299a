// SPDX-License-Identifier: MIT OR Apache-2.0
//! The node as Linux shows it.
//!
//! Everything that asks the kernel about this machine, or puts a task somewhere on it, goes through
//! here: [CPUs](cpu), [caches, NUMA nodes and sockets](topology), [lists of the kernel command line](kernel_list), [scheduling classes](class), [tasks](task), [processes by descriptor](pidfd), [processes that end with
//! their parent](parent), [privileges](privilege), the
//! [confinement] of programs that serve all users, [filters of system calls](seccomp), [descriptors](descriptor), the [memory](memory::limit), the [`record`] of
//! the node's state that every result carries, [files](mod@file) that appear whole or not at all, and the node's
//! [health file](health).

pub mod class;
pub mod confinement;
pub mod cpu;
pub mod descriptor;
pub mod file;
pub mod health;
pub mod interrupts;
pub mod kernel_list;
pub mod memory;
pub mod parent;
pub mod pidfd;
pub mod privilege;
pub mod process_user;
pub mod record;
pub mod rights;
pub mod seccomp;
pub mod task;
pub mod topology;
pub mod trust;

use std::path::PathBuf;

/// A failure to read or change the state of the node.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A file of `/proc` or `/sys` could not be read, or did not hold what it should.
    #[error("cannot read {path}: {reason}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The problem that was found.
        reason: String,
    },
    /// A task that has ended.
    #[error("there is no task {tid}")]
    NoTask {
        /// Its number.
        tid: i32,
    },
    /// A CPU list that is none.
    #[error("`{text}` is no CPU list: {reason}; write one as 0-3,5")]
    CpuList {
        /// The text given.
        text: String,
        /// The problem with it.
        reason: &'static str,
    },
    /// A CPU that is not there, offline, or closed to this process.
    #[error("CPU {cpu} cannot be used: {reason}; usable here: {usable}")]
    CpuUnusable {
        /// The CPU asked for.
        cpu: usize,
        /// The reason.
        reason: &'static str,
        /// CPUs that are online and allowed.
        usable: cpu::CpuSet,
    },
    /// A CPU that shares no cache, NUMA node or socket of the wanted kind.
    #[error("CPU {cpu} belongs to no {kind}: {found}; name another group of cores, or a number of cores")]
    NoDomain {
        /// The CPU.
        cpu: usize,
        /// The kind: `L3 cache`, `NUMA node`.
        kind: &'static str,
        /// What the kernel lists instead.
        found: String,
    },
    /// A system call failed.
    #[error("{what}: {source}{}", hint.map(|h| format!("; {h}")).unwrap_or_default())]
    System {
        /// The operation that failed.
        what: String,
        /// The kernel's answer.
        source: std::io::Error,
        /// The remedy, if one is known.
        hint: Option<&'static str>,
    },
}

impl NodeError {
    /// Returns `true` if the caller asked for something impossible (exit code 2), and `false` if the node has failed.
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        matches!(self, Self::CpuList { .. } | Self::CpuUnusable { .. } | Self::NoDomain { .. })
    }

    /// Returns `true` if the kernel said that the task has ended. Any other error (no free descriptor, no right, no memory) says
    /// nothing about the task.
    #[must_use]
    pub fn is_no_task(&self) -> bool {
        match self {
            Self::NoTask { .. } => true,
            Self::System { source, .. } => is_no_task(source),
            _ => false,
        }
    }
}

/// Reads a text file of `/proc` or `/sys`. A user chooses the name of a task, and the kernel cuts it at 15 bytes: bytes
/// that are not UTF-8 are replaced, not refused.
pub(crate) fn read(path: impl Into<PathBuf>) -> Result<String, NodeError> {
    let path = path.into();
    match std::fs::read(&path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(e) => Err(NodeError::Read { path, reason: e.to_string() }),
    }
}

/// Reads `/proc/<tid>/<file>`, as [`read`].
pub(crate) fn read_of_task(tid: i32, file: &str) -> Result<String, NodeError> {
    let path = PathBuf::from(format!("/proc/{tid}/{file}"));
    match std::fs::read(&path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(e) if is_no_task(&e) => Err(NodeError::NoTask { tid }),
        Err(e) => Err(NodeError::Read { path, reason: e.to_string() }),
    }
}

/// Returns `true` if the kernel's answer means that the task has ended: no folder of its number, or an end while it was read.
pub(crate) fn is_no_task(answer: &std::io::Error) -> bool {
    matches!(answer.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}
