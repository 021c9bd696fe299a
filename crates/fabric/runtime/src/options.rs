// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a program runs: PEs a process, work stealing, load balancing.

use crate::balancer::BalanceOptions;
use crate::track::TimelineOptions;

/// Options of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// PEs of each process, as threads; 0 is 1.
    pub threads: u32,
    /// Idle PEs take objects from others of their process.
    pub steal: bool,
    /// Load balancing; without, objects resume where they are.
    pub balance: Option<BalanceOptions>,
    /// A time line of the run. By default, that of [`TimelineOptions::from_environment`].
    pub timeline: Option<TimelineOptions>,
}
