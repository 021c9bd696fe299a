// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread that keeps a reservation while the job runs: new tasks of others are moved off, tasks of the job that left are
//! brought back, and a partition is balanced if the job does not bind its threads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use colony_node::cpu::{self, CpuSet};
use colony_node::task::{self, TaskId};

use super::affinity::OtherTasks;
use super::changes::{Changes, NotUndone, alone};
use super::group::Group;
use super::report::{Partition, Staying};
use crate::SchedError;
use crate::binding::{confined, keep_off};
use crate::job::Job;
use crate::undo::UndoFile;

/// Time between two scans.
const SCAN: Duration = Duration::from_millis(250);

/// A reservation in the hands of its warden.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) changes: Changes,
    /// `None` without privileges: only the job's own tasks are looked after.
    pub(super) undo: Option<UndoFile<Changes>>,
    pub(super) others: OtherTasks,
    pub(super) partition: Partition,
    pub(super) job: Arc<Job>,
}

/// The thread.
#[derive(Debug)]
pub(super) struct Warden {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Ended>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    never_balance: AtomicBool,
}

/// The end of a reservation.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) partition: Partition,
    pub(super) moved: usize,
    pub(super) brought_back: u64,
    pub(super) staying: Vec<Staying>,
    pub(super) notes: Vec<String>,
    pub(super) not_undone: Vec<String>,
}

