// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of a time line, and of a file that should hold one.

use std::io;
use std::path::PathBuf;

use crate::record::MAX_PES;

/// The schema this version writes.
pub(crate) const SCHEMA: &str = "colony.timeline/1";

/// First bytes of every time line file, of any version.
pub(crate) const MAGIC: &str = "colony.timeline/";

/// A time line that cannot be recorded or put together.
#[derive(Debug, thiserror::Error)]
pub enum TimelineError {
    /// A PE number that is too large for a message number.
    #[error("PE {0} cannot be recorded: PE numbers are below {MAX_PES}")]
    Pe(u32),
    /// Two tracks of one PE.
    #[error("PE {0} has two tracks; give each file of a run once, and files of one run alone")]
    TwicePe(u32),
    /// Two processes of one rank.
    #[error("process {0} occurs twice; give each file of a run once, and files of one run alone")]
    TwiceProcess(u32),
    /// A track of a process that is not there.
    #[error("PE {pe} belongs to process {process}, which the file does not have")]
    NoProcess {
        /// The PE.
        pe: u32,
        /// The rank it names.
        process: u32,
    },
    /// Files of different runs.
    #[error("these files are of different runs: {what} is `{first}` in one and `{other}` in another")]
    OtherRun {
        /// The property that differs.
        what: &'static str,
        /// The value in the first file.
        first: String,
        /// The value in another.
        other: String,
    },
    /// A file could not be read or written.
    #[error("{doing} {}: {problem}", path.display())]
    File {
        /// `reading` or `writing`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: Problem,
    },
}

impl TimelineError {
    /// Returns `true` if other arguments would have succeeded (exit code 2), `false` if a file is wrong (exit code 1).
    #[must_use]
    pub fn is_wrong_use(&self) -> bool {
        matches!(self, Self::TwicePe(_) | Self::TwiceProcess(_) | Self::OtherRun { .. })
    }
}

/// Problems with the content of a file.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file system or the stream failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Another kind of file.
    #[error("this is no time line: it does not begin with `{}`", MAGIC)]
    NotATimeline,
    /// A schema of another version.
    #[error("its schema is `{0}` and this version knows `{known}`; read it with the version that wrote it", known = SCHEMA)]
    Schema(String),
    /// The header cannot be read.
    #[error("its header is wrong: {0}")]
    Header(String),
    /// The records are not all there, or there is more than records.
    #[error(
        "its header announces {announced} bytes of events and {found} are there; it may be cut off: copy it again"
    )]
    Size {
        /// Bytes that the header announces.
        announced: u64,
        /// Bytes there are.
        found: u64,
    },
    /// A line of a text file is wrong.
    #[error("line {number}: {reason}")]
    Line {
        /// Number of the line, from 1.
        number: u64,
        /// The problem.
        reason: String,
    },
    /// A record that no recorder can have written.
    #[error("event {number} of PE {pe} is impossible: {reason}")]
    Event {
        /// The PE.
        pe: u32,
        /// Number of the event on this PE, from 1.
        number: usize,
        /// The reason.
        reason: &'static str,
    },
    /// The content contradicts itself.
    #[error("{0}")]
    Content(String),
}
