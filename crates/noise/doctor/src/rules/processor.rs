// SPDX-License-Identifier: MIT OR Apache-2.0
//! Causes below the kernel: threads of a core, firmware, heat, a hypervisor.

use colony_node::cpu::CpuSet;

use crate::finding::{Finding, Level};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::remedy::{Change, Loss, Remedy};
use crate::root::Unread;
use crate::touches::{Pattern, Touches};

const CPU: &str = "/sys/devices/system/cpu";

/// Threads of one core share its units: a sibling's work slows the job without any detour.
pub(super) fn smt(node: &Node) -> Checked {
    let mut outside: Vec<usize> = Vec::new();
    let mut sharing: Vec<usize> = Vec::new();
    let (mut seen, mut offender) = (None, None);
    for cpu in node.job.iter() {
        let file = format!("{CPU}/cpu{cpu}/topology/thread_siblings_list");
        let siblings = node.cpus(&file)?;
        if siblings.len() > 1 {
            let others: Vec<usize> = siblings.iter().filter(|&s| node.rest.contains(s)).collect();
            if !others.is_empty() {
                offender.get_or_insert((file.clone(), siblings.to_string()));
                sharing.push(cpu);
            }
            seen.get_or_insert((file, siblings.to_string()));
            outside.extend(others);
        }
    }
    let Some((file, value)) = seen else {
        return Outcome::passed(format!("{CPU}/cpu*/topology/thread_siblings_list"), "one thread a core");
    };
    let outside: CpuSet = outside.into_iter().collect();
    let off = "half of the logical CPUs are gone for everybody";
    let offline = |cpus: &CpuSet| {
        let files = cpus.iter().filter(|&c| c != 0).map(|c| (format!("{CPU}/cpu{c}/online"), "1".to_owned()));
        Remedy::new([Change::writes(files.collect::<Vec<_>>(), "0")], off)
            .loses(Loss::Threads)
            .keep("nosmt on the kernel command line")
    };
    let Some((file, value)) = offender else {
        // the first sibling of each pair stays
        return Finding::new(Level::Note, "Two threads of the job share each core.")
            .seen(file, value)
            .advice("Bind one rank to each core, or leave the second thread idle, and compare.")
            .into();
    };
    let sharing: CpuSet = sharing.into_iter().collect();
    let title = format!(
        "{} of the job and {} share {}, and the latter may run other work.",
        sharing.named(),
        outside.named(),
        if sharing.len() == 1 { "a core" } else { "cores" }
    );
    let finding = Finding::new(Level::Medium, title).seen(file, value);
    if outside.contains(0) {
        return finding
            .advice("CPU 0 cannot go offline: choose the job's CPUs by whole cores (--cpus).")
            .into();
    }
    finding.remedy(offline(&outside)).into()
}

/// The firmware takes all CPUs at once, for up to milliseconds; no event tells.
pub(super) fn smi(node: &Node) -> Checked {
    let count = match &node.probes.smis {
        None => return Outcome::undecided("SMIs are counted by the running node only (MSR 0x34)"),
        Some(Err(reason)) => {
            return Outcome::undecided(format!(
                "{reason}; load the module msr on an Intel processor, or run `hwlatdetect` (rt-tests)"
            ));
        }
        Some(Ok(count)) => *count,
    };
    let uptime = node.root.value("/proc/uptime")?;
    let uptime_s: f64 = uptime
        .split(' ')
        .next()
        .and_then(|seconds| seconds.parse().ok())
        .ok_or_else(|| Unread::value("/proc/uptime", &uptime))?;
    let per_hour = count as f64 / (uptime_s / 3600.0).max(1.0 / 60.0);
    let seen = format!("{count} since power-on, {per_hour:.1} an hour");
    // a few dozen belong to every start
    if per_hour < 1.0 {
        return Outcome::passed("/dev/cpu/0/msr", seen);
    }
    Finding::new(Level::Medium, "The firmware interrupts all CPUs (SMI).")
        .seen("/dev/cpu/0/msr", seen)
        .advice(
            "Only the firmware's setup helps: switch off USB legacy support, power capping and memory patrol by SMI, \
             and verify with `hwlatdetect`.",
        )
        .touches(Touches::part_of([Pattern::Is("unexplained".into())]))
        .into()
}

/// The processor slows down because it is hot.
pub(super) fn thermal(node: &Node) -> Checked {
    let mut worst = 0;
    let mut seen = None;
    for cpu in node.job.iter() {
        let file = format!("{CPU}/cpu{cpu}/thermal_throttle/core_throttle_count");
        let count = node.root.number(&file)?;
        if count > worst {
            (worst, seen) = (count, Some(file));
        }
    }
    let Some(file) = seen else {
        return Outcome::passed(format!("{CPU}/cpu*/thermal_throttle/core_throttle_count"), "0");
    };
    Finding::new(Level::Medium, "A CPU of the job was too hot and slowed down.")
        .seen(file, worst.to_string())
        .advice("Look at the node's cooling: no setting of Linux helps.")
        .touches(Touches::all([Pattern::Is("irq:thermal".into())]))
        .into()
}

/// The hypervisor ran something else in place of this machine's CPUs.
pub(super) fn steal(node: &Node) -> Checked {
    const FILE: &str = "/proc/stat";
    let text = node.root.read(FILE)?;
    let (mut all, mut stolen, mut lines) = (0u64, 0u64, 0);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let cpu = words.next().and_then(|w| w.strip_prefix("cpu")?.parse().ok());
        if !cpu.is_some_and(|c: usize| node.job.contains(c)) {
            continue;
        }
        // user nice system idle iowait irq softirq steal
        let times: Result<Vec<u64>, _> = words.take(8).map(str::parse).collect();
        let times = times.map_err(|_| Unread::value(FILE, line))?;
        all = times.iter().fold(all, |sum, t| sum.saturating_add(*t));
        stolen = stolen.saturating_add(times.get(7).copied().unwrap_or(0));
        lines += 1;
    }
    if lines == 0 {
        return Outcome::undecided("/proc/stat has no line of the job's CPUs");
    }
    let share = stolen as f64 / all.max(1) as f64;
    let seen = format!("steal: {:.3} % of the job's CPUs since boot", share * 100.0);
    if stolen == 0 {
        return Outcome::passed(FILE, seen);
    }
    Finding::new(
        if share > 0.001 { Level::High } else { Level::Low },
        "The hypervisor takes time from the job's CPUs.",
    )
    .seen(FILE, seen)
    .advice("Ask the host for CPUs that belong to this machine alone (pinned, not overcommitted).")
    .touches(Touches::part_of([Pattern::Is("hypervisor".into()), Pattern::Is("unexplained".into())]))
    .into()
}
