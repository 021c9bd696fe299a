// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ticks that a trace saw on CPUs whose tick may stop. The trace wins over the setting, and the finding names what the kernel keeps a
//! tick for (`kernel/time/tick-sched.c`, `can_stop_full_tick`).

use colony_node::cpu::CpuSet;

use crate::default_cpus::NOHZ_FULL;
use crate::finding::{Finding, Level};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::remedy::{Change, Loss, Remedy};
use crate::touches::{Pattern, Touches};

use super::realtime;

/// Timer interrupts a second from which the tick is not stopped: the slowest kernels have 100, a stopped tick leaves about one.
const TICKING: f64 = 10.0;
const CLOCK: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// The job's CPUs are in `nohz_full`, which is `full`: passes unless the trace saw their ticks.
pub(super) fn contradict(node: &Node, full: &CpuSet) -> Checked {
    let ticking: Vec<_> =
        node.ticks.iter().filter(|t| node.job.contains(t.cpu) && t.per_second >= TICKING).collect();
    let cpus: CpuSet = ticking.iter().map(|t| t.cpu).collect();
    let Some(most) = ticking.iter().map(|t| t.per_second).max_by(f64::total_cmp) else {
        return Outcome::passed(NOHZ_FULL, full.to_string());
    };
    let title = format!(
        "The timer interrupts {} up to {most:.0} times a second, although {} in nohz_full.",
        cpus.named(),
        if cpus.len() == 1 { "it is" } else { "they are" }
    );
    let mut finding = Finding::new(Level::Medium, title)
        .seen(NOHZ_FULL, full.to_string())
        .seen("trace", format!("irq:local_timer: {most:.0} a second on a CPU"))
        .touches(Touches::part_of([
            Pattern::Is("irq:local_timer".into()),
            Pattern::Is("softirq:TIMER".into()),
            Pattern::Is("softirq:HRTIMER".into()),
            Pattern::Is("softirq:SCHED".into()),
        ]));
    if let Some((file, value)) = unstable_clock(node) {
        finding = finding.seen(file, value).advice("The clock is not stable: the kernel then stops no tick.");
    }
    let served = realtime::served(node, &cpus);
    if let Some((file, value)) = served.first().cloned() {
        finding = finding
            .seen(file, format!("{value} ns: the deadline server of ordinary tasks keeps the tick"))
            .remedy(
                Remedy::new(
                    [Change::writes(served, "0")],
                    "ordinary tasks on these CPUs wait for ever behind a real-time task that never sleeps",
                )
                .loses(Loss::Protection)
                .keep("a oneshot systemd unit: debugfs begins anew at each boot"),
            );
    }
    let second = second_tasks(node);
    if !second.is_empty() {
        finding =
            finding.seen("trace", format!("a second task ran on the job's CPUs: {}", second.join(", ")));
    }
    finding
        .advice(
            "The kernel keeps the tick for a deadline server or a real-time task that shares its CPU, a second task on the CPU, a perf \
             event with a frequency (perf record -F), a POSIX CPU timer or a limit of CPU time (RLIMIT_CPU), and RCU callbacks that are \
             not offloaded; timers of the job itself look alike. The event timer:tick_stop names it: trace-cmd record -e timer:tick_stop \
             shows dependency=SCHED, PERF_EVENTS, POSIX_TIMER, CLOCK_UNSTABLE or RCU.",
        )
        .into()
}

/// The clock that the kernel has fallen back to, if it is not the processor's.
fn unstable_clock(node: &Node) -> Option<(&'static str, String)> {
    let clock = node.root.value(CLOCK).ok()?;
    matches!(clock.as_str(), "hpet" | "acpi_pm" | "jiffies" | "refined-jiffies").then_some((CLOCK, clock))
}

/// Threads that the trace saw on the job's CPUs, the most frequent first.
fn second_tasks(node: &Node) -> Vec<String> {
    const NAMED: usize = 3;
    let mut seen: Vec<_> = node.threads.iter().flatten().filter(|t| t.per_second >= 1.0).collect();
    seen.sort_by(|a, b| b.per_second.total_cmp(&a.per_second).then_with(|| a.source.cmp(&b.source)));
    seen.iter().take(NAMED).map(|t| t.source.trim_start_matches("thread:").to_owned()).collect()
}
