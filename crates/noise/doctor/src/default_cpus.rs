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

/// The default: isolated CPUs, or else those in `nohz_full`, or else every CPU except the core of the lowest-numbered one. Cores that
/// are not whole are left out if any is whole: the other thread of such a core would disturb the job.
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
    let threads: CpuSet = first.iter().flat_map(|cpu| core(root, cpu).iter().collect::<Vec<_>>()).collect();
    let but = |cpus: &CpuSet| Some(online.without(cpus)).filter(|rest| !rest.is_empty());
    but(&threads).or_else(|| but(&first)).unwrap_or_else(|| online.clone())
}

/// The threads of a CPU's core; the CPU alone if the files do not tell.
fn core(root: &Root, cpu: usize) -> CpuSet {
    let file = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let threads = read_list(root, &file).unwrap_or_default();
    threads.iter().chain([cpu]).collect()
}
