// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tasks of the job by their slots in the table.

use std::collections::BTreeMap;

use colony_node::class::Class;
use colony_node::task::TaskId;

use super::table::Table;
use crate::job::JobTask;
use crate::restore::can_be_put_back;

/// The tasks by their slots in the table.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// Slot of each task; none for one that cannot be switched.
    pub(super) of: BTreeMap<i32, (Option<usize>, JobTask)>,
    never_used: usize,
    free: Vec<usize>,
    /// Left with this scan; their slots are free for others from the next one on, when no thread holds the old number.
    resting: Vec<(Option<usize>, JobTask)>,
}

impl Slots {
    /// The tasks that have joined, and the numbers of those that have left, since the last update of the table.
    pub(super) fn difference(&self, tasks: &[JobTask]) -> (Vec<JobTask>, Vec<i32>) {
        let starts: BTreeMap<i32, u64> = tasks.iter().map(|t| (t.tid, t.start_ticks)).collect();
        let left = self.of.iter().filter(|(tid, (_, task))| starts.get(tid) != Some(&task.start_ticks));
        let joined = tasks.iter().filter(|t| self.of.get(&t.tid).is_none_or(|(_, s)| s.id() != t.id()));
        (joined.copied().collect(), left.map(|(&tid, _)| tid).collect())
    }

    /// Enters a task; `false` where it should have a slot and there is none.
    pub(super) fn enter(&mut self, task: &JobTask, table: &Table, barred: bool, home: usize) -> bool {
        let wants = can_be_put_back(task.own);
        let index = wants.then(|| self.free_slot()).flatten();
        self.of.insert(task.tid, (index, *task));
        if let Some(index) = index {
            table.fill(index, task.id(), task.own, barred, home);
        }
        index.is_some() || !wants
    }

    fn free_slot(&mut self) -> Option<usize> {
        self.free.pop().or_else(|| {
            let fresh = self.never_used;
            (fresh < Table::CAPACITY).then(|| {
                self.never_used += 1;
                fresh
            })
        })
    }

    pub(super) fn strike(&mut self, tid: i32, table: &Table) {
        let Some((index, task)) = self.of.remove(&tid) else { return };
        if let Some(index) = index {
            table.free(index);
        }
        // most have ended; one that has not must not stay in a class nobody would take back
        task.restore();
        self.resting.push((index, task));
    }

    /// Tasks that no thread can switch any more, in their own class; their slots are free.
    pub(super) fn settle_the_left(&mut self) -> Vec<TaskId> {
        let rested = std::mem::take(&mut self.resting);
        self.free.extend(rested.iter().filter_map(|(index, _)| *index));
        // a thread may have switched one when it had just been restored
        rested.iter().for_each(|(_, task)| task.restore());
        rested.iter().map(|(_, task)| task.id()).collect()
    }

    /// Slots in use, and their tasks.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &JobTask)> {
        self.of.values().filter_map(|(index, task)| Some(((*index)?, task)))
    }

    /// The classes that programs have chosen since the last time.
    pub(super) fn choices(&self, table: &Table) -> Vec<(usize, TaskId, Class)> {
        self.iter().filter_map(|(index, task)| Some((index, task.id(), table.choice(index)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use colony_node::cpu;

    use super::*;
    use crate::agent::RegularClass;

    #[test]
    fn tasks_beyond_the_table_have_no_slot_until_others_have_left() {
        const MOST: i32 = 16_384;
        let table = Table::new(50, RegularClass::Idle, &cpu::online().expect("linux"));
        let mut slots = Slots::default();
        // numbers that no kernel gives: nothing is switched or restored
        let task = |n: i32| JobTask {
            tid: i32::MAX - n,
            pid: i32::MAX - n,
            start_ticks: 1,
            cpu: 0,
            own: Class::Other(0),
            own_reset: false,
            runnable: false,
        };
        let entered = (0..MOST + 100).filter(|n| slots.enter(&task(*n), &table, false, 0)).count();
        assert_eq!((entered, slots.iter().count()), (16_384, 16_384));
        slots.strike(task(0).tid, &table);
        assert!(!slots.enter(&task(MOST + 100), &table, false, 0), "a thread may still hold the old number");
        slots.settle_the_left();
        assert!(slots.enter(&task(MOST + 101), &table, false, 0));
    }
}
