// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPUs that the kernel keeps its own work away from.

use colony_node::cpu::CpuSet;

use crate::finding::{Finding, Level};
use crate::node::{CMDLINE, Node};
use crate::outcome::{Checked, Outcome};
use crate::remedy::Remedy;
use crate::touches::{Pattern, Touches};

const NOHZ_FULL: &str = "/sys/devices/system/cpu/nohz_full";
const ISOLATED: &str = "/sys/devices/system/cpu/isolated";
/// CPUs in isolated cpuset partitions, Linux 6.7 (`Documentation/admin-guide/cgroup-v2.rst`).
const PARTITIONS: &str = "/sys/fs/cgroup/cpuset.cpus.isolated";
/// A node with one CPU, or a job with all of them, has no CPU that could do the work instead.
const NO_OTHER_CPU: &str = "the job has every CPU: with --cpus, leave at least one to the system";

/// The parameter `name=LIST` with the CPUs of its present value and the job's.
fn with_job(node: &Node, name: &str, now: Option<&str>) -> (String, Option<String>) {
    let old: Option<CpuSet> = now.and_then(|list| list.parse().ok());
    let both: CpuSet = old.iter().flat_map(CpuSet::iter).chain(node.job.iter()).collect();
    (
        format!("{name}={both}"),
        now.map(|list| if list.is_empty() { name.into() } else { format!("{name}={list}") }),
    )
}

/// `isolcpus=` for the job, with the flags and CPUs that it has now. Flags are known since Linux 4.15, `managed_irq` since 5.6.
pub(super) fn isolcpus(node: &Node, now: Option<&str>) -> (String, Option<String>) {
    let is_cpus = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    let (cpus, mut flags): (Vec<&str>, Vec<&str>) =
        now.unwrap_or_default().split(',').filter(|word| !word.is_empty()).partition(is_cpus);
    if node.version().is_none_or(|v| v >= (5, 6)) {
        let wanted =
            ["managed_irq", "domain"].into_iter().filter(|flag| !flags.contains(flag)).collect::<Vec<_>>();
        flags.extend(wanted);
    }
    let old: CpuSet = cpus.join(",").parse().unwrap_or_default();
    let both: CpuSet = old.iter().chain(node.job.iter()).collect();
    let words: Vec<String> = flags.iter().map(|f| (*f).to_owned()).chain([both.to_string()]).collect();
    (format!("isolcpus={}", words.join(",")), now.map(|value| format!("isolcpus={value}")))
}

/// The tick goes on, on CPUs outside of `nohz_full=`. The file exists if the kernel was built with `CONFIG_NO_HZ_FULL`
/// (`drivers/base/cpu.c`, Linux 4.2); it holds the mask in effect, not the text of the parameter.
pub(super) fn nohz_full(node: &Node) -> Checked {
    let full = match node.cpus(NOHZ_FULL) {
        Err(e) if e.is_missing() => {
            return Outcome::undecided(format!(
                "{NOHZ_FULL} is not there: this kernel was built without CONFIG_NO_HZ_FULL, its tick cannot be stopped"
            ));
        }
        other => other?,
    };
    let ticking = node.job.without(&full);
    if ticking.is_empty() {
        return Outcome::passed(NOHZ_FULL, full.to_string());
    }
    let finding = Finding::new(
        Level::Medium,
        format!("The timer tick interrupts CPUs {ticking} while a job computes."),
    )
    .seen(NOHZ_FULL, full.to_string());
    if node.elsewhere().is_none() {
        return finding.advice(NO_OTHER_CPU).into();
    }
    let now = node.parameter("nohz_full")?;
    let (parameter, replaces) = with_job(node, "nohz_full", now.as_deref());
    let risk =
        "system calls and context switches on these CPUs cost more; one busy task a CPU, or the tick goes on";
    finding
        .seen(CMDLINE, now.map_or("no nohz_full".into(), |list| format!("nohz_full={list}")))
        .remedy(Remedy::parameter(parameter, replaces.as_deref(), risk))
        // a tick each second is left, in kernels before 4.17 on the CPU itself (kernel/sched/core.c, sched_tick_remote)
        .touches(Touches::all([
            Pattern::Is("irq:local_timer".into()),
            Pattern::Is("softirq:TIMER".into()),
            Pattern::Is("softirq:HRTIMER".into()),
            Pattern::Is("softirq:SCHED".into()),
        ]))
        .into()
}

