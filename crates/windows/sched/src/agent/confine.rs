// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeping the job on the job's CPUs.
//!
//! A favored task is above everything else where it may run, so it must run on the job's CPUs only. Any program may choose
//! other CPUs for itself (`sched_setaffinity(2)`), and some runtimes bind their ranks without asking which CPUs the job has.
//! The table does not favor a task that may run elsewhere, and at each scan such a task is bound to the job's CPUs again.
//! A process that leaves again and again is not favored any more, nor is what it starts.

use std::collections::BTreeMap;

use colony_ledger::{Affinities, OwnerId};
use colony_node::cpu::{self, CpuSet};
use colony_node::task;

use super::slots::Slots;
use super::table::{Mark, Table};
use crate::binding::confined;
use crate::job::JobTask;

/// Number of times the tasks of a process are brought back before it is not favored any more.
const BROUGHT_BACK: u32 = 3;

/// The processes that have left the job's CPUs.
#[derive(Debug)]
pub(super) struct Confinement {
    cpus: CpuSet,
    /// True if this node has CPUs that are not the job's.
    matters: bool,
    /// Number of times each process was seen elsewhere, by its number and the start of its first thread.
    left: BTreeMap<(i32, u64), u32>,
    /// The tasks that were brought back; the reason where the ledger cannot be used.
    affinities: Result<Affinities, String>,
}

impl Confinement {
    pub(super) fn new(cpus: &CpuSet) -> Self {
        let others = cpu::online().map_or(true, |online| !online.without(cpus).is_empty());
        let affinities = Affinities::new().map_err(|e| e.to_string());
        Self { cpus: cpus.clone(), matters: others, left: BTreeMap::new(), affinities }
    }

    /// Returns `true` if this node has CPUs that are not the job's.
    pub(super) const fn matters(&self) -> bool {
        self.matters
    }

    /// Binds tasks that may run elsewhere to the job's CPUs, and bars those of processes that do not stay; what the user
    /// should know.
    pub(super) fn enforce(&mut self, slots: &Slots, table: &Table, now: impl Fn() -> Mark) -> Vec<String> {
        let escaped: Vec<_> = slots.iter().filter(|(_, task)| !table.is_confined(task.tid)).collect();
        let mut warnings: Vec<String> =
            self.bring_back(escaped.iter().map(|(_, task)| *task)).err().into_iter().collect();
        for process in processes(escaped.iter().map(|(_, task)| *task)) {
            let times = self.left.entry(process).or_default();
            *times = times.saturating_add(1);
            if *times == BROUGHT_BACK + 1 {
                let of_it = slots.iter().filter(|(_, task)| task.pid == process.0);
                of_it.for_each(|(index, _)| table.bar(index, &now));
                warnings.push(format!(
                    "process {} ({}) left the job's CPUs {times} times, so it is not favored any more; let it choose \
                     among CPU {} only",
                    process.0,
                    task::name(process.0).unwrap_or_default(),
                    self.cpus
                ));
            }
        }
        warnings
    }

    /// Binds tasks to the job's CPUs.
    ///
    /// # Errors
    /// Why they stay where they are, once.
    fn bring_back<'a>(&mut self, tasks: impl Iterator<Item = &'a JobTask>) -> Result<(), String> {
        let wanted = tasks.filter_map(|task| Some((task.id(), confined(task.id(), &self.cpus)?)));
        let changes: Vec<_> = wanted.collect();
        let Ok(affinities) = &mut self.affinities else { return Ok(()) };
        // a task that refuses is not confined, so the table does not favor it
        let bound = affinities.bind(&changes).map(|refused| colony_ledger::log_refused(&refused));
        bound.map_err(|e| {
            let why = format!("tasks that leave the job's CPUs are not brought back, nor favored: {e}");
            self.affinities = Err(why.clone());
            why
        })
    }

    /// Returns `true` if a task that joins belongs to a process that is not favored, or to one that such a process has started.
    pub(super) fn is_barred(&self, task: &JobTask) -> bool {
        let barred = |pid: i32| self.left.iter().any(|(&(p, _), &times)| p == pid && times > BROUGHT_BACK);
        let any = self.left.values().any(|&times| times > BROUGHT_BACK);
        // an orphan of a job with such a process may be its child
        let parent = || task::stat(task.pid).map_or(1, |s| s.parent);
        any && (barred(task.pid) || matches!(parent(), p if p == 1 || barred(p)))
    }

    /// The owner, in the ledger, of the tasks that were brought back.
    pub(super) fn owner(&self) -> Option<OwnerId> {
        self.affinities.as_ref().ok().map(Affinities::owner)
    }

    /// Gives tasks the CPUs back that they had chosen.
    pub(super) fn undo(&mut self) {
        if let Ok(affinities) = &mut self.affinities {
            colony_ledger::report(affinities.release());
        }
    }
}

/// The processes of these tasks, each once, with their starts.
fn processes<'a>(tasks: impl Iterator<Item = &'a JobTask>) -> Vec<(i32, u64)> {
    let pids: std::collections::BTreeSet<i32> = tasks.map(|t| t.pid).collect();
    pids.into_iter().map(|pid| (pid, task::stat(pid).map_or(0, |s| s.start_ticks))).collect()
}
