// SPDX-License-Identifier: MIT OR Apache-2.0
//! The changes of a reservation on this node, and undoing them, whoever does it.

use std::collections::HashSet;
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
        let mut members = self.members();
        // removing a group may take long on a busy node
        let group_first = self.group.as_ref().is_some_and(Group::may_be_partition);
        let mut failed = if group_first { Vec::new() } else { self.release_affinities() };
        let seen = |tid| members.extend(TaskId::of(tid).ok());
        failed.extend(self.group.as_ref().map(|group| group.undo(seen)).unwrap_or_default());
        if group_first {
            failed.extend(self.release_affinities());
        }
        self.release_job(members);
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
    fn members(&self) -> HashSet<TaskId> {
        let in_group = self.group.as_ref().map(Group::tasks).unwrap_or_default();
        let in_group = in_group.into_iter().filter_map(|tid| TaskId::of(tid).ok());
        in_group.chain(self.members.iter().copied()).filter(|task| task.lives()).collect()
    }

    /// Lets the tasks of the job, and all that descends from them, run on all CPUs again. They were bound to the CPUs of the job, unless
    /// they have bound themselves since.
    fn release_job(&self, mut members: HashSet<TaskId>) {
        let all: CpuSet = self.job.iter().chain(self.spare.iter()).collect();
        for _ in 0..PASSES {
            let processes =
                members.iter().filter(|task| task.lives()).filter_map(|m| task::process_of(m.tid));
            let processes: HashSet<i32> = processes.flat_map(task::tree).collect();
            let tasks = processes.into_iter().flat_map(task::threads).filter_map(|tid| TaskId::of(tid).ok());
            let tasks: Vec<TaskId> = tasks.collect();
            let bound = tasks.iter().filter(|task| cpu::affinity(task.tid).is_ok_and(|now| now == self.job));
            let changed = bound.filter(|task| cpu::bind(task.tid, &all).is_ok()).count();
            // a task may have started others before its turn came
            if changed == 0 {
                return;
            }
            members.extend(tasks);
        }
        tracing::warn!(
            "after {PASSES} passes over the tasks of the job, new ones may keep the CPUs of their parents"
        );
    }
}

/// Passes over the tasks of a job that starts others all the time.
const PASSES: usize = 20;

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

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use nix::sys::signal::{Signal, killpg};
    use nix::unistd::Pid;

    use super::*;

    #[test]
    fn what_the_job_starts_while_it_is_released_may_run_on_all_cpus_too() {
        let usable = cpu::usable().expect("linux");
        let Some(one) = usable.first().filter(|_| usable.len() > 1) else {
            return colony_testing::skip("one usable CPU only");
        };
        let job: CpuSet = std::iter::once(one).collect();
        let spare = usable.without(&job);
        let mut forks = Command::new("sh");
        forks.args(["-c", "for i in $(seq 300); do sleep 600 & done; wait"]).process_group(0);
        let mut forks = forks.spawn().expect("sh");
        let shell = TaskId::of(forks.id().cast_signed()).expect("alive");
        cpu::bind(shell.tid, &job).expect("ours");
        while task::tree(shell.tid).len() < 20 {
            std::thread::yield_now();
        }
        let changes = Changes { job: job.clone(), spare, members: vec![shell], ..Changes::default() };
        assert!(changes.undo().failures.is_empty());
        while task::tree(shell.tid).len() < 301 {
            std::thread::yield_now();
        }
        let is_bound = |pid: &i32| cpu::affinity(*pid).is_ok_and(|now| now == job);
        let bound: Vec<i32> = task::tree(shell.tid).into_iter().filter(is_bound).collect();
        killpg(Pid::from_raw(shell.tid), Signal::SIGKILL).expect("ours");
        forks.wait().expect("ours");
        assert!(bound.is_empty(), "{bound:?}");
    }
}
