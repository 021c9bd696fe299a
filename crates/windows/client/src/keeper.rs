// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of whatever enforces the windows of a job.

use serde::{Deserialize, Serialize};

use crate::agent::AgentStats;
use crate::backend::Backend;
use crate::ext::ExtStats;

/// What a keeper did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeeperStats {
    /// The backend now, or the last one: [`Backend::None`] while the scheduler in the kernel waits for a CPU of the job's.
    pub backend: Backend,
    /// What the scheduler in the kernel did, if it ever ran.
    pub sched_ext: Option<ExtStats>,
    /// What the agent did, if it ever ran.
    pub agent: Option<AgentStats>,
    /// What the user should know.
    pub warnings: Vec<String>,
}
