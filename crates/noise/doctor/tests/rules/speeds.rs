// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPUs of unequal speed are named by class, and figures that nobody collected are not known.

use colony_doctor::Level;

use crate::node::{Made, Ruled};

/// A node of eight CPUs with a number in a file of each, the first of `figures` for CPU 0.
fn node(file: &str, figures: &[u64]) -> Made {
    let made = Made::new(&[]);
    made.put("/sys/devices/system/cpu/online", "0-7\n");
    for (cpu, figure) in figures.iter().enumerate() {
        made.put(&format!("/sys/devices/system/cpu/cpu{cpu}/{file}"), format!("{figure}\n"));
    }
    made
}

#[test]
fn the_cpus_of_each_class_are_named() {
    let made = node("cpu_capacity", &[1024, 1024, 1024, 1024, 400, 400, 400, 400]);
    let finding = made.finding_for("0-7", "unequal-cpus");
    assert_eq!(finding.level, Level::Medium);
    assert!(finding.title.contains("2 speeds"), "{}", finding.title);
    let seen: Vec<&str> = finding.evidence.iter().map(|e| e.value.as_str()).collect();
    assert_eq!(seen, ["1024 on CPUs 0-3", "400 on CPUs 4-7"]);
    // 4 times 1024 is more than 8 times 400
    assert!(finding.advice.is_some_and(|a| a.contains("soonest on CPUs 0-3 (--cpus 0-3)")));
    // a job on the CPUs of one class
    assert!(matches!(made.rule_for("4-7", "unequal-cpus"), Ruled::Passed));
}

#[test]
fn a_class_is_proposed_only_if_it_does_more_than_all_cpus() {
    let made = node("acpi_cppc/highest_perf", &[231, 231, 226, 226, 221, 221, 216, 211]);
    let finding = made.finding_for("0-7", "unequal-cpus");
    assert_eq!(finding.level, Level::Low, "highest performance of one core while others idle");
    assert_eq!(finding.evidence.len(), 5);
    let advice = finding.advice.expect("an advice");
    assert!(advice.contains("on all of the job's CPUs") && advice.contains("--cpus 0-1"), "{advice}");
    let many = node("cpufreq/cpuinfo_max_freq", &[8, 7, 6, 5, 4, 3, 2, 1]);
    let finding = many.finding_for("0-7", "unequal-cpus");
    assert_eq!(finding.evidence.last().map(|e| e.value.as_str()), Some("2 more classes of CPUs"));
}

#[test]
fn performance_and_efficiency_cores_are_told_apart_without_figures() {
    let made = node("cpufreq/cpuinfo_max_freq", &[5; 8]);
    made.put("/sys/devices/cpu_core/cpus", "0-3\n");
    made.put("/sys/devices/cpu_atom/cpus", "4-7\n");
    let finding = made.finding_for("2-7", "unequal-cpus");
    let seen: Vec<&str> = finding.evidence.iter().map(|e| e.value.as_str()).collect();
    assert_eq!(seen, ["performance cores: CPUs 2-3", "efficiency cores: CPUs 4-7"]);
    assert!(finding.advice.is_some_and(|a| a.contains("--cpus 2-3")));
    assert!(matches!(made.rule_for("0-3", "unequal-cpus"), Ruled::Passed));
}

#[test]
fn figures_of_some_cpus_say_nothing_about_the_others() {
    let made = node("cpu_capacity", &[1024, 1024]);
    assert!(
        matches!(made.rule_for("0-3", "unequal-cpus"), Ruled::Undecided(why) if why.contains("cpu2/cpu_capacity"))
    );
    let wrong = node("cpu_capacity", &[1024, 1024]);
    wrong.put("/sys/devices/system/cpu/cpu1/cpu_capacity", "-3\n");
    assert!(matches!(wrong.rule_for("0-1", "unequal-cpus"), Ruled::Undecided(why) if why.contains("-3")));
    let unknown = node("acpi_cppc/highest_perf", &[0, 231]);
    assert!(
        matches!(unknown.rule_for("0-1", "unequal-cpus"), Ruled::Undecided(why) if why.contains("highest_perf"))
    );
    let both = node("cpu_capacity", &[1024; 4]);
    both.put("/sys/devices/cpu_core/cpus", "0-2\n");
    both.put("/sys/devices/cpu_atom/cpus", "2-3\n");
    assert!(
        matches!(both.rule_for("0-3", "unequal-cpus"), Ruled::Undecided(why) if why.contains("cpu_atom"))
    );
    let unread = node("cpu_capacity", &[1024, 1024]);
    unread.put("/sys/devices/cpu_atom/cpus", "0-x\n");
    assert!(matches!(unread.rule_for("0-1", "unequal-cpus"), Ruled::Undecided(why) if why.contains("0-x")));
}
