// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process: its state, its memory, its threads, its signals.

pub mod answers;
pub mod memory;
pub mod shared;
pub mod signals;
mod state;
pub mod switch;
pub mod threads;
pub mod timers;
mod wakes;

pub use state::{
    Over, Process, Thread, Timer, Wait, count, cpus_with, number_on, numbered, on, set_count, threads_most,
};
