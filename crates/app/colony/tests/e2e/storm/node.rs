// SPDX-License-Identifier: MIT OR Apache-2.0
//! What commands must leave on a node as it was.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use colony_node::class::Class;
use colony_node::cpu::CpuSet;
use colony_node::task::{self, TaskId};

use super::of_task;

/// Folders of settings, with all below.
const SETTINGS: [&str; 7] = [
    "/proc/sys/kernel",
    "/proc/sys/vm",
    "/proc/sys/net/core",
    "/proc/irq",
    "/sys/kernel/mm/transparent_hugepage",
    "/sys/devices/virtual/workqueue",
    "/sys/module/workqueue/parameters",
];
/// Files of control groups that Colony changes.
const OF_GROUPS: [&str; 8] = [
    "cpuset.cpus",
    "cpuset.cpus.exclusive",
    "cpuset.cpus.partition",
    "cgroup.subtree_control",
    "release_agent",
    "cpu.max",
    "memory.max",
    "memory.limit_in_bytes",
];
/// Folders where Colony writes.
const OWN: [&str; 4] = ["/run/colony-undo", "/var/lib/colony-undo", "/run/colony-tune", "/run/colony"];
/// Settings that the kernel changes by itself.
const BY_THE_KERNEL: [&str; 3] = ["ns_last_pid", "perf_event_max_sample_rate", "stat_refresh"];

/// Tasks, settings and files of the node.
pub(super) struct Node {
    tasks: BTreeMap<i32, (TaskId, Class, CpuSet)>,
    values: BTreeMap<String, String>,
}

impl Node {
    /// The node now. `folder`: where the commands of a storm mount and write.
    pub(super) fn now(folder: &Path) -> Self {
        let tasks = task::processes().into_iter().flat_map(task::threads);
        let tasks = tasks.filter_map(|tid| Some((tid, of_task(tid)?))).collect();
        let mut values = BTreeMap::new();
        SETTINGS.iter().for_each(|root| add_settings(Path::new(root), &mut values));
        add_groups(Path::new("/sys/fs/cgroup"), &mut values);
        OWN.iter().for_each(|folder| add_names(Path::new(folder), &mut values));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let name = folder.to_str().expect("plain");
        values.extend(mounts.lines().filter(|m| m.contains(name)).map(|m| (m.to_owned(), "mounted".into())));
        Self { tasks, values }
    }
}

/// The entries of a folder.
fn entries(folder: &Path) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

/// Adds all settings in a folder that can be read and written.
fn add_settings(folder: &Path, to: &mut BTreeMap<String, String>) {
    for entry in entries(folder) {
        let (path, Ok(about)) = (entry.path(), entry.metadata()) else { continue };
        if about.is_dir() {
            add_settings(&path, to);
        } else if about.is_file() && about.permissions().mode() & 0o600 == 0o600 {
            let is_kernels = path.file_name().is_some_and(|n| BY_THE_KERNEL.iter().any(|k| n == *k));
            // some cannot be read all the same
            if let (false, Ok(value)) = (is_kernels, fs::read_to_string(&path)) {
                to.insert(path.display().to_string(), value);
            }
        }
    }
}

/// Adds what Colony may change of control groups. Groups of others come and go, so those that are there before and after are compared.
fn add_groups(group: &Path, to: &mut BTreeMap<String, String>) {
    for entry in entries(group) {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if entry.file_name().to_string_lossy().contains("colony") {
                to.insert(path.display().to_string(), "a group".into());
            }
            add_groups(&path, to);
        } else if OF_GROUPS.iter().any(|name| entry.file_name() == *name)
            && let Ok(value) = fs::read_to_string(&path)
        {
            to.insert(path.display().to_string(), value);
        }
    }
}

/// Adds the names of the files in a folder of Colony, except for those of locks, which stay.
fn add_names(folder: &Path, to: &mut BTreeMap<String, String>) {
    for entry in entries(folder) {
        let path = entry.path();
        if !path.to_string_lossy().ends_with("lock") {
            to.insert(path.display().to_string(), "a file".into());
        }
    }
}

/// Returns `true` if a value belongs to a control group of somebody else, which may come and go.
fn is_of_group(name: &str) -> bool {
    name.starts_with("/sys/fs/cgroup") && !name.contains("colony")
}

/// What is different, in words. Tasks that have ended, and new ones, are not compared.
pub(super) fn differences(before: &Node, now: &Node) -> Vec<String> {
    let mut found = Vec::new();
    for (tid, (id, class, cpus)) in &before.tasks {
        let Some((same, class_now, cpus_now)) = now.tasks.get(tid) else { continue };
        let name = task::name(*tid).unwrap_or_default();
        // the kernel alone binds its workers of one CPU, and lets them go before they end
        let is_worker = name.starts_with("kworker/") && !name.starts_with("kworker/u");
        if id == same && !is_worker && (class, cpus) != (class_now, cpus_now) {
            found.push(format!("{name} {tid}: {class} on CPU {cpus}, now {class_now} on CPU {cpus_now}"));
        }
    }
    let names =
        before.values.keys().chain(now.values.keys().filter(|name| !before.values.contains_key(*name)));
    for name in names {
        let (then, now) = (before.values.get(name), now.values.get(name));
        if then != now && !(is_of_group(name) && (then.is_none() || now.is_none())) {
            found.push(format!("{name}: {then:?}, now {now:?}"));
        }
    }
    found
}
