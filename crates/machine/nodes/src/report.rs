// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of a run on compute nodes, in JSON.

use colony_ciod::{JobOutcome, JobSpec};
use colony_tlb::Prediction;
use serde::Serialize;

use crate::{Death, Machine, RunCounters};

/// Name and version of what [`Report`] is in JSON.
pub const SCHEMA: &str = "colony.cnk.run/1";

/// A run, with all that is needed to repeat it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Nodes.
    pub nodes: u32,
    /// I/O nodes.
    pub io_nodes: u32,
    /// Release of the kernel of a Linux I/O node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_kernel: Option<String>,
    /// The machine of the nodes.
    pub machine: Machine,
    /// The job as it was asked for.
    pub job: JobSpec,
    /// The outcome of the job.
    pub outcome: JobOutcome,
    /// The nodes that died meanwhile, and of what.
    pub deaths: Vec<Death>,
    /// The misses of the modelled TLB and the time that they cost, if the machine has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlb: Option<Prediction>,
    /// The counters, if the machine was to count and the job began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<RunCounters>,
    /// From the start of the emulators to that of the programs, seconds.
    pub boot_s: f64,
    /// From the start of the programs to the end of the job, seconds.
    pub run_s: f64,
}
