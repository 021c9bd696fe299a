// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page size that a program is to have.

use serde::{Deserialize, Serialize};

/// Page size of a program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PagePolicy {
    /// The size of one entry of the middle page table: 2 MiB on x86-64.
    #[serde(rename = "huge")]
    Huge,
    /// 64 KiB, by multi-size transparent huge pages.
    #[serde(rename = "64k")]
    Medium,
    /// The base page of the kernel alone.
    #[serde(rename = "base")]
    Base,
}

impl PagePolicy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Base, Self::Medium, Self::Huge];
    /// Bytes of a page of [`PagePolicy::Medium`].
    pub const MEDIUM_BYTES: u64 = 64 << 10;

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Huge => "huge",
            Self::Medium => "64k",
            Self::Base => "base",
        }
    }
}
