// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time lines of an object program: what every processing element (PE: a scheduler thread) did, and when.
//!
//! * [`Recorder`] records the events of one PE on its own thread,
//! * [`Names`] has the names of classes, entry methods and events.

mod file;
mod names;
mod record;
mod recorder;
mod recording;
#[cfg(test)]
mod synthetic;
mod timeline;

pub use names::{EntryName, Names, NoNumberLeft};
pub use record::{ALL_PES, Event, MAX_DURATION, MAX_PES, MessageId, Migration, NO_CPU, Record, Timed};
pub use recorder::{Recorder, Stamp};
pub use recording::{DEFAULT_EVENTS, Recording};
pub use timeline::{Meta, Problem, Process, Timeline, TimelineError, Track};
