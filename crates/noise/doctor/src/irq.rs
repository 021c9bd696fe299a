// SPDX-License-Identifier: MIT OR Apache-2.0
//! Device interrupts on the job's CPUs, and what the kernel lets root do with each.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use colony_node::cpu::CpuSet;

use crate::interrupt_table::{InterruptTable, Row};
use crate::remedy::parse_mask;
use crate::root::{Root, Unread};
use crate::touches::Pattern;

/// An interrupt with a handler that may arrive at one of the job's CPUs.
#[derive(Debug)]
pub(crate) struct Irq {
    pub(crate) number: u32,
    /// Names of its handlers.
    pub(crate) handlers: Vec<String>,
    /// The CPUs it may be sent to.
    pub(crate) allowed: Arc<Affinity>,
    /// The CPUs it is sent to now.
    effective: Arc<Affinity>,
    /// The file that has them.
    effective_file: String,
    /// `true` if the kernel says where it is sent, `false` if `effective` is what is allowed.
    has_effective: bool,
    /// Interrupts on the job's CPUs since boot.
    pub(crate) count: Option<u64>,
    pub(crate) placement: Placement,
}

/// The way in which an interrupt gets its CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// By its affinity, which root may change.
    Movable,
    /// By the kernel, one queue a CPU.
    Managed,
    /// It belongs to its CPU, as a timer does, or its driver has excluded it from balancing.
    Fixed,
}

/// CPUs that an interrupt is sent to, compared with the job's once for all interrupts with the same.
#[derive(Debug)]
pub(crate) struct Affinity {
    pub(crate) cpus: CpuSet,
    has_job: bool,
    has_rest: bool,
}

/// The node's files, and the CPUs that interrupts are compared with.
#[derive(Clone, Copy)]
pub(crate) struct NodeView<'a> {
    pub(crate) root: &'a Root,
    /// CPUs of the job.
    pub(crate) job: &'a CpuSet,
    /// Online CPUs that the job leaves to the system.
    pub(crate) rest: &'a CpuSet,
}

/// The interrupts that are sent to the job's CPUs now.
///
/// An effective affinity (Linux 4.13) is one CPU of those allowed on most machines. It changes when the interrupt next
/// arrives: an x86 vector is moved by its own handler. So an interrupt that may not arrive at a job's CPU any more (`allowed`)
/// is moved already, and one that may arrive only there counts although it was seen elsewhere last.
#[derive(Debug)]
pub(crate) struct OnJob {
    pub(crate) irqs: Vec<Irq>,
    /// CPUs of each interrupt with a handler that may not arrive at the job's CPUs.
    pub(crate) elsewhere: Vec<Arc<Affinity>>,
    /// Numbers of those whose files do not say whether they have a handler, or where they are sent.
    pub(crate) unknown: Vec<u32>,
    /// The table of all interrupts; `None` if it is not there.
    pub(crate) table: Option<InterruptTable>,
}

impl Irq {
    pub(crate) fn file(&self) -> String {
        format!("/proc/irq/{}/smp_affinity_list", self.number)
    }

    pub(crate) fn seen(&self) -> (String, String) {
        let count = self.count.map_or(String::new(), |n| format!(", {n} on job CPUs since boot"));
        let (handlers, effective) = (self.handlers.join(" "), &self.effective.cpus);
        (self.effective_file.clone(), format!("{effective} ({handlers}{count})"))
    }

    /// Returns `true` if it may be sent only to CPUs of the job.
    pub(crate) fn is_confined_to_job(&self) -> bool {
        !self.allowed.has_rest
    }

    /// Its names in a trace: by its handlers, and by the thread of a threaded one.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = Pattern> {
        self.handlers
            .iter()
            .flat_map(|h| [Pattern::irq(h), Pattern::thread(&format!("irq/{}-{h}", self.number))])
    }
}

/// Reader of affinities. Thousands of interrupts have few different ones.
struct Affinities<'a> {
    node: NodeView<'a>,
    known: HashMap<String, Arc<Affinity>>,
}

impl Affinities<'_> {
    /// The CPUs in `smp_affinity_list` or `effective_affinity_list` of an interrupt, or else in the mask beside it, and the file that
    /// has them; `None` if neither is readable or the list is empty.
    fn read(&mut self, list: &str) -> Option<(Arc<Affinity>, String)> {
        let mask = list.strip_suffix("_list")?;
        let (text, file) = match self.node.root.value(list) {
            Ok(text) => (text, list),
            Err(_) => (self.node.root.value(mask).ok()?, mask),
        };
        let is_list = file == list;
        let key = format!("{is_list}{text}");
        if let Some(known) = self.known.get(&key) {
            return Some((known.clone(), file.to_owned()));
        }
        let cpus: CpuSet = if is_list { text.parse().ok()? } else { parse_mask(&text)? };
        if cpus.is_empty() {
            return None;
        }
        let has = |set: &CpuSet| cpus.iter().any(|cpu| set.contains(cpu));
        let (has_job, has_rest) = (has(self.node.job), has(self.node.rest));
        let found = Arc::new(Affinity { cpus, has_job, has_rest });
        self.known.insert(key, found.clone());
        Some((found, file.to_owned()))
    }
}

