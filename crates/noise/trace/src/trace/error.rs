// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors in a trace, or in a file that should hold one.

use std::io;
use std::path::{Path, PathBuf};

use colony_node::cpu::CpuSet;

use super::{MAX_DETOURS, MAX_SOURCES, TraceMeta};

/// A file that could not be read or written as a trace.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {}: {problem}", path.display())]
pub struct TraceError {
    /// `reading` or `writing`.
    pub doing: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The problem.
    pub problem: Problem,
}

impl TraceError {
    pub(crate) fn reading(path: &Path) -> impl FnOnce(Problem) -> Self {
        move |problem| Self { doing: "reading", path: path.into(), problem }
    }

    pub(crate) fn writing(path: &Path) -> impl FnOnce(Problem) -> Self {
        move |problem| Self { doing: "writing", path: path.into(), problem }
    }
}

impl TraceError {
    /// True if the caller's request is impossible (exit code 2), false if the file is wrong (exit code 1).
    #[must_use]
    pub fn is_wrong_use(&self) -> bool {
        matches!(self.problem, Problem::WriteOnly | Problem::ReadOnly(_))
            || self.doing == "writing" && matches!(self.problem, Problem::UnknownFormat(_))
    }
}

/// The columns of a trace in Parquet, for an error.
const TRACE_COLUMNS: &str = "a trace has whole numbers in the columns start_ns and duration_ns, and may have whole numbers in node and cpu and \
                             text in source";

/// Problems in the content of a trace.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file system or the stream failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Not Parquet, cut off, or corrupt.
    #[error("this is no whole Parquet file ({0}); it may be cut off or damaged: copy it or measure again")]
    Damaged(String),
    /// Parquet compressed in a way that is not read.
    #[error(
        "its column `{column}` is compressed with {packing}, which this version does not read; write it again with Snappy, zstd or \
         gzip, in pandas with `compression=\"zstd\"`"
    )]
    Compression {
        /// The column.
        column: &'static str,
        /// The name of the compression.
        packing: String,
    },
    /// Parquet, but not with the columns of a trace.
    #[error("this Parquet file cannot be read as a noise trace: {0} ({TRACE_COLUMNS})")]
    NotATrace(String),
    /// A schema of another version.
    #[error(
        "the trace's schema is `{0}` and this version knows `{known}`; read it with the version that wrote it",
        known = TraceMeta::SCHEMA
    )]
    Schema(String),
    /// The metadata cannot be read, or cannot be written.
    #[error("the trace's metadata is wrong: {0}")]
    Meta(String),
    /// More rows than [`MAX_DETOURS`].
    #[error("it has more than {MAX_DETOURS} detours; measure for a shorter time or with a higher threshold")]
    TooManyDetours,
    /// More rows than the process has memory for.
    #[error(
        "{detours} detours need {} MiB of memory, and {} MiB are left; measure for a shorter time or with a higher threshold, or \
         read it where there is more memory",
        needed >> 20,
        left >> 20
    )]
    Memory {
        /// Detours, as many as are known.
        detours: usize,
        /// Bytes for those that are not in memory yet.
        needed: u64,
        /// Bytes that the node and the cgroups of the process have left.
        left: u64,
    },
    /// More names than [`MAX_SOURCES`].
    #[error("it has more than {MAX_SOURCES} different sources; shorten the names (drop the numbers in them)")]
    TooManySources,
    /// A detour whose source is not among the trace's sources.
    #[error("a detour points at source {index}, and there are {count}")]
    NoSuchSource {
        /// The index found.
        index: u16,
        /// Sources there are.
        count: usize,
    },
    /// A CPU number no kernel has.
    #[error("CPU {0} cannot be: a CPU number is below {limit}; is the column really a CPU?", limit = CpuSet::LIMIT)]
    Cpu(u64),
    /// A row that no measurement can have left.
    #[error(
        "row {row} of the trace is impossible: {contradiction}; correct the row or the metadata, or measure again"
    )]
    Row {
        /// Counted from 1, in the order of the file.
        row: usize,
        /// The row's values, and the metadata that they contradict.
        contradiction: String,
    },
    /// One line of a text file.
    #[error("line {line}: {reason}")]
    Line {
        /// Counted from 1.
        line: u64,
        /// The expected text, and the text found.
        reason: String,
    },
    /// No JSON, or not of the expected shape.
    #[error("no Chrome trace: {0}")]
    Json(String),
    /// A Chrome trace without its end.
    #[error(
        "this is a Chrome trace that ends in the middle, at line {line}, column {column}, after {whole_events} whole events; record it \
         again, or end it behind its last whole event with `{end}`"
    )]
    CutChrome {
        /// Line of the file's end, from 1.
        line: usize,
        /// Column of the file's end.
        column: usize,
        /// Events before the end of the file.
        whole_events: u64,
        /// The missing brackets.
        end: &'static str,
    },
    /// A file of another tool without a single detour.
    #[error("no detour was found in it; expected {0}")]
    Empty(&'static str),
    /// A file without a byte.
    #[error("the file is empty; copy it again, or measure again")]
    EmptyFile,
    /// An instant that the format has no way to write.
    #[error("a detour starts before 1970 ({0} ns), which this format cannot say")]
    BeforeEpoch(i64),
    /// A format that keeps no instants.
    #[error(
        "an HdrHistogram log holds counts, not the instants of detours: it can be written but not read as a \
         trace; convert the original trace instead"
    )]
    WriteOnly,
    /// A format that can only be read.
    #[error(
        "text in the format `{0}` can be read and not written; write Parquet, or one of the other formats"
    )]
    ReadOnly(&'static str),
    /// A Parquet file inside of a compressed file.
    #[error("a Parquet file cannot be read while it is unpacked; unpack it first (`gzip -d`, `zstd -d`)")]
    PackedParquet,
    /// A file of another kind.
    #[error("{0}")]
    OtherFile(OtherFile),
    /// A file of which nothing is known.
    #[error(
        "nothing in it says what kind of file it is (its first line is `{first_line}`); name its format with `colony noise convert \
         --from`, which is one of {formats}"
    )]
    UnknownContent {
        /// Its first line that is not empty, shortened.
        first_line: String,
        /// The formats that can be named.
        formats: String,
    },
    /// The name of a file to write does not say the format.
    #[error(
        "its name does not say which format to write: let it end in .parquet or .csv; for another format, convert such a file with \
         `colony noise convert TRACE OUTPUT --to FORMAT` ({0})"
    )]
    UnknownFormat(String),
}

/// The kind of a file that cannot be read as a trace, and what its user can do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is {what}; {remedy}")]
pub struct OtherFile {
    what: String,
    remedy: String,
}

impl OtherFile {
    /// `what` follows "this is", and `remedy` says what to do.
    pub(crate) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }
}
