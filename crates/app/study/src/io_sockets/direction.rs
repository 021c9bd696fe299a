// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directions of a job's transfers.

use serde::{Deserialize, Serialize};

/// Direction of the transfers, as the compute nodes see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// To the server.
    Send,
    /// From it.
    Receive,
}

impl Direction {
    /// Both, in their order.
    pub const ALL: [Self; 2] = [Self::Send, Self::Receive];

    /// As a word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
        }
    }
}
