// SPDX-License-Identifier: MIT OR Apache-2.0
//! Affinities in the undo files of earlier versions, which had no ledger.

use std::collections::HashMap;
use std::io;

use colony_ledger::{Former, FormerTask, OwnerId, Refused, release_owner, report, undo_former};
use colony_node::cpu::{self, CpuSet};
use colony_node::task::TaskId;
use serde::{Deserialize, Serialize};

/// Tasks that a daemon or an agent of an earlier version has bound to the job's CPUs. Never written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct FormerBindings {
    #[serde(default)]
    bound: Vec<FormerTask>,
    /// The processes of the job.
    #[serde(default)]
    processes: Vec<TaskId>,
}

impl FormerBindings {
    /// Gives the tasks their own CPUs back.
    pub(crate) fn undo(&self) {
        let former =
            Former { tasks: self.bound.clone(), resets: Vec::new(), members: self.processes.clone() };
        report(undo_former(&former));
    }
}

/// Affinities in the undo file of a reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Kept {
    /// In the ledger: the owner of the tasks that were moved.
    Ledger(OwnerId),
    /// In this file, as versions without a ledger wrote them. Never written.
    File(FormerReservation),
}

/// The affinities of all tasks of a node before an earlier version reserved cores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FormerReservation {
    before: HashMap<CpuSet, Vec<TaskId>>,
}

impl Kept {
    /// Undoes the changes of a reservation of the CPUs `job` that left `spare` to all others. `partition`: true if a cpuset partition was
    /// made for it. Returns the tasks that refused.
    ///
    /// # Errors
    /// The ledger cannot be read or written.
    pub(crate) fn release(&self, job: &CpuSet, spare: &CpuSet, partition: bool) -> io::Result<Vec<Refused>> {
        match self {
            Self::Ledger(owner) => release_owner(owner),
            Self::File(former) => undo_former(&former.changes(job, spare, partition)?),
        }
    }
}

impl FormerReservation {
    fn changes(&self, job: &CpuSet, spare: &CpuSet, partition: bool) -> io::Result<Former> {
        let mut former = Former::default();
        if partition {
            // before Linux 6.2, tasks get all CPUs of their group when a partition is made or removed
            let online = cpu::online().map_err(io::Error::other)?;
            former.resets = vec![online.without(job), online];
        }
        for (own, tasks) in &self.before {
            let rest = own.without(job);
            let target = if rest.is_empty() { spare } else { &rest };
            let given = (target != own).then(|| target.clone());
            let task = |&task| FormerTask { task, own: own.clone(), given: given.clone() };
            former.tasks.extend(tasks.iter().map(task));
        }
        Ok(former)
    }
}
