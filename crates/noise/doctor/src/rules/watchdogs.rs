// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watchdogs, machine checks and tracers.

use crate::finding::{Finding, Level};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::remedy::Remedy;
use crate::root::Unread;
use crate::touches::{Pattern, Touches};

const WATCHED: &str = "/proc/sys/kernel/watchdog_cpumask";

/// A performance counter interrupts each busy CPU every 10 s or so (`Documentation/admin-guide/lockup-watchdogs.rst`).
pub(super) fn nmi(node: &Node) -> Checked {
    const FILE: &str = "/proc/sys/kernel/nmi_watchdog";
    let now = node.root.one_of(FILE, &["0", "1"])?;
    if now == "0" {
        return Outcome::passed(FILE, now);
    }
    let watched = node.cpus(WATCHED);
    if let Ok(watched) = &watched
        && node.hit(watched).is_empty()
    {
        return Outcome::passed(WATCHED, watched.to_string());
    }
    Finding::new(Level::Low, "The NMI watchdog interrupts the job's CPUs and holds a performance counter.")
        .seen(FILE, &now)
        .remedy(Remedy::sysctl(FILE, &now, "0", "a CPU that hangs with interrupts off is not reported"))
        .touches(Touches::all([Pattern::Is("nmi".into())]))
        .into()
}

/// A timer and a stopper thread (`migration/N`, since Linux 4.19) run every 4 s on each CPU of the mask.
pub(super) fn soft(node: &Node) -> Checked {
    const FILE: &str = "/proc/sys/kernel/soft_watchdog";
    let now = node.root.one_of(FILE, &["0", "1"])?;
    if now == "0" {
        return Outcome::passed(FILE, now);
    }
    // the master switch of both watchdogs
    if let Ok(all) = node.root.value("/proc/sys/kernel/watchdog")
        && all == "0"
    {
        return Outcome::passed("/proc/sys/kernel/watchdog", all);
    }
    let text = node.root.value(WATCHED)?;
    let hit = node.hit(&node.cpus(WATCHED)?);
    if hit.is_empty() {
        return Outcome::passed(WATCHED, text);
    }
    let finding = Finding::new(Level::Low, format!("The soft-lockup watchdog runs on {}.", hit.named()))
        .seen(FILE, &now)
        .seen(WATCHED, &text)
        .touches(Touches::part_of([
            Pattern::Begins("thread:migration/".into()),
            Pattern::Is("irq:local_timer".into()),
        ]));
    let Some(rest) = node.elsewhere() else { return finding.into() };
    finding
        .remedy(Remedy::sysctl(WATCHED, &text, &rest.to_string(), "a job's CPU that hangs is not reported"))
        .into()
}

/// Corrected machine checks are polled by a timer on every CPU (`Documentation/ABI/testing/sysfs-mce`).
pub(super) fn machine_check(node: &Node) -> Checked {
    let mut polled = Vec::new();
    for cpu in node.job.iter() {
        let file = format!("/sys/devices/system/machinecheck/machinecheck{cpu}/check_interval");
        let text = node.root.value(&file)?;
        let digits = text.trim_start_matches("0x");
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(Unread::value(&file, &text));
        }
        // hexadecimal in some kernels, decimal in others: only zero matters
        if digits.bytes().any(|b| b != b'0') {
            polled.push((file, text));
        }
    }
    let Some((file, value)) = polled.first().cloned() else {
        return Outcome::passed("/sys/devices/system/machinecheck", "0 on the job's CPUs");
    };
    let finding = Finding::new(Level::Note, "A timer polls for corrected machine checks on each CPU.")
        .seen(&file, format!("{value} s"))
        .touches(Touches::part_of([Pattern::Is("softirq:TIMER".into())]));
    // one file stands for all CPUs: the kernel keeps one interval
    let remedy =
        Remedy::write(&file, &value, "0", "corrected memory errors that raise no interrupt are not counted");
    finding.remedy(remedy.keep("mce=ignore_ce on the kernel command line")).into()
}

/// A tracer that was left on adds work to every event it records.
pub(super) fn tracing(node: &Node) -> Checked {
    let mut last = None;
    for dir in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
        let file = format!("{dir}/current_tracer");
        match node.root.word(&file) {
            Ok(tracer) if tracer == "nop" => return Outcome::passed(file, tracer),
            Ok(tracer) => {
                return Finding::new(Level::Medium, "A tracer of the kernel is on.")
                    .seen(&file, &tracer)
                    .remedy(Remedy::write(&file, &tracer, "nop", "the trace that somebody records ends"))
                    .into();
            }
            Err(e) => last = Some(e),
        }
    }
    last.map_or_else(|| Outcome::undecided("no tracefs"), Err)
}
