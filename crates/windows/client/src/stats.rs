// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of the file `stats`.

use colony_node::cpu::CpuSet;
use colony_time::Windows;
use serde::{Deserialize, Serialize};

use crate::agent::AgentStats;
use crate::backend::{Backend, serialize_kept_by};
use crate::clock::Coordination;
use crate::ext::ExtStats;

/// The file `stats`: what the windows do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatsReport {
    /// [`StatsReport::SCHEMA`].
    pub schema: String,
    /// The daemon's process.
    pub pid: u32,
    /// Time since the daemon started, in nanoseconds.
    pub uptime_ns: u64,
    /// The windows as they are set.
    pub windows: Windows,
    /// How well they are kept together with other nodes.
    pub coordination: Coordination,
    /// The duty cycle as it was given.
    pub duty_cycle: String,
    /// CPUs the job has in favored windows.
    pub cpus: CpuSet,
    /// The job.
    pub job: JobReport,
    /// What the agent did: the one that runs, or the last one.
    pub agent: Option<AgentStats>,
    /// The backend of the job that runs, or of the last one.
    #[serde(default, serialize_with = "serialize_kept_by")]
    pub kept_by: Backend,
    /// What the scheduler in the kernel did: the one that runs, or the last one.
    #[serde(default)]
    pub sched_ext: Option<ExtStats>,
    /// What the user should know.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// The job in [`StatsReport`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// Whether there is one, and an agent switches it.
    pub active: bool,
    /// Its processes.
    pub processes: Vec<i32>,
    /// How many threads they have.
    pub tasks: usize,
    /// Jobs since the daemon started, this one included.
    pub jobs: u64,
}

impl StatsReport {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.stats/1";
}
