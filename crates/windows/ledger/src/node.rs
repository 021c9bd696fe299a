// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tasks of a node as the ledger sees them.

use colony_node::cpu::{self, CpuSet};
use colony_node::task::{self, TaskId};

/// The calls by which a ledger looks at tasks and changes them.
pub(crate) trait Node {
    /// Every task, each process before its other threads.
    fn tasks(&self) -> Vec<TaskId>;

    /// The affinity of a task; `None` if the task has ended.
    fn affinity(&self, task: TaskId) -> Option<CpuSet>;

    /// Sets the affinity of a task.
    ///
    /// # Errors
    /// The reason why the kernel refuses it; a task that has ended is no error.
    fn set_affinity(&self, task: TaskId, cpus: &CpuSet) -> Result<(), String>;

    /// The process of a thread, or the parent of a process: the task that this one has its affinity from. `None` for
    /// the first process and for a task that has ended.
    fn origin(&self, task: TaskId) -> Option<TaskId>;
}

/// The node that this process runs on.
pub(crate) struct Linux;

impl Node for Linux {
    fn tasks(&self) -> Vec<TaskId> {
        let mut pids = task::processes();
        pids.sort_unstable();
        let threads = pids.into_iter().flat_map(|pid| {
            let mut threads = task::threads(pid);
            threads.sort_unstable_by_key(|&tid| (tid != pid, tid));
            threads
        });
        // a task may have ended since
        threads.filter_map(|tid| TaskId::of(tid).ok()).collect()
    }

    fn affinity(&self, task: TaskId) -> Option<CpuSet> {
        let cpus = cpu::affinity(task.tid).ok()?;
        // looked at afterwards: until now the number was this task's
        task.lives().then_some(cpus)
    }

    fn set_affinity(&self, task: TaskId, cpus: &CpuSet) -> Result<(), String> {
        if !task.lives() {
            return Ok(());
        }
        match cpu::bind(task.tid, cpus) {
            Err(e) if task.lives() => Err(e.to_string()),
            _ => Ok(()),
        }
    }

    fn origin(&self, task: TaskId) -> Option<TaskId> {
        let stat = task::stat(task.tid).ok().filter(|stat| stat.start_ticks == task.start_ticks)?;
        let process = task::process_of(task.tid)?;
        let origin = if process == task.tid { stat.parent } else { process };
        if origin == 0 { None } else { TaskId::of(origin).ok() }
    }
}
