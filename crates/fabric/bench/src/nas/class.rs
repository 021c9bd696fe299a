// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes of the problems.

use serde::{Deserialize, Serialize};

/// The size of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[value(rename_all = "upper")]
pub enum Class {
    /// Sample: a second or less
    S,
    /// Workstation of the 1990s
    W,
    /// The smallest of the standard sizes
    A,
}

impl Class {
    /// All of them, ascending.
    pub const ALL: [Self; 3] = [Self::S, Self::W, Self::A];
}
