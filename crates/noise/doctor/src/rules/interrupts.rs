// SPDX-License-Identifier: MIT OR Apache-2.0
//! Device interrupts on the job's CPUs.

use colony_node::cpu::CpuSet;
use colony_node::interrupts::{self, Interrupt};

use crate::finding::{Finding, Level};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::process::processes;
use crate::remedy::{Change, Remedy, mask};
use crate::root::Unread;
use crate::touches::{Pattern, Touches};

/// Most interrupts named as evidence.
const NAMED: usize = 12;

/// An interrupt with a handler that may arrive at one of the job's CPUs.
struct Irq {
    number: u32,
    /// Names of its handlers.
    handlers: Vec<String>,
    /// The CPUs it may be sent to.
    allowed: CpuSet,
    /// The CPUs it is sent to now.
    effective: CpuSet,
    /// Interrupts on the job's CPUs since boot.
    count: Option<u64>,
    placement: Placement,
}

/// The way in which an interrupt gets its CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    /// By its affinity, which root may change.
    Movable,
    /// By the kernel, one queue a CPU.
    Managed,
    /// It belongs to its CPU, as a timer does, or its driver has excluded it from balancing.
    Fixed,
}

impl Irq {
    fn file(&self) -> String {
        format!("/proc/irq/{}/smp_affinity_list", self.number)
    }

    fn seen(&self) -> (String, String) {
        let count = self.count.map_or(String::new(), |n| format!(", {n} on job CPUs since boot"));
        let (handlers, effective) = (self.handlers.join(" "), &self.effective);
        (
            format!("/proc/irq/{}/effective_affinity_list", self.number),
            format!("{effective} ({handlers}{count})"),
        )
    }

    /// Its names in a trace: by its handlers, and by the thread of a threaded one.
    fn patterns(&self) -> impl Iterator<Item = Pattern> {
        self.handlers
            .iter()
            .flat_map(|h| [Pattern::irq(h), Pattern::thread(&format!("irq/{}-{h}", self.number))])
    }
}

/// The interrupts that are sent to the job's CPUs now.
///
/// An effective affinity (Linux 4.13) is one CPU of those allowed on most machines. It changes when the interrupt next
/// arrives: an x86 vector is moved by its own handler. So an interrupt that may not arrive at a job's CPU any more (`allowed`)
/// is moved already, and one that may arrive only there counts although it was seen elsewhere last.
fn on_job(node: &Node) -> Result<Vec<Irq>, Unread> {
    node.root.list("/proc/irq")?;
    let table = node.root.read("/proc/interrupts").unwrap_or_default();
    let mut found = Vec::new();
    for number in node.root.numbers("/proc/irq") {
        let dir = format!("/proc/irq/{number}");
        let handlers = handlers(node, &dir, number, &table);
        if handlers.is_empty() {
            continue;
        }
        // an interrupt may be freed meanwhile
        let Ok(allowed) = node.cpus(&format!("{dir}/smp_affinity_list")) else { continue };
        let effective = node.cpus(&format!("{dir}/effective_affinity_list")).ok().filter(|e| !e.is_empty());
        let effective = effective.unwrap_or_else(|| allowed.clone());
        let may_stay_away = !node.rest.and(&allowed).is_empty();
        if node.hit(&allowed).is_empty() || (may_stay_away && node.hit(&effective).is_empty()) {
            continue;
        }
        let count = count(node, number, &table);
        let placement = placement(node, number, &handlers)?;
        found.push(Irq { number, handlers, allowed, effective, count, placement });
    }
    Ok(found)
}

/// Names of an interrupt's handlers: its subdirectories, or else the last column of `/proc/interrupts`, if the device has
/// a name that no directory may have.
fn handlers(node: &Node, dir: &str, number: u32, table: &str) -> Vec<String> {
    let names = node.root.list(dir).unwrap_or_default();
    const FILES: [&str; 7] = [
        "affinity_hint",
        "effective_affinity",
        "effective_affinity_list",
        "node",
        "smp_affinity",
        "smp_affinity_list",
        "spurious",
    ];
    let named: Vec<String> = names.into_iter().filter(|n| !FILES.contains(&n.as_str())).collect();
    if !named.is_empty() {
        return named;
    }
    // without a handler nothing is there
    let last = line(table, number).map(|i| i.names()).unwrap_or_default();
    last.split(", ").filter(|n| !n.is_empty()).map(str::to_owned).collect()
}

/// Names of the handlers of the interrupt `number`; empty if it has none. The names are the same after a boot, unlike the number.
#[must_use]
pub fn interrupt_handlers(node: &Node, number: u32) -> Vec<String> {
    let table = node.root.read("/proc/interrupts").unwrap_or_default();
    handlers(node, &format!("/proc/irq/{number}"), number, &table)
}

