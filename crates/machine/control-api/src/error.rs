// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of clients.

use std::io;

/// The reason why a request fails.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// A request that the daemon, or the client, refuses: other words would succeed.
    #[error("{0}")]
    Wrong(String),
    /// The control daemon has ended, or its connection has.
    #[error("the control daemon ended its connection: {0}")]
    Disconnected(String),
    /// The control daemon failed.
    #[error("{0}")]
    Failed(String),
}

impl ClientError {
    /// Returns `true` if other words would have succeeded (exit code 2).
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        matches!(self, Self::Wrong(_))
    }

    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
