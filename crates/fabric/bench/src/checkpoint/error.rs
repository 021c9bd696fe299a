// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the benchmark of checkpoints.

use colony_runtime::launch::LaunchError;

/// A benchmark that cannot be made, or that failed.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The parameters make no run.
    #[error("{0}")]
    Params(String),
    /// The ranks could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The system refused something else.
    #[error("{doing}: {source}")]
    System {
        /// The operation.
        doing: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A rank failed and said why.
    #[error("{bytes} bytes a PE: {why}")]
    Failed {
        /// Bytes of state of a PE.
        bytes: u64,
        /// The rank's own words.
        why: String,
    },
}

impl CheckpointError {
    /// Returns `true` if other arguments would have succeeded.
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        matches!(self, Self::Params(_))
    }
}
