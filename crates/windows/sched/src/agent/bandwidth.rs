// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU limits of cgroups (`cpu.max`), which the kernel does not apply to real-time tasks.
//!
//! A task whose cgroup, or a cgroup above, may use less time than the job's CPUs have is not favored: it stays in an ordinary
//! class, in which the kernel keeps the limit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::slots::Slots;
use super::table::{Mark, Table};
use crate::cgroup;

/// Interval at which tasks that joined earlier are checked again: a limit may be set, or a task moved, at any time.
const EVERY: Duration = Duration::from_secs(1);

/// The processes that a limit covers.
#[derive(Debug)]
pub(super) struct Bandwidth {
    /// Number of CPUs of the job.
    cpus: usize,
    /// The root of the cgroups; `None` without those of version 2.
    root: Option<PathBuf>,
    looked: Instant,
    /// The cgroups that were warned of.
    warned: BTreeSet<PathBuf>,
    news: Vec<String>,
}

impl Bandwidth {
    pub(super) fn new(cpus: usize) -> Self {
        Self { cpus, root: cgroup::root(), looked: Instant::now(), warned: BTreeSet::new(), news: Vec::new() }
    }

    /// Returns `true` if a limit covers process `pid`.
    pub(super) fn covers(&mut self, pid: i32) -> bool {
        let Some(group) = self.root.as_ref().and_then(|_| cgroup_of(pid)) else { return false };
        self.limits(&group)
    }

    fn limits(&mut self, group: &Path) -> bool {
        let Some(root) = &self.root else { return false };
        let Some((limiting, share)) = limit_of(root, group).filter(|(_, share)| *share < self.cpus as f64)
        else {
            return false;
        };
        if self.warned.insert(limiting.clone()) {
            self.news.push(format!(
                "cgroup {} may use {share:.2} CPUs (cpu.max) and the job has {}: the kernel does not limit real-time tasks, so \
                 the agent does not favor the tasks of this cgroup; raise cpu.max, or use --backend sched-ext, which favors them \
                 within the limit",
                limiting.display(),
                self.cpus
            ));
        }
        true
    }

    /// Bars tasks that a limit covers since they joined, once a second.
    pub(super) fn enforce(&mut self, slots: &Slots, table: &Table, now: impl Fn() -> Mark) {
        if self.root.is_none() || self.looked.elapsed() < EVERY {
            return;
        }
        self.looked = Instant::now();
        // processes, and cgroups, each once
        let (mut groups, mut processes) = (BTreeMap::new(), BTreeMap::new());
        for (index, task) in slots.iter() {
            let covered = *processes.entry(task.pid).or_insert_with(|| {
                let group = cgroup_of(task.pid)?;
                Some(*groups.entry(group.clone()).or_insert_with(|| self.limits(&group)))
            });
            if covered == Some(true) && !table.is_barred(index) {
                table.bar(index, &now);
            }
        }
    }

    /// Warnings for the user since the last call.
    pub(super) fn take_news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.news)
    }
}

/// The cgroup of version 2 that a process is in, from the root of the tree on.
fn cgroup_of(pid: i32) -> Option<PathBuf> {
    let text = std::fs::read(format!("/proc/{pid}/cgroup")).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().find_map(|l| l.strip_prefix("0::")).map(PathBuf::from)
}

/// The tightest limit of `group` and those above, in CPUs, and whose it is.
fn limit_of(root: &Path, group: &Path) -> Option<(PathBuf, f64)> {
    let limits = group.ancestors().filter_map(|at| {
        let folder = root.join(at.strip_prefix("/").unwrap_or(at));
        let text = std::fs::read_to_string(folder.join("cpu.max")).ok()?;
        Some((at.to_owned(), parse(&text)?))
    });
    limits.min_by(|(_, a), (_, b)| a.total_cmp(b))
}

/// The CPUs that `cpu.max` allows; `None` without a limit.
fn parse(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota.is_finite() && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_limit_above_counts() {
        let root = tempfile::tempdir().expect("temp dir");
        let set = |group: &str, text: &str| {
            std::fs::create_dir_all(root.path().join(group)).expect("ours");
            std::fs::write(root.path().join(group).join("cpu.max"), text).expect("ours");
        };
        set("a", "50000 100000\n");
        set("a/b", "max 100000\n");
        set("a/b/c", "200000 100000\n");
        set("d", "max 100000\n");
        let limit = |group: &str| limit_of(root.path(), Path::new(group));
        assert_eq!(limit("/a/b/c"), Some(("/a".into(), 0.5)));
        assert_eq!((limit("/d"), limit("/"), limit("/gone")), (None, None, None));
    }

    #[test]
    fn a_job_with_less_time_than_its_cpus_is_covered_and_its_cgroup_told_once() {
        let root = tempfile::tempdir().expect("temp dir");
        std::fs::create_dir(root.path().join("a")).expect("ours");
        std::fs::write(root.path().join("a/cpu.max"), "150000 100000\n").expect("ours");
        let covered = |cpus| {
            let mut bandwidth = Bandwidth { root: Some(root.path().to_owned()), ..Bandwidth::new(cpus) };
            let both = [bandwidth.limits(Path::new("/a")), bandwidth.limits(Path::new("/a"))];
            (both, bandwidth.take_news().len())
        };
        assert_eq!(covered(1), ([false; 2], 0));
        assert_eq!(covered(2), ([true; 2], 1));
    }
}
