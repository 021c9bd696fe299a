// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPUs that the kernel keeps its own work away from.

use colony_node::cpu::CpuSet;
use colony_node::topology::{DomainKind, Topology};

use crate::default_cpus::{ISOLATED, NOHZ_FULL, PARTITIONS};
use crate::finding::{Finding, Level};
use crate::irq::Placement;
use crate::mobility::{self, Threads};
use crate::node::{CMDLINE, Node};
use crate::outcome::{Checked, Outcome};
use crate::remedy::{Change, Remedy};
use crate::root::Unread;
use crate::touches::{Pattern, Touches};

use super::lists::{self, NO_OTHER_CPU};
use super::ticks;

/// The tick goes on, on CPUs outside of `nohz_full=`. The file exists if the kernel was built with `CONFIG_NO_HZ_FULL`
/// (`drivers/base/cpu.c`, Linux 4.2); it holds the mask in effect, not the text of the parameter.
pub(super) fn nohz_full(node: &Node) -> Checked {
    let full = match node.cpus(NOHZ_FULL) {
        Err(e) if e.is_missing() => {
            return Outcome::undecided(node.why_missing(
                NOHZ_FULL,
                "this kernel was built without CONFIG_NO_HZ_FULL, its tick cannot be stopped",
            ));
        }
        other => other?,
    };
    let ticking = node.job.without(&full);
    if ticking.is_empty() {
        return ticks::contradict(node, &full);
    }
    let finding = Finding::new(
        Level::Medium,
        format!("The timer tick interrupts {} while a job computes.", ticking.named()),
    )
    .seen(NOHZ_FULL, full.to_string());
    if node.elsewhere().is_none() {
        return finding.advice(NO_OTHER_CPU).into();
    }
    let now = node.parameter("nohz_full")?;
    let risk =
        "system calls and context switches on these CPUs cost more; one busy task a CPU, or the tick goes on";
    let finding =
        finding.seen(CMDLINE, now.map_or("no nohz_full".into(), |list| format!("nohz_full={list}")));
    lists::nohz_full(node)?
        .add_to(finding, risk)
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
    // the mask in effect: isolcpus=nohz sets it, too (kernel/rcu/tree_nocb.h)
    let tickless = match node.cpus(NOHZ_FULL) {
        Err(e) if e.is_missing() => tickless_if_missing(node, e)?,
        other => other?,
    };
    let listed = match node.job.without(&tickless).is_empty() {
        true => CpuSet::default(),
        false => lists::read_list(node, "rcu_nocbs")?.map_err(lists::unread_parameter)?,
    };
    let offloaded: CpuSet = listed.iter().chain(tickless.iter()).collect();
    let own = node.job.without(&offloaded);
    if own.is_empty() {
        return Outcome::passed(CMDLINE, format!("callbacks of {} are offloaded", offloaded.named()));
    }
    let finding = Finding::new(Level::Low, format!("RCU callbacks run on {}.", own.named()))
        .seen(CMDLINE, nocbs.as_ref().map_or("no rcu_nocbs".into(), |list| format!("rcu_nocbs={list}")));
    if node.elsewhere().is_none() {
        return finding.advice(NO_OTHER_CPU).into();
    }
    let risk = "the threads rcuo* need time of other CPUs; bind them there";
    lists::rcu_nocbs(node)?
        .add_to(finding, risk)
        .touches(Touches::part_of([
            Pattern::Is("softirq:RCU".into()),
            Pattern::Begins("thread:rcuc/".into()),
        ]))
        .into()
}

/// The tickless CPUs if the kernel's file is `missing`: a running kernel without it was built without `CONFIG_NO_HZ_FULL`, and
/// ignores `nohz_full=`. In a collection of files, the answer is unknown if the command line has such a parameter.
pub(super) fn tickless_if_missing(node: &Node, missing: Unread) -> Result<CpuSet, Unread> {
    let has_nohz = lists::read_isolcpus(node)?.is_ok_and(|isolcpus| isolcpus.has("nohz"));
    match node.is_live() || (node.parameter("nohz_full")?.is_none() && !has_nohz) {
        true => Ok(CpuSet::default()),
        false => Err(missing),
    }
}

