// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the agent and its guardian tell each other.

use colony_node::task::TaskId;
use serde::{Deserialize, Serialize};

use crate::job::JobTask;

/// What a guardian says when it is ready.
pub(super) const READY: u8 = b'!';

/// What the agent tells its guardian: one line of JSON each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// A task is about to be switched for the first time.
    Joined(JobTask),
    /// This task has ended.
    Left(TaskId),
    /// The agent is alive.
    Beat,
    /// All tasks are in their own class: nothing is left to do.
    Done,
}
