// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wake-up latency: from the instant of a timer to the thread that waits for it, on every CPU.
//!
//! A detour delays a program that never waits. A program that waits for a timer (a solver with a helper thread that
//! sleeps, a daemon of coordinated windows) is delayed in another way: the processor leaves its idle state, the timer's
//! interrupt is taken, the scheduler chooses the thread, and whatever runs on the CPU must let go of it.
//!
//! * [`sleepers`]: a pinned thread for each CPU that sleeps until instants at a fixed interval,
//! * [`report`]: the latencies of each CPU, and what each consists of.
//!
//! [`measure`] runs the threads and, where BPF is allowed, the probe beside them, and returns a [`WakeupMeasurement`].

mod collect;
mod config;
pub mod report;
mod session;
pub mod sleepers;

pub use config::{Config, SleeperError};
pub use report::{DelayPart, Latencies, LongestWakeup, WakeupCpu, WakeupMeasurement, WakeupSource};
pub use session::measure;
