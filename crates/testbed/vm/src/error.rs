// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors on the way to a running machine, and in it.

use std::path::PathBuf;
use std::time::Duration;

/// The reason why a machine could not be made or did not do its job.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// A program of the host that is needed is not here.
    #[error("{tool} cannot be started: {reason}; install the package {package}")]
    Tool {
        /// The program.
        tool: &'static str,
        /// The Debian package it comes in.
        package: &'static str,
        /// The system's error.
        reason: String,
    },
    /// A program of the host failed.
    #[error("{tool} failed while {what}: {reason}")]
    ToolFailed {
        /// The program.
        tool: &'static str,
        /// The action that failed.
        what: String,
        /// The end of what it said.
        reason: String,
    },
    /// A file or a system call.
    #[error("{what}: {source}")]
    Io {
        /// The action that failed.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A wish that cannot be.
    #[error("{0}")]
    Wrong(String),
    /// A file that is not what it should be.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// The problem, and the remedy.
        reason: String,
    },
    /// No kernel of that name is cached, and none can be fetched.
    #[error("no kernel for `{wanted}`: {reason}")]
    NoKernel {
        /// The kernel that was asked for.
        wanted: String,
        /// The problem, and the remedy.
        reason: String,
    },
    /// The machine was started and did not come to the end of its job.
    #[error("{0}")]
    Failed(Box<Failure>),
}

impl VmError {
    /// Returns `true` if the caller asked for something impossible (exit code 2).
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        matches!(self, Self::Wrong(_) | Self::NoKernel { .. })
    }

    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        |source| Self::Io { what: what.into(), source }
    }

    pub(crate) fn os(what: impl Into<String>) -> impl FnOnce(nix::Error) -> Self {
        |errno| Self::Io { what: what.into(), source: errno.into() }
    }
}

/// A machine that failed, and what it left.
#[derive(Debug)]
pub struct Failure {
    /// The cause.
    pub cause: Cause,
    /// The machine's name, empty where it has none.
    pub name: String,
    /// The end of the guest's console.
    pub console: String,
    /// Messages of the emulator.
    pub emulator: String,
    /// The program's standard output until then.
    pub stdout: Vec<u8>,
    /// The program's standard error until then.
    pub stderr: Vec<u8>,
}

/// The cause of a machine's end before its job was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The guest's kernel gave up.
    Panic,
    /// The emulator ended by itself.
    Ended(String),
    /// The job took longer than it may.
    Timeout(Duration),
    /// The guest said nothing for that long.
    Silent(Duration),
    /// The guest could not do as it was asked.
    Trouble(String),
    /// It was stopped from outside.
    Stopped,
}

impl std::error::Error for Failure {}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = if self.name.is_empty() { String::new() } else { format!(" {}", self.name) };
        match &self.cause {
            Cause::Panic => write!(f, "the kernel of machine{name} panicked")?,
            Cause::Ended(how) => write!(f, "the emulator of machine{name} ended before its job: {how}")?,
            Cause::Timeout(limit) => write!(f, "machine{name} was not done within {limit:?}; allow it more")?,
            Cause::Silent(limit) => write!(f, "machine{name} said nothing for {limit:?}; allow it more")?,
            Cause::Trouble(reason) => write!(f, "machine{name} could not run its job: {reason}")?,
            Cause::Stopped => write!(f, "machine{name} was stopped")?,
        }
        for (what, text) in [("emulator", &self.emulator), ("console", &self.console)] {
            if !text.trim().is_empty() {
                write!(f, "\n{what}:\n  {}", text.trim().replace('\n', "\n  "))?;
            }
        }
        Ok(())
    }
}
