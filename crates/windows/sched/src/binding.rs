// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeping a job on the job's CPUs, and giving its tasks back the CPUs they had.
//!
//! A job in a favored window is above everything else, so it must not reach the CPUs that are left for
//! everything else. A process that joins is bound to the job's CPUs, as far as it may use them; what it
//! starts inherits that.

use std::io;

use colony_ledger::own_affinities;
use colony_node::cpu::{self, CpuSet};
use colony_node::task::{self, TaskId};

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

/// The reason why a process cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindingError {
    /// The process may use none of the job's CPUs.
    #[error(transparent)]
    NoSharedCpu(#[from] NoSharedCpu),
    /// What other programs of Colony have changed is not known.
    #[error("the ledger of changed affinities cannot be used: {0}")]
    Ledger(#[from] io::Error),
}

/// Takes the calling thread off the job's CPUs, where there are others.
pub fn keep_off(cpus: &CpuSet) {
    let others = cpu::usable().unwrap_or_default().without(cpus);
    if !others.is_empty() {
        let _ = cpu::bind(0, &others);
    }
}

/// The changes of affinity that binding process `pid` and its descendants to `cpus` would make, without the processes
/// `except`; nothing is changed yet. The process gets those of `cpus` that it might use without Colony.
///
/// # Errors
/// [`NoSharedCpu`] if one of them may use none of `cpus`, or a ledger that cannot be read.
pub fn plan(pid: i32, cpus: &CpuSet, except: &[i32]) -> Result<Vec<(TaskId, CpuSet)>, BindingError> {
    let processes = task::tree(pid).into_iter().filter(|p| !except.contains(p));
    // a task that ends meanwhile needs no binding
    let tasks: Vec<TaskId> =
        processes.flat_map(task::threads).filter_map(|tid| TaskId::of(tid).ok()).collect();
    let mut changes = Vec::new();
    for (&task, own) in tasks.iter().zip(own_affinities(&tasks)?) {
        let (Some(own), Ok(now)) = (own, cpu::affinity(task.tid)) else { continue };
        let new = own.and(cpus);
        if new.is_empty() {
            return Err(NoSharedCpu { pid, has: own, job: cpus.clone() }.into());
        }
        if new != now {
            changes.push((task, new));
        }
    }
    Ok(changes)
}

/// The affinity that confines a task to `cpus`: those that it may use now, or all of them. `None` if the task may run nowhere else
/// already, or has ended.
pub(crate) fn confined(task: TaskId, cpus: &CpuSet) -> Option<CpuSet> {
    let now = cpu::affinity(task.tid).ok()?;
    let shared = now.and(cpus);
    let new = if shared.is_empty() { cpus.clone() } else { shared };
    (new != now && task.lives()).then_some(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use colony_ledger::Affinities;

    #[test]
    fn a_process_and_its_child_are_narrowed_and_widened_again() {
        let usable = cpu::usable().expect("linux");
        if usable.len() < 2 {
            return colony_testing::skip("one CPU cannot be narrowed");
        }
        if !colony_testing::machine::has_undo_folder() {
            return;
        }
        let mut affinities = Affinities::new().expect("a folder");
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
        assert_eq!(changes.iter().map(|(task, _)| task.tid).collect::<Vec<_>>(), both);
        let have = |cpus: &CpuSet| both.iter().all(|&t| cpu::affinity(t).is_ok_and(|a| a == *cpus));
        assert_eq!(affinities.bind(&changes).expect("writable"), []);
        assert!(have(&last));
        assert!(plan(pid, &last, &[]).expect("still").is_empty(), "nothing is left to change");
        affinities.release().expect("writable");
        assert!(have(&usable));
        let nowhere: CpuSet = std::iter::once(CpuSet::LIMIT - 1).collect();
        let error = plan(pid, &nowhere, &[]).expect_err("no such CPU").to_string();
        assert!(error.contains("taskset"), "{error}");
        drop(shell.stdin.take());
        shell.wait().expect("ours");
    }
}
