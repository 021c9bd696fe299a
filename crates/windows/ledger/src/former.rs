// SPDX-License-Identifier: MIT OR Apache-2.0
//! Affinities that are in no ledger: versions of Colony from before it kept them in the undo file of the process that changed them.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use colony_node::cpu::CpuSet;
use colony_node::task::TaskId;
use serde::Deserialize;

use super::node::{Linux, Node};
use super::record::{Entry, Layer, OwnerId, Record, Refused, ancestors};
use super::undo_by;

/// The affinity of a task before Colony changed it, and the one that it was given.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct FormerTask {
    /// The task.
    pub task: TaskId,
    /// The affinity that it had of its own.
    #[serde(rename = "old")]
    pub own: CpuSet,
    /// The affinity that it was given; `None` if it was only kept.
    #[serde(rename = "new")]
    pub given: Option<CpuSet>,
}

/// What a process of an earlier version has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Former {
    /// The tasks.
    pub tasks: Vec<FormerTask>,
    /// Affinities that the kernel itself may have given any of these tasks.
    pub resets: Vec<CpuSet>,
    /// Processes of the job: orphans of its tasks are known by them.
    pub members: Vec<TaskId>,
}

/// Undoes what a process of an earlier version has changed, by the rules of the ledger. Returns the tasks that refused.
///
/// # Errors
/// The ledger cannot be read or written.
pub fn undo_former(former: &Former) -> io::Result<Vec<Refused>> {
    if former.tasks.is_empty() {
        return Ok(Vec::new());
    }
    // known to the ledger while it is locked only
    let owner = OwnerId::Transaction { journal: PathBuf::new() };
    undo_by(None, |record| {
        record.adopt(&Linux, &owner, former);
        record.release(&Linux, &owner, None)
    })
}

impl Record {
    /// Takes up what was changed before any entry was made: it is below all other layers. What another owner took for a task's own
    /// affinity since was given by the former one.
    pub(crate) fn adopt(&mut self, node: &impl Node, owner: &OwnerId, former: &Former) {
        let kept = self.owner(owner);
        kept.resets.clone_from(&former.resets);
        kept.members.clone_from(&former.members);
        let by_task: HashMap<TaskId, &FormerTask> =
            former.tasks.iter().map(|known| (known.task, known)).collect();
        for (&task, entry) in &mut self.tasks {
            let Some(known) = ancestors(node, task).find_map(|task| by_task.get(&task)) else { continue };
            if known.given.as_ref() == Some(&entry.own) || former.resets.contains(&entry.own) {
                let layer = Layer { owner: owner.clone(), given: Some(entry.own.clone()) };
                entry.layers.insert(0, layer);
                entry.own = known.own.clone();
            }
        }
        for FormerTask { task, own, given } in &former.tasks {
            let layer = Layer { owner: owner.clone(), given: given.clone() };
            self.tasks.entry(*task).or_insert_with(|| Entry { own: own.clone(), layers: vec![layer] });
        }
    }
}
