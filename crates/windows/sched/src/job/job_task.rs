// SPDX-License-Identifier: MIT OR Apache-2.0
//! A task of the job, and the class it has of its own.

use colony_node::class::{self, Class};
use colony_node::task::{self, TaskId};

use crate::restore;

/// A task (thread) of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct JobTask {
    /// Its number.
    pub tid: i32,
    /// The process it belongs to.
    pub pid: i32,
    /// Its start in clock ticks since boot: with the number it names the task for good.
    pub start_ticks: u64,
    /// The CPU it ran on last.
    pub cpu: usize,
    /// The class it has of its own, and gets back.
    pub own: Class,
    /// True if its children start in `SCHED_OTHER` in its own class too (`SCHED_RESET_ON_FORK`).
    #[serde(default)]
    pub own_reset: bool,
    /// True if it was running, or waited for a CPU, at the last scan.
    #[serde(skip)]
    pub runnable: bool,
}

impl JobTask {
    /// The number and the start of the task, which together are never given again.
    pub(crate) const fn id(&self) -> TaskId {
        TaskId { tid: self.tid, start_ticks: self.start_ticks }
    }

    /// Puts the task into its own class, unless its number is another task's by now, or its program has chosen another class since.
    pub(crate) fn restore(&self) {
        let same = match task::stat(self.tid) {
            Ok(stat) => stat.start_ticks == self.start_ticks,
            Err(e) => !e.is_no_task(),
        };
        let is_chosen = || class::get(self.tid).is_ok_and(|now| restore::is_chosen(now, self.own));
        if same && restore::can_be_put_back(self.own) && !is_chosen() {
            // it may have ended just now
            let _ = restore::put_back(self.tid, self.own, self.own_reset);
        }
    }
}
