// SPDX-License-Identifier: MIT OR Apache-2.0
//! Noise: the detours an operating system takes a CPU on, away from the program.
//!
//! * [`selfish`] measures them with a user-space loop per CPU (ANL 2005, *Selfish*),
//! * [`attrib`] says where each came from, with BPF programs on the kernel's tracepoints,
//! * [`measure`] puts the two together into one measurement,
//! * [`trace`] keeps them (Parquet), [`convert`] speaks the formats of other tools,
//! * [`summary`], [`periodic`] and [`diff`] say what a trace means,
//! * [`inject`] makes noise on purpose.

pub mod attrib;
pub mod convert;
pub mod diff;
pub mod inject;
pub mod measure;
pub mod periodic;
pub mod selfish;
pub mod source;
pub mod summary;
pub mod trace;

pub use source::Source;
pub use trace::{Detour, Lane, Trace, TraceBuilder, TraceError, TraceMeta};