/// The scheduler may place any task on the job's CPUs. `isolcpus=domain` (`sys/devices/system/cpu/isolated`, Linux 4.0) and
/// isolated cpuset partitions (Linux 6.0, listed since 6.7) take a CPU out of its balancing. `managed_irq` is known since
/// Linux 5.6, flags since 4.15 (`kernel/sched/isolation.c`).
pub(super) fn isolation(node: &Node) -> Checked {
    let boot = node.cpus(ISOLATED)?;
    let partitions = match node.cpus(PARTITIONS) {
        Err(e) if e.is_missing() => None,
        other => Some(other?),
    };
    let isolated: CpuSet = boot.iter().chain(partitions.iter().flat_map(CpuSet::iter)).collect();
    let shared = node.job.without(&isolated);
    if shared.is_empty() {
        return Outcome::passed(ISOLATED, isolated.to_string());
    }
    let mut finding = Finding::new(
        Level::Medium,
        format!(
            "{} {} not isolated: the scheduler may place any task there.",
            shared.named(),
            shared.is_or_are()
        ),
    )
    .seen(ISOLATED, boot.to_string());
    if let Some(partitions) = &partitions {
        finding = finding.seen(PARTITIONS, partitions.to_string());
    } else if !node.is_live() && node.version().is_some_and(|v| v >= (6, 7)) {
        finding = finding.seen(PARTITIONS, "not collected: isolated partitions are not known");
    }
    let Some(spare) = node.elsewhere() else { return finding.advice(NO_OTHER_CPU).into() };
    let threads = match Threads::read(node) {
        Ok(threads) => threads,
        Err(e) => {
            finding = finding.advice(format!("The names of threads decide which of them can be moved: {e}."));
            None
        }
    };
    let (free, movable) = (mobility::free(threads.as_ref()), mobility::movable(threads.as_ref()));
    finding = finding.remedy(spare_core(node, spare, &movable));
    if let Some(partition) = partition(node) {
        finding = finding.remedy(partition);
    }
    let stays = threads.as_ref().map(Threads::pinned).filter(|names| !names.is_empty());
    let boot = lists::isolcpus(node)?.moving(free);
    finding = boot.add_to(finding, UNBALANCED).touches(movable);
    if let Some(names) = stays {
        finding = finding.advice(format!(
            "isolcpus= leaves tasks whose affinity names only CPUs of the job: {}.",
            names.join(", ")
        ));
    }
    if threads.as_ref().is_some_and(Threads::are_only_names) {
        finding = finding.advice(NO_TASKS);
    }
    finding.into()
}

/// Advice for a node whose files have no tasks.
const NO_TASKS: &str = "The collected files have no processes: which of the trace's threads can be moved is not known, so the gain is an upper bound.";

const UNBALANCED: &str =
    "the scheduler no longer balances these CPUs: each thread of a job must be bound to a CPU of its own";

/// `colony run --spare-cores` moves threads, interrupts and workqueues to the other CPUs for the time of one job.
fn spare_core(node: &Node, spare: &CpuSet, movable: &Touches) -> Remedy {
    let spare = match (cores_by_domain(node, spare), spare.first()) {
        (Some(cores), _) => cores,
        // a number alone is a count of cores
        (None, Some(cpu)) if spare.len() == 1 => format!("{cpu}-{cpu}"),
        (None, _) => spare.to_string(),
    };
    let command = format!("colony run --backend none --cpus {} --spare-cores {spare} -- CMD", node.job);
    let mut moves = movable.clone();
    if let Ok(interrupts) = node.interrupts() {
        let irqs = interrupts.irqs.iter().filter(|irq| irq.placement == Placement::Movable);
        moves.sources.extend(irqs.flat_map(|irq| irq.patterns()));
    }
    let risk = "programs and devices of the node share the spare CPUs while the job runs";
    Remedy::new([Change::JobStart { command }], risk).moves(moves)
}

/// `spare` as cores of each L3 cache, NUMA node or socket (`1/l3`): if the job's CPUs are in several, each has as many spare cores as the
/// others, and these are all. `None` if not, or if the files do not tell.
fn cores_by_domain(node: &Node, spare: &CpuSet) -> Option<String> {
    let topology = node.topology();
    DomainKind::ALL.into_iter().find_map(|kind| {
        let domains = topology.domains(kind, &node.job).ok()?;
        let counts: Option<Vec<usize>> =
            domains.iter().map(|domain| whole_cores(&topology, &domain.cpus.and(spare))).collect();
        let counts = counts?;
        let count = counts.first().copied().filter(|&count| count > 0 && counts.len() > 1)?;
        let is_elsewhere = |cpu: usize| !domains.iter().any(|domain| domain.cpus.contains(cpu));
        let is_the_same = counts.iter().all(|&other| other == count) && !spare.iter().any(is_elsewhere);
        is_the_same.then(|| format!("{count}/{}", kind.word()))
    })
}

/// The number of cores that `cpus` consists of; `None` if a core has other threads, or the files do not tell.
fn whole_cores(topology: &Topology<'_>, cpus: &CpuSet) -> Option<usize> {
    let mut left = cpus.clone();
    let mut count = 0;
    while let Some(cpu) = left.first() {
        let core = topology.threads_of_core(cpu).ok().filter(|core| core.without(cpus).is_empty())?;
        left = left.without(&core);
        count += 1;
    }
    Some(count)
}

/// An isolated partition of control groups, if the kernel has such (Linux 6.1).
fn partition(node: &Node) -> Option<Remedy> {
    let controllers = node.root.value("/sys/fs/cgroup/cgroup.controllers").ok()?;
    if !controllers.split_whitespace().any(|c| c == "cpuset") || node.version()? < (6, 1) {
        return None;
    }
    let by_systemd = node.root.value("/proc/1/comm").is_ok_and(|name| name == "systemd");
    let start = match by_systemd {
        true => "start the job in it: systemd-run --scope --slice=job.slice CMD",
        false => "start the job in it, from a shell: echo $$ > /sys/fs/cgroup/job/cgroup.procs",
    };
    let change = Change::Partition { cpus: node.job.clone(), by_systemd };
    Some(Remedy::new([change], UNBALANCED).keep(start))
}
