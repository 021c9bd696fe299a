// SPDX-License-Identifier: MIT OR Apache-2.0
//! The affinities of tasks that Colony has changed on this node, in one file for all of its processes.
//!
//! An agent, `colonyd`, a reservation of spare cores and a transaction of settings may change the same task at the same time, and
//! end in any order, by a signal too. Each of them is an [owner](OwnerId) of its changes. Every change is in the file before it is
//! made, and all processes take the file's lock for that.
//!
//! **A process that holds the lock may be stopped**, so no wait for the lock is longer than [`LOCK_TIMEOUT`]. A change is refused then, with
//! an error that names the process. Changes are undone all the same, by the file as it is: [`release_dead`] removes the layers of
//! such an owner later. Functions that only read take no lock.
//!
//! [`Affinities::release`] undoes the changes of an owner. After the death of its process, whoever finds what the process
//! has left to undo does it by [`release_owner`] or [`release_dead`]. A transaction is undone by the command that reverts it
//! ([`unbind`]).

mod file;
mod former;
mod lock;
mod node;
mod record;
pub mod state;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use colony_node::cpu::CpuSet;
use colony_node::task::TaskId;

use node::{Linux, Node as _};
use record::Record;
use state::folder;

pub use former::{Former, FormerTask, undo_former};
pub use lock::lock_file;
pub use record::{Narrowing, OwnerId, Refused, Released};

/// Name of the file, in the folder of undo files.
const FILE: &str = "affinities";
/// Name of the file that is locked for it: the ledger itself is replaced at each change.
const LOCK: &str = "affinities.lock";
/// Name of a ledger with wrong bytes, kept for whoever wants to know why.
const DAMAGED: &str = "affinities.damaged";

/// The longest wait for the lock of the ledger. A process that holds the lock reads the affinities of all tasks of the node a few times.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

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
    /// The ledger as this owner last saw it: to undo its changes by, should the file be of another version meanwhile.
    seen: Record,
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
    fn new(timeout: Duration) -> io::Result<Self> {
        let lock = state::lock(LOCK, timeout)?;
        let path = folder()?.join(FILE);
        let record = load_or_set_aside(&path)?;
        Ok(Self { path, record, _lock: lock })
    }

    /// Makes changes of one owner: in the file first. Returns the tasks that refused.
    fn bind(&mut self, owner: &OwnerId, changes: &[(TaskId, CpuSet)]) -> io::Result<Vec<Refused>> {
        for (task, cpus) in changes {
            self.record.add(&Linux, owner, *task, Some(cpus.clone()));
        }
        self.save()?;
        let tasks: Vec<TaskId> = changes.iter().map(|(task, _)| *task).collect();
        let refused = self.record.apply(&Linux, owner, &tasks);
        if !refused.is_empty() {
            self.save()?;
        }
        Ok(refused)
    }

    fn save(&mut self) -> io::Result<()> {
        file::save(&self.path, &self.record).map_err(|e| at(&self.path, &e))
    }
}

/// The record in a file. A file with wrong bytes is renamed: nobody can undo what it says, and those who come have to be able to change
/// the node again.
///
/// # Errors
/// Any other reason why it cannot be read: what it says may be undone later, by a newer version, or when there are file descriptors again.
fn load_or_set_aside(path: &Path) -> io::Result<Record> {
    match file::load(path) {
        Err(why) if why.kind() == io::ErrorKind::InvalidData => {
            let aside = path.with_file_name(DAMAGED);
            tracing::error!(
                "{} is damaged, so tasks may stay on CPUs that Colony gave them; it is {} now: {why}",
                path.display(),
                aside.display()
            );
            fs::rename(path, &aside)?;
            Ok(Record::default())
        }
        record => record.map_err(|e| at(path, &e)),
    }
}

fn at(path: &Path, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{}: {e}", path.display()))
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
        Ok(Self {
            owner: OwnerId::Process { process, serial },
            is_used: false,
            living: 0,
            seen: Record::default(),
        })
    }

    /// The name of this owner, for an undo file.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.owner.clone()
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
        let mut open = self.open(LOCK_TIMEOUT)?;
        let refused = open.bind(&self.owner, changes);
        self.seen = open.record;
        refused
    }

    /// Keeps the affinities that tasks have now.
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub fn keep(&mut self, tasks: &[TaskId]) -> io::Result<()> {
        let mut open = self.open(LOCK_TIMEOUT)?;
        for &task in tasks {
            open.record.add(&Linux, &self.owner, task, None);
        }
        open.save()?;
        self.seen = open.record;
        Ok(())
    }

    /// Says what the kernel does to affinities on behalf of this owner from now on: no program has chosen what it gives.
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub fn set_kernel(&mut self, kernel: KernelMasks) -> io::Result<()> {
        let mut open = self.open(LOCK_TIMEOUT)?;
        let owner = open.record.owner(&self.owner);
        (owner.resets, owner.narrows) = match kernel {
            KernelMasks::AsChosen => (Vec::new(), None),
            KernelMasks::Narrowed(narrows) => (Vec::new(), Some(narrows)),
            KernelMasks::Reset(resets) => (resets, None),
        };
        open.save()?;
        self.seen = open.record;
        Ok(())
    }

    /// Says which processes the job has: orphans of tasks that were bound are found by them. Does not wait for the ledger's lock.
    ///
    /// # Errors
    /// As [`Self::bind`]; [`TimedOut`](io::ErrorKind::TimedOut) if another process has the lock at this moment.
    pub fn set_members(&mut self, members: &[TaskId]) -> io::Result<()> {
        let mut open = self.open(Duration::ZERO)?;
        open.record.owner(&self.owner).members = members.to_vec();
        open.save()?;
        self.seen = open.record;
        Ok(())
    }

    fn open(&mut self, timeout: Duration) -> io::Result<Open> {
        let mut open = Open::new(timeout)?;
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
        release(&self.owner, Some(tasks), Some(&self.seen))
    }

    /// Undoes all changes. This owner can go on and make others.
    ///
    /// # Errors
    /// The ledger cannot be read or written.
    pub fn release(&mut self) -> io::Result<Vec<Refused>> {
        if !std::mem::take(&mut self.is_used) {
            return Ok(Vec::new());
        }
        release(&self.owner, None, Some(&self.seen))
    }
}