/// Reads all interrupts. Thousands of them are read once, for all rules.
pub(crate) fn on_job(node: NodeView<'_>) -> Result<OnJob, Unread> {
    node.root.list("/proc/irq")?;
    let numbers = node.root.numbers("/proc/irq");
    if numbers.is_empty() {
        // every node has interrupts: nobody has collected them
        return Err(Unread::Missing("/proc/irq/N".into()));
    }
    let table = match InterruptTable::read(node.root, node.job) {
        Err(e) if e.is_missing() => None,
        other => Some(other?),
    };
    let mut affinities = Affinities { node, known: HashMap::new() };
    let (mut irqs, mut elsewhere, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    let mut spread = SpreadDevices::default();
    for number in numbers {
        let dir = format!("/proc/irq/{number}");
        let row = table.as_ref().and_then(|t| t.row(number));
        let Some((allowed, allowed_file)) = affinities.read(&format!("{dir}/smp_affinity_list")) else {
            // the kernel may have freed it meanwhile; a collection of files may lack its CPUs
            if !node.root.is_live() && !handlers(node.root, number, row).is_empty() {
                unknown.push(number);
            }
            continue;
        };
        spread.add(number, row, &allowed, || has_hint(node.root, &dir));
        if !allowed.has_job {
            if !handlers(node.root, number, row).is_empty() {
                elsewhere.push(allowed);
            }
            continue;
        }
        let effective = affinities.read(&format!("{dir}/effective_affinity_list"));
        let has_effective = effective.is_some();
        let (effective, effective_file) = effective.unwrap_or_else(|| (allowed.clone(), allowed_file));
        if allowed.has_rest && !effective.has_job {
            continue;
        }
        let handlers = handlers(node.root, number, row);
        if handlers.is_empty() {
            if table.is_none() && !node.root.is_live() {
                unknown.push(number);
            }
            continue;
        }
        let count = row.map(|row| row.on_job);
        irqs.push(Irq {
            number,
            handlers,
            allowed,
            effective,
            effective_file,
            has_effective,
            count,
            placement: Placement::Movable,
        });
    }
    for irq in &mut irqs {
        let row = table.as_ref().and_then(|t| t.row(irq.number));
        irq.placement = placement(node, irq, row, &spread)?;
    }
    Ok(OnJob { irqs, elsewhere, unknown, table })
}

/// Names of an interrupt's handlers: its subdirectories, or else the last column of `/proc/interrupts`, if the device has
/// a name that no directory may have.
pub(crate) fn handlers(root: &Root, number: u32, row: Option<&Row>) -> Vec<String> {
    const FILES: [&str; 7] = [
        "affinity_hint",
        "effective_affinity",
        "effective_affinity_list",
        "node",
        "smp_affinity",
        "smp_affinity_list",
        "spurious",
    ];
    // an interrupt may be freed meanwhile
    let names = root.list(&format!("/proc/irq/{number}")).unwrap_or_default();
    let named: Vec<String> = names.into_iter().filter(|n| !FILES.contains(&n.as_str())).collect();
    match row {
        Some(row) if named.is_empty() => row.handlers.clone(),
        _ => named,
    }
}

/// Returns `true` if a driver has suggested CPUs: drivers do so for interrupts that root may move.
fn has_hint(root: &Root, dir: &str) -> bool {
    let hint = root.value(&format!("{dir}/affinity_hint"));
    hint.is_ok_and(|mask| mask.bytes().any(|b| b.is_ascii_hexdigit() && b != b'0'))
}

/// The kernel refuses to move managed and fixed interrupts, with `EIO`, in newer kernels with `EPERM` (`irq_can_set_affinity_usr`).
/// The flags in debugfs show it. Without debugfs, the interrupt's controller tells which belong to one CPU, newer kernels leave the
/// file of one that cannot be moved without a bit for writing, and a device whose queues divide the CPUs among them has managed
/// interrupts. Names of drivers decide only for queues of which nothing else tells.
fn placement(
    node: NodeView<'_>,
    irq: &Irq,
    row: Option<&Row>,
    spread: &SpreadDevices,
) -> Result<Placement, Unread> {
    if let Ok(state) = node.root.read(&format!("/sys/kernel/debug/irq/irqs/{}", irq.number)) {
        let has = |flag: &str| state.split_whitespace().any(|word| word == flag);
        return Ok(match has("IRQD_AFFINITY_MANAGED") {
            true => Placement::Managed,
            false if has("IRQD_PER_CPU") || has("IRQD_NO_BALANCING") => Placement::Fixed,
            false => Placement::Movable,
        });
    }
    if row.is_some_and(|row| belongs_to_cpu(irq, row)) {
        return Ok(Placement::Fixed);
    }
    let file = [irq.file(), format!("/proc/irq/{}/smp_affinity", irq.number)];
    let writable = match node.root.has_write_bit(&file[0]) {
        Err(e) if e.is_missing() => node.root.has_write_bit(&file[1])?,
        other => other?,
    };
    let is_managed = !writable || spread.has(irq, node) || irq.handlers.iter().any(|h| is_disk_queue(h));
    Ok(if is_managed { Placement::Managed } else { Placement::Movable })
}

/// Returns `true` if the interrupt's controller delivers it to one CPU only: interrupts that are private to a core (PPI) of Arm's GIC
/// (`Documentation/devicetree/bindings/interrupt-controller/arm,gic-v3.yaml`: 16 to 31, and 1056 to 1119 in the extended range),
/// controllers inside a core, and event channels of Xen that are bound to a virtual CPU.
fn belongs_to_cpu(irq: &Irq, row: &Row) -> bool {
    let chip = row.chip.to_ascii_lowercase();
    let number = row.hardware_number;
    if chip.starts_with("gic") {
        return chip.ends_with("ppi")
            || chip.ends_with("ipi")
            || number.is_some_and(|n| n < 32 || (1056..1120).contains(&n));
    }
    let is_local = ["percpu", "per-cpu", "risc-v intc", "cpuintc", "bcm2836", "hpet"];
    let is_x86_timer = irq.number == 0 && chip.ends_with("io-apic");
    if is_x86_timer || is_local.iter().any(|name| chip.contains(name)) {
        return true;
    }
    // of controllers that are not known here: a device's interrupt has one target at a time, so one that is sent to all CPUs at once and
    // has arrived at each is a CPU's own
    let has_one_target =
        ["msi", "io-apic", "its", "xen-dyn", "xen-pirq"].iter().any(|name| chip.contains(name));
    let is_everywhere = row.columns > 1 && row.arrived_on == row.columns;
    !has_one_target && irq.has_effective && is_everywhere && irq.effective.cpus.len() >= row.columns
}

/// Devices whose interrupts divide the CPUs among them, as the kernel does with managed interrupts (`irq_create_affinity_masks`).
#[derive(Default)]
struct SpreadDevices {
    devices: HashMap<String, Queues>,
    /// The device of each interrupt.
    device_of: HashMap<u32, String>,
}

#[derive(Default)]
struct Queues {
    cpus: Vec<Arc<Affinity>>,
    has_hint: bool,
    divide_cpus: OnceCell<bool>,
}

impl SpreadDevices {
    fn add(&mut self, number: u32, row: Option<&Row>, cpus: &Arc<Affinity>, has_hint: impl Fn() -> bool) {
        let Some(device) = row.and_then(device) else { return };
        let queues = self.devices.entry(device.clone()).or_default();
        queues.cpus.push(cpus.clone());
        queues.has_hint = queues.has_hint || has_hint();
        self.device_of.insert(number, device);
    }

    /// Returns `true` if the interrupt is a queue of such a device. One for administration, which may go to every CPU, is none.
    fn has(&self, irq: &Irq, node: NodeView<'_>) -> bool {
        let queues = self.device_of.get(&irq.number).and_then(|device| self.devices.get(device));
        let is_divided = |q: &Queues| !q.has_hint && *q.divide_cpus.get_or_init(|| q.divide(node));
        irq.allowed.is_queue(node) && queues.is_some_and(is_divided)
    }
}

impl Affinity {
    fn is_queue(&self, node: NodeView<'_>) -> bool {
        self.cpus.len() < node.job.len() + node.rest.len()
    }
}

impl Queues {
    /// Returns `true` if each online CPU is served by exactly one queue.
    fn divide(&self, node: NodeView<'_>) -> bool {
        let mut is_covered = vec![false; CpuSet::LIMIT];
        for cpu in self.cpus.iter().filter(|a| a.is_queue(node)).flat_map(|a| a.cpus.iter()) {
            // two queues of one CPU: somebody has placed them
            if std::mem::replace(&mut is_covered[cpu], true) {
                return false;
            }
        }
        node.job.iter().chain(node.rest.iter()).all(|cpu| is_covered[cpu])
    }
}

/// The PCI device of a message-signalled interrupt: by the name of its domain, or in older kernels by its number, which has the
/// device's address above 11 bits of the entry (`pci_msi_domain_calc_hwirq`).
fn device(row: &Row) -> Option<String> {
    let chip = row.chip.as_str();
    if !chip.contains("MSI") {
        return None;
    }
    match chip.split_once("MSIX-").or_else(|| chip.split_once("MSI-")) {
        Some((_, address)) if address.contains(':') => Some(address.to_owned()),
        _ => row.hardware_number.map(|number| format!("{chip} {}", number >> 11)),
    }
}

/// Returns `true` for names of queues of block devices that ask for managed interrupts (`pci_alloc_irq_vectors_affinity`).
fn is_disk_queue(name: &str) -> bool {
    let is_nvme = name.strip_prefix("nvme").and_then(|n| n.split_once('q'));
    let is_virtio = name.starts_with("virtio") && (name.contains("-req.") || name.ends_with("-request"));
    // queue 0 of NVMe is for administration, and movable
    is_virtio || is_nvme.is_some_and(|(_, queue)| queue != "0" && queue.parse::<u32>().is_ok())
}
