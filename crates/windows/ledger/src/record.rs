// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each task had before Colony, and what each owner has given it since.
//!
//! A task has one affinity of its own and a stack of layers, one for each owner that changed it. Owners come and go in any order:
//! when one is released, a task that has what this owner gave it gets what the layer below gave, and its own affinity when
//! no layer is left. So no owner takes what another one gave for a task's own.
//!
//! A task that is in another affinity than any that it was given has chosen it (`sched_setaffinity(2)`), and keeps it.
//!
//! A task without an entry has its affinity from its process or its parent, and is treated as that one. One case stays
//! ambiguous: a task forks, chooses another affinity, is given the same one as before, and forks again. Both children get
//! the later choice.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use colony_node::cpu::CpuSet;
use colony_node::task::TaskId;
use serde::{Deserialize, Serialize};

use super::node::Node;

/// The longest chain of processes, from a task to the first one, that is followed.
const GENERATIONS: usize = 1000;
/// The limit of passes over all tasks when an owner is released. Each pass finds the children that were started during the one before.
const PASSES: usize = 100;

/// An owner of changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OwnerId {
    /// A part of a process, which undoes its changes before it ends.
    Process {
        /// The process.
        process: TaskId,
        /// Tells the owners of one process apart.
        serial: u64,
    },
    /// A transaction, whose changes outlive the process that made them: they last as long as its journal.
    Transaction {
        /// The file of the journal.
        journal: PathBuf,
    },
}

/// What became of a task's affinity when the layer of one owner was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Released {
    /// The owner had given the task nothing.
    Nothing,
    /// The task has what it had without this owner.
    Restored,
    /// Another owner has given the task something since. The task gets its own affinity when that owner ends.
    HandedOn,
    /// A program has chosen this affinity since, and the task keeps it.
    Chosen(CpuSet),
    /// The task has ended.
    Ended,
}

/// What is known of an owner beside the layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) id: OwnerId,
    /// Affinities that the kernel itself gives tasks while the owner lives, and does not take back: no program has chosen them.
    pub(crate) resets: Vec<CpuSet>,
    /// The partition by which the kernel narrows what tasks have, until the partition is gone.
    #[serde(default)]
    pub(crate) narrows: Option<Narrowing>,
    /// Processes of the job. An orphan of a task that has ended is known by them.
    pub(crate) members: Vec<TaskId>,
    /// What the owner has given a task before it gave it something else, or before the task ended. What the task started meanwhile may
    /// still have it.
    pub(crate) earlier: Vec<Earlier>,
}

/// A cpuset partition: the kernel takes its CPUs from the affinity of every task outside, and gives them back when the partition is
/// gone (Linux 6.2 and later).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Narrowing {
    /// The CPUs of the partition.
    pub taken: CpuSet,
    /// The CPUs of a task outside to which the partition leaves none of its own.
    pub rest: CpuSet,
}

impl Narrowing {
    /// The affinity that a task shows while the partition exists.
    fn of(&self, cpus: &CpuSet) -> CpuSet {
        let left = cpus.without(&self.taken);
        if left.is_empty() { self.rest.clone() } else { left }
    }
}

/// An affinity that a task was given once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Earlier {
    task: TaskId,
    /// The affinity that the task had of its own then.
    own: CpuSet,
    given: CpuSet,
    /// Of two that explain the same affinity, the one with the greater number is the later one.
    #[serde(default)]
    order: u64,
}

/// What one owner has given a task; `None` if the owner only keeps what the task had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) owner: OwnerId,
    pub(crate) given: Option<CpuSet>,
}

/// A task whose affinity is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The affinity that the task had before Colony changed it, or has chosen since.
    pub(crate) own: CpuSet,
    /// The oldest first.
    pub(crate) layers: Vec<Layer>,
}

impl Entry {
    /// The affinity that the task should have by its layers.
    fn wanted(&self) -> &CpuSet {
        self.layers.iter().rev().find_map(|layer| layer.given.as_ref()).unwrap_or(&self.own)
    }

