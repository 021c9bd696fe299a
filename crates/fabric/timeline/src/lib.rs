// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time lines of an object program: the events of every processing element (PE: a scheduler thread), with their instants.
//!
//! * [`Recorder`] records the events of one PE on its own thread, [`Recording`] those of a process,
//! * [`Timeline`] holds the tracks of a run, and reads and writes files,
//! * [`analysis`] computes utilization, entry methods, messages and stragglers,
//! * [`projections`] reads and writes the files of Charm++'s viewer, [`perfetto`] writes those of another,
//! * [`Noise`] lays noise traces under the tracks, and finds the detours that hit an execution.
//!
//! Instants are TAI nanoseconds, as in noise traces, so that both have one clock.

pub mod analysis;
mod error;
mod file;
mod names;
mod noise;
pub mod perfetto;
pub mod projections;
mod protobuf;
mod record;
mod recorder;
mod recording;
pub mod sample;
#[cfg(test)]
mod synthetic;
mod timeline;

pub use error::{Problem, TimelineError};
pub use names::{EntryName, Names, NoNumberLeft};
pub use noise::{Detour, Noise, Observed, Stolen};
pub use record::{
    ALL_PES, Event, MAX_DURATION, MAX_PES, MessageId, Migration, NO_CPU, NO_VALUE, Record, Timed,
};
pub use recorder::{Recorder, Stamp};
pub use recording::{DEFAULT_EVENTS, Recording};
pub use timeline::{Meta, Process, Timeline, Track};
