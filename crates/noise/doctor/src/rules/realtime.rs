// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real-time classes: what holds them back, and who else is in them.

use std::collections::BTreeMap;

use colony_node::cpu::CpuSet;

use crate::finding::{Finding, Level};
use crate::holders::Holders;
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::process::{Process, threads};
use crate::remedy::{Change, Loss, Remedy, TaskNow};
use crate::root::Unread;
use crate::touches::{Pattern, Touches};

/// Names of tasks in a title.
const NAMED: usize = 6;
/// A folder that every kernel with the scheduler's files in debugfs has (Linux 5.13).
const DEBUG: &str = "/sys/kernel/debug/sched";
/// The fair server's settings, a folder for each CPU.
const FAIR_SERVER: &str = "/sys/kernel/debug/sched/fair_server";

/// Returns `true` if this kernel has a fair server, by its files: distributions take it into older kernels, or leave it out of
/// newer ones. `None` if debugfs is not mounted, or closed to this user.
fn has_fair_server(node: &Node) -> Option<bool> {
    match node.root.list(FAIR_SERVER) {
        Ok(_) => Some(true),
        // a collection of files may have only some of the folder
        Err(e) if e.is_missing() => (node.is_live() && node.root.exists(DEBUG)).then_some(false),
        Err(_) => None,
    }
}

fn fair_server_runtime(cpu: usize) -> String {
    format!("{FAIR_SERVER}/cpu{cpu}/runtime")
}

/// The files of the fair servers that are on, on these CPUs, each with its nanoseconds. Unreadable files are left out.
pub(super) fn served(node: &Node, cpus: &CpuSet) -> Vec<(String, String)> {
    let runtime = |cpu| {
        let file = fair_server_runtime(cpu);
        let now = node.root.number(&file).ok().filter(|ns| *ns != 0)?;
        Some((file, now.to_string()))
    };
    cpus.iter().filter_map(runtime).collect()
}

/// Tasks in a real-time class may run for so long of each period, and ordinary tasks get the rest. In a kernel with a fair
/// server, the server does this, and the limit holds for groups of real-time tasks only (`kernel/sched/rt.c`,
/// `CONFIG_RT_GROUP_SCHED`).
pub(super) fn throttling(node: &Node) -> Checked {
    const FILE: &str = "/proc/sys/kernel/sched_rt_runtime_us";
    let runtime = node.root.number(FILE)?;
    if runtime < 0 {
        return Outcome::passed(FILE, runtime.to_string());
    }
    let period = node.root.number("/proc/sys/kernel/sched_rt_period_us")?;
    if runtime >= period {
        return Outcome::passed(FILE, format!("{runtime} of {period}"));
    }
    if has_fair_server(node) == Some(true) && node.config("CONFIG_RT_GROUP_SCHED") == Some(false) {
        return Outcome::passed(FAIR_SERVER, "the fair server protects ordinary tasks, this limit does not");
    }
    Finding::new(
        Level::Low,
        format!("A job in a real-time class is stopped for {} µs of each {period} µs.", period - runtime),
    )
    .seen(FILE, runtime.to_string())
    .remedy(
        Remedy::sysctl(
            FILE,
            &runtime.to_string(),
            "-1",
            "a real-time task that never sleeps takes its CPU for ever; keep a CPU free of the job",
        )
        .loses(Loss::Protection),
    )
    .touches(Touches::all([Pattern::Is("throttle".into())]))
    .into()
}