    /// Removes the layer of an owner, and returns it.
    fn take(&mut self, owner: &OwnerId) -> Option<Layer> {
        let at = self.layers.iter().position(|layer| layer.owner == *owner)?;
        Some(self.layers.remove(at))
    }

    fn has(&self, owner: &OwnerId) -> bool {
        self.layers.iter().any(|layer| layer.owner == *owner)
    }
}

/// All that Colony has changed, and not yet undone, of the affinities of a node's tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) owners: Vec<Owner>,
    pub(crate) tasks: HashMap<TaskId, Entry>,
    /// The greatest order among [earlier](Earlier) affinities.
    pub(crate) order: u64,
}

/// A task that refused an affinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The task.
    pub task: TaskId,
    /// What the kernel said.
    pub reason: String,
}

/// A task, its process, its parent, and so on to the first process.
pub(crate) fn ancestors(node: &impl Node, task: TaskId) -> impl Iterator<Item = TaskId> {
    std::iter::successors(Some(task), |&task| node.origin(task)).take(GENERATIONS)
}

impl Record {
    pub(crate) fn owner(&mut self, id: &OwnerId) -> &mut Owner {
        let at = self.owners.iter().position(|owner| owner.id == *id).unwrap_or_else(|| {
            self.owners.push(Owner {
                id: id.clone(),
                resets: Vec::new(),
                narrows: None,
                members: Vec::new(),
                earlier: Vec::new(),
            });
            self.owners.len() - 1
        });
        &mut self.owners[at]
    }

    /// The affinity of a task without Colony's changes. `None` if the task has ended.
    pub(crate) fn own(&self, node: &impl Node, task: TaskId) -> Option<CpuSet> {
        let now = node.affinity(task)?;
        Some(self.explain(node, task, &now).map_or_else(|| self.chosen(&now), |entry| entry.own))
    }