/// The line of an interrupt in `/proc/interrupts`.
fn line(table: &str, number: u32) -> Option<Interrupt<'_>> {
    let label = number.to_string();
    interrupts::parse(table).find(|i| i.label == label)
}

/// Interrupts on the job's CPUs since boot, by `/proc/interrupts`.
fn count(node: &Node, number: u32, table: &str) -> Option<u64> {
    let counts = line(table, number)?.counts;
    let on_job = counts.into_iter().filter(|(cpu, _)| node.job.contains(*cpu));
    Some(on_job.fold(0, |sum, (_, n)| sum.saturating_add(n)))
}

/// The kernel refuses to move managed and fixed interrupts, with `EIO`, in newer kernels with `EPERM` (`irq_can_set_affinity_usr`).
/// The flags in debugfs show it. Without debugfs, newer kernels leave the file without a bit for writing, and older ones are
/// judged by the names of drivers that ask for managed interrupts (multi-queue block devices:
/// `pci_alloc_irq_vectors_affinity`).
fn placement(node: &Node, number: u32, handlers: &[String]) -> Result<Placement, Unread> {
    if let Ok(state) = node.root.read(&format!("/sys/kernel/debug/irq/irqs/{number}")) {
        let has = |flag: &str| state.split_whitespace().any(|word| word == flag);
        return Ok(match has("IRQD_AFFINITY_MANAGED") {
            true => Placement::Managed,
            false if has("IRQD_PER_CPU") || has("IRQD_NO_BALANCING") => Placement::Fixed,
            false => Placement::Movable,
        });
    }
    let writable = node.root.has_write_bit(&format!("/proc/irq/{number}/smp_affinity_list"))?;
    let queue = |name: &String| {
        let is_nvme = name.strip_prefix("nvme").and_then(|n| n.split_once('q'));
        let is_virtio = name.starts_with("virtio") && (name.contains("-req.") || name.ends_with("-request"));
        // queue 0 of NVMe is for administration, and movable
        is_virtio || is_nvme.is_some_and(|(_, queue)| queue != "0" && queue.parse::<u32>().is_ok())
    };
    let is_managed = !writable || handlers.iter().any(queue);
    Ok(if is_managed { Placement::Managed } else { Placement::Movable })
}

fn finding(irqs: &[Irq], level: Level, title: String) -> Finding {
    let mut by_count: Vec<&Irq> = irqs.iter().collect();
    by_count.sort_by_key(|irq| std::cmp::Reverse(irq.count));
    let finding = by_count.iter().take(NAMED).fold(Finding::new(level, title), |f, irq| {
        let (file, value) = irq.seen();
        f.seen(file, value)
    });
    finding.touches(Touches::all(irqs.iter().flat_map(Irq::patterns)))
}

fn numbers(irqs: &[Irq]) -> String {
    let shown: Vec<String> = irqs.iter().take(NAMED).map(|irq| irq.number.to_string()).collect();
    let more = if irqs.len() > NAMED { format!(" and {} more", irqs.len() - NAMED) } else { String::new() };
    format!("{}{more}", shown.join(", "))
}

/// Interrupts that can be moved to other CPUs.
pub(super) fn movable(node: &Node) -> Checked {
    let all = on_job(node)?;
    let (irqs, others): (Vec<Irq>, Vec<Irq>) =
        all.into_iter().partition(|irq| irq.placement == Placement::Movable);
    let fixed: Vec<Irq> = others.into_iter().filter(|irq| irq.placement == Placement::Fixed).collect();
    let fixed =
        (!fixed.is_empty()).then(|| format!("{} belong to their CPUs and cannot be moved", numbers(&fixed)));
    if irqs.is_empty() {
        let value = "no movable interrupt is sent to the job's CPUs";
        return Outcome::passed("/proc/irq", fixed.map_or(value.into(), |fixed| format!("{value}; {fixed}")));
    }
    let title = format!("Device interrupts {} are sent to the job's CPUs.", numbers(&irqs));
    let busy = irqs.iter().any(|irq| irq.count.is_none_or(|n| n > 0));
    let mut finding = finding(&irqs, if busy { Level::Medium } else { Level::Low }, title);
    if let Some(fixed) = fixed {
        finding = finding.seen("/sys/kernel/debug/irq/irqs", fixed);
    }
    let Some(rest) = node.elsewhere() else { return finding.into() };
    let files = irqs.iter().map(|irq| (irq.file(), irq.allowed.to_string()));
    let remedy = Remedy::new(
        [Change::writes(files, &rest.to_string())],
        "the other CPUs serve the devices: at high rates they may become the bottleneck",
    );
    let keep = format!(
        "irqaffinity={rest} on the kernel command line, and IRQBALANCE_BANNED_CPULIST={} in /etc/default/irqbalance if \
         irqbalance runs (it moves interrupts back)",
        node.job
    );
    finding
        .remedy(remedy.keep(keep))
        .advice("An interrupt is sent to its new CPU from the next time on that it arrives.")
        .into()
}

