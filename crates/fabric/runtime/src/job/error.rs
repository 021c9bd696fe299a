// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the launcher.

use std::io;

/// A job that did not run.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The job cannot be as it was asked for.
    #[error("{0}")]
    Wrong(String),
    /// The system refused something.
    #[error("{doing}: {source}")]
    System {
        /// The operation.
        doing: String,
        /// The system's answer.
        source: io::Error,
    },
}

/// Adds the operation to an error of the system.
pub(crate) fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> LaunchError {
    let doing = doing.into();
    move |source| LaunchError::System { doing, source }
}
