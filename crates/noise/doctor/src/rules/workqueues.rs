// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work and timers that the kernel places on any CPU.

use crate::default_cpus::NOHZ_FULL;
use crate::finding::{Finding, Level};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::remedy::{Remedy, mask};
use crate::touches::{Pattern, Touches};

const UNBOUND: &str = "/sys/devices/virtual/workqueue/cpumask";

/// Workers of unbound workqueues run on the CPUs of this mask (Linux 4.2). From Linux 6.8 on, isolated CPUs leave it by
/// themselves: `cpumask_requested` holds what was written.
pub(super) fn unbound(node: &Node) -> Checked {
    let text = node.root.value(UNBOUND)?;
    let hit = node.hit(&node.mask(UNBOUND)?);
    if hit.is_empty() {
        return Outcome::passed(UNBOUND, text);
    }
    let finding = Finding::new(Level::Medium, format!("Unbound workqueues run on {}.", hit.named()))
        .seen(UNBOUND, &text)
        .touches(Touches::all([Pattern::Begins("thread:kworker/u".into())]));
    let Some(rest) = node.elsewhere() else { return finding.into() };
    finding
        .remedy(
            Remedy::write(
                UNBOUND,
                &text,
                &mask(rest),
                "the other CPUs do all such work: writeback, parts of RCU and crypto",
            )
            .keep("a oneshot systemd unit, or the TuneD plugin sysfs"),
        )
        .into()
}

/// The flusher threads' queue has a mask of its own (`WQ_SYSFS`). It counts inside the mask above.
pub(super) fn writeback(node: &Node) -> Checked {
    const FILE: &str = "/sys/devices/virtual/workqueue/writeback/cpumask";
    let text = node.root.value(FILE)?;
    let own = node.mask(FILE)?;
    let both = match node.mask(UNBOUND) {
        Ok(all) if !all.and(&own).is_empty() => all.and(&own),
        // a queue without a CPU in common runs where all unbound work runs
        Ok(all) => all,
        Err(_) => own,
    };
    let hit = node.hit(&both);
    if hit.is_empty() {
        return Outcome::passed(FILE, text);
    }
    let finding = Finding::new(Level::Low, format!("Writeback of dirty pages runs on {}.", hit.named()))
        .seen(FILE, &text)
        .touches(Touches::part_of([Pattern::Begins("thread:kworker/u".into())]));
    let Some(rest) = node.elsewhere() else { return finding.into() };
    finding
        .remedy(
            Remedy::write(
                FILE,
                &text,
                &mask(rest),
                "writeback competes with the system's other work for these CPUs",
            )
            .keep("a oneshot systemd unit, or the TuneD plugin sysfs"),
        )
        .into()
}

/// Some queues may run unbound to save power, and so off the job's CPUs; read once, at boot (`kernel/workqueue.c`).
pub(super) fn power_efficient(node: &Node) -> Checked {
    const FILE: &str = "/sys/module/workqueue/parameters/power_efficient";
    let text = node.root.one_of(FILE, &["Y", "N"])?;
    if text == "Y" {
        return Outcome::passed(FILE, text);
    }
    let now = node.parameter("workqueue.power_efficient")?.map(|v| format!("workqueue.power_efficient={v}"));
    let parameter = Remedy::parameter(
        "workqueue.power_efficient=1".into(),
        now.as_deref(),
        "such work may find its data in another CPU's cache",
    );
    Finding::new(Level::Low, "Power-efficient workqueues run on the CPU that queued the work.")
        .seen(FILE, &text)
        .remedy(parameter)
        .touches(Touches::part_of(
            ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
                .map(|digit| Pattern::Begins(format!("thread:kworker/{digit}"))),
        ))
        .into()
}

/// With 1, a timer armed on an idle CPU goes to a busy one, such as the job's (`get_nohz_timer_target`; since Linux 6.9 a
/// busy CPU takes the timers of idle ones when they expire). On `nohz_full` CPUs it is the other way round: 1 takes their
/// timers to the other CPUs.
pub(super) fn timer_migration(node: &Node) -> Checked {
    const FILE: &str = "/proc/sys/kernel/timer_migration";
    let now = node.root.number(FILE)?;
    let full = match node.cpus(NOHZ_FULL) {
        Err(e) if e.is_missing() => super::isolation::tickless_if_missing(node, e)?,
        other => other?,
    };
    let tickless = node.job.without(&full).is_empty();
    let (wanted, title) = match tickless {
        true => (1, "Timers armed on the job's CPUs stay there, although nohz_full CPUs could hand them on."),
        false => (0, "Timers of idle CPUs are moved to busy ones, such as the job's."),
    };
    if now == wanted {
        return Outcome::passed(FILE, now.to_string());
    }
    Finding::new(Level::Low, title)
        .seen(FILE, now.to_string())
        .remedy(Remedy::sysctl(
            FILE,
            &now.to_string(),
            &wanted.to_string(),
            "idle CPUs wake up for their own timers",
        ))
        .touches(Touches::part_of([
            Pattern::Is("softirq:TIMER".into()),
            Pattern::Is("irq:local_timer".into()),
        ]))
        .into()
}
