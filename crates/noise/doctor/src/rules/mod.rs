// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of rules, and the rules by subject.

mod cgroups;
mod clock;
mod daemons;
mod interrupt_targets;
mod interrupts;
mod irqbalance;
mod isolation;
mod lists;
mod memory;
mod pages;
mod power;
mod preemption;
mod processor;
mod realtime;
mod schedext;
mod speeds;
mod ticks;
mod watchdogs;
mod workqueues;

pub use interrupts::interrupt_handlers;

use crate::finding::Subject;
use crate::node::Node;
use crate::outcome::Checked;

/// A rule.
pub struct Rule {
    /// The rule's name in reports.
    pub id: &'static str,
    /// The part of the node it reads.
    pub subject: Subject,
    pub(crate) check: fn(&Node) -> Checked,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rule({})", self.id)
    }
}

const fn rule(id: &'static str, subject: Subject, check: fn(&Node) -> Checked) -> Rule {
    Rule { id, subject, check }
}

/// Every rule.
pub const RULES: &[Rule] = &[
    rule("nohz-full", Subject::Isolation, isolation::nohz_full),
    rule("rcu-nocbs", Subject::Isolation, isolation::rcu_nocbs),
    rule("isolation", Subject::Isolation, isolation::isolation),
    rule("preemption", Subject::Isolation, preemption::model),
    rule("irq-movable", Subject::Interrupts, interrupts::movable),
    rule("irq-managed", Subject::Interrupts, interrupts::managed),
    rule("irq-default", Subject::Interrupts, interrupts::default_affinity),
    rule("irqbalance", Subject::Interrupts, irqbalance::irqbalance),
    rule("receive-steering", Subject::Interrupts, interrupts::receive_steering),
    rule("workqueue-unbound", Subject::Workqueues, workqueues::unbound),
    rule("workqueue-writeback", Subject::Workqueues, workqueues::writeback),
    rule("workqueue-power-efficient", Subject::Workqueues, workqueues::power_efficient),
    rule("timer-migration", Subject::Workqueues, workqueues::timer_migration),
    rule("rt-throttling", Subject::RealTime, realtime::throttling),
    rule("fair-server", Subject::RealTime, realtime::fair_server),
    rule("rt-tasks", Subject::RealTime, realtime::tasks),
    rule("nmi-watchdog", Subject::Watchdogs, watchdogs::nmi),
    rule("soft-watchdog", Subject::Watchdogs, watchdogs::soft),
    rule("machine-check-poll", Subject::Watchdogs, watchdogs::machine_check),
    rule("tracing", Subject::Watchdogs, watchdogs::tracing),
    rule("kdamond", Subject::Memory, memory::kdamond),
    rule("khugepaged", Subject::Memory, memory::khugepaged),
    rule("ksm", Subject::Memory, memory::ksm),
    rule("stat-interval", Subject::Memory, memory::stat_interval),
    rule("writeback-interval", Subject::Memory, memory::writeback_interval),
    rule("compaction", Subject::Memory, memory::compaction),
    rule("numa-balancing", Subject::Memory, memory::numa_balancing),
    rule("zone-reclaim", Subject::Memory, memory::zone_reclaim),
    rule("swap", Subject::Memory, memory::swap),
    rule("thp", Subject::Memory, pages::thp),
    rule("thp-defrag", Subject::Memory, pages::defrag),
    rule("mthp", Subject::Memory, pages::mthp),
    rule("huge-pages", Subject::Memory, pages::reserved),
    rule("memory-reclaim", Subject::Cgroups, cgroups::reclaim),
    rule("cpu-quota", Subject::Cgroups, cgroups::quota),
    rule("governor", Subject::Power, power::governor),
    rule("turbo", Subject::Power, power::turbo),
    rule("energy-bias", Subject::Power, power::energy_bias),
    rule("idle-states", Subject::Power, power::idle_states),
    rule("unequal-cpus", Subject::Power, speeds::unequal),
    rule("smt", Subject::Power, processor::smt),
    rule("smi", Subject::Power, processor::smi),
    rule("thermal-throttling", Subject::Power, processor::thermal),
    rule("steal", Subject::Power, processor::steal),
    rule("clocksource", Subject::Clock, clock::source),
    rule("clock-discipline", Subject::Clock, clock::discipline),
    rule("tai-offset", Subject::Clock, clock::tai_offset),
    rule("sched-ext", Subject::SchedExt, schedext::scheduler),
    rule("slices", Subject::Daemons, daemons::slices),
    rule("daemon", Subject::Daemons, daemons::wakeups),
];
