// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of whatever enforces the windows of a job.

use serde::{Deserialize, Serialize};

use crate::agent::AgentStats;
use crate::ext::ExtStats;

/// What keeps the windows now, or did last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// The scheduler in the kernel.
    SchedExt,
    /// The agent.
    Agent,
    /// Nothing any more.
    #[default]
    Nothing,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeeperStats {
    /// By what the windows are kept now.
    pub by: Kept,
    /// What the scheduler in the kernel did, if it ever ran.
    pub sched_ext: Option<ExtStats>,
    /// What the agent did, if it ever ran.
    pub agent: Option<AgentStats>,
    /// What the user should know.
    pub warnings: Vec<String>,
}
