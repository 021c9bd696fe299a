// SPDX-License-Identifier: MIT OR Apache-2.0
//! The job's CPUs if nobody names them, and the CPUs that take what leaves the job's.

use colony_doctor::Node;

use crate::node::{Made, Ruled};

const ISOLATED: &str = "/sys/devices/system/cpu/isolated";
const NOHZ: &str = "/sys/devices/system/cpu/nohz_full";

/// A node of eight CPUs; CPUs N and N + 4 are threads of a core.
fn node_with_threads(files: &[(&str, &str)]) -> Made {
    let made = Made::new(files);
    made.put("/sys/devices/system/cpu/online", "0-7\n");
    for cpu in 0..8 {
        let core = format!("{},{}\n", cpu % 4, cpu % 4 + 4);
        made.put(&format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"), core);
    }
    made
}

fn default_of(made: &Made) -> String {
    Node::open(made.root(), None).expect("a node").job().to_string()
}

#[test]
fn the_default_cpus_are_whole_cores() {
    assert_eq!(default_of(&node_with_threads(&[])), "1-3,5-7");
    assert_eq!(default_of(&node_with_threads(&[(ISOLATED, "1-7\n")])), "1-3,5-7");
    assert_eq!(default_of(&node_with_threads(&[(ISOLATED, "3-4\n")])), "3-4", "no core is whole");
    // without the files, cores are unknown
    assert_eq!(default_of(&Made::new(&[])), "1-3");
}

#[test]
fn the_default_cpus_are_those_that_an_administrator_has_set_apart() {
    let partition = ("/sys/fs/cgroup/cpuset.cpus.isolated", "3\n");
    assert_eq!(default_of(&Made::new(&[(ISOLATED, "2\n"), partition])), "2-3");
    assert_eq!(default_of(&Made::new(&[(ISOLATED, "\n"), (NOHZ, "2-3\n")])), "2-3");
    // a list that cannot be read sets none apart, and its rule says so
    let unread = Made::new(&[(ISOLATED, "two\n")]);
    assert_eq!(default_of(&unread), "1-3");
    assert!(matches!(unread.rule("isolation"), Ruled::Undecided(why) if why.contains("two")));
}

#[test]
fn the_offending_thread_is_named_with_its_core() {
    let finding = node_with_threads(&[]).finding_for("1-7", "smt");
    assert!(finding.title.starts_with("CPU 4 of the job and CPU 0 share a core,"), "{}", finding.title);
    assert_eq!(finding.evidence[0].file, "/sys/devices/system/cpu/cpu4/topology/thread_siblings_list");
}

#[test]
fn nothing_is_moved_to_cpus_that_are_isolated_for_others() {
    let made = Made::new(&[(ISOLATED, "1-3\n"), ("/sys/devices/virtual/workqueue/cpumask", "f\n")]);
    let finding = made.finding_for("1", "workqueue-unbound");
    assert_eq!(finding.remedies[0].commands(), ["echo 1 > /sys/devices/virtual/workqueue/cpumask"]);
}
