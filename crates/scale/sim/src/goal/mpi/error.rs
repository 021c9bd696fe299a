// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors in traces of MPI calls.

/// Traces of MPI calls that make no schedule.
#[derive(Debug, thiserror::Error)]
pub enum MpiError {
    /// A file cannot be read.
    #[error("cannot read the trace of MPI calls {file}: {error}")]
    Io {
        /// Its name.
        file: String,
        /// The system's answer.
        error: std::io::Error,
    },
    /// The folder does not have the files of all ranks.
    #[error("{folder}: {fault}")]
    Folder {
        /// Its name.
        folder: String,
        /// What is missing.
        fault: String,
    },
    /// A line that makes no schedule.
    #[error("{file}:{line}: {fault}")]
    Line {
        /// The file's name.
        file: String,
        /// Line, from 1.
        line: u64,
        /// The call, and the remedy.
        fault: String,
    },
}
