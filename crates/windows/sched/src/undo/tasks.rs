// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tasks of an agent, and putting them back.

use std::path::Path;

use colony_ledger::OwnerId;
use colony_node::task::TaskId;
use serde::{Deserialize, Serialize};

use super::file::{left_behind, read_to_undo};
use super::former::FormerBindings;
use super::group::group_of_a_dead_agent;
use crate::job::{Job, JobTask};

/// The name of files that hold [`Tasks`].
pub(crate) const TASKS: &str = "tasks";

/// Tasks an agent switches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tasks {
    /// With the class each has of its own.
    pub(crate) tasks: Vec<JobTask>,
    /// The owner, in the ledger, of tasks that were brought back to the job's CPUs.
    pub(crate) affinities: Option<OwnerId>,
    /// The name of the job's group.
    #[serde(default)]
    pub(crate) group: Option<String>,
    /// Tasks that an agent without a ledger has bound.
    #[serde(flatten, skip_serializing)]
    pub(crate) former: FormerBindings,
}

impl Tasks {
    /// Puts every task of `job`, which is empty so far, and what descends from it, into its own class and on its own CPUs; whether that
    /// is all of them. A process without the privilege to mount cannot look into the job's group; the release agent can.
    fn restore(&self, job: &Job) -> bool {
        self.tasks.iter().for_each(|&task| job.know(task));
        let group = self.group.as_deref().map_or(Ok(None), group_of_a_dead_agent);
        let complete = group.is_ok();
        if let Ok(Some(group)) = group {
            job.gather(group);
        }
        job.restore();
        colony_ledger::undo(self.affinities.as_ref());
        self.former.undo();
        complete
    }
}

/// Jobs whose tasks were restored. They leave their groups when this is dropped: for that the kernel waits until every CPU has been
/// through the scheduler, seconds on a busy node, so all else is undone before.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    jobs: Vec<Job>,
    /// The number of tasks.
    pub(crate) tasks: usize,
}

impl Drop for Restored {
    fn drop(&mut self) {
        self.jobs.iter().for_each(Job::scatter);
    }
}

/// Restores the tasks that dead agents have left behind, and those of process `ended`, which is about to be one.
pub(crate) fn restore_tasks(ended: Option<TaskId>) -> Restored {
    let mut restored = Restored::default();
    for (path, tasks) in left_behind::<Tasks>(TASKS, ended) {
        let job = Job::new();
        if tasks.restore(&job) {
            // the next process would only do it again
            let _ = std::fs::remove_file(path);
        }
        restored.jobs.push(job);
        restored.tasks += tasks.tasks.len();
    }
    restored
}

/// Restores what is in one file, and removes it. For a guardian that has restored what it knows of: one that was started
/// just before the agent died knows nothing yet. The job's group stays: to remove it may take seconds on a busy node, and the release
/// agent, which does it, starts after the guardian has ended.
pub(crate) fn finish(path: &Path) {
    if read_to_undo::<Tasks>(path).is_some_and(|tasks| tasks.restore(&Job::new())) {
        let _ = std::fs::remove_file(path);
    }
}
