// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frequency and idle states.

use crate::finding::{Finding, Level};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::remedy::{Change, Loss, Remedy};
use crate::root::Unread;

const CPU: &str = "/sys/devices/system/cpu";
const KEEP: &str = "TuneD's profile latency-performance, or a oneshot systemd unit";
/// An idle state that takes longer than this to leave delays a message that wakes its receiver, µs.
const DEEP_US: i64 = 10;

/// The files `cpuN/FILE` of the job's CPUs whose value is not as wanted.
fn unlike(node: &Node, file: &str, wanted: impl Fn(&str) -> bool) -> Result<Vec<(String, String)>, Unread> {
    let mut found = Vec::new();
    for cpu in node.job.iter() {
        let file = format!("{CPU}/cpu{cpu}/{file}");
        let value = node.root.word(&file)?;
        if !wanted(&value) {
            found.push((file, value));
        }
    }
    Ok(found)
}

/// The governor chooses a frequency from the past: a job that waits comes back slow (`Documentation/admin-guide/pm`).
pub(super) fn governor(node: &Node) -> Checked {
    const FILE: &str = "cpufreq/scaling_governor";
    let slow = unlike(node, FILE, |governor| governor == "performance")?;
    let Some((file, value)) = slow.first().cloned() else {
        return Outcome::passed(format!("{CPU}/cpu*/{FILE}"), "performance");
    };
    Finding::new(Level::Medium, "The frequency of the job's CPUs follows their load.")
        .seen(file, value)
        .remedy(Remedy::new([Change::writes(slow, "performance")], "more power is used").keep(KEEP))
        .into()
}

/// Frequencies above the nominal one depend on temperature and neighbours: nodes differ.
pub(super) fn turbo(node: &Node) -> Checked {
    let switches = [
        ("/sys/devices/system/cpu/intel_pstate/no_turbo", "1"),
        ("/sys/devices/system/cpu/cpufreq/boost", "0"),
    ];
    for (file, off) in switches {
        match node.root.one_of(file, &["0", "1"]) {
            Ok(now) if now == off => return Outcome::passed(file, now),
            Ok(now) => {
                return Finding::new(
                    Level::Note,
                    "Turbo frequencies are on: nodes of a job may differ in speed.",
                )
                .seen(file, &now)
                .remedy(
                    Remedy::write(file, &now, off, "each node computes slower; all alike")
                        .loses(Loss::Frequency)
                        .keep(KEEP),
                )
                .into();
            }
            Err(e) if e.is_missing() => {}
            Err(e) => return Err(e),
        }
    }
    Outcome::undecided(node.why_missing(
        "intel_pstate/no_turbo or cpufreq/boost",
        "there is no driver for frequencies, as in a virtual machine",
    ))
}

/// A hint to the processor: 0 is performance, 15 saving (Intel).
pub(super) fn energy_bias(node: &Node) -> Checked {
    const FILE: &str = "power/energy_perf_bias";
    let saving = unlike(node, FILE, |bias| bias == "0")?;
    let Some((file, value)) = saving.first().cloned() else {
        return Outcome::passed(format!("{CPU}/cpu*/{FILE}"), "0");
    };
    Finding::new(Level::Note, "The job's CPUs are allowed to save energy.")
        .seen(file, value)
        .remedy(Remedy::new([Change::writes(saving, "0")], "more power is used").keep(KEEP))
        .into()
}

/// A CPU that waits for a message sleeps; deep states take tens of microseconds to leave, and `/dev/cpu_dma_latency` bounds
/// them as long as somebody holds it open.
pub(super) fn idle_states(node: &Node) -> Checked {
    if let Some(Ok(latency)) = node.probes.dma_latency_us
        && i64::from(latency) <= DEEP_US
    {
        return Outcome::passed("/dev/cpu_dma_latency", format!("{latency} µs"));
    }
    let mut deep = Vec::new();
    let mut worst: Option<(i64, String, String)> = None;
    for cpu in node.job.iter() {
        let dir = format!("{CPU}/cpu{cpu}/cpuidle");
        for state in node.root.list(&dir)?.into_iter().filter(|s| s.starts_with("state")) {
            let of = |file: &str| format!("{dir}/{state}/{file}");
            let latency = node.root.number(&of("latency"))?;
            if latency <= DEEP_US || node.root.value(&of("disable"))? != "0" {
                continue;
            }
            if worst.as_ref().is_none_or(|(most, ..)| latency > *most) {
                let name = node.root.value(&of("name")).unwrap_or_default();
                worst = Some((latency, of("latency"), format!("{latency} µs ({name})")));
            }
            deep.push((of("disable"), "0".to_owned()));
        }
    }
    let Some((latency, file, seen)) = worst else {
        return Outcome::passed(
            format!("{CPU}/cpu*/cpuidle"),
            format!("no enabled state above {DEEP_US} µs"),
        );
    };
    Finding::new(Level::Low, format!("An idle CPU of the job takes up to {latency} µs to wake up."))
        .seen(file, seen)
        .remedy(
            Remedy::new(
                [Change::writes(deep, "1")],
                "idle CPUs use more power, and leave less of it for turbo frequencies",
            )
            .loses(Loss::Frequency)
            .keep("TuneD's force_latency, or a process that holds /dev/cpu_dma_latency open"),
        )
        .into()
}
