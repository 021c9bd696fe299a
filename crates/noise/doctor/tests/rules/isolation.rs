// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel parameters that a remedy proposes are those that the kernel takes, and they keep what is isolated already.

use crate::node::{Made, Ruled, boot_remedy};

const ISOLATED: &str = "/sys/devices/system/cpu/isolated";
const NOHZ: &str = "/sys/devices/system/cpu/nohz_full";
const RULES: [&str; 3] = ["nohz-full", "isolation", "rcu-nocbs"];

/// A node of 16 CPUs with a command line and a kernel, on which no CPU is isolated.
fn node(kernel: &str, cmdline: &str) -> Made {
    let made = Made::new(&[(ISOLATED, "\n"), (NOHZ, "\n"), ("/proc/cmdline", cmdline)]);
    made.put("/proc/sys/kernel/osrelease", kernel);
    made.put("/sys/devices/system/cpu/online", "0-15\n");
    made
}

/// The kernel parameters of the remedies.
fn proposed(made: &Made, cpus: &str, rule: &str) -> Vec<String> {
    let commands = boot_remedy(&made.finding_for(cpus, rule)).map(|r| r.commands()).unwrap_or_default();
    commands.iter().map(|c| c.rsplit(": ").next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn cpus_that_are_isolated_stay_so_however_they_are_written() {
    for list in ["4-N", "4-15", "4-7,8-N", "4-15:1/1", "4-15:2/2"] {
        let cmdline = format!("isolcpus=managed_irq,domain,{list} nohz_full={list} rcu_nocbs={list}");
        let made = node("6.12.0", &cmdline);
        let values = RULES.map(|rule| proposed(&made, "2-3", rule));
        let wanted = ["nohz_full=2-15", "isolcpus=managed_irq,domain,2-15", "rcu_nocbs=2-15"];
        assert_eq!(values, wanted.map(|w| vec![w.to_owned()]), "{list}");
    }
    // the last CPU is the last possible one
    let made = node("6.12.0", "rcu_nocbs=all");
    made.put("/sys/devices/system/cpu/possible", "0-31\n");
    assert!(matches!(made.rule("rcu-nocbs"), Ruled::Passed));
}

#[test]
fn a_value_that_cannot_be_read_is_kept_and_named() {
    let made = node("6.12.0", "isolcpus=domain,4-x nohz_full=4-x rcu_nocbs=4-x");
    for rule in ["nohz-full", "isolation"] {
        let finding = made.finding_for("2-3", rule);
        assert!(boot_remedy(&finding).is_none(), "{finding:?}");
        assert!(
            finding.advice.as_ref().is_some_and(|a| a.contains("4-x") && a.contains("by hand")),
            "{finding:?}"
        );
    }
    assert!(matches!(made.rule_for("2-3", "rcu-nocbs"), Ruled::Undecided(why) if why.contains("4-x")));
    // the two parameters depend on each other in older kernels
    let one = |kernel| node(kernel, "isolcpus=domain,4-7 nohz_full=4-x");
    assert_eq!(proposed(&one("6.12.0"), "2-3", "isolation"), ["isolcpus=domain,managed_irq,2-7"]);
    assert!(proposed(&one("5.15.0"), "2-3", "isolation").is_empty());
}

#[test]
fn lists_match_where_the_kernel_ignores_the_second_one_otherwise() {
    let old = node("5.15.0", "nohz_full=2-15");
    assert_eq!(proposed(&old, "8-15", "isolation"), ["isolcpus=managed_irq,domain,2-15"]);
    let both = node("5.15.0", "isolcpus=domain,4-7 nohz_full=4-9");
    assert_eq!(proposed(&both, "8-11", "isolation"), ["isolcpus=domain,managed_irq,4-11", "nohz_full=4-11"]);
    assert_eq!(proposed(&both, "8-11", "nohz-full"), ["nohz_full=4-11", "isolcpus=domain,4-11"]);
    let new = node("5.18.0", "isolcpus=domain,4-7 nohz_full=4-9");
    assert_eq!(proposed(&new, "8-11", "isolation"), ["isolcpus=domain,managed_irq,4-11"]);
    assert_eq!(proposed(&new, "8-11", "nohz-full"), ["nohz_full=4-11"]);
}

#[test]
fn the_boot_cpu_is_not_proposed() {
    let made = node("6.8.0", "quiet");
    for (rule, value) in [("nohz-full", "nohz_full=1-3"), ("isolation", "isolcpus=managed_irq,domain,1-3")] {
        assert_eq!(proposed(&made, "0-3", rule), [value]);
        assert!(made.finding_for("0-3", rule).advice.is_some_and(|a| a.contains("CPU 0")));
        assert!(proposed(&made, "0", rule).is_empty());
    }
}

#[test]
fn the_first_of_two_parameters_counts() {
    let made = node("6.8.0", "isolcpus=4-7 isolcpus=8-9 rcu_nocbs=2 rcu_nocbs=3");
    let finding = made.finding_for("10", "isolation");
    assert_eq!(
        boot_remedy(&finding).expect("a parameter").commands(),
        [
            "# on the kernel command line, replace isolcpus=4-7, then reboot: isolcpus=managed_irq,domain,4-7,10"
        ]
    );
    assert!(finding.advice.is_some_and(|a| a.contains("Remove isolcpus=8-9")));
    // of this one the kernel takes the last
    assert_eq!(proposed(&made, "10", "rcu-nocbs"), ["rcu_nocbs=3,10"]);
}

#[test]
fn a_union_of_all_cpus_is_not_proposed() {
    let made = node("6.8.0", "isolcpus=0-7 nohz_full=0-7");
    for rule in ["isolation", "nohz-full"] {
        let finding = made.finding_for("8-15", rule);
        assert!(boot_remedy(&finding).is_none() && finding.advice.is_some(), "{finding:?}");
    }
}

#[test]
fn a_parameter_that_is_there_but_not_in_effect_is_not_proposed_again() {
    let made = node("6.8.0", "isolcpus=managed_irq,domain,4-7 nohz_full=4-7");
    for rule in ["isolation", "nohz-full"] {
        let finding = made.finding_for("4-7", rule);
        assert!(
            boot_remedy(&finding).is_none() && finding.advice.is_some_and(|a| a.contains("not in effect"))
        );
    }
}

#[test]
fn callbacks_are_offloaded_where_the_tick_stops_whatever_parameter_did_it() {
    let made = node("6.8.0", "isolcpus=nohz,domain,4-15");
    made.put(NOHZ, "4-15\n");
    assert!(matches!(made.rule_for("4-15", "rcu-nocbs"), Ruled::Passed));
}

#[test]
fn ticks_in_a_trace_win_over_the_setting() {
    let made = node("6.19.0", "nohz_full=1-3");
    made.put(NOHZ, "1-3\n");
    for cpu in 1..4 {
        made.put(&format!("/sys/kernel/debug/sched/fair_server/cpu{cpu}/runtime"), "50000000\n");
    }
    let made = made.ticks(&[(1, 0.9), (2, 250.0), (3, 1000.0)]);
    let finding = made.finding("nohz-full");
    assert!(finding.title.contains("CPUs 2-3 up to 1000 times"), "{}", finding.title);
    assert!(finding.touches.has("irq:local_timer"));
    assert!(finding.evidence.iter().any(|e| e.value.contains("deadline server")), "{finding:?}");
    assert!(finding.remedies[0].commands()[0].contains("fair_server/cpu3/runtime"));
    assert!(finding.advice.is_some_and(|a| a.contains("POSIX") && a.contains("RCU") && a.contains("perf")));
    let quiet = made.ticks(&[(1, 1.0), (2, 1.0)]);
    assert!(matches!(quiet.rule("nohz-full"), Ruled::Passed));
}