/// RCU callbacks run in softirqs of the CPU that queued them, unless `rcu_nocbs=` offloads it. `nohz_full=` does the same
/// for its CPUs since Linux 3.17 (`kernel/rcu/tree_nocb.h`, `rcu_init_nohz`). Threads `rcuop/N` prove nothing: since 5.17
/// they exist for every CPU if any is offloaded. `CONFIG_RCU_NOCB_CPU_DEFAULT_ALL` (6.0) offloads all if neither parameter
/// is given.
pub(super) fn rcu_nocbs(node: &Node) -> Checked {
    if node.config("CONFIG_RCU_NOCB_CPU") == Some(false) {
        return Outcome::undecided(
            "this kernel was built without CONFIG_RCU_NOCB_CPU: it cannot offload callbacks",
        );
    }
    let (nocbs, full) = (node.parameter("rcu_nocbs")?, node.parameter("nohz_full")?);
    if nocbs.is_none() && full.is_none() && node.config("CONFIG_RCU_NOCB_CPU_DEFAULT_ALL") == Some(true) {
        return Outcome::passed("/boot/config", "CONFIG_RCU_NOCB_CPU_DEFAULT_ALL=y");
    }
    let list = |value: &Option<String>| -> CpuSet {
        // `all` and the N of `1-N` are the kernel's own words for its CPUs
        let last = node.job.iter().chain(node.rest.iter()).max().unwrap_or(0);
        let text = value.as_deref().unwrap_or_default().replace("all", "0-N").replace('N', &last.to_string());
        text.parse().unwrap_or_default()
    };
    // without CONFIG_NO_HZ_FULL the kernel ignores nohz_full=
    let in_effect = if node.root.exists(NOHZ_FULL) { list(&full) } else { CpuSet::default() };
    let offloaded: CpuSet = list(&nocbs).iter().chain(in_effect.iter()).collect();
    let own = node.job.without(&offloaded);
    if own.is_empty() {
        return Outcome::passed(CMDLINE, format!("callbacks of CPUs {offloaded} are offloaded"));
    }
    let finding = Finding::new(Level::Low, format!("RCU callbacks run on CPUs {own}."))
        .seen(CMDLINE, nocbs.as_ref().map_or("no rcu_nocbs".into(), |list| format!("rcu_nocbs={list}")));
    if node.elsewhere().is_none() {
        return finding.advice(NO_OTHER_CPU).into();
    }
    let (parameter, replaces) = with_job(node, "rcu_nocbs", nocbs.as_deref());
    let risk = "the threads rcuo* need time of other CPUs; bind them there";
    finding
        .remedy(Remedy::parameter(parameter, replaces.as_deref(), risk))
        .touches(Touches::part_of([
            Pattern::Is("softirq:RCU".into()),
            Pattern::Begins("thread:rcuc/".into()),
        ]))
        .into()
}

/// The scheduler may place any task on the job's CPUs. `isolcpus=domain` (`sys/devices/system/cpu/isolated`, Linux 4.0) and
/// isolated cpuset partitions (Linux 6.0, listed since 6.7) take a CPU out of its balancing. `managed_irq` is known since
/// Linux 5.6, flags since 4.15 (`kernel/sched/isolation.c`).
pub(super) fn isolation(node: &Node) -> Checked {
    let boot = node.cpus(ISOLATED)?;
    let partitions = node.cpus(PARTITIONS).unwrap_or_default();
    let isolated: CpuSet = boot.iter().chain(partitions.iter()).collect();
    let shared = node.job.without(&isolated);
    if shared.is_empty() {
        return Outcome::passed(ISOLATED, isolated.to_string());
    }
    let mut finding = Finding::new(
        Level::Medium,
        format!("CPUs {shared} are not isolated: the scheduler may place any task there."),
    )
    .seen(ISOLATED, boot.to_string());
    if node.root.exists(PARTITIONS) {
        finding = finding.seen(PARTITIONS, partitions.to_string());
    }
    if node.elsewhere().is_none() {
        return finding.advice(NO_OTHER_CPU).into();
    }
    let now = node.parameter("isolcpus")?;
    let (parameter, replaces) = isolcpus(node, now.as_deref());
    let risk =
        "the scheduler no longer balances these CPUs: each thread of a job must be bound to a CPU of its own";
    finding
        .remedy(Remedy::parameter(parameter, replaces.as_deref(), risk))
        .advice("For one job and without a boot: colony run --spare-cores.")
        .touches(Touches::all([Pattern::UnboundThreads]))
        .into()
}
