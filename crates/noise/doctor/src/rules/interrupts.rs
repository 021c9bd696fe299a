// SPDX-License-Identifier: MIT OR Apache-2.0
//! Device interrupts on the job's CPUs.

use crate::finding::{Finding, Level};
use crate::interrupt_table::TABLE;
use crate::irq::{self, Irq, OnJob, Placement};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::remedy::{Change, Remedy, mask};
use crate::root::Unread;
use crate::touches::{Pattern, Touches};

use super::interrupt_targets::{NAMED, Targets, is_or_are, named, numbers};
use super::lists;

fn finding(irqs: &[&Irq], level: Level, title: String) -> Finding {
    let mut by_count: Vec<&Irq> = irqs.to_vec();
    by_count.sort_by_key(|irq| std::cmp::Reverse(irq.count));
    let finding = by_count.iter().take(NAMED).fold(Finding::new(level, title), |f, irq| {
        let (file, value) = irq.seen();
        f.seen(file, value)
    });
    finding.touches(Touches::all(irqs.iter().flat_map(|irq| irq.patterns())))
}

/// The interrupts whose handlers or CPUs nobody has collected.
fn not_collected(numbers: &[u32]) -> String {
    let shown: Vec<String> = numbers.iter().take(NAMED).map(u32::to_string).collect();
    let more = if numbers.len() > NAMED { " and more" } else { "" };
    match &shown[..] {
        [one] => {
            format!("interrupt {one} is not known: {TABLE} or its files in /proc/irq were not collected")
        }
        _ => format!(
            "interrupts {}{more} are not known: {TABLE} or their files in /proc/irq were not collected",
            shown.join(", ")
        ),
    }
}

/// Interrupts that can be moved to other CPUs.
pub(super) fn movable(node: &Node) -> Checked {
    let OnJob { irqs, elsewhere, unknown, .. } = node.interrupts()?;
    let placed = |placement| -> Vec<&Irq> { irqs.iter().filter(|irq| irq.placement == placement).collect() };
    let (irqs, fixed) = (placed(Placement::Movable), placed(Placement::Fixed));
    let fixed = match fixed.len() {
        0 => None,
        1 => Some(format!("{} belongs to its CPU and cannot be moved", numbers(&fixed))),
        _ => Some(format!("{} belong to their CPUs and cannot be moved", numbers(&fixed))),
    };
    if irqs.is_empty() && !unknown.is_empty() {
        return Outcome::undecided(not_collected(unknown));
    }
    if irqs.is_empty() {
        let value = "no movable interrupt is sent to the job's CPUs";
        return Outcome::passed("/proc/irq", fixed.map_or(value.into(), |fixed| format!("{value}; {fixed}")));
    }
    let title = format!("Device {} {} sent to the job's CPUs.", named(&irqs), is_or_are(&irqs));
    let busy = irqs.iter().any(|irq| irq.count.is_none_or(|n| n > 0));
    let mut finding = finding(&irqs, if busy { Level::Medium } else { Level::Low }, title);
    if let Some(fixed) = fixed {
        finding = finding.seen("/proc/irq", fixed);
    }
    if !unknown.is_empty() {
        finding = finding.seen("/proc/irq", not_collected(unknown));
    }
    let Some(rest) = node.elsewhere() else { return finding.into() };
    let targets = Targets::choose(node, &irqs, rest).beside(elsewhere);
    let remedy = Remedy::new(targets.changes(), &targets.risk());
    let keep = format!(
        "irqaffinity={rest} on the kernel command line, and {} if irqbalance runs (it moves interrupts back)",
        super::irqbalance::line_and_file(node)
    );
    let finding = finding
        .remedy(remedy.keep(keep))
        .advice("An interrupt is sent to its new CPU from the next time on that it arrives.");
    targets.advice().into_iter().fold(finding, Finding::advice).into()
}

