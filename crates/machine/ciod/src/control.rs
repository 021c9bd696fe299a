// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between the supervisor and a job's worker: frames of JSON on a socket, and descriptors.
//!
//! The supervisor may be root and the worker is the user, so the supervisor takes nothing from a worker but what is
//! typed here, of a bounded length.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use colony_fship::layout::Personality;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::export::Export;
use crate::outcome::ProcessOutcome;
use crate::{JobError, JobSpec};
use colony_node::rights;

/// Bytes of an order at most: the description of a job has all its environment.
const ORDER: usize = 64 << 20;

/// Bytes of a report at most: the worker is the user, and the supervisor keeps what it says.
const REPORT: usize = 128 << 10;

/// Time that a job that has ended waits for a slow reader of its output.
pub(crate) const DRAIN: Duration = Duration::from_secs(5);

/// Identity that the worker takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    /// True if the daemon runs as root, so that the worker has to change its identity.
    pub(crate) take: bool,
}

/// A node of the worker, with what comes as descriptors: window, bell to the daemon, bells to the node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NodeSetup {
    pub(crate) number: u32,
    pub(crate) window: u64,
    /// Bytes of it that are the memory of processes.
    pub(crate) memory: u64,
    /// The ranks that run on it.
    pub(crate) ranks: Range<u32>,
    /// Goes into the node's job block as it is.
    pub(crate) personality: Personality,
}

/// Everything that a worker needs. These descriptors follow: the three streams of the job, two files whose locks order
/// the output if other workers write to it, and those of each node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) spec: JobSpec,
    pub(crate) identity: Identity,
    /// Processes of the job on all I/O nodes.
    pub(crate) size: u32,
    /// Extent of the torus of these processes.
    pub(crate) torus: [u32; 3],
    /// Other workers of the job write to the same output.
    pub(crate) shares_output: bool,
    pub(crate) nodes: Vec<NodeSetup>,
    /// Folders of this machine that the programs on a Linux I/O node have; for its relay.
    pub(crate) exports: Vec<Export>,
    /// Time to look for requests before sleeping, ns; none: for ever.
    pub(crate) spin_ns: Option<u64>,
    /// Timeout for nodes to ask for work, ms.
    pub(crate) ready_ms: u64,
    /// Timeout for a node to end a process, ms.
    pub(crate) grace_ms: u64,
}

/// To the worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    Setup(Box<Setup>),
    /// All workers of the job are ready: let the programs run.
    Start,
    /// To these ranks, or to all.
    Signal {
        signal: u32,
        ranks: Option<Vec<u32>>,
    },
}

/// From the worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// All nodes have asked for work, and have their programs.
    Ready,
    /// All programs run.
    Started,
    /// A process has ended.
    Ended(Box<ProcessOutcome>),
    /// Words of a node's kernel.
    Log { node: u32, text: String },
    /// A node cannot be used again before it was started anew.
    Lost { node: u32 },
    /// The job has ended: by itself, or by an error.
    Done(Option<JobError>),
}

/// Writes a frame.
pub(crate) fn send(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, message)?;
    let length = u32::try_from(frame.len() - 4).map_err(io::Error::other)?;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&frame)
}

/// A message of one side, with a bound of its length.
pub(crate) trait Message: DeserializeOwned {
    /// Bytes at most.
    const MOST: usize = ORDER;
}

impl Message for Order {}

impl Message for Report {
    const MOST: usize = REPORT;
}

/// Reads a frame; `None` at the end of the stream.
pub(crate) fn receive<T: Message>(mut stream: &UnixStream) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > T::MOST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame that long is none"));
    }
    let mut frame = vec![0; length];
    stream.read_exact(&mut frame)?;
    Ok(Some(serde_json::from_slice(&frame)?))
}

/// Writes one byte with descriptors.
pub(crate) fn send_fds(stream: &UnixStream, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    rights::send(stream, &[0], fds).map(drop)
}

/// Reads one byte with `N` descriptors.
pub(crate) fn receive_fds<const N: usize>(stream: &UnixStream) -> io::Result<[OwnedFd; N]> {
    let (_, fds) = rights::receive(stream, &mut [0])?;
    fds.try_into().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "other descriptors than promised"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_a_bound_that_is_checked_before_memory_is_taken_for_it() {
        let (supervisor, worker) = UnixStream::pair().expect("sockets");
        let report = |bytes: usize| Report::Log { node: 0, text: "x".repeat(bytes) };
        let around = serde_json::to_string(&report(0)).expect("JSON").len();
        let received = |bytes: usize| -> io::Result<Option<Report>> {
            std::thread::scope(|s| {
                s.spawn(|| send(&worker, &report(bytes)));
                receive(&supervisor)
            })
        };
        assert!(received(REPORT - around).is_ok_and(|report| report.is_some()), "128 KiB");
        // a worker that names a length alone
        (&worker).write_all(&(REPORT as u32 + 1).to_le_bytes()).expect("room");
        let refused = receive::<Report>(&supervisor).expect_err("a byte too long");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        (&worker).write_all(&u32::MAX.to_le_bytes()).expect("room");
        assert!(receive::<Report>(&supervisor).is_err_and(|e| e.kind() == io::ErrorKind::InvalidData));
    }
}
