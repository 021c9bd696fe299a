// SPDX-License-Identifier: MIT OR Apache-2.0
//! The changes of a reservation on this node, and undoing them, whoever does it.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use colony_ledger::state::lock;
use colony_node::cpu::{self, CpuSet};
use colony_node::task::{self, TaskId};
use serde::{Deserialize, Serialize};

use super::group::Group;
use super::settings;
use crate::undo::{Kept, left_behind, read_to_undo, rewrite};

/// The kind of undo files that hold [`Changes`].
pub(super) const SPARE: &str = "spare";

/// The changes of a reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Changes {
    /// The job's CPUs.
    pub(super) job: CpuSet,
    /// The CPUs of everything else.
    pub(super) spare: CpuSet,
    pub(super) group: Option<Group>,
    /// Affinities of tasks that are not of the job.
    pub(super) affinities: Option<Kept>,
    /// Name of the transaction of settings.
    pub(super) transaction: Option<String>,
    /// Processes of the job, if no group has them.
    pub(super) members: Vec<TaskId>,
}

/// What undoing did not do.
#[derive(Debug, Default)]
pub(super) struct NotUndone {
    /// In words.
    pub(super) failures: Vec<String>,
    /// The part that another attempt may undo: a group of which the kernel still holds tasks that have ended.
    pub(super) left: Option<Changes>,
}

impl Changes {
    /// Undoes all of them.
    pub(super) fn undo(&self) -> NotUndone {
        let members = self.members();
        // removing a group may take long on a busy node
        let group_first = self.group.as_ref().is_some_and(Group::may_be_partition);
        let mut failed = if group_first { Vec::new() } else { self.release_affinities() };
        failed.extend(self.group.as_ref().map(Group::undo).unwrap_or_default());
        if group_first {
            failed.extend(self.release_affinities());
        }
        let all: CpuSet = self.job.iter().chain(self.spare.iter()).collect();
        for tid in members {
            // the job's tasks were bound to all CPUs of the job, unless they have bound themselves since
            if cpu::affinity(tid).is_ok_and(|now| now == self.job) {
                let _ = cpu::bind(tid, &all);
            }
        }
        if let Some(name) = &self.transaction {
            failed.extend(settings::restore(name));
        }
        let left = self.group.clone().filter(Group::exists);
        let left = left.map(|group| Self { group: Some(group), ..Self::default() });
        NotUndone { failures: failed, left }
    }

    /// Gives all other tasks their affinities back. Returns what could not be undone.
    fn release_affinities(&self) -> Vec<String> {
        let has_group = self.group.is_some();
        match self.affinities.as_ref().map(|kept| kept.release(&self.job, &self.spare, has_group)) {
            Some(Ok(refused)) => {
                refused.into_iter().map(|r| format!("task {}: {}", r.task.tid, r.reason)).collect()
            }
            Some(Err(e)) => vec![e.to_string()],
            None => Vec::new(),
        }
    }

    /// Tasks of the job that live now.
    fn members(&self) -> Vec<i32> {
        let in_group = self.group.as_ref().map(Group::tasks).unwrap_or_default();
        let processes = self.members.iter().filter(|p| p.lives()).flat_map(|p| task::tree(p.tid));
        in_group.into_iter().chain(processes.flat_map(task::threads)).collect()
    }
}

/// The longest wait for another run that makes or undoes a reservation, with settings of the whole node.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Keeps all others from making and undoing reservations until it is dropped.
///
/// # Errors
/// As [`lock`].
pub(super) fn alone() -> io::Result<File> {
    lock("spare.lock", LOCK_TIMEOUT)
}

/// Undoes the changes in a file, unless another process has done it before; returns what could not be undone.
pub(super) fn undo_file(path: &Path) -> Vec<String> {
    let _alone = alone();
    let Some(changes) = read_to_undo::<Changes>(path) else { return Vec::new() };
    let NotUndone { mut failures, left } = changes.undo();
    match left.map(|left| rewrite(path, &left)) {
        Some(Ok(())) => {}
        Some(Err(e)) => failures.push(format!("{}: {e}", path.display())),
        None => drop(std::fs::remove_file(path)),
    }
    failures
}

/// Undoes the reservations of dead processes, and that of process `ended`, which is about to be one.
pub(crate) fn restore_spare(ended: Option<TaskId>) {
    for (path, _) in left_behind::<Changes>(SPARE, ended) {
        for failure in undo_file(&path) {
            tracing::warn!("undoing a reservation of cores: {failure}");
        }
    }
}