/// Interrupts that the kernel places itself, one queue a CPU.
pub(super) fn managed(node: &Node) -> Checked {
    let OnJob { irqs, unknown, .. } = node.interrupts()?;
    let irqs: Vec<&Irq> = irqs.iter().filter(|irq| irq.placement == Placement::Managed).collect();
    if irqs.is_empty() && !unknown.is_empty() {
        return Outcome::undecided(not_collected(unknown));
    }
    if irqs.is_empty() {
        return Outcome::passed("/proc/irq", "no managed interrupt is sent to the job's CPUs");
    }
    let title =
        format!("Managed {} {} sent to the job's CPUs and cannot be moved.", named(&irqs), is_or_are(&irqs));
    let alone = irqs.iter().all(|irq| irq.is_confined_to_job());
    let finding = finding(&irqs, Level::Low, title);
    if alone || node.elsewhere().is_none() {
        return finding
            .advice(
                "A queue that serves only job CPUs interrupts only after I/O from those CPUs. Fewer queues (a parameter of \
                 the driver) make the kernel spread each over more CPUs.",
            )
            .into();
    }
    let (covered, proposal) = lists::spare_managed(node)?;
    if covered {
        return finding.advice("isolcpus=managed_irq is set for all CPUs of the job, and the kernel spares them where another CPU can serve the queue.").into();
    }
    proposal
        .add_to(
            finding,
            "the scheduler no longer balances these CPUs: each thread of a job must be bound to a CPU of its own",
        )
        .advice("managed_irq (Linux 5.6) holds for interrupts that may also go to other CPUs.")
        .into()
}

/// New interrupts get this mask.
pub(super) fn default_affinity(node: &Node) -> Checked {
    const FILE: &str = "/proc/irq/default_smp_affinity";
    let text = node.root.value(FILE)?;
    let hit = node.hit(&node.mask(FILE)?);
    if hit.is_empty() {
        return Outcome::passed(FILE, text);
    }
    let finding = Finding::new(Level::Note, format!("New interrupts may be sent to {}.", hit.named()))
        .seen(FILE, &text);
    let Some(rest) = node.elsewhere() else { return finding.into() };
    finding
        .remedy(
            Remedy::write(FILE, &text, &mask(rest), "none known")
                .keep(format!("irqaffinity={rest} on the kernel command line")),
        )
        .into()
}

/// Packets are handed to other CPUs by masks of receive queues (`Documentation/networking/scaling.rst`).
pub(super) fn receive_steering(node: &Node) -> Checked {
    const NET: &str = "/sys/class/net";
    let mut hit = Vec::new();
    let mut masks = 0;
    for device in node.root.list(NET)? {
        let queues = format!("{NET}/{device}/queues");
        // a device may vanish, and a collection of files may lack the folder that its link leads to
        for queue in node.root.list(&queues).unwrap_or_default().into_iter().filter(|q| q.starts_with("rx-"))
        {
            let file = format!("{queues}/{queue}/rps_cpus");
            let cpus = match node.mask(&file) {
                Err(e) if e.is_missing() => continue,
                other => other?,
            };
            masks += 1;
            if !node.hit(&cpus).is_empty() {
                hit.push((file.clone(), node.root.value(&file)?));
            }
        }
    }
    if masks == 0 && !node.is_live() {
        return Err(Unread::Missing(format!("{NET}/*/queues/rx-*/rps_cpus")));
    }
    let Some((file, value)) = hit.first().cloned() else {
        return Outcome::passed(format!("{NET}/*/queues/rx-*/rps_cpus"), "no job CPU");
    };
    let finding = Finding::new(Level::Medium, "Received packets are handed to the job's CPUs.")
        .seen(file, value)
        .touches(Touches::part_of([
            Pattern::Is("softirq:NET_RX".into()),
            Pattern::Is("irq:call_function_single".into()),
        ]));
    let Some(rest) = node.elsewhere() else { return finding.into() };
    let change = Change::writes(hit, &mask(rest));
    finding
        .remedy(
            Remedy::new([change], "the other CPUs take all packets")
                .keep("a udev rule, or the network's own configuration"),
        )
        .into()
}

/// Names of the handlers of the interrupt `number`; empty if it has none. The names are the same after a boot, unlike the number.
#[must_use]
pub fn interrupt_handlers(node: &Node, number: u32) -> Vec<String> {
    let table = node.interrupts().ok().and_then(|all| all.table.as_ref());
    irq::handlers(&node.root, number, table.and_then(|t| t.row(number)))
}