    /// The entry by which a task has the affinity `now`: its own, or one of a task that it descends from. `None` for a task that was
    /// given nothing, and for one that has chosen what it has.
    fn explain<'a>(&'a self, node: &impl Node, task: TaskId, now: &CpuSet) -> Option<Entry> {
        ancestors(node, task).find_map(|ancestor| {
            let entry = self.tasks.get(&ancestor).and_then(|entry| self.as_of(entry, now));
            entry.or_else(|| {
                let gave = |owner: &'a Owner| Some((owner, self.gave(owner, ancestor, now)?));
                let latest = self.owners.iter().filter_map(gave).max_by_key(|(_, earlier)| earlier.order);
                latest.map(|(owner, earlier)| {
                    let layers = vec![Layer { owner: owner.id.clone(), given: Some(earlier.given.clone()) }];
                    Entry { own: earlier.own.clone(), layers }
                })
            })
        })
    }

    /// The entry as it was when its task had `now`: a child that was forked then still has it. `None` if the task never had that.
    fn as_of(&self, entry: &Entry, now: &CpuSet) -> Option<Entry> {
        if self.shows(entry.wanted(), now) || self.is_reset(entry, now) {
            return Some(entry.clone());
        }
        let is_seen = |layer: &Layer| layer.given.as_ref().is_some_and(|given| self.shows(given, now));
        let at = entry.layers.iter().rposition(is_seen)?;
        Some(Entry { own: entry.own.clone(), layers: entry.layers[..=at].to_vec() })
    }

    /// Returns `true` if the kernel gives tasks this affinity because of an owner of the entry.
    fn is_reset(&self, entry: &Entry, now: &CpuSet) -> bool {
        self.owners.iter().any(|owner| entry.has(&owner.id) && owner.resets.contains(now))
    }

    /// Returns `true` if a task with the affinity `given` shows `now`: a partition may narrow it.
    fn shows(&self, given: &CpuSet, now: &CpuSet) -> bool {
        given == now || self.owners.iter().any(|o| o.narrows.as_ref().is_some_and(|n| n.of(given) == *now))
    }

    /// The affinity that a task chose before a partition narrowed it to `now`. The kernel does not show it: if `now` is all CPUs that
    /// the partition has left, the choice is assumed to be all CPUs.
    fn chosen(&self, now: &CpuSet) -> CpuSet {
        let partitions = self.owners.iter().filter_map(|owner| owner.narrows.as_ref());
        let taken = partitions.filter(|partition| partition.rest == *now).flat_map(|p| p.taken.iter());
        now.iter().chain(taken).collect()
    }

    /// An affinity that the owner gave the task once, and that shows as `now`.
    fn gave<'a>(&self, owner: &'a Owner, task: TaskId, now: &CpuSet) -> Option<&'a Earlier> {
        let given_to = |earlier: &&Earlier| earlier.task == task && self.shows(&earlier.given, now);
        owner.earlier.iter().rev().find(given_to)
    }

    /// Adds the layer of an owner on top of all others; nothing is changed on the node.
    pub(crate) fn add(&mut self, node: &impl Node, owner: &OwnerId, task: TaskId, given: Option<CpuSet>) {
        let Some(now) = node.affinity(task) else { return };
        self.owner(owner);
        // without an entry that explains it, what the task has is its own
        let mut entry = self
            .explain(node, task, &now)
            .unwrap_or_else(|| Entry { own: self.chosen(&now), layers: Vec::new() });
        // what is kept already stays below what was given since
        if given.is_some() || !entry.has(owner) {
            entry.take(owner);
            entry.layers.push(Layer { owner: owner.clone(), given });
        }
        if let Some(before) = self.tasks.insert(task, entry) {
            self.remember(task, &before);
        }
    }

    /// Keeps what an entry that is replaced or forgotten has given its task.
    fn remember(&mut self, task: TaskId, before: &Entry) {
        for layer in &before.layers {
            let Some(given) = layer.given.clone() else { continue };
            let is_still_given = self.tasks.get(&task).is_some_and(|now| now.layers.contains(layer));
            let Some(owner) = self.owners.iter_mut().find(|owner| owner.id == layer.owner) else { continue };
            if is_still_given {
                continue;
            }
            owner
                .earlier
                .retain(|known| known.task != task || known.own != before.own || known.given != given);
            self.order += 1;
            owner.earlier.push(Earlier { task, own: before.own.clone(), given, order: self.order });
        }
    }

    /// Gives tasks the affinity of the owner's layer; returns those that refused it. Their layer is removed: they have what they had.
    pub(crate) fn apply(&mut self, node: &impl Node, owner: &OwnerId, tasks: &[TaskId]) -> Vec<Refused> {
        let mut refused = Vec::new();
        for &task in tasks {
            let Some(entry) = self.tasks.get_mut(&task) else { continue };
            if let Err(reason) = node.set_affinity(task, entry.wanted()) {
                entry.take(owner);
                if entry.layers.is_empty() {
                    self.tasks.remove(&task);
                }
                refused.push(Refused { task, reason });
            }
        }
        refused
    }

    /// Undoes what an owner has changed on the node, of these tasks or of all, and forgets it. Returns the tasks that refused.
    pub(crate) fn release(
        &mut self,
        node: &impl Node,
        owner: &OwnerId,
        only: Option<&[TaskId]>,
    ) -> Vec<Refused> {
        let Some(known) = self.owners.iter().find(|known| known.id == *owner) else { return Vec::new() };
        let given = self.given_by(known);
        let mut refused = Vec::new();
        let mut seen = HashSet::new();
        for pass in 1..=PASSES {
            let mut changed = false;
            for task in node.tasks() {
                // each task once: later changes of its affinity have nothing to do with this owner
                if !seen.insert(task) {
                    continue;
                }
                let is_of_owner = |now: &CpuSet| given.iter().any(|given| self.shows(given, now));
                let Some(now) = node.affinity(task).filter(is_of_owner) else { continue };
                let Some(wanted) = self.after_release(node, known, task, &now, only) else { continue };
                // a narrowed affinity may equal the wanted one, and is set all the same: it would widen with the partition's end
                if wanted == now && given.contains(&now) {
                    continue;
                }
                changed = true;
                // The kernel changes the affinity of many of its own threads, and no one else can.
                if let Err(reason) = node.set_affinity(task, &wanted)
                    && self.has_given(owner, task)
                {
                    refused.push(Refused { task, reason });
                }
            }
            // a task may have started others before its turn came
            if !changed {
                break;
            }
            if pass == PASSES {
                tracing::warn!(
                    "after {PASSES} passes over all tasks, new ones may keep the CPUs that Colony gave their parents"
                );
            }
        }
        self.forget(owner, only);
        refused
    }

    /// Undoes what an owner has given one task and all that the task has started, and says what became of the task. `chosen_too`: also
    /// if a program has chosen another affinity since. An owner that gives nothing any more is forgotten.
    ///
    /// # Errors
    /// The kernel refuses the affinity that the task is to have. The owner's layer is removed all the same.
    pub(crate) fn release_task(
        &mut self,
        node: &impl Node,
        owner: &OwnerId,
        task: TaskId,
        chosen_too: bool,
    ) -> Result<Released, Refused> {
        let before = self.tasks.get(&task).cloned();
        let refused = self.release(node, owner, Some(&[task]));
        if !self.tasks.values().any(|entry| entry.has(owner)) {
            self.release(node, owner, None);
        }
        if let Some(refused) = refused.into_iter().find(|refused| refused.task == task) {
            return Err(refused);
        }
        let Some(mut entry) = before else { return Ok(Released::Nothing) };
        let Some(at) = entry.layers.iter().position(|layer| layer.owner == *owner) else {
            return Ok(Released::Nothing);
        };
        let is_top = entry.layers[at + 1..].iter().all(|later| later.given.is_none());
        entry.layers.remove(at);
        let Some(now) = node.affinity(task) else { return Ok(Released::Ended) };
        if !self.shows(entry.wanted(), &now) {
            if !chosen_too {
                return Ok(Released::Chosen(now));
            }
            node.set_affinity(task, entry.wanted()).map_err(|reason| Refused { task, reason })?;
        }
        Ok(if is_top { Released::Restored } else { Released::HandedOn })
    }

    /// Returns `true` if the owner has changed the affinity of this very task.
    fn has_given(&self, owner: &OwnerId, task: TaskId) -> bool {
        let is_given = |layer: &Layer| layer.owner == *owner && layer.given.is_some();
        self.tasks.get(&task).is_some_and(|entry| entry.layers.iter().any(is_given))
    }

    /// The affinities that tasks may have because of an owner, each once.
    fn given_by(&self, owner: &Owner) -> Vec<CpuSet> {
        let layers =
            self.tasks.values().flat_map(|entry| &entry.layers).filter(|layer| layer.owner == owner.id);
        let now = layers.filter_map(|layer| layer.given.as_ref());
        let mut given = owner.resets.clone();
        for cpus in now.chain(owner.earlier.iter().map(|earlier| &earlier.given)) {
            if !given.contains(cpus) {
                given.push(cpus.clone());
            }
        }
        given
    }

    /// The affinity that a task is to have when the layer of `owner` is removed; `None` if the task stays as it is.
    fn after_release(
        &self,
        node: &impl Node,
        owner: &Owner,
        task: TaskId,
        now: &CpuSet,
        only: Option<&[TaskId]>,
    ) -> Option<CpuSet> {
        for ancestor in ancestors(node, task) {
            let is_meant = only.is_none_or(|only| only.contains(&ancestor));
            if let Some(below) = self.below(owner, ancestor, now).filter(|_| is_meant) {
                return Some(below);
            }
            let earlier = self.gave(owner, ancestor, now);
            if self.is_given_by_another(owner, ancestor, now, earlier) {
                return None;
            }
            if let Some(earlier) = earlier.filter(|_| is_meant) {
                return Some(earlier.own.clone());
            }
        }
        let is_of_job = only.is_none() && ancestors(node, task).any(|a| owner.members.contains(&a));
        is_of_job.then(|| self.own_of_orphan(owner, now)).flatten()
    }

    /// The affinity of a task with an entry, once the layer of `owner`, by which it has `now`, is removed.
    fn below(&self, owner: &Owner, task: TaskId, now: &CpuSet) -> Option<CpuSet> {
        let mut entry = self.tasks.get(&task)?.clone();
        let at = entry.layers.iter().position(|layer| layer.owner == owner.id)?;
        let gives = |layer: &Layer| layer.given.as_ref().is_some_and(|given| self.shows(given, now));
        if gives(&entry.layers[at]) {
            let later = &entry.layers[at + 1..];
            if let Some(given) = later.iter().rev().find(|later| gives(later)).and_then(|l| l.given.clone()) {
                return Some(given);
            }
            entry.layers.truncate(at);
        } else if owner.resets.contains(now) {
            entry.layers.remove(at);
        } else {
            return None;
        }
        Some(entry.wanted().clone())
    }

    /// Returns `true` if a task has `now` by what others than `owner` gave it, now or after `earlier`, when `owner` gave it.
    fn is_given_by_another(
        &self,
        owner: &Owner,
        task: TaskId,
        now: &CpuSet,
        earlier: Option<&Earlier>,
    ) -> bool {
        let is_given = self.tasks.get(&task).is_some_and(|entry| self.as_of(entry, now).is_some());
        let is_later = |other: &Earlier| earlier.is_none_or(|own| own.order < other.order);
        let others = self.owners.iter().filter(|other| other.id != owner.id);
        is_given || others.filter_map(|other| self.gave(other, task, now)).any(is_later)
    }

    /// The affinity of a task of the job whose parent, to which something was given, has ended.
    fn own_of_orphan(&self, owner: &Owner, now: &CpuSet) -> Option<CpuSet> {
        let is_seen = |given: &CpuSet| self.shows(given, now);
        let of_entry = |entry: &Entry| {
            let mut own_layers = entry.layers.iter().filter(|layer| layer.owner == owner.id);
            own_layers.any(|layer| layer.given.as_ref().is_some_and(is_seen)).then(|| entry.own.clone())
        };
        let earlier = owner.earlier.iter().find(|earlier| is_seen(&earlier.given)).map(|e| e.own.clone());
        earlier.or_else(|| self.tasks.values().find_map(of_entry))
    }

    /// Removes the layers of an owner.
    fn forget(&mut self, owner: &OwnerId, only: Option<&[TaskId]>) {
        self.tasks.retain(|task, entry| {
            if only.is_none_or(|only| only.contains(task)) {
                entry.take(owner);
            }
            !entry.layers.is_empty()
        });
        if only.is_none() {
            self.owners.retain(|known| known.id != *owner);
        }
        if self.owners.is_empty() {
            self.order = 0;
        }
    }

    /// Forgets tasks that have ended, but for one of each kind: what the task started may have outlived it.
    pub(crate) fn prune(&mut self, lives: impl Fn(TaskId) -> bool) {
        let ended: Vec<TaskId> = self.tasks.keys().copied().filter(|&task| !lives(task)).collect();
        for task in ended {
            if let Some(entry) = self.tasks.remove(&task) {
                self.remember(task, &entry);
            }
        }
        for owner in &mut self.owners {
            let mut kinds: Vec<(CpuSet, CpuSet)> = Vec::new();
            owner.earlier.retain(|earlier| {
                let kind = (earlier.own.clone(), earlier.given.clone());
                let is_first = !kinds.contains(&kind);
                if is_first {
                    kinds.push(kind);
                }
                is_first || lives(earlier.task)
            });
        }
    }
}
