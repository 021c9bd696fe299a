// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures between ranks.

use std::path::PathBuf;

/// A window that cannot be made or joined, or a message that cannot be sent or received.
///
/// After any error of the second half (from [`Left`](Self::Left) on) the job cannot go on: all ranks are
/// told, and end with [`Aborted`](Self::Aborted) at their next wait.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The environment of a rank is missing or wrong.
    #[error("${name} {reason}; a launcher sets it for each rank")]
    Environment {
        /// The variable.
        name: &'static str,
        /// The problem with it.
        reason: String,
    },
    /// No torus has these sides.
    #[error("`{found}` are no sides of a torus; give three numbers x,y,z above 0, of at most 4096 ranks")]
    Dims {
        /// The text that was given.
        found: String,
    },
    /// The file of the window cannot be made, opened or mapped.
    #[error("cannot {what} the window {path}: {source}")]
    File {
        /// The operation that failed.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The memory holds no window that this version can join.
    #[error("this is no window to join: {reason}")]
    Window {
        /// The problem that was found.
        reason: String,
    },
    /// There is no such rank.
    #[error("there is no rank {rank} of {ranks}")]
    Rank {
        /// The rank asked for.
        rank: usize,
        /// The number of ranks.
        ranks: usize,
    },
    /// Another process is that rank, or was.
    #[error("rank {rank} of this window is taken; a window serves one job")]
    Taken {
        /// The rank.
        rank: usize,
    },
    /// There is no group of that size.
    #[error("no group of {size} ranks: it must be all {ranks}, or a power of two below that")]
    Group {
        /// Size asked for.
        size: usize,
        /// Ranks of the window.
        ranks: usize,
    },
    /// Buffers do not fit what was to be done with them.
    #[error("{found} bytes are no {expected}")]
    Length {
        /// Bytes given.
        found: usize,
        /// The expected length.
        expected: &'static str,
    },
    /// A message was longer than the buffer; its rest is lost.
    #[error("rank {from} sent {length} bytes, and there is room for {room}")]
    Truncated {
        /// The sender.
        from: usize,
        /// Its length.
        length: usize,
        /// Room in the buffer.
        room: usize,
    },
    /// A rank that others wait for has ended.
    #[error("rank {rank} has left while this rank waits for it")]
    Left {
        /// The rank that left.
        rank: usize,
    },
    /// Another rank, or the launcher, has ended the job.
    #[error("the job was ended by {}", by.map_or("its launcher".into(), |rank| format!("rank {rank}")))]
    Aborted {
        /// The rank; `None` for the launcher.
        by: Option<usize>,
    },
    /// Nothing came for too long.
    #[error(
        "nothing from rank {rank} for {seconds:.0} s; it is dead, or busy for longer than $COLONY_TORUS_TIMEOUT"
    )]
    Timeout {
        /// The rank waited for.
        rank: usize,
        /// The time waited, seconds.
        seconds: f64,
    },
    /// A rank wrote what cannot be.
    #[error(
        "{} has written to the window what no rank of this version writes",
        rank.map_or("a rank".into(), |rank| format!("rank {rank}"))
    )]
    Insane {
        /// The rank, if it is known.
        rank: Option<usize>,
    },
    /// A rank is in another collective operation, or message, than this one.
    #[error("rank {rank} is in another operation than this rank, or with another length")]
    Mismatch {
        /// The rank.
        rank: usize,
    },
}
