// SPDX-License-Identifier: MIT OR Apache-2.0
//! Noise traces: the detours that an operating system takes a CPU on, away from the program.
//!
//! * [`Trace`] holds detours with the source of each, and reads and writes Parquet,
//! * [`convert`] reads and writes the formats of other tools,
//! * [`wakeups`] reads wake-up latencies that other tools measured,
//! * [`summary`], [`periodic`] and [`diff`] compute figures of a trace.
//!
//! Nothing here measures or simulates: `colony-measure` makes traces, `colony-project` hands them to the simulator.

pub mod convert;
pub mod diff;
pub mod periodic;
pub mod summary;
mod trace;

pub use colony_source::{Class, Source};
pub use convert::wakeups;
pub use trace::{
    Detour, Lane, MAX_DETOURS, MAX_SOURCES, OtherFile, Problem, Trace, TraceBuilder, TraceError, TraceMeta,
};
