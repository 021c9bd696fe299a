// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors, as a control system shows them to an operator.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A daemon or one of its nodes cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum CiodError {
    /// A window has a size that none can have.
    #[error("a window of {0} bytes: it must be a power of two between 16 MiB and 64 GiB")]
    Window(u64),
    /// The node is in a job, so that it cannot be attached anew.
    #[error("node {0} is in a job")]
    NodeBusy(u32),
    /// No node with this number is attached.
    #[error("there is no node {0}")]
    NoNode(u32),
    /// The personality of another kind of node.
    #[error(
        "the personality of {location} cannot be given to compute node {node}: use one of a compute node"
    )]
    NotCompute {
        /// Number of the node.
        node: u32,
        /// The location in the personality.
        location: String,
    },
    /// There is no such signal.
    #[error("{0} is no signal")]
    Signal(i32),
    /// The operating system refused something.
    #[error("{what}: {source}")]
    System {
        /// The action that failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
}

impl CiodError {
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}

/// A job did not start, or did not end by itself.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobError {
    /// The description of the job makes no sense.
    #[error("the job's description: {0}")]
    Spec(String),
    /// There is no such user.
    #[error("there is no user {0}")]
    NoUser(String),
    /// No node with this number is attached.
    #[error("there is no node {0}")]
    NoNode(u32),
    /// There is no such group.
    #[error("there is no group {0}")]
    NoGroup(String),
    /// Something that only root may wish.
    #[error("{0} needs a daemon that runs as root")]
    NeedsRoot(String),
    /// The worker could not take the user's place.
    #[error("taking the user's identity: {0}")]
    Identity(String),
    /// A program cannot be run.
    #[error("{path}: {why}")]
    Program {
        /// As the job names it.
        path: PathBuf,
        /// Why.
        why: ProgramError,
    },
    /// A folder of the host cannot be given to the I/O node.
    #[error("{path}: the I/O node cannot export this folder: {why}")]
    Export {
        /// As the owner of the partition has named it.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The directory to start in cannot be entered.
    #[error("{path}: the job cannot start in this directory: {why}")]
    Directory {
        /// As the job names it.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A file for a standard stream cannot be opened.
    #[error("{path}: the job cannot use this file for a standard stream: {why}")]
    Stream {
        /// As the job names it.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Output that a rank has written was not stored.
    #[error("the output of rank {rank} is not complete: {why}")]
    Output {
        /// The first rank that lost output.
        rank: u32,
        /// Why.
        why: String,
    },
    /// Output that some rank has written was not stored.
    #[error("the output of the job is not complete: {why}")]
    OutputLost {
        /// Why.
        why: String,
    },
    /// A node is in another job.
    #[error("node {0} is in another job")]
    NodeBusy(u32),
    /// A node was left in the middle of a job and must be started anew, with a new link.
    #[error("node {0} was left in the middle of a job: start it anew")]
    NodeLost(u32),
    /// A node did not ask for work in time.
    #[error("node {0} did not get ready in time")]
    NodeNotReady(u32),
    /// A node did not end a process in time after it was told to.
    #[error("node {0} does not react: start it anew")]
    NodeUnresponsive(u32),
    /// A node broke a rule of the contract.
    #[error("node {node} broke a rule: {rule}; start it anew")]
    NodeMisbehaved {
        /// Its number.
        node: u32,
        /// The broken rule.
        rule: Rule,
    },
    /// A node's kernel speaks another version of the contract.
    #[error("node {node} speaks version {theirs} of the contract, this daemon {ours}")]
    Version {
        /// Its number.
        node: u32,
        /// The node's version.
        theirs: u32,
        /// This daemon's version.
        ours: u32,
    },
    /// The job ran longer than it may.
    #[error("the job was ended after {seconds} s, the time it was given")]
    Timeout {
        /// That time.
        seconds: f64,
    },
    /// The worker, which does the job's calls, ended before the job.
    #[error("the job's worker ended before the job: {0}")]
    WorkerDied(String),
    /// The worker of one I/O node ended before the job, which has several I/O nodes.
    #[error("the I/O node of pset {pset} failed: its worker ended before the job: {why}")]
    IoNodeFailed {
        /// Number of the pset.
        pset: u32,
        /// How the worker ended.
        why: String,
    },
    /// The operating system refused something.
    #[error("{0}")]
    System(String),
}

impl JobError {
    /// Returns `true` if the job that was asked for is impossible (wrong use).
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        use JobError::{Directory, NeedsRoot, NoGroup, NoUser, Program, Spec};
        matches!(self, Spec(_) | NoUser(_) | NoGroup(_) | NeedsRoot(_) | Program { .. } | Directory { .. })
    }
}

impl JobError {
    /// Returns `true` if the machine has failed, not the job: the same job may run on other nodes, or later.
    #[must_use]
    pub const fn is_of_machine(&self) -> bool {
        use JobError as E;
        match self {
            E::NoNode(_)
            | E::NodeBusy(_)
            | E::NodeLost(_)
            | E::NodeNotReady(_)
            | E::NodeUnresponsive(_)
            | E::NodeMisbehaved { .. }
            | E::Version { .. }
            | E::WorkerDied(_)
            | E::IoNodeFailed { .. }
            | E::System(_) => true,
            E::Spec(_)
            | E::NoUser(_)
            | E::NoGroup(_)
            | E::NeedsRoot(_)
            | E::Identity(_)
            | E::Program { .. }
            | E::Export { .. }
            | E::Directory { .. }
            | E::Stream { .. }
            | E::Output { .. }
            | E::OutputLost { .. }
            | E::Timeout { .. } => false,
        }
    }
}

/// The reason why a program cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramError {
    /// There is none.
    #[error("there is no such program")]
    Missing,
    /// The user may not run it (it must be readable and executable for the user).
    #[error("the user may not read and execute it")]
    NotExecutable,
    /// It is a directory, a device, …
    #[error("it is not a regular file")]
    NotAFile,
    /// It is no ELF file, or a damaged one.
    #[error("it is not a program: {0}")]
    NotElf(String),
    /// It is for another processor or system.
    #[error("it is a program for another machine than 64-bit x86")]
    Machine,
    /// It needs an interpreter: a dynamic executable.
    #[error("it is a dynamic executable (needs {0}); link it statically")]
    Dynamic(String),
    /// It, or its arguments, do not fit in the memory of a process.
    #[error("it needs {needed} bytes, and a process has {room}")]
    TooBig {
        /// Bytes with the stack.
        needed: u64,
        /// Bytes there are.
        room: u64,
    },
    /// Its segments lie where they cannot.
    #[error("its segments cannot be placed: {0}")]
    Layout(String),
    /// It could not be read.
    #[error("it cannot be read: {0}")]
    Read(String),
}

/// A rule of the contract that a node can break.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// The places of a ring make no sense.
    #[error("a ring is damaged")]
    Ring,
    /// Requests go on while the replies are not taken.
    #[error("it asks on without taking its replies")]
    Flood,
    /// A request that is not shipped, or that there is not.
    #[error("it asks for call {0}, which is not shipped")]
    Call(u32),
    /// A request on a channel that has no process (any more), or out of the order of a job.
    #[error("it asks for {0} at a time or on a channel where it may not")]
    Order(String),
}
