// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values that the kernel never writes, and files that nobody has collected, are neither good nor bad: they are not known.

use crate::node::{Made, Ruled};

#[test]
fn a_value_that_the_kernel_does_not_write_leaves_the_rule_undecided() {
    for (rule, file) in [
        ("ksm", "/sys/kernel/mm/ksm/run"),
        ("sched-ext", "/sys/kernel/sched_ext/state"),
        ("swap", "/proc/swaps"),
        ("nmi-watchdog", "/proc/sys/kernel/nmi_watchdog"),
        ("soft-watchdog", "/proc/sys/kernel/soft_watchdog"),
        ("tracing", "/sys/kernel/debug/tracing/current_tracer"),
        ("zone-reclaim", "/proc/sys/vm/zone_reclaim_mode"),
        ("numa-balancing", "/proc/sys/kernel/numa_balancing"),
        ("workqueue-power-efficient", "/sys/module/workqueue/parameters/power_efficient"),
        ("turbo", "/sys/devices/system/cpu/cpufreq/boost"),
        ("clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ] {
        for value in ["??\n", "", "-\n"] {
            let made = Made::new(&[(file, value), ("/proc/cmdline", "quiet")]);
            let Ruled::Undecided(why) = made.rule(rule) else { panic!("{rule}: `{value}`") };
            assert!(why.contains(file), "{rule}: {why}");
        }
    }
}

#[test]
fn interrupts_that_nobody_collected_are_not_none() {
    let made = Made::new(&[("/proc/irq/default_smp_affinity", "f"), ("/proc/interrupts", "CPU0 CPU1\n")]);
    for rule in ["irq-movable", "irq-managed"] {
        let Ruled::Undecided(why) = made.rule(rule) else { panic!("{rule}") };
        assert!(why.contains("/proc/irq/N is not there"), "{why}");
    }
}

#[test]
fn the_evidence_of_an_interrupt_is_a_file_that_was_read() {
    let made = Made::new(&[("/proc/irq/24/smp_affinity", "f\n"), ("/proc/irq/24/eth0/x", "")]);
    let seen = made.finding("irq-movable").evidence;
    assert_eq!(seen[0].file, "/proc/irq/24/smp_affinity");
}