/// A deadline server gives tasks of CFS so many nanoseconds of each period although real-time tasks want the CPU
/// (Linux 6.12, `kernel/sched/debug.c`).
pub(super) fn fair_server(node: &Node) -> Checked {
    match has_fair_server(node) {
        Some(true) => {}
        Some(false) => return Outcome::passed(DEBUG, "this kernel has no fair server"),
        None => {
            return match node.version() {
                Some(version) if version < (6, 12) => {
                    Outcome::passed("/proc/sys/kernel/osrelease", "no fair server before Linux 6.12")
                }
                _ => Outcome::undecided(format!(
                    "{FAIR_SERVER} cannot be read: is debugfs mounted at /sys/kernel/debug, and is this root?"
                )),
            };
        }
    }
    for cpu in node.job.iter() {
        node.root.number(&fair_server_runtime(cpu))?;
    }
    let served = served(node, &node.job);
    let Some((file, value)) = served.first().cloned() else {
        return Outcome::passed(FAIR_SERVER, "0 on the job's CPUs");
    };
    Finding::new(Level::Low, "The fair server takes time from a job in a real-time class, if other tasks wait.")
        .seen(file, format!("{value} ns"))
        .remedy(
            Remedy::new(
                [Change::writes(served, "0")],
                "an ordinary task on these CPUs, such as a bound kernel worker, may wait for ever behind a real-time task",
            )
            .loses(Loss::Protection)
            .keep("a oneshot systemd unit: debugfs begins anew at each boot"),
        )
        .touches(Touches::all([Pattern::Is("throttle".into())]))
        .into()
}

/// Real-time tasks that may run on the job's CPUs.
#[derive(Default)]
struct RealTime {
    /// Tasks that can be moved, with the CPUs each may run on.
    movable: Vec<(Process, CpuSet)>,
    /// Numbers of tasks that stay with their owner.
    held: BTreeMap<String, usize>,
}

impl RealTime {
    /// The kernel's own tasks that are bound there are left out, since nothing moves them, and so are threads of interrupts,
    /// which follow their interrupt.
    fn find(node: &Node, holders: &Holders) -> Result<Self, Unread> {
        let is_candidate = |p: &Process| p.is_real_time() && !p.is_bound() && !p.name.starts_with("irq/");
        let mut found = Self::default();
        for process in threads(node)?.filter(is_candidate) {
            let Some(allowed) = process.allowed(node).filter(|cpus| !node.hit(cpus).is_empty()) else {
                continue;
            };
            match holders.owner_of(node, &process) {
                Some(owner) => *found.held.entry(owner).or_default() += 1,
                None => found.movable.push((process, allowed)),
            }
        }
        Ok(found)
    }

    /// The tasks that stay, in words; `None` if there are none.
    fn held(&self) -> Option<String> {
        let all: Vec<String> = self.held.iter().map(|(owner, count)| format!("{count} of {owner}")).collect();
        (!all.is_empty()).then(|| format!("left alone: {}", all.join(", ")))
    }
}

/// Tasks in a real-time or deadline class that may run on the job's CPUs. Those of Colony and of running jobs are no finding.
pub(super) fn tasks(node: &Node) -> Checked {
    let holders = Holders::read(node);
    let found = RealTime::find(node, &holders)?;
    let held = found.held();
    let Some((first, _)) = found.movable.first() else {
        return match held {
            Some(held) => Outcome::passed("/proc/*/cgroup", held),
            None => Outcome::passed("/proc/*/task/*/stat", "no real-time task may run on the job's CPUs"),
        };
    };
    let mut names: Vec<&str> = found.movable.iter().map(|(p, _)| p.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let shown = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    let more = if names.len() > NAMED { format!(" and {} more", names.len() - NAMED) } else { String::new() };
    let subject = if found.movable.len() == 1 { "A real-time task" } else { "Real-time tasks" };
    let mut finding =
        Finding::new(Level::Medium, format!("{subject} may run on the job's CPUs: {shown}{more}."))
            .seen(
                first.file("stat"),
                format!("{} ({}, priority {})", first.name, first.class(), first.priority),
            )
            .touches(Touches::all(names.iter().map(|n| Pattern::thread(n))));
    if let Some(held) = held {
        finding = finding.seen("/proc/*/cgroup", held);
    }
    if holders.are_hidden {
        finding =
            finding.advice("Only root sees which tasks belong to Colony and to its jobs: look as root.");
    }
    let Some(rest) = node.elsewhere() else { return finding.into() };
    let task = |(process, cpus): &(Process, CpuSet)| {
        Some(TaskNow { task: process.id()?, name: process.name.clone(), cpus: cpus.clone() })
    };
    let tasks = found.movable.iter().filter_map(task).collect();
    let remedy = Remedy::new([Change::Affinity { tasks, cpus: rest.clone() }], "the tasks share fewer CPUs");
    finding.remedy(remedy.keep(format!("CPUAffinity={rest} in the [Service] section of each unit"))).into()
}
