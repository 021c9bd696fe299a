// SPDX-License-Identifier: MIT OR Apache-2.0
//! The backend that a user asks for.

use serde::{Deserialize, Serialize};

/// The backend that is asked for; [`Backend`](colony_client::Backend) is the one in effect.
///
/// These are two types, since a choice may be left to Colony, and since an effect may differ from the choice: the agent
/// takes over if the kernel ends its scheduler. A configuration of `colonyd` can name only the backends that `colonyd`
/// enforces itself: the others are not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BackendChoice {
    /// The best that works: for a run `colonyd` if it answers, then `sched_ext` if the kernel has it and nobody else uses
    /// it, then the agent.
    #[default]
    Auto,
    /// `colonyd`, whose windows hold for every job of the node.
    #[serde(skip_deserializing)]
    Daemon,
    /// The [scheduler in the kernel](crate::ext), loaded by this process.
    SchedExt,
    /// The user-space [agent](crate::agent), run by this process.
    Agent,
    /// Nothing: the windows are only measured, for comparison.
    #[serde(skip_deserializing)]
    None,
}
