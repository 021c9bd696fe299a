// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeping a job on the job's CPUs, and giving its tasks back the CPUs they had.
//!
//! A job in a favored window is above everything else, so it must not reach the CPUs that are left for
//! everything else. A process that joins is bound to the job's CPUs, as far as it may use them; what it
//! starts inherits that.

use std::collections::BTreeMap;

use colony_node::cpu::{self, CpuSet};
use colony_node::task::{self, TaskId};
use serde::{Deserialize, Serialize};

/// A task whose CPUs were narrowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// The task.
    pub task: TaskId,
    /// The CPUs it had.
    pub old: CpuSet,
    /// The CPUs it has now.
    pub new: CpuSet,
}

/// A process that may use none of the job's CPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "process {pid} may run on CPU {has} only, and jobs have CPU {job} here; \
     let it onto one of those first (taskset -a -c -p {job} {pid})"
)]
pub struct NoSharedCpu {
    pid: i32,
    has: CpuSet,
    job: CpuSet,
}

/// Takes the calling thread off the job's CPUs, where there are others.
pub fn keep_off(cpus: &CpuSet) {
    let others = cpu::usable().unwrap_or_default().without(cpus);
    if !others.is_empty() {
        let _ = cpu::bind(0, &others);
    }
}

/// The changes of affinity that binding process `pid` and its descendants to `cpus` would make, without the processes
/// `except`; nothing is changed yet.
///
/// # Errors
/// [`NoSharedCpu`] if one of them may use none of `cpus`.
pub fn plan(pid: i32, cpus: &CpuSet, except: &[i32]) -> Result<Vec<Bound>, NoSharedCpu> {
    let mut changes = Vec::new();
    let processes = task::tree(pid).into_iter().filter(|p| !except.contains(p));
    for tid in processes.flat_map(task::threads) {
        // a task that ends meanwhile needs no binding
        let (Ok(stat), Ok(old)) = (task::stat(tid), cpu::affinity(tid)) else { continue };
        let new = old.and(cpus);
        if new.is_empty() {
            return Err(NoSharedCpu { pid, has: old, job: cpus.clone() });
        }
        if new != old {
            changes.push(Bound { task: TaskId { tid, start_ticks: stat.start_ticks }, old, new });
        }
    }
    Ok(changes)
}

/// Does what was planned.
pub fn apply(changes: &[Bound]) {
    for b in changes.iter().filter(|b| b.task.lives()) {
        if let Err(e) = cpu::bind(b.task.tid, &b.new) {
            tracing::debug!("task {} stays where it is: {e}", b.task.tid);
        }
    }
}

/// Binds a task to those of `cpus` that it may use, or to all of them. Returns the change; `None` if the task may run nowhere
/// else already, has ended, or is refused.
pub(crate) fn confine(task: TaskId, cpus: &CpuSet) -> Option<Bound> {
    let old = cpu::affinity(task.tid).ok()?;
    let shared = old.and(cpus);
    let new = if shared.is_empty() { cpus.clone() } else { shared };
    let changed = new != old && task.lives() && cpu::bind(task.tid, &new).is_ok();
    changed.then_some(Bound { task, old, new })
}

/// Gives the old CPUs back to the tasks of `changes`, to what descends from them, and to `others` (processes)
/// that inherited from them. A task that has chosen other CPUs since keeps its choice.
pub fn undo(changes: &[Bound], others: &[TaskId]) {
    let mut had: BTreeMap<i32, &Bound> = BTreeMap::new();
    let mut processes: Vec<i32> = others.iter().filter(|p| p.lives()).map(|p| p.tid).collect();
    for b in changes.iter().filter(|b| b.task.lives()) {
        had.insert(b.task.tid, b);
        processes.extend(task::process_of(b.task.tid));
    }
    processes.sort_unstable();
    processes.dedup();
    for tid in processes.into_iter().flat_map(task::tree).flat_map(task::threads) {
        let Ok(now) = cpu::affinity(tid) else { continue };
        let inherited = || changes.iter().find(|b| b.new == now);
        let bound = had.get(&tid).copied().filter(|b| b.new == now).or_else(inherited);
        if let Some(b) = bound {
            // it may have ended just now
            let _ = cpu::bind(tid, &b.old);
        }
    }
}

/// Forgets tasks that have ended, except one of each kind: what it started may have outlived it.
pub fn prune(changes: &mut Vec<Bound>) {
    let mut kinds: Vec<(CpuSet, CpuSet)> = Vec::new();
    changes.retain(|b| {
        let first = !kinds.iter().any(|(old, new)| (old, new) == (&b.old, &b.new));
        if first {
            kinds.push((b.old.clone(), b.new.clone()));
        }
        first || b.task.lives()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_and_its_child_are_narrowed_and_widened_again() {
        let usable = cpu::usable().expect("linux");
        if usable.len() < 2 {
            return colony_testing::skip("one CPU cannot be narrowed");
        }
        let last: CpuSet = usable.iter().skip(usable.len() - 1).collect();
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 100 & read stop; kill $!; wait"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("sh");
        let pid = shell.id() as i32;
        while task::tree(pid).len() < 2 {
            std::thread::yield_now();
        }
        let changes = plan(pid, &last, &[]).expect("the last CPU is usable");
        let both = task::tree(pid);
        let shell_only = plan(pid, &last, &both[1..]).expect("as above");
        assert_eq!(shell_only, changes[..1]);
        assert_eq!(changes.iter().map(|b| b.task.tid).collect::<Vec<_>>(), both);
        let have = |cpus: &CpuSet| both.iter().all(|&t| cpu::affinity(t).is_ok_and(|a| a == *cpus));
        apply(&changes);
        assert!(have(&last));
        assert!(plan(pid, &last, &[]).expect("still").is_empty(), "nothing is left to change");
        // the child is found although only its parent was registered
        undo(&changes[..1], &[]);
        assert!(have(&usable));
        // a number that was given again names another process: what it chose is its own
        apply(&changes);
        let named =
            |tid: i32| task::stat(tid).map(|s| TaskId { tid, start_ticks: s.start_ticks }).expect("alive");
        let other = |t: TaskId| TaskId { start_ticks: t.start_ticks + 1, ..t };
        let ended = [Bound { task: other(changes[0].task), ..changes[0].clone() }];
        undo(&ended, &both.iter().map(|&t| other(named(t))).collect::<Vec<_>>());
        assert!(have(&last));
        undo(&ended, &[named(pid)]);
        assert!(have(&usable), "an orphan of a task that was bound");
        let nowhere: CpuSet = std::iter::once(CpuSet::LIMIT - 1).collect();
        let error = plan(pid, &nowhere, &[]).expect_err("no such CPU").to_string();
        assert!(error.contains("taskset"), "{error}");
        apply(&changes);
        let mut kept = changes.clone();
        drop(shell.stdin.take());
        shell.wait().expect("ours");
        prune(&mut kept);
        assert_eq!(kept, changes[..1], "one of a kind stays");
    }
}
