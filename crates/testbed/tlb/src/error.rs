// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of a modelled TLB, and the error beyond them.

/// Page sizes of a setup at most.
pub const MOST_SIZES: usize = 8;
/// Entries of a TLB at most.
pub const MOST_ENTRIES: u16 = 1024;

/// The reason why no TLB is modelled so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// Entries out of range.
    #[error("a TLB with {0} entries is not modelled: give 1 to {MOST_ENTRIES}")]
    Entries(String),
    /// No such policy.
    #[error("`{0}` is no replacement policy: give round-robin, random or lru")]
    Replacement(String),
    /// A page size that is not modelled.
    #[error("`{0}` is no page size: give a power of two from 4k to 1g, for example 4k, 64k or 16m")]
    Page(String),
    /// Too many page sizes, none, or one twice.
    #[error("{0} page sizes were given: give 1 to {MOST_SIZES}, each once")]
    Sizes(usize),
    /// A word of the plugin's command line.
    #[error("the plugin that counts does not know `{0}`")]
    Word(String),
}
