// SPDX-License-Identifier: MIT OR Apache-2.0
//! Statistics of all keepers since the daemon started.

use std::collections::BTreeMap;

use colony_client::AgentStats;
use colony_client::KeeperStats;
use colony_client::{CpuStats, ExtStats};
use colony_stats::Distribution;

/// Sums that never fall.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Totals {
    /// Every CPU's accounts, from the scheduler in the kernel.
    pub(crate) by_cpu: BTreeMap<usize, CpuStats>,
    /// The kernel scheduler's edges.
    pub(crate) sched_ext: Edges,
    /// The agent's edges.
    pub(crate) agent: Edges,
    /// Tasks put into idle favored windows.
    pub(crate) filled: u64,
    /// Number of times an exempt task took the CPU from a job task in a favored window.
    pub(crate) preempted: u64,
    /// Times the scheduler in the kernel was loaded again, after CPUs came or went.
    pub(crate) restarts: u64,
    /// Number of times threads were held back.
    pub(crate) deferred: u64,
    /// Sum of these waits, in nanoseconds.
    pub(crate) deferred_ns: u64,
    /// The other counters of the agent; its distributions are in `agent` and `switching`.
    pub(crate) switching: Switching,
}

/// Edges of one backend.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Edges {
    pub(crate) handled: u64,
    pub(crate) missed: u64,
    pub(crate) lateness: Distribution,
}

impl Edges {
    fn add(&mut self, handled: u64, missed: u64, lateness: &Distribution) {
        self.handled += handled;
        self.missed += missed;
        self.lateness.merge(lateness);
    }
}

/// The agent's switches.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Switching {
    pub(crate) switches: u64,
    pub(crate) joined: u64,
    pub(crate) settled: u64,
    pub(crate) errors: u64,
    pub(crate) guardian_restarts: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) took: Distribution,
}

impl Totals {
    /// Adds the statistics of one keeper.
    pub(crate) fn add(&mut self, did: &KeeperStats) {
        if let Some(ext) = &did.sched_ext {
            self.add_ext(ext);
        }
        if let Some(agent) = &did.agent {
            self.add_agent(agent);
        }
    }

    fn add_ext(&mut self, ext: &ExtStats) {
        for cpu in &ext.by_cpu {
            self.by_cpu
                .entry(cpu.cpu)
                .or_insert_with(|| CpuStats { cpu: cpu.cpu, ..CpuStats::default() })
                .add(cpu);
        }
        self.sched_ext.add(ext.edges, ext.missed, &ext.lateness);
        self.filled += ext.filled;
        self.preempted += ext.preempted;
        self.restarts += ext.restarts;
        self.deferred += ext.deferred.iter().map(|w| w.times).sum::<u64>();
        self.deferred_ns += ext.deferred.iter().map(|w| w.total_ns).sum::<u64>();
    }

    fn add_agent(&mut self, agent: &AgentStats) {
        self.agent.add(agent.edges, agent.missed, &agent.lateness);
        let s = &mut self.switching;
        s.switches += agent.switches;
        s.joined += agent.joined;
        s.settled += agent.settled;
        s.errors += agent.errors;
        s.guardian_restarts += agent.guardian_restarts;
        s.cpu_ns += agent.cpu_ns;
        s.took.merge(&agent.switching);
    }
}
