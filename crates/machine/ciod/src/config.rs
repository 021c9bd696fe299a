// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration of a daemon, and the streams of a job.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use colony_fship::layout;

use crate::export::Export;

/// Configuration of a daemon.
#[derive(Clone, Debug)]
pub struct Config {
    /// The program that a job's worker runs: `ciod` itself, or any that calls [`crate::worker_main`].
    pub worker: PathBuf,
    /// Its arguments.
    pub worker_args: Vec<OsString>,
    /// Its arguments where it shall call [`crate::proxy_main`].
    pub proxy_args: Vec<OsString>,
    /// Its arguments where it shall call [`crate::relay_main`].
    pub relay_args: Vec<OsString>,
    /// Time that a worker looks for requests before it sleeps; `None`: for ever, on a CPU of its own.
    pub spin: Option<Duration>,
    /// Number of times that the kernel of a node looks for a reply before it halts; with [`layout::POLL`] it never
    /// halts.
    pub node_spin: u64,
    /// Timeout for nodes to ask for work after a job was launched: they may be booting.
    pub ready: Duration,
    /// Timeout for a node to end a process that is killed.
    pub grace: Duration,
    /// Folders of this machine that jobs on its Linux I/O nodes have, at the same paths.
    pub exports: Vec<Export>,
}

impl Config {
    /// With `ciod` at this path as the worker's program, and what fits a machine whose CPUs are shared.
    pub fn new(worker: impl Into<PathBuf>) -> Self {
        Self {
            worker: worker.into(),
            worker_args: vec!["worker".into()],
            proxy_args: vec!["proxy".into()],
            relay_args: vec!["relay".into()],
            spin: Some(Duration::from_micros(20)),
            node_spin: 2000,
            ready: Duration::from_secs(60),
            grace: Duration::from_secs(10),
            exports: Vec::new(),
        }
    }

    /// Neither side ever sleeps: the quickest replies, for a CPU each.
    #[must_use]
    pub fn polled(self) -> Self {
        Self { spin: None, node_spin: layout::POLL, ..self }
    }

    /// Both sides sleep at once: what sharing a CPU wants.
    #[must_use]
    pub fn blocking(self) -> Self {
        Self { spin: Some(Duration::ZERO), node_spin: 0, ..self }
    }
}

/// Standard streams of a job.
#[derive(Debug)]
pub struct Streams {
    /// Read by rank 0; the others read nothing.
    pub stdin: OwnedFd,
    /// Written by all.
    pub stdout: OwnedFd,
    /// Written by all.
    pub stderr: OwnedFd,
}

impl Streams {
    /// Nothing in, and this for what comes out.
    ///
    /// # Errors
    /// If `/dev/null` cannot be opened.
    pub fn output(stdout: OwnedFd, stderr: OwnedFd) -> io::Result<Self> {
        Ok(Self { stdin: std::fs::File::open("/dev/null")?.into(), stdout, stderr })
    }

    /// The standard streams of this process.
    ///
    /// # Errors
    /// If one is closed.
    pub fn inherit() -> io::Result<Self> {
        Ok(Self {
            stdin: io::stdin().as_fd().try_clone_to_owned()?,
            stdout: io::stdout().as_fd().try_clone_to_owned()?,
            stderr: io::stderr().as_fd().try_clone_to_owned()?,
        })
    }
}