/// Interrupts that the kernel places itself, one queue a CPU.
pub(super) fn managed(node: &Node) -> Checked {
    let irqs: Vec<Irq> =
        on_job(node)?.into_iter().filter(|irq| irq.placement == Placement::Managed).collect();
    if irqs.is_empty() {
        return Outcome::passed("/proc/irq", "no managed interrupt is sent to the job's CPUs");
    }
    let title =
        format!("Managed interrupts {} are sent to the job's CPUs and cannot be moved.", numbers(&irqs));
    let alone = irqs.iter().all(|irq| node.rest.and(&irq.allowed).is_empty());
    let finding = finding(&irqs, Level::Low, title);
    if alone || node.elsewhere().is_none() {
        return finding
            .advice(
                "A queue that serves only job CPUs interrupts only after I/O from those CPUs. Fewer queues (a parameter of \
                 the driver) make the kernel spread each over more CPUs.",
            )
            .into();
    }
    let now = node.parameter("isolcpus")?;
    if now.as_deref().is_some_and(|flags| flags.contains("managed_irq")) {
        return finding.advice("isolcpus=managed_irq is set; it holds for CPUs that it lists.").into();
    }
    let (parameter, replaces) = super::isolation::isolcpus(node, now.as_deref());
    finding
        .remedy(Remedy::parameter(
            parameter,
            replaces.as_deref(),
            "the scheduler no longer balances these CPUs: each thread of a job must be bound to a CPU of its own",
        ))
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
    let finding =
        Finding::new(Level::Note, format!("New interrupts may be sent to CPUs {hit}.")).seen(FILE, &text);
    let Some(rest) = node.elsewhere() else { return finding.into() };
    finding
        .remedy(
            Remedy::write(FILE, &text, &mask(rest), "none known")
                .keep(format!("irqaffinity={rest} on the kernel command line")),
        )
        .into()
}

/// irqbalance moves interrupts to any CPU, except those that are isolated or in `nohz_full` (since irqbalance 1.0.8, if no
/// list of its own is given), or in its list (`IRQBALANCE_BANNED_CPULIST` since 1.8, `IRQBALANCE_BANNED_CPUS` before).
pub(super) fn irqbalance(node: &Node) -> Checked {
    let runs = processes(node)?.find(|p| p.name == "irqbalance");
    let Some(process) = runs else { return Outcome::passed("/proc/*/stat", "irqbalance does not run") };
    let seen = format!("/proc/{}/stat", process.pid);
    for file in ["/etc/default/irqbalance", "/etc/sysconfig/irqbalance"] {
        let text = node.root.read(file).unwrap_or_default();
        let bans = text.lines().map(str::trim).find(|l| {
            l.starts_with("IRQBALANCE_BANNED_CPU")
                && l.split_once('=').is_some_and(|(_, v)| !v.trim_matches('"').is_empty())
        });
        if let Some(line) = bans {
            return Outcome::passed(file, line);
        }
    }
    let kept: CpuSet = ["isolated", "nohz_full"]
        .iter()
        .filter_map(|f| node.cpus(&format!("/sys/devices/system/cpu/{f}")).ok())
        .flat_map(|set| set.iter().collect::<Vec<_>>())
        .collect();
    if node.job.without(&kept).is_empty() {
        return Outcome::passed(seen, "irqbalance leaves isolated CPUs alone");
    }
    let line = Change::Line {
        file: "/etc/default/irqbalance".into(),
        line: format!("IRQBALANCE_BANNED_CPULIST={}", node.job),
        reload: ["systemctl", "restart", "irqbalance"].map(str::to_owned).into(),
    };
    Finding::new(Level::Low, "irqbalance may move interrupts to the job's CPUs at any time.")
        .seen(seen, "irqbalance")
        .remedy(
            Remedy::new([line], "the other CPUs serve all devices")
                .keep("the line itself; on Red Hat the file is /etc/sysconfig/irqbalance"),
        )
        .into()
}

/// Packets are handed to other CPUs by masks of receive queues (`Documentation/networking/scaling.rst`).
pub(super) fn receive_steering(node: &Node) -> Checked {
    const NET: &str = "/sys/class/net";
    let mut hit = Vec::new();
    for device in node.root.list(NET)? {
        let queues = format!("{NET}/{device}/queues");
        for queue in node.root.list(&queues).unwrap_or_default().into_iter().filter(|q| q.starts_with("rx-"))
        {
            let file = format!("{queues}/{queue}/rps_cpus");
            if node.mask(&file).is_ok_and(|cpus| !node.hit(&cpus).is_empty()) {
                hit.push((file.clone(), node.root.value(&file)?));
            }
        }
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
