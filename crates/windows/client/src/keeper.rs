// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of a keeper, which enforces the windows of a job by one backend after the other.

use serde::{Deserialize, Serialize};

use crate::agent::AgentStats;
use crate::backend::Backend;
use crate::ext::ExtStats;

/// Statistics of a keeper.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeeperStats {
    /// The backend now, or the last one: [`Backend::None`] while the scheduler in the kernel waits for a CPU of the job's.
    pub backend: Backend,
    /// Statistics of the scheduler in the kernel, if it ever ran.
    pub sched_ext: Option<ExtStats>,
    /// Statistics of the agent, if it ever ran.
    pub agent: Option<AgentStats>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}
