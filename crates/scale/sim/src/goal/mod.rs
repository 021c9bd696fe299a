// SPDX-License-Identifier: MIT OR Apache-2.0
//! Schedules in GOAL, the format of LogGOPSim (Hoefler, Siebert and Lumsdaine, "Group operation assembly
//! language: a flexible way to express collective communication", ICPP 2009): text, and the binary form
//! that its `txt2bin` makes. `docs/goal.md` describes both.

mod binary;
mod build;
mod fault;
mod foreign;
mod link;
mod lower;
mod mpi;
#[cfg(test)]
mod mpi_tests;
mod packed;
mod parallel;
mod partner;
mod schedule;
#[cfg(test)]
mod tests;
mod text;
mod words;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

pub use build::Builder;
pub use fault::{BuildError, Fault};
pub(crate) use partner::Partner;
pub use schedule::{ANY, Kind, Operation, Requirement, Schedule};
pub(crate) use schedule::{Packed, Shape, Waiter};

pub use lower::lower;
pub use mpi::MpiError;

pub use binary::{read_binary, write_binary};
pub use text::{read_text, write_text};

/// A schedule that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum GoalError {
    /// The file cannot be read.
    #[error("cannot read the schedule {file}: {error}")]
    Io {
        /// Its name.
        file: String,
        /// The system's answer.
        error: std::io::Error,
    },
    /// Text that is no GOAL, or a schedule that makes no sense.
    #[error("{file}:{line}: {fault}")]
    Text {
        /// The file's name.
        file: String,
        /// Line, from 1.
        line: u64,
        /// The text found, and the text expected.
        fault: String,
    },
    /// Traces of MPI calls that make no schedule.
    #[error(transparent)]
    Mpi(#[from] MpiError),
    /// A file of another kind.
    #[error("{file} is {kind}, and no schedule in GOAL; {remedy}")]
    Foreign {
        /// The file's name.
        file: String,
        /// What the file is.
        kind: &'static str,
        /// The way to a schedule.
        remedy: &'static str,
    },
    /// Bytes that are no binary GOAL, or a schedule that makes no sense.
    #[error("{file}, byte {offset}: {fault}")]
    Binary {
        /// The file's name.
        file: String,
        /// The place, from 0.
        offset: u64,
        /// The text found, and the text expected.
        fault: String,
    },
}

impl GoalError {
    /// True if the schedule itself is at fault, and not the system that should give it.
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        match self {
            Self::Io { .. } | Self::Mpi(MpiError::Io { .. }) => false,
            Self::Text { .. } | Self::Binary { .. } | Self::Foreign { .. } | Self::Mpi(_) => true,
        }
    }
}

/// Reads a schedule in GOAL, binary or text, as its first bytes tell. A folder is that of the traces that liballprof wrote, one of each
/// rank (`pmpi-trace-rank-0.txt`, …); they become a schedule.
///
/// # Errors
/// [`GoalError`] with file, line or byte, and what is wrong there.
pub fn read(path: &Path) -> Result<Schedule, GoalError> {
    if path.is_dir() {
        return Ok(mpi::read_folder(path)?);
    }
    let file = path.display().to_string();
    let io = |error| GoalError::Io { file: file.clone(), error };
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path).map_err(io)?);
    let head = reader.fill_buf().map_err(io)?;
    if let Some((kind, remedy)) = foreign::kind(head) {
        return Err(GoalError::Foreign { file, kind, remedy });
    }
    let is_binary = head.starts_with(&binary::MAGIC.to_le_bytes()) || head.contains(&0);
    if let Some(schedule) = parallel::read(path, is_binary) {
        return Ok(schedule);
    }
    if is_binary { read_binary(reader, &file) } else { read_text(reader, &file) }
}

/// For fuzzers: reads `bytes` in both forms, and checks that what is read is written and read again.
#[doc(hidden)]
pub fn fuzz_read(bytes: &[u8]) {
    for schedule in [read_text(bytes, "fuzz"), read_binary(bytes, "fuzz")].into_iter().flatten() {
        check_written(&schedule);
    }
}

/// For fuzzers: reads the traces of liballprof in `folder`, and checks that the schedule that they make is written and read again.
#[doc(hidden)]
pub fn fuzz_read_folder(folder: &Path) {
    if let Ok(mut schedule) = mpi::read_folder(folder) {
        // notes are not written
        schedule.notes.clear();
        check_written(&schedule);
    }
}

fn check_written(schedule: &Schedule) {
    let (mut text, mut binary) = (Vec::new(), Vec::new());
    let written = write_text(schedule, &mut text).and_then(|()| write_binary(schedule, &mut binary));
    assert!(written.is_ok(), "memory takes all");
    assert_eq!(read_text(text.as_slice(), "text").ok().as_ref(), Some(schedule));
    assert_eq!(read_binary(binary.as_slice(), "binary").ok().as_ref(), Some(schedule));
}
