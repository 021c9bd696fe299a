// SPDX-License-Identifier: MIT OR Apache-2.0
//! The job's CPUs, if nobody names them.

use colony_node::cpu::CpuSet;

use crate::root::{Root, Unread};

/// CPUs that `isolcpus=` has isolated.
pub(crate) const ISOLATED: &str = "/sys/devices/system/cpu/isolated";
/// CPUs in isolated cpuset partitions, Linux 6.7 (`Documentation/admin-guide/cgroup-v2.rst`).
pub(crate) const PARTITIONS: &str = "/sys/fs/cgroup/cpuset.cpus.isolated";
/// CPUs whose tick may stop.
pub(crate) const NOHZ_FULL: &str = "/sys/devices/system/cpu/nohz_full";

/// A list of CPUs in a file of `/sys`; an empty file and `(null)` (a mask that was never set up) are no CPUs.
pub(crate) fn read_list(root: &Root, file: &str) -> Result<CpuSet, Unread> {
    let text = root.value(file)?;
    match text.as_str() {
        "" | "(null)" => Ok(CpuSet::default()),
        list => list.parse().map_err(|_| Unread::value(file, list)),
    }
}

/// CPUs that an administrator has set apart, isolated or tickless. A file that is missing or not readable sets none apart here;
/// the rules about isolation report it.
pub(crate) fn set_apart(root: &Root) -> (CpuSet, CpuSet) {
    let read = |file| read_list(root, file).unwrap_or_default();
    let isolated = read(ISOLATED).iter().chain(read(PARTITIONS).iter()).collect();
    (isolated, read(NOHZ_FULL))
}

/// The default: isolated CPUs, or else those in `nohz_full`, or else every CPU except the first core of each NUMA node, so that devices
/// of each node can interrupt a CPU of their node. Cores that are not whole are left out if any is whole: the other thread of such a core
/// would disturb the job.
pub(crate) fn choose(root: &Root, online: &CpuSet) -> CpuSet {
    let (isolated, tickless) = set_apart(root);
    for apart in [isolated, tickless] {
        let apart = apart.and(online);
        if apart.is_empty() || apart.len() == online.len() {
            continue;
        }
        let whole: CpuSet =
            apart.iter().filter(|&cpu| core(root, cpu).and(online).without(&apart).is_empty()).collect();
        return if whole.is_empty() { apart } else { whole };
    }
    let first: CpuSet = online.iter().take(1).collect();
    let threads = first_core(root, online);
    let by_node: CpuSet = numa_nodes(root)
        .iter()
        .map(|node| (node.and(online), first_core(root, &node.and(online))))
        // a node of one core is the job's, unless it has the lowest-numbered CPU
        .filter(|(node, core)| !node.without(core).is_empty())
        .flat_map(|(_, core)| core.iter().collect::<Vec<_>>())
        .chain(threads.iter())
        .collect();
    let but = |cpus: &CpuSet| Some(online.without(cpus)).filter(|rest| !rest.is_empty());
    but(&by_node).or_else(|| but(&threads)).or_else(|| but(&first)).unwrap_or_else(|| online.clone())
}

/// The CPUs of each NUMA node; none if the files do not tell.
fn numa_nodes(root: &Root) -> Vec<CpuSet> {
    const NODES: &str = "/sys/devices/system/node";
    let numbers = read_list(root, &format!("{NODES}/online")).unwrap_or_default();
    numbers.iter().filter_map(|n| read_list(root, &format!("{NODES}/node{n}/cpulist")).ok()).collect()
}

/// The threads of the core of the lowest-numbered CPU.
fn first_core(root: &Root, cpus: &CpuSet) -> CpuSet {
    cpus.first().map_or_else(CpuSet::default, |cpu| core(root, cpu))
}

/// The threads of a CPU's core; the CPU alone if the files do not tell.
fn core(root: &Root, cpu: usize) -> CpuSet {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let threads = read_list(root, &file).unwrap_or_default();
    threads.iter().chain([cpu]).collect()
}
