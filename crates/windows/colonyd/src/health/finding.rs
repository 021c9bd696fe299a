// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sign that the node may fail.

/// A sign that the node may fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The source that reports it.
    pub(super) source: &'static str,
    /// The part of the node. With the source, it says whether two findings are the same one at two times.
    pub(super) part: String,
    /// The fault, for people.
    pub(super) text: String,
}
