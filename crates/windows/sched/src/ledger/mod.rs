// SPDX-License-Identifier: MIT OR Apache-2.0
//! The affinities of tasks that Colony has changed on this node, in one file for all of its processes.
//!
//! An agent, `colonyd` and a reservation of spare cores may change the same task at the same time, and end in any order, by
//! a signal too. Each of them is an [owner](Affinities) of its changes. Every change is in the file before it is made, and all
//! processes take the file's lock for that.
//!
//! What an owner has changed is undone by [`Affinities::release`]. After the death of its process, whoever reads the
//! [undo file](crate::undo) of that process does it by [`release_owner`].

mod file;
mod node;
mod record;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use colony_node::cpu::CpuSet;
use colony_node::task::TaskId;

use crate::undo::{folder, lock};
use node::{Linux, Node as _};
use record::Record;

pub use record::{Narrowing, OwnerId, Refused};

/// Name of the file, in the folder of undo files.
const FILE: &str = "affinities";
/// Name of the file that is locked for it: the ledger itself is replaced at each change.
const LOCK: &str = "affinities.lock";
/// Name of a ledger that could not be read, kept for whoever wants to know why.
const DAMAGED: &str = "affinities.damaged";

/// A ledger with fewer tasks is not looked through for tasks that have ended.
const FEW: usize = 64;

/// The changes of one owner in this process. They are undone when this is dropped.
#[derive(Debug)]
pub struct Affinities {
    owner: OwnerId,
    /// True once something is in the ledger.
    is_used: bool,
    /// Tasks of the ledger after those that have ended were forgotten.
    living: usize,
}

/// What the kernel does to the affinities of tasks that are not in a cpuset partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelMasks {
    /// Nothing: there is no partition.
    AsChosen,
    /// The kernel takes the partition's CPUs away while the partition exists (Linux 6.2 and later).
    Narrowed(Narrowing),
    /// The kernel gives tasks one of these affinities when the partition is made and when it is removed, and forgets what they had
    /// (before Linux 6.2).
    Reset(Vec<CpuSet>),
}

/// The ledger, locked.
struct Open {
    path: PathBuf,
    record: Record,
    _lock: std::fs::File,
}

impl Open {
    fn new() -> io::Result<Self> {
        let lock = lock(LOCK)?;
        let path = folder()?.join(FILE);
        let record = file::load(&path).or_else(|why| {
            // Nobody can undo what it says. Those who come have to be able to change the node again.
            let aside = path.with_file_name(DAMAGED);
            tracing::error!(
                "{} cannot be read, so tasks may stay on CPUs that Colony gave them; it is {} now: {why}",
                path.display(),
                aside.display()
            );
            std::fs::rename(&path, &aside).map(|()| Record::default())
        })?;
        Ok(Self { path, record, _lock: lock })
    }

    fn save(&mut self) -> io::Result<()> {
        file::save(&self.path, &self.record)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", self.path.display())))
    }
}

