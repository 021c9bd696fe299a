// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of the agent.

use colony_stats::Distribution;
use serde::{Deserialize, Serialize};

/// Statistics of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentStats {
    /// Edges handled, counted on each CPU.
    pub edges: u64,
    /// Edges at which no thread was awake before the whole window had passed.
    pub missed: u64,
    /// Delay from each edge to the wake-up of the thread.
    pub lateness: Distribution,
    /// Time that each thread took to switch its tasks.
    pub switching: Distribution,
    /// Tasks switched, counted at each edge.
    pub switches: u64,
    /// Tasks in the job now.
    pub tasks: u64,
    /// Tasks that ever joined.
    pub joined: u64,
    /// Tasks that the scanner switched between edges: new tasks, and tasks that no thread had switched.
    pub settled: u64,
    /// Tasks that could not be switched, or did not fit the table.
    pub errors: u64,
    /// The last such error.
    pub last_error: Option<String>,
    /// Number of times the guardian died and was started again.
    pub guardian_restarts: u64,
    /// CPU time of the agent's threads, in nanoseconds.
    pub cpu_ns: u64,
    /// Time since the start, in nanoseconds.
    pub wall_ns: u64,
    /// The reason for which the agent stopped by itself and restored the tasks, if it did.
    pub stopped: Option<String>,
    /// Warnings for the user about these windows on this node.
    pub warnings: Vec<String>,
}
