// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which entry of a full TLB a new page replaces.

use std::fmt;
use std::str::FromStr;

use crate::SetupError;

/// Replacement policy of a TLB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Replacement {
    /// The entries in turn, as Linux does on the PowerPC 440 (`finish_tlb_load` in `arch/powerpc/kernel/head_44x.S`).
    #[default]
    RoundRobin,
    /// Any entry, all with the same probability; the sequence is the same in every run.
    Random,
    /// The entry that was not used for the longest time.
    Lru,
}

impl Replacement {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::RoundRobin, Self::Random, Self::Lru];

    /// Its name in options and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::Random => "random",
            Self::Lru => "lru",
        }
    }
}

impl fmt::Display for Replacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Replacement {
    type Err = SetupError;

    fn from_str(word: &str) -> Result<Self, SetupError> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.name() == word)
            .ok_or_else(|| SetupError::Replacement(word.into()))
    }
}
