// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of a time line, as pure functions.
//!
//! Each nanosecond of a PE belongs to one state. Where intervals are nested, it belongs to the innermost: to the one that began
//! last and has not ended. Time that no interval covers is overhead, since then the scheduler ran. So the states of a
//! PE add up to its covered time exactly.

pub mod entries;
pub mod messages;
pub mod segments;
pub mod stragglers;
pub mod summary;
pub mod utilization;