impl Affinities {
    /// A new owner of changes.
    ///
    /// # Errors
    /// There is no folder for the ledger, or it is not this user's alone.
    pub fn new() -> io::Result<Self> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        folder()?;
        let process = TaskId::of(std::process::id().cast_signed()).map_err(io::Error::other)?;
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        Ok(Self { owner: OwnerId { process, serial }, is_used: false, living: 0 })
    }

    /// The name of this owner, for an undo file.
    #[must_use]
    pub const fn owner(&self) -> OwnerId {
        self.owner
    }

    /// Returns `true` if something was changed that is not undone yet.
    #[must_use]
    pub const fn is_used(&self) -> bool {
        self.is_used
    }

    /// Gives tasks other affinities, on top of what other owners gave. Returns the tasks that refused.
    ///
    /// # Errors
    /// The ledger cannot be read or written: no task is changed then.
    pub fn bind(&mut self, changes: &[(TaskId, CpuSet)]) -> io::Result<Vec<Refused>> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let mut open = self.open()?;
        for (task, cpus) in changes {
            open.record.add(&Linux, self.owner, *task, Some(cpus.clone()));
        }
        open.save()?;
        let tasks: Vec<TaskId> = changes.iter().map(|(task, _)| *task).collect();
        let refused = open.record.apply(&Linux, self.owner, &tasks);
        if !refused.is_empty() {
            open.save()?;
        }
        Ok(refused)
    }

    /// Keeps the affinities that tasks have now.
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub fn keep(&mut self, tasks: &[TaskId]) -> io::Result<()> {
        let mut open = self.open()?;
        for &task in tasks {
            open.record.add(&Linux, self.owner, task, None);
        }
        open.save()
    }

    /// Says what the kernel does to affinities on behalf of this owner from now on: no program has chosen what it gives.
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub fn set_kernel(&mut self, kernel: KernelMasks) -> io::Result<()> {
        let mut open = self.open()?;
        let owner = open.record.owner(self.owner);
        (owner.resets, owner.narrows) = match kernel {
            KernelMasks::AsChosen => (Vec::new(), None),
            KernelMasks::Narrowed(narrows) => (Vec::new(), Some(narrows)),
            KernelMasks::Reset(resets) => (resets, None),
        };
        open.save()
    }

    /// Says which processes the job has: orphans of tasks that were bound are found by them.
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub fn set_members(&mut self, members: &[TaskId]) -> io::Result<()> {
        let mut open = self.open()?;
        open.record.owner(self.owner).members = members.to_vec();
        open.save()
    }

    fn open(&mut self) -> io::Result<Open> {
        let mut open = Open::new()?;
        // every task is looked at for it, so not each time
        if open.record.tasks.len() >= FEW.max(2 * self.living) {
            open.record.prune(TaskId::lives);
            self.living = open.record.tasks.len();
        }
        self.is_used = true;
        Ok(open)
    }

    /// Undoes the changes to these tasks, and to what they started.
    ///
    /// # Errors
    /// The ledger cannot be read or written.
    pub fn release_tasks(&mut self, tasks: &[TaskId]) -> io::Result<Vec<Refused>> {
        let mut open = self.open()?;
        let refused = open.record.release(&Linux, self.owner, Some(tasks));
        open.save()?;
        Ok(refused)
    }

    /// Undoes all changes. This owner can go on and make others.
    ///
    /// # Errors
    /// The ledger cannot be read or written.
    pub fn release(&mut self) -> io::Result<Vec<Refused>> {
        if !std::mem::take(&mut self.is_used) {
            return Ok(Vec::new());
        }
        let mut open = Open::new()?;
        let refused = open.record.release(&Linux, self.owner, None);
        open.save()?;
        Ok(refused)
    }
}

impl Drop for Affinities {
    fn drop(&mut self) {
        report(self.release());
    }
}

/// Every task of this node, each process before its other threads.
pub(crate) fn all_tasks() -> Vec<TaskId> {
    Linux.tasks()
}

/// The affinities that tasks would have without Colony: `None` for those that have ended.
///
/// # Errors
/// The ledger cannot be read.
pub fn own_affinities(tasks: &[TaskId]) -> io::Result<Vec<Option<CpuSet>>> {
    let open = Open::new()?;
    Ok(tasks.iter().map(|&task| open.record.own(&Linux, task)).collect())
}

/// Undoes what an owner has changed, whose process is dead or about to be. Returns the tasks that refused.
///
/// # Errors
/// The ledger cannot be read or written.
pub fn release_owner(owner: OwnerId) -> io::Result<Vec<Refused>> {
    let mut open = Open::new()?;
    let refused = open.record.release(&Linux, owner, None);
    open.save()?;
    Ok(refused)
}

/// Undoes what dead processes have changed, and what process `ended` has, which is about to be one. Called last: a
/// reservation of cores has to be undone in an order of its own.
///
/// # Errors
/// The ledger cannot be read or written.
pub(crate) fn release_dead(ended: Option<TaskId>) -> io::Result<()> {
    let mut open = Open::new()?;
    let is_dead = |process: TaskId| {
        // a process of which the kernel does not tell may live
        ended == Some(process) || !process.is_running_process().unwrap_or(true)
    };
    let owners = open.record.owners.iter().map(|owner| owner.id);
    let dead: Vec<OwnerId> = owners.filter(|owner| is_dead(owner.process)).collect();
    for owner in dead {
        log_refused(&open.record.release(&Linux, owner, None));
    }
    open.save()
}

/// As [`release_owner`]; what cannot be undone goes to the log.
pub(crate) fn undo(owner: Option<OwnerId>) {
    if let Some(owner) = owner {
        report(release_owner(owner));
    }
}

/// Logs what a release could not undo.
pub fn report(released: io::Result<Vec<Refused>>) {
    match released {
        Ok(refused) => log_refused(&refused),
        Err(e) => tracing::error!("tasks keep the CPUs that Colony gave them: {e}"),
    }
}

/// Logs which tasks keep CPUs that Colony gave them.
pub(crate) fn log_refused(refused: &[Refused]) {
    for Refused { task, reason } in refused {
        tracing::warn!("task {} keeps the CPUs that Colony gave it: {reason}", task.tid);
    }
}
