// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of a comparison of strategies.

use colony_balance::BalanceError;
use colony_runtime::launch::LaunchError;

/// A comparison that cannot be made, or that failed.
#[derive(Debug, thiserror::Error)]
pub enum LbError {
    /// The parameters make no run.
    #[error("{0}")]
    Params(String),
    /// A strategy is not known, or an option of it.
    #[error(transparent)]
    Strategy(#[from] BalanceError),
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
    #[error("{of}: {why}")]
    Failed {
        /// The program and the strategy.
        of: String,
        /// The rank's own words.
        why: String,
    },
    /// A rank was killed. The launcher has printed which, and by which signal.
    #[error("{of}: a rank was killed by signal {signal}")]
    Killed {
        /// The program and the strategy.
        of: String,
        /// The signal.
        signal: u8,
    },
    /// The runs' results differ.
    #[error(
        "{program}: the checksum with {strategy} is {found}, and {expected} with {first}: migrations have changed \
         the result, which is a fault of the runtime; report it with this command"
    )]
    Checksum {
        /// The program.
        program: &'static str,
        /// The strategy whose checksum differs.
        strategy: String,
        /// Its checksum.
        found: String,
        /// The strategy of the first run.
        first: String,
        /// Its checksum.
        expected: String,
    },
}

impl LbError {
    /// Returns `true` if other arguments would have succeeded.
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        match self {
            Self::Params(_) => true,
            Self::Strategy(e) => e.is_wrong_use(),
            _ => false,
        }
    }
}
