// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process: its state, its memory, its threads, its signals.

pub mod answers;
pub mod memory;
pub mod shared;
pub mod signals;
mod state;
pub mod threads;
pub mod timers;
pub mod wait;

pub use state::{Process, Thread, Timer, count, number_on, numbered, on, set_count};
