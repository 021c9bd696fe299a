// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reasons for a measurement to fail.

use crate::attrib;
use crate::selfish::SelfishError;
use crate::wakeups::SleeperError;

/// The reasons for a measurement to fail.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The observers.
    #[error(transparent)]
    Selfish(#[from] SelfishError),
    /// The sleeping threads.
    #[error(transparent)]
    Sleeper(#[from] SleeperError),
    /// The node.
    #[error(transparent)]
    Node(#[from] colony_node::NodeError),
    /// The probe, where it was required.
    #[error(transparent)]
    Probe(#[from] attrib::ProbeError),
    /// A CPU went offline under its observer.
    #[error(
        "CPU {0} went offline during the measurement; its observer ran elsewhere, so the run says nothing; try again without it"
    )]
    Vanished(usize),
}

impl MeasureError {
    /// True if the caller's request is impossible (exit code 2), false if the run failed (exit code 1).
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        match self {
            Self::Selfish(e) => e.is_wrong_use(),
            Self::Sleeper(e) => e.is_wrong_use(),
            Self::Node(e) => e.is_wrong_use(),
            Self::Probe(_) | Self::Vanished(_) => false,
        }
    }
}
