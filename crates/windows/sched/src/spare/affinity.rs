// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tasks that are not the job's: moved off the job's CPUs, and back.
//!
//! When a cpuset partition is made, the kernel itself changes the affinities of tasks outside, and before Linux 6.2 it forgets
//! what they had chosen. So the affinities of all tasks are kept in the [ledger](colony_ledger), not only of those that are moved here.

use std::collections::BTreeMap;
use std::io;

use colony_ledger::{Affinities, KernelMasks, Narrowing, OwnerId, Refused, all_tasks};
use colony_node::cpu::{self, CpuSet};
use colony_node::task::{self, TaskId};

use super::report::Staying;

/// The other tasks of the node, while cores are reserved.
#[derive(Debug)]
pub(super) struct OtherTasks {
    /// `None` if this user has no folder for a ledger: then the tasks of the job alone are bound, which are the user's.
    affinities: Option<Affinities>,
    /// Tasks that refused another affinity, by number: the start, and the reason.
    refused: BTreeMap<i32, (u64, String)>,
}

impl OtherTasks {
    /// # Errors
    /// As [`Affinities::new`].
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { affinities: Some(Affinities::new()?), refused: BTreeMap::new() })
    }

    /// For a user who may change tasks of the own job only.
    pub(super) fn of_unprivileged_user() -> Self {
        Self { affinities: Affinities::new().ok(), refused: BTreeMap::new() }
    }

    pub(super) fn owner(&self) -> Option<OwnerId> {
        self.affinities.as_ref().map(Affinities::owner)
    }

    fn ledger(&mut self) -> io::Result<&mut Affinities> {
        self.affinities.as_mut().ok_or_else(|| io::Error::other("this user has no ledger of affinities"))
    }

    /// Keeps the affinities that all tasks have now. Call it before a partition may be made.
    ///
    /// # Errors
    /// The ledger cannot be used.
    pub(super) fn keep(&mut self, job: &CpuSet, spare: &CpuSet) -> io::Result<()> {
        let online = cpu::online().map_err(io::Error::other)?;
        let rest = online.without(job);
        let masks = match keeps_choices() {
            true => KernelMasks::Narrowed(Narrowing { taken: job.clone(), rest }),
            false => KernelMasks::Reset(vec![spare.clone(), rest, online]),
        };
        let ledger = self.ledger()?;
        // first what tasks have: a task that is bound to the spare CPUs is so by choice until now
        ledger.keep(&all_tasks())?;
        ledger.set_kernel(masks)
    }

    /// Says that no partition was made: whatever affinity a task has from now on is its own, or is in the ledger.
    ///
    /// # Errors
    /// The ledger cannot be used.
    pub(super) fn kernel_changes_nothing(&mut self) -> io::Result<()> {
        self.ledger()?.set_kernel(KernelMasks::AsChosen)
    }

    /// Moves tasks outside of the job off the job's CPUs, except those that have refused it before; returns how many were
    /// moved. `is_job`: tells the job's tasks.
    ///
    /// # Errors
    /// The ledger cannot be used: no task is moved then.
    pub(super) fn move_off(
        &mut self,
        job: &CpuSet,
        spare: &CpuSet,
        is_job: impl Fn(i32) -> bool,
    ) -> io::Result<usize> {
        let has_refused =
            |id: TaskId| self.refused.get(&id.tid).is_some_and(|(start, _)| *start == id.start_ticks);
        let change = |id: TaskId| {
            let now = cpu::affinity(id.tid).ok()?;
            let stays = now.and(job).is_empty() || has_refused(id) || is_job(id.tid);
            (!stays).then(|| (id, target(&now, job, spare)))
        };
        let changes: Vec<(TaskId, CpuSet)> = all_tasks().into_iter().filter_map(change).collect();
        let refused = self.ledger()?.bind(&changes)?;
        let moved = changes.len() - refused.len();
        for Refused { task, reason } in refused {
            self.refused.insert(task.tid, (task.start_ticks, refusal(task.tid, reason)));
        }
        Ok(moved)
    }

    /// Binds tasks of the job to the job's CPUs again; returns how many.
    ///
    /// # Errors
    /// The ledger cannot be used: no task is bound then.
    pub(super) fn bring_back(&mut self, changes: &[(TaskId, CpuSet)]) -> io::Result<usize> {
        let Some(affinities) = &mut self.affinities else {
            let is_bound =
                |(task, cpus): &&(TaskId, CpuSet)| task.lives() && cpu::bind(task.tid, cpus).is_ok();
            return Ok(changes.iter().filter(is_bound).count());
        };
        let refused = affinities.bind(changes)?;
        Ok(changes.len() - refused.len())
    }

    /// Tasks outside of the job that may still run on its CPUs, by name.
    pub(super) fn staying(&self, job: &CpuSet, is_job: impl Fn(i32) -> bool) -> Vec<Staying> {
        let mut found: BTreeMap<(String, String), usize> = BTreeMap::new();
        for id in all_tasks().into_iter().filter(|id| !is_job(id.tid)) {
            let on_job = cpu::affinity(id.tid).is_ok_and(|now| !now.and(job).is_empty());
            let (true, Some(name)) = (on_job, task::name(id.tid)) else { continue };
            let reason = self.refused.get(&id.tid).filter(|(start, _)| *start == id.start_ticks);
            let reason = reason.map_or("started just now", |(_, reason)| reason);
            *found.entry((without_cpu(&name), reason.to_owned())).or_default() += 1;
        }
        let staying = |((name, reason), count)| Staying { name, count, reason };
        found.into_iter().map(staying).collect()
    }
}

