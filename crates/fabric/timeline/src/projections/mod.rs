// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of Projections, the viewer of Charm++: one `.sts` of names and a `.log` for each PE.
//!
//! [`write`](write()) writes version 11.0, [`read`](read()) reads versions 6.0 to 11. Instants are whole microseconds after the begin of the program.

mod kind;
mod lines;
mod log;
mod read;
mod sts;
#[cfg(test)]
mod tests;
mod write;

pub use read::{is_run, parse, read};
pub use write::write;