impl Warden {
    pub(super) fn start(watched: Watched) -> Result<Self, SchedError> {
        let shared = Arc::new(Shared::default());
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("colony-spare".into())
            .spawn(move || Rounds::new(watched).run(&its))
            .map_err(|source| SchedError::System {
                what: "starting the thread that keeps spare cores",
                source,
            })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(super) fn never_balance(&self) {
        self.shared.never_balance.store(true, Ordering::Release);
    }

    pub(super) fn scan_now(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Undoes the reservation.
    pub(super) fn end(mut self) -> Ended {
        self.stop().unwrap_or_default()
    }

    fn stop(&mut self) -> Option<Ended> {
        self.shared.stop.store(true, Ordering::Release);
        let thread = self.thread.take()?;
        thread.thread().unpark();
        thread.join().ok()
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Rounds {
    watched: Watched,
    newest: Option<i32>,
    ended: Ended,
}

impl Rounds {
    fn new(watched: Watched) -> Self {
        let ended = Ended { partition: watched.partition, ..Ended::default() };
        Self { watched, newest: None, ended }
    }

    fn run(mut self, shared: &Shared) -> Ended {
        keep_off(&self.watched.changes.job.clone());
        while !shared.stop.load(Ordering::Acquire) {
            std::thread::park_timeout(SCAN);
            if self.ended.partition == Partition::Isolated && !shared.never_balance.load(Ordering::Acquire) {
                self.balance_if_unbound();
            }
            if self.ended.partition == Partition::Affinity {
                self.bring_back();
            }
            self.move_new_tasks();
        }
        self.finish()
    }

    /// Has the scheduler balance the partition if threads that may run on several CPUs wait for one.
    fn balance_if_unbound(&mut self) {
        let Some(group) = &self.watched.changes.group else { return };
        let is_unbound = |tid: &i32| {
            task::stat(*tid).is_ok_and(|s| s.state == b'R') && cpu::affinity(*tid).is_ok_and(|c| c.len() > 1)
        };
        if group.tasks().iter().filter(|tid| is_unbound(tid)).count() < 2 {
            return;
        }
        match group.balance(&self.watched.changes.job) {
            Ok(()) => {
                self.ended.partition = Partition::Balanced;
                // the kernel lets its unbound threads onto a balanced partition again
                self.newest = None;
                self.ended.notes.push(
                    "the job has threads that are not bound to a CPU: the scheduler balances the partition; bind them \
                     (mpirun --bind-to core, OMP_PROC_BIND=true) for an isolated one"
                        .into(),
                );
            }
            Err(reason) => tracing::debug!("balancing the partition: {reason}"),
        }
    }

    /// Binds tasks of the job to the job's CPUs again: any program may choose other CPUs for itself.
    fn bring_back(&mut self) {
        let cpus = &self.watched.changes.job;
        let members = self.watched.job.tasks();
        let left = members.iter().filter_map(|member| Some((member.id(), confined(member.id(), cpus)?)));
        let left: Vec<_> = left.collect();
        match self.watched.others.bring_back(&left) {
            Ok(count) => self.ended.brought_back += count as u64,
            Err(e) => tracing::debug!("tasks of the job stay off its CPUs: {e}"),
        }
        let processes = self.watched.job.processes().into_iter().filter_map(|pid| TaskId::of(pid).ok());
        let members: Vec<TaskId> = processes.collect();
        if members != self.watched.changes.members {
            self.watched.changes.members = members;
            self.save();
        }
    }

    /// Moves tasks that were started since the last scan, and may run on the job's CPUs.
    fn move_new_tasks(&mut self) {
        let newest = task::newest();
        if self.watched.undo.is_none() || (newest.is_some() && newest == self.newest) {
            return;
        }
        self.newest = newest;
        let is_job = self.job_tasks();
        let Changes { job, spare, .. } = &self.watched.changes;
        match self.watched.others.move_off(job, spare, |tid| is_job.has(tid)) {
            Ok(moved) => self.ended.moved += moved,
            Err(e) => tracing::debug!("new tasks stay on the job's CPUs: {e}"),
        }
    }

    /// Writes the undo file anew.
    fn save(&self) {
        let saved = self.watched.undo.as_ref().map_or(Ok(()), |undo| undo.save(&self.watched.changes));
        if let Err(e) = saved {
            tracing::warn!(
                "processes of the job may stay bound if all of Colony is killed now: the undo file: {e}"
            );
        }
    }

    fn job_tasks(&self) -> JobTasks {
        self.watched.job.refresh();
        let members = self.watched.job.tasks();
        let in_group = self.watched.changes.group.as_ref().map(Group::tasks).unwrap_or_default();
        JobTasks {
            tids: members.iter().map(|t| t.tid).chain(in_group).collect(),
            pids: self.watched.job.processes().into_iter().collect(),
            cpus: self.watched.changes.job.clone(),
        }
    }

    /// Counts what stays, and undoes the changes.
    fn finish(mut self) -> Ended {
        let is_job = self.job_tasks();
        let changes = &self.watched.changes;
        if let Some(now) = changes.group.as_ref().and_then(|g| g.changed_from(self.ended.partition)) {
            self.ended
                .notes
                .push(format!("the partition did not last: at the end of the run the kernel says `{now}`"));
        }
        self.ended.staying = self.watched.others.staying(&changes.job, |tid| is_job.has(tid));
        if let Some(undo) = &self.watched.undo {
            let _alone = alone();
            let NotUndone { failures, left } = changes.undo();
            self.ended.not_undone = failures;
            // what is left is for the release agent, which the kernel starts at the end of this process
            match left.map(|left| undo.save(&left)) {
                Some(Ok(())) => {}
                Some(Err(e)) => self.ended.not_undone.push(format!("{}: {e}", undo.path().display())),
                None => undo.remove(),
            }
        }
        self.ended
    }
}

/// The tasks of the job, and of this process.
struct JobTasks {
    tids: BTreeSet<i32>,
    pids: BTreeSet<i32>,
    cpus: CpuSet,
}

impl JobTasks {
    /// Returns `true` for a task of the job, and for one that a job task has started just now: it has inherited the job's
    /// CPUs, and its process descends from the job.
    fn has(&self, tid: i32) -> bool {
        if self.tids.contains(&tid) {
            return true;
        }
        let process = task::process_of(tid).unwrap_or(tid);
        if process == std::process::id().cast_signed() || self.pids.contains(&process) {
            return true;
        }
        let is_confined = cpu::affinity(tid).is_ok_and(|now| now.without(&self.cpus).is_empty());
        is_confined && self.descends(process)
    }

    fn descends(&self, process: i32) -> bool {
        let mut pid = process;
        for _ in 0..1000 {
            if self.pids.contains(&pid) || pid == std::process::id().cast_signed() {
                return true;
            }
            match task::stat(pid) {
                Ok(stat) if stat.parent > 1 => pid = stat.parent,
                _ => return false,
            }
        }
        false
    }
}
