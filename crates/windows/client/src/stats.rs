// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of the file `stats`.

use colony_node::cpu::CpuSet;
use colony_time::Windows;
use serde::{Deserialize, Serialize};

use crate::agent::AgentStats;
use crate::backend::{Backend, serialize_kept_by};
use crate::clock::Coordination;
use crate::ext::ExtStats;

/// The report of the file `stats`: the windows, the job, and the statistics of the backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatsReport {
    /// [`StatsReport::SCHEMA`].
    pub schema: String,
    /// Process number of the daemon.
    pub pid: u32,
    /// Time since the daemon started, in nanoseconds.
    pub uptime_ns: u64,
    /// The windows as they are set.
    pub windows: Windows,
    /// The agreement of the windows with those of other nodes.
    pub coordination: Coordination,
    /// The duty cycle as it was given.
    pub duty_cycle: String,
    /// CPUs the job has in favored windows.
    pub cpus: CpuSet,
    /// The job.
    pub job: JobReport,
    /// Statistics of the agent that runs, or of the last one.
    pub agent: Option<AgentStats>,
    /// The backend of the job that runs, or of the last one.
    #[serde(default, serialize_with = "serialize_kept_by")]
    pub kept_by: Backend,
    /// Statistics of the scheduler in the kernel that runs, or of the last one.
    #[serde(default)]
    pub sched_ext: Option<ExtStats>,
    /// Warnings for the user.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// The job in [`StatsReport`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// True if there is a job for which windows are enforced.
    pub active: bool,
    /// Process numbers of the job.
    pub processes: Vec<i32>,
    /// Number of threads of these processes.
    pub tasks: usize,
    /// Number of jobs since the daemon started, this one included.
    pub jobs: u64,
}

impl StatsReport {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.stats/1";
}
