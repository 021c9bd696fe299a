// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources of noise: their names, and their classes.
//!
//! * [`Source`] names the cause of a detour, as `irq:local_timer` or `thread:kworker/0:1`,
//! * [`Class`] says whether a scheduler or a spare core can keep a source away from a job.
//!
//! A measurement states the [`Class`] of each source in the trace's metadata. For traces without it,
//! [`Source::class`] derives the class from the name.

mod class;
mod source;

pub use class::Class;
pub use source::Source;
