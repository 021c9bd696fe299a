// SPDX-License-Identifier: MIT OR Apache-2.0
//! The record of a node's state that every result carries, and whether the node is quiet.

use nix::unistd::{SysconfVar, sysconf};
use serde::{Deserialize, Serialize};

use crate::cpu::{self, CpuSet};

/// The state of a node, recorded with each result that was measured there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Host name.
    pub host: String,
    /// Kernel release (`uname -r`).
    pub kernel: String,
    /// Processor model.
    pub cpu_model: String,
    /// Online CPUs.
    pub online: CpuSet,
    /// Isolation from the boot command line: `isolcpus`, `nohz_full`, `rcu_nocbs`, `irqaffinity`.
    pub isolation: Vec<String>,
    /// Frequency governor of CPU 0; `None` where the kernel does not scale frequency (as in most guests).
    pub governor: Option<String>,
    /// True if the node is a virtual machine.
    pub virtual_machine: bool,
    /// Load averages of 1, 5 and 15 minutes.
    pub load: [f64; 3],
    /// Tasks running or runnable when the record was made, this one included.
    pub runnable: u32,
    /// Real-time tasks' share of each second, from `sched_rt_runtime_us`; `None` without a limit.
    pub rt_share: Option<f64>,
}

impl NodeRecord {
    /// Records this node, now. What cannot be read is left empty: a record never fails.
    #[must_use]
    pub fn now() -> Self {
        let text = |path: &str| crate::read(path).unwrap_or_default();
        let number = |path: &str| text(path).trim().parse::<f64>().ok();
        let cpuinfo = text("/proc/cpuinfo");
        let field = |name: &str| {
            cpuinfo
                .lines()
                .find(|l| l.starts_with(name))
                .and_then(|l| l.split_once(':'))
                .map(|(_, v)| v.trim().to_owned())
        };
        let loadavg = text("/proc/loadavg");
        let mut loads = loadavg.split_whitespace();
        let mut load = || loads.next().and_then(|v| v.parse().ok()).unwrap_or(0.0);
        let load = [load(), load(), load()];
        let runnable = loads.next().and_then(|v| v.split('/').next()?.parse().ok()).unwrap_or(0);
        let rt =
            number("/proc/sys/kernel/sched_rt_runtime_us").zip(number("/proc/sys/kernel/sched_rt_period_us"));
        let isolating = ["isolcpus=", "nohz_full=", "rcu_nocbs=", "irqaffinity="];
        Self {
            host: text("/proc/sys/kernel/hostname").trim().to_owned(),
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu_model: field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            online: cpu::online().unwrap_or_default(),
            isolation: text("/proc/cmdline")
                .split_whitespace()
                .filter(|w| isolating.iter().any(|i| w.starts_with(i)))
                .map(str::to_owned)
                .collect(),
            governor: crate::read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
                .ok()
                .map(|g| g.trim().to_owned()),
            virtual_machine: field("flags").is_some_and(|f| f.split_whitespace().any(|w| w == "hypervisor")),
            load,
            runnable,
            rt_share: rt.filter(|(runtime, _)| *runtime >= 0.0).map(|(runtime, period)| runtime / period),
        }
    }

    /// Reasons to read a measurement on this node with care, one a line; empty if the node is quiet.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let cpus = self.online.len().max(1) as f64;
        let [one, ..] = self.load;
        let is_busy = one > 0.25 * cpus;
        let busy = is_busy
            .then(|| format!("the node is not quiet: load {one:.2} on {cpus} CPUs in the last minute"));
        busy.into_iter().chain(self.warnings_except_load()).collect()
    }

    /// The same without the load, for a caller that measures the CPU time of other programs itself.
    #[must_use]
    pub fn warnings_except_load(&self) -> Vec<String> {
        let mut found = Vec::new();
        if self.virtual_machine {
            found.push(
                "this is a virtual machine: its host's noise is seen here, but not explained here".into(),
            );
        }
        if let Some(governor) = self.governor.as_deref().filter(|g| *g != "performance") {
            found.push(format!("the frequency governor is `{governor}`: speeds may change during the run"));
        }
        found
    }
}

/// Time each CPU has been taken by the hypervisor for others (`steal` of `/proc/stat`), in nanoseconds
/// since boot, by CPU; its grain is a clock tick, 10 ms.
#[must_use]
pub fn steal_ns() -> std::collections::BTreeMap<usize, u64> {
    let ticks_per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    let tick_ns = 1_000_000_000 / ticks_per_second.and_then(|ticks| u64::try_from(ticks).ok()).unwrap_or(100);
    let text = crate::read("/proc/stat").unwrap_or_default();
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            let cpu = fields.next()?.strip_prefix("cpu")?.parse().ok()?;
            let ticks: u64 = fields.nth(7)?.parse().ok()?;
            Some((cpu, ticks * tick_ns))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_node_can_be_recorded() {
        let r = NodeRecord::now();
        assert!(!r.kernel.is_empty() && !r.online.is_empty() && r.runnable > 0, "{r:?}");
        assert!(!steal_ns().is_empty());
    }

    #[test]
    fn a_busy_node_is_warned_of() {
        let mut r =
            NodeRecord { load: [0.0; 3], virtual_machine: false, governor: None, ..NodeRecord::now() };
        assert!(r.warnings().is_empty());
        r.load[0] = 100.0;
        r.governor = Some("powersave".into());
        assert_eq!(r.warnings().len(), 2);
    }
}