/// Undoes changes of one owner. `seen`: the ledger as this owner last saw it.
fn release(owner: &OwnerId, only: Option<&[TaskId]>, seen: Option<&Record>) -> io::Result<Vec<Refused>> {
    undo_by(seen, |record| record.release(&Linux, owner, only))
}

/// Undoes changes by the ledger, and writes it. If another process keeps the lock, they are undone by the file as it is; if the file cannot
/// be read, by `seen`. In these two cases, the file stays as it is.
fn undo_by<T>(seen: Option<&Record>, undo: impl FnOnce(&mut Record) -> T) -> io::Result<T> {
    let why = match Open::new(LOCK_TIMEOUT) {
        Ok(mut open) => {
            let undone = undo(&mut open.record);
            return open.save().map(|()| undone);
        }
        Err(why) => why,
    };
    let mut record = match (why.kind(), seen) {
        (io::ErrorKind::TimedOut, _) => read_unlocked()?,
        (_, Some(seen)) => seen.clone(),
        _ => return Err(why),
    };
    let undone = undo(&mut record);
    tracing::warn!(
        "affinities are restored; their record stays until another program of Colony starts: {why}"
    );
    Ok(undone)
}

/// The ledger as it is now, without its lock: the file is always a whole one.
fn read_unlocked() -> io::Result<Record> {
    let path = folder()?.join(FILE);
    file::load(&path).map_err(|e| at(&path, &e))
}

/// Gives a task another affinity for the transaction with this journal, on top of what other owners gave. The journal must be there:
/// when it is gone, the transaction is taken for over.
///
/// # Errors
/// The ledger cannot be read or written, or the kernel refuses the affinity: the task is as it was then.
pub fn bind(journal: &Path, task: TaskId, cpus: &CpuSet) -> io::Result<()> {
    let owner = OwnerId::Transaction { journal: journal.to_owned() };
    let refused = Open::new(LOCK_TIMEOUT)?.bind(&owner, &[(task, cpus.clone())])?;
    refused.into_iter().next().map_or(Ok(()), |refused| Err(io::Error::other(refused.reason)))
}

/// Undoes what the transaction with this journal has given a task, and what the task's children have of it. `chosen_too`: also if a
/// program has chosen another affinity for the task since.
///
/// # Errors
/// The ledger cannot be read or written, or the kernel refuses the affinity that the task had.
pub fn unbind(journal: &Path, task: TaskId, chosen_too: bool) -> io::Result<Released> {
    let owner = OwnerId::Transaction { journal: journal.to_owned() };
    let mut open = Open::new(LOCK_TIMEOUT)?;
    let released = open.record.release_task(&Linux, &owner, task, chosen_too);
    open.save()?;
    released.map_err(|refused| io::Error::other(refused.reason))
}

impl Drop for Affinities {
    fn drop(&mut self) {
        report(self.release());
    }
}

/// Every task of this node, each process before its other threads.
#[must_use]
pub fn all_tasks() -> Vec<TaskId> {
    Linux.tasks()
}

/// The affinities that tasks would have without Colony: `None` for those that have ended.
///
/// # Errors
/// The ledger cannot be read.
pub fn own_affinities(tasks: &[TaskId]) -> io::Result<Vec<Option<CpuSet>>> {
    let record = read_unlocked()?;
    Ok(tasks.iter().map(|&task| record.own(&Linux, task)).collect())
}

/// Undoes what an owner has changed, whose process is dead or about to be. Returns the tasks that refused.
///
/// # Errors
/// The ledger cannot be read or written.
pub fn release_owner(owner: &OwnerId) -> io::Result<Vec<Refused>> {
    release(owner, None, None)
}

/// Undoes what dead processes have changed, what process `ended` has, which is about to be one, and what transactions without a
/// journal have. Called last: a reservation of cores has to be undone in an order of its own.
///
/// # Errors
/// The ledger cannot be read or written.
pub fn release_dead(ended: Option<TaskId>) -> io::Result<()> {
    let is_over = |owner: &OwnerId| match owner {
        // a process of which the kernel does not tell may live
        OwnerId::Process { process, .. } => {
            ended == Some(*process) || !process.is_running_process().unwrap_or(true)
        }
        OwnerId::Transaction { journal } => {
            fs::symlink_metadata(journal).is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
        }
    };
    undo_by(None, |record| {
        let owners = record.owners.iter().map(|owner| owner.id.clone());
        for owner in owners.filter(is_over).collect::<Vec<OwnerId>>() {
            log_refused(&record.release(&Linux, &owner, None));
        }
    })
}

/// As [`release_owner`]; what cannot be undone goes to the log.
pub fn undo(owner: Option<&OwnerId>) {
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
pub fn log_refused(refused: &[Refused]) {
    for Refused { task, reason } in refused {
        tracing::warn!("task {} keeps the CPUs that Colony gave it: {reason}", task.tid);
    }
}
