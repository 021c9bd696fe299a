// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration of an agent.

use colony_node::cpu::CpuSet;
use colony_time::Windows;
use serde::{Deserialize, Serialize};

use crate::cgroup::ThreadEntry;

/// The class job tasks have in regular windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegularClass {
    /// `SCHED_IDLE`: everything else goes first.
    #[default]
    Idle,
    /// Each task's own class: a fair share.
    Own,
}

/// The configuration of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConfig {
    /// The windows to keep.
    pub windows: Windows,
    /// The job's CPUs: one thread of the agent on each.
    pub cpus: CpuSet,
    /// `SCHED_FIFO` priority of job tasks in favored windows, 1..=97. Tasks that share a CPU take turns at the next higher
    /// one.
    pub favored_priority: u8,
    /// `SCHED_FIFO` priority of the agent's own threads and the guardian: at least 2 above the job's, up to 99.
    pub agent_priority: u8,
    /// The class of job tasks in regular windows.
    pub regular: RegularClass,
    /// The way of the threads on the job's CPUs into the job's group, if the kernel keeps others off these CPUs.
    pub entry: Option<ThreadEntry>,
}

impl AgentConfig {
    /// The usual priorities and classes with these windows on these CPUs.
    #[must_use]
    pub const fn new(windows: Windows, cpus: CpuSet) -> Self {
        let regular = RegularClass::Idle;
        Self { windows, cpus, favored_priority: 50, agent_priority: 60, regular, entry: None }
    }
}
