// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clocks: reading one must be cheap, and coordinated windows need nodes that agree.

use crate::distribution::Distribution;
use crate::finding::{Finding, Level};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::process::processes;
use crate::remedy::{Change, Loss, Remedy};

const ONLY_LIVE: &str = "the state of the clock is asked of the running node only (adjtimex)";

/// Clocks that a program reads without a system call: TSC, those of KVM and Hyper-V pages, Arm's counter.
const FAST: [&str; 5] =
    ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "riscv_clocksource"];

/// Any other clock costs a system call and an access to a device at each reading.
pub(super) fn source(node: &Node) -> Checked {
    const DIR: &str = "/sys/devices/system/clocksource/clocksource0";
    let file = format!("{DIR}/current_clocksource");
    let now = node.root.word(&file)?;
    if FAST.contains(&now.as_str()) {
        return Outcome::passed(file, now);
    }
    let available = node.root.value(&format!("{DIR}/available_clocksource"))?;
    let better = FAST.iter().find(|fast| available.split_whitespace().any(|a| a == **fast));
    let finding = Finding::new(Level::Medium, format!("The clock is read from a device ({now})."))
        .seen(&file, &now)
        .seen(format!("{DIR}/available_clocksource"), &available);
    match better {
        Some(better) => finding
            .remedy(
                Remedy::write(
                    &file,
                    &now,
                    better,
                    "the kernel may have left this clock since it was not stable",
                )
                .keep(format!("clocksource={better} on the kernel command line")),
            )
            .into(),
        None => finding
            .advice(
                "The kernel found the TSC unstable: `dmesg | grep -i tsc` says why; newer firmware may help.",
            )
            .into(),
    }
}

/// Windows of nodes agree as well as their clocks.
pub(super) fn discipline(node: &Node) -> Checked {
    let Some(clock) = node.probes.clock else { return Outcome::undecided(ONLY_LIVE) };
    let seen = format!("maximum error {} µs", clock.max_error_us);
    if clock.disciplined {
        return Outcome::passed("adjtimex", format!("disciplined, {seen}"));
    }
    Finding::new(Level::Low, "No daemon disciplines the clock: windows of different nodes drift apart.")
        .seen("adjtimex", format!("STA_UNSYNC, {seen}"))
        .remedy(
            Remedy::new(
                [Change::command(
                    &["systemctl", "enable", "--now", chrony_unit(node)],
                    &["systemctl", "disable", "--now", chrony_unit(node)],
                )],
                "the clock may step once; where PTP is there, ptp4l and phc2sys are better",
            )
            .loses(Loss::Service)
            .keep("the command itself"),
        )
        .advice("`colony clock sync` aligns the windows of nodes without setting their clocks.")
        .into()
}

/// Windows begin at multiples of their period in TAI: nodes must have the same offset of TAI from UTC.
pub(super) fn tai_offset(node: &Node) -> Checked {
    let Some(clock) = node.probes.clock else { return Outcome::undecided(ONLY_LIVE) };
    let seen = format!("TAI - UTC = {} s", clock.tai_offset_s);
    if clock.tai_offset_s != 0 {
        return Outcome::passed("adjtimex", seen);
    }
    let runs = processes(node).ok().and_then(|mut all| all.find(|p| p.name == "chronyd"));
    let unit = runs.and_then(|process| process.system_unit(node));
    let line = Change::Line {
        file: chrony_file(node).into(),
        line: "leapsectz right/UTC".into(),
        replaces: Vec::new(),
        reload: vec!["systemctl".into(), "restart".into(), unit.unwrap_or_else(|| chrony_unit(node).into())],
    };
    Finding::new(
        Level::Note,
        "The kernel does not know the offset of TAI: windows agree only with nodes that have none either.",
    )
    .seen("adjtimex", seen)
    .remedy(
        Remedy::new([line], "windows move by 37 s: change all nodes together")
            .keep("the line itself, if chronyd sets this node's clock"),
    )
    .into()
}

/// The unit of chronyd that the distribution installs.
fn chrony_unit(node: &Node) -> &'static str {
    match Distribution::of(node) {
        Some(Distribution::Debian) => "chrony",
        _ => "chronyd",
    }
}

/// The configuration of chronyd: as the distribution has it, or else the one that is there.
fn chrony_file(node: &Node) -> &'static str {
    const DEBIAN: &str = "/etc/chrony/chrony.conf";
    const OTHERS: &str = "/etc/chrony.conf";
    match Distribution::of(node) {
        Some(Distribution::Debian) => DEBIAN,
        Some(_) => OTHERS,
        None if node.root.exists(OTHERS) && !node.root.exists(DEBIAN) => OTHERS,
        None => DEBIAN,
    }
}
