// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real-time tasks: they are above any `sched_ext` scheduler, so no window holds them back.

use colony_client::RtTask;
use colony_node::class;
use colony_node::cpu::{self, CpuSet};
use colony_node::task;

use super::config::Exempt;

/// Number of the parent of all kernel threads.
const KTHREADD: i32 = 2;

/// Every real-time task of the node that may use one of `cpus`, but those of process `except`.
///
/// Kernel threads bound to one CPU that the kernel stops others with (`migration/0`) are among them: they run
/// rarely, and nobody can hold them.
#[must_use]
pub fn tasks_on(cpus: &CpuSet, except: i32) -> Vec<RtTask> {
    let mut found: Vec<RtTask> = task::processes()
        .into_iter()
        .filter(|&pid| pid != except)
        .flat_map(task::threads)
        .filter_map(|tid| real_time(tid, cpus))
        .collect();
    found.sort_by_key(|t| (std::cmp::Reverse(t.ran_ns), t.tid));
    found
}

fn real_time(tid: i32, cpus: &CpuSet) -> Option<RtTask> {
    let class = class::get(tid).ok()?;
    if !class.is_real_time() || cpu::affinity(tid).ok()?.and(cpus).is_empty() {
        return None;
    }
    let stat = task::stat(tid).ok()?;
    Some(RtTask {
        tid,
        start_ticks: stat.start_ticks,
        comm: task::name(tid)?,
        class,
        kernel: tid == KTHREADD || stat.parent == KTHREADD,
        ran_ns: task::run_and_delay_ns(tid).map_or(0, |(ran, _)| ran),
    })
}

/// Returns `true` if one of these names covers `task`.
#[must_use]
pub fn is_named(task: &RtTask, names: &[Exempt]) -> bool {
    names.iter().any(|n| match n {
        Exempt::Name { name, prefix: true } => task.comm.starts_with(name.as_str()),
        Exempt::Name { name, prefix: false } => task.comm == *name,
        Exempt::Cgroup(_) => false,
    })
}
