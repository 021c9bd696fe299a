// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the control system.

use std::io;

/// The reason why the daemon does not start, or a request is refused.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The database refused something.
    #[error("the database {file}: {source}")]
    Database {
        /// Its file.
        file: String,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// The database is of another version of Colony.
    #[error(
        "the database {file} has version {found}, and this is version {known}: use the Colony that wrote it, or another folder"
    )]
    Version {
        /// Its file.
        file: String,
        /// Its version.
        found: i64,
        /// That of this program.
        known: i64,
    },
    /// Another daemon has the folder.
    #[error("a control daemon serves {folder} already")]
    Served {
        /// The folder.
        folder: String,
    },
    /// A request that cannot be fulfilled.
    #[error("{0}")]
    Wrong(String),
    /// A request for something that is not there.
    #[error("{0}")]
    Unknown(String),
    /// A request that needs another state.
    #[error("{0}")]
    Conflict(String),
    /// A request beyond what one user may have.
    #[error("{0}")]
    TooMany(String),
    /// A request that needs room on the disk of the machine's folder.
    #[error("{0}")]
    Full(String),
    /// A request that its user may not make.
    #[error("{0}")]
    Forbidden(String),
    /// A request from the network without a token that is known.
    #[error("{0}")]
    NoToken(String),
    /// A partition service does not answer.
    #[error("partition {name} does not answer: {source}")]
    Service {
        /// The partition.
        name: String,
        /// The error.
        source: io::Error,
    },
    /// A fault of the daemon.
    #[error("{0}")]
    Fault(String),
}

impl ControlError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
