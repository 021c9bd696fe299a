// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages between the agent and its guardian.

use colony_node::task::TaskId;
use serde::{Deserialize, Serialize};

use crate::job::JobTask;

/// The byte with which a guardian reports that it is ready.
pub(super) const READY: u8 = b'!';

/// A message of the agent to its guardian: one line of JSON.
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
