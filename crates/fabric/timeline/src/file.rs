// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of a time line.
/// The schema this version writes.
pub(crate) const SCHEMA: &str = "colony.timeline/1";
/// What every file begins with.
pub(crate) const MAGIC_TEXT: &str = "colony.timeline/";
