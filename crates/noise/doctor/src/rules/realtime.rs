// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real-time classes: what holds them back, and who else is in them.

use crate::finding::{Finding, Level};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::remedy::{Change, Remedy};
use crate::touches::{Pattern, Touches};

use super::daemons::{self, Process};

/// Tasks in a real-time class may run for so long of each period. From Linux 6.12 on, the fair server does this for tasks of
/// CFS, and this limit holds for groups of real-time tasks only (`kernel/sched/rt.c`, `CONFIG_RT_GROUP_SCHED`).
pub(super) fn throttling(node: &Node) -> Checked {
    const FILE: &str = "/proc/sys/kernel/sched_rt_runtime_us";
    let runtime = node.root.number(FILE)?;
    if runtime < 0 {
        return Outcome::passed(FILE, runtime.to_string());
    }
    let period = node.root.number("/proc/sys/kernel/sched_rt_period_us").unwrap_or(1_000_000);
    if runtime >= period {
        return Outcome::passed(FILE, format!("{runtime} of {period}"));
    }
    Finding::new(
        Level::Low,
        format!("A job in a real-time class is stopped for {} µs of each {period} µs.", period - runtime),
    )
    .seen(FILE, runtime.to_string())
    .remedy(Remedy::sysctl(
        FILE,
        &runtime.to_string(),
        "-1",
        "a real-time task that never sleeps takes its CPU for ever; keep a CPU free of the job",
    ))
    .touches(Touches::all([Pattern::Is("throttle".into())]))
    .into()
}

/// A deadline server gives tasks of CFS so many nanoseconds of each period although real-time tasks want the CPU
/// (Linux 6.12, `kernel/sched/debug.c`).
pub(super) fn fair_server(node: &Node) -> Checked {
    const DIR: &str = "/sys/kernel/debug/sched/fair_server";
    if node.root.list(DIR).is_err_and(|e| e.is_missing()) {
        return match node.version() {
            Some(version) if version < (6, 12) => {
                Outcome::passed("/proc/sys/kernel/osrelease", "no fair server before Linux 6.12")
            }
            _ => Outcome::undecided(format!("{DIR} is not there: is debugfs mounted at /sys/kernel/debug?")),
        };
    }
    let mut served = Vec::new();
    for cpu in node.job.iter() {
        let file = format!("{DIR}/cpu{cpu}/runtime");
        let runtime = node.root.number(&file)?;
        if runtime != 0 {
            served.push((file, runtime.to_string()));
        }
    }
    let Some((file, value)) = served.first().cloned() else {
        return Outcome::passed(DIR, "0 on the job's CPUs");
    };
    Finding::new(Level::Low, "The fair server takes time from a job in a real-time class, if other tasks wait.")
        .seen(file, format!("{value} ns"))
        .remedy(
            Remedy::new(
                [Change::writes(served, "0")],
                "an ordinary task on these CPUs, such as a bound kernel worker, may wait for ever behind a real-time task",
            )
            .keep("a oneshot systemd unit: debugfs begins anew at each boot"),
        )
        .touches(Touches::all([Pattern::Is("throttle".into())]))
        .into()
}

/// Tasks in a real-time or deadline class that may run on the job's CPUs; the kernel's own that are bound there are left
/// out, since nothing moves them, and so are threads of interrupts, which follow their interrupt.
pub(super) fn tasks(node: &Node) -> Checked {
    let mut found: Vec<(Process, colony_node::cpu::CpuSet)> = Vec::new();
    for process in
        daemons::threads(node)?.filter(|p| p.is_real_time() && !p.is_bound() && !p.name.starts_with("irq/"))
    {
        let Some(allowed) = process.allowed(node) else { continue };
        if !node.hit(&allowed).is_empty() {
            found.push((process, allowed));
        }
    }
    let Some((first, _)) = found.first() else {
        return Outcome::passed("/proc/*/task/*/stat", "no real-time task may run on the job's CPUs");
    };
    let mut names: Vec<&str> = found.iter().map(|(p, _)| p.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let shown = names.iter().take(6).copied().collect::<Vec<_>>().join(", ");
    let more = if names.len() > 6 { format!(" and {} more", names.len() - 6) } else { String::new() };
    let finding =
        Finding::new(Level::Medium, format!("Real-time tasks may run on the job's CPUs: {shown}{more}."))
            .seen(
                first.file("stat"),
                format!("{} ({}, priority {})", first.name, first.class(), first.priority),
            )
            .touches(Touches::all(names.iter().map(|n| Pattern::thread(n))));
    let Some(rest) = node.elsewhere() else { return finding.into() };
    let rest = rest.to_string();
    let change = |(process, allowed): &(Process, colony_node::cpu::CpuSet)| {
        let tid = process.tid.to_string();
        Change::command(&["taskset", "-pc", &rest, &tid], &["taskset", "-pc", &allowed.to_string(), &tid])
    };
    let remedy = Remedy::new(found.iter().map(change), "the tasks share fewer CPUs");
    finding.remedy(remedy.keep(format!("CPUAffinity={rest} in the [Service] section of each unit"))).into()
}
