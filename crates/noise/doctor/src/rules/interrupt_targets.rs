// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spare CPUs that interrupts are moved to: those of the device's NUMA node, if it has any.

use std::sync::Arc;

use colony_node::cpu::CpuSet;

use crate::irq::{Affinity, Irq};
use crate::node::Node;
use crate::remedy::Change;

/// Most interrupts named in a sentence or as evidence.
pub(super) const NAMED: usize = 12;

/// Interrupts of devices that a CPU of x86 can serve: 256 vectors, of which exceptions and the kernel itself take some 50
/// (`arch/x86/include/asm/irq_vectors.h`).
const VECTORS: usize = 200;

/// Numbers of the first interrupts, and how many follow.
pub(super) fn numbers(irqs: &[&Irq]) -> String {
    let shown: Vec<String> = irqs.iter().take(NAMED).map(|irq| irq.number.to_string()).collect();
    let more = if irqs.len() > NAMED { format!(" and {} more", irqs.len() - NAMED) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// The interrupts in a sentence: `interrupt 24`, `interrupts 24, 25`.
pub(super) fn named(irqs: &[&Irq]) -> String {
    let noun = if irqs.len() == 1 { "interrupt" } else { "interrupts" };
    format!("{noun} {}", numbers(irqs))
}

/// The verb behind [`named`].
pub(super) fn is_or_are(irqs: &[&Irq]) -> &'static str {
    if irqs.len() == 1 { "is" } else { "are" }
}

/// Spare CPUs, and the interrupts that may go to all of them. The kernel sends each to the one that has the fewest (x86:
/// `kernel/irq/matrix.c`; Arm's GIC with ITS: `its_select_cpu`).
struct Target<'a> {
    cpus: CpuSet,
    irqs: Vec<&'a Irq>,
    /// Number of other interrupts that these CPUs alone serve now.
    others: usize,
}

/// The interrupts of a NUMA node that has CPUs, none of them spare.
struct WithoutSpare<'a> {
    numa_node: usize,
    irqs: Vec<&'a Irq>,
}

/// Spare CPUs for each interrupt.
pub(super) struct Targets<'a> {
    targets: Vec<Target<'a>>,
    without_spare: Vec<WithoutSpare<'a>>,
}

impl<'a> Targets<'a> {
    /// Chooses among the CPUs `spare`. All of them serve an interrupt whose NUMA node is not known, or has no spare CPU.
    pub(super) fn choose(node: &Node, irqs: &[&'a Irq], spare: &CpuSet) -> Self {
        let mut chosen = Self { targets: Vec::new(), without_spare: Vec::new() };
        for &irq in irqs {
            let near = numa_node(node, irq).and_then(|number| {
                let cpus = node.cpus(&format!("/sys/devices/system/node/node{number}/cpulist")).ok()?;
                (!cpus.is_empty()).then(|| (number, cpus.and(spare)))
            });
            match near {
                Some((_, near)) if !near.is_empty() => chosen.add(irq, near),
                Some((number, _)) => {
                    chosen.add_without_spare(irq, number);
                    chosen.add(irq, spare.clone());
                }
                None => chosen.add(irq, spare.clone()),
            }
        }
        chosen
    }

    /// Counts the interrupts that the spare CPUs serve already. `elsewhere`: the CPUs of each.
    pub(super) fn beside(mut self, elsewhere: &[Arc<Affinity>]) -> Self {
        for target in &mut self.targets {
            let is_here = |affinity: &&Arc<Affinity>| affinity.cpus.without(&target.cpus).is_empty();
            target.others = elsewhere.iter().filter(is_here).count();
        }
        self
    }

    fn add(&mut self, irq: &'a Irq, cpus: CpuSet) {
        match self.targets.iter_mut().find(|target| target.cpus == cpus) {
            Some(target) => target.irqs.push(irq),
            None => self.targets.push(Target { cpus, irqs: vec![irq], others: 0 }),
        }
    }

    fn add_without_spare(&mut self, irq: &'a Irq, numa_node: usize) {
        match self.without_spare.iter_mut().find(|other| other.numa_node == numa_node) {
            Some(other) => other.irqs.push(irq),
            None => self.without_spare.push(WithoutSpare { numa_node, irqs: vec![irq] }),
        }
    }

    pub(super) fn changes(&self) -> impl Iterator<Item = Change> {
        self.targets.iter().map(|Target { cpus, irqs, .. }| {
            let files = irqs.iter().map(|irq| (irq.file(), irq.allowed.cpus.to_string()));
            Change::writes(files, &cpus.to_string())
        })
    }

    pub(super) fn risk(&self) -> String {
        let counts: Vec<String> =
            self.targets.iter().map(|t| format!("{} on {}", counted(t.irqs.len()), t.cpus.named())).collect();
        format!(
            "the other CPUs serve the devices ({}): at high rates they may become the bottleneck",
            counts.join(", ")
        )
    }

    /// Sentences about interrupts that the spare CPUs cannot serve well.
    pub(super) fn advice(&self) -> Vec<String> {
        let far = self.without_spare.iter().map(|WithoutSpare { numa_node, irqs }| {
            format!(
                "No CPU of NUMA node {numa_node} is spare, so {} of its devices {} to CPUs of other nodes: leave a core of \
                 each node to the system (colony run --spare-cores 1/numa).",
                named(irqs),
                if irqs.len() == 1 { "goes" } else { "go" }
            )
        });
        let is_crowded = |t: &&Target<'_>| t.irqs.len() + t.others > t.cpus.len() * VECTORS;
        let crowded = self.targets.iter().filter(is_crowded).map(|t| {
            format!(
                "A CPU of x86 can serve some {VECTORS} interrupts of devices, so {} cannot take {} beside {} that {} there: \
                 leave more cores to the system.",
                t.cpus.named(),
                counted(t.irqs.len()),
                t.others,
                if t.others == 1 { "is" } else { "are" }
            )
        });
        far.chain(crowded).collect()
    }
}

fn counted(interrupts: usize) -> String {
    if interrupts == 1 { "1 interrupt".into() } else { format!("{interrupts} interrupts") }
}

/// The NUMA node of the interrupt's device; `None` if it has none (`-1`), or the file does not tell.
fn numa_node(node: &Node, irq: &Irq) -> Option<usize> {
    let number = node.root.number(&format!("/proc/irq/{}/node", irq.number)).ok()?;
    usize::try_from(number).ok()
}