/// Returns `true` if the kernel keeps what a task has chosen while a cpuset partition takes CPUs away from it: Linux 6.2 and later,
/// by their number. A distribution may have brought this to an older one, which is then treated as if it forgot.
fn keeps_choices() -> bool {
    let release = nix::sys::utsname::uname().map(|names| names.release().to_string_lossy().into_owned());
    release.is_ok_and(|release| is_from_6_2(&release))
}

fn is_from_6_2(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (6, 2),
        _ => false,
    }
}

/// The affinity of a task that is moved.
fn target(before: &CpuSet, job: &CpuSet, spare: &CpuSet) -> CpuSet {
    let rest = before.without(job);
    if rest.is_empty() { spare.clone() } else { rest }
}

/// The reason why a task stays.
fn refusal(tid: i32, reason: String) -> String {
    let is_kernel_thread = task::stat(tid).is_ok_and(|s| s.parent == 2);
    if is_kernel_thread { "kernel thread of its CPU".into() } else { reason }
}

/// A kernel thread's name without the CPU number in it.
fn without_cpu(name: &str) -> String {
    let Some((head, tail)) = name.split_once('/') else { return name.to_owned() };
    let rest = tail.trim_start_matches(|c: char| c.is_ascii_digit());
    match (rest.len() < tail.len(), head) {
        (true, "kworker") => "kworker (bound)".into(),
        (true, _) => head.to_owned(),
        (false, _) => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> CpuSet {
        list.parse().expect("a list")
    }

    #[test]
    fn a_moved_task_keeps_its_own_spare_cpus_or_gets_all() {
        assert_eq!(target(&set("0-3"), &set("1-3"), &set("0")), set("0"));
        assert_eq!(target(&set("0-1,4"), &set("2-4"), &set("0-1")), set("0-1"));
        assert_eq!(target(&set("2"), &set("2-4"), &set("0-1")), set("0-1"));
    }

    #[test]
    fn kernels_keep_choices_from_6_2_on() {
        for (release, keeps) in [
            ("6.2.0", true),
            ("6.18.5-arch1", true),
            ("7.0-rc1", true),
            ("6.1.0-41-amd64", false),
            ("5.14.0-611.el9", false),
            ("6", false),
            ("", false),
        ] {
            assert_eq!(is_from_6_2(release), keeps, "{release}");
        }
    }

    #[test]
    fn names_of_kernel_threads_have_no_cpu() {
        for (name, short) in [
            ("ksoftirqd/12", "ksoftirqd"),
            ("kworker/3:1H-kblockd", "kworker (bound)"),
            ("kworker/u8:2", "kworker/u8:2"),
            ("sh", "sh"),
            ("irq/24-aerdrv", "irq"),
        ] {
            assert_eq!(without_cpu(name), short);
        }
    }
}
