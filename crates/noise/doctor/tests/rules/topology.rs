// SPDX-License-Identifier: MIT OR Apache-2.0
//! Caches and NUMA nodes: the job's default CPUs, spare cores, and the spare CPUs that serve a device.

use colony_doctor::Node;
use colony_node::cpu::CpuSet;

use crate::node::Made;

const CPU: &str = "/sys/devices/system/cpu";
const NUMA: &str = "/sys/devices/system/node";

/// 16 CPUs: two NUMA nodes of four cores, two L3 caches in each; CPUs N and N + 8 are threads of core N.
fn large() -> Made {
    let made = Made::new(&[("/proc/cmdline", "quiet"), ("/sys/devices/system/cpu/isolated", "\n")]);
    made.put("/sys/devices/system/cpu/online", "0-15\n");
    for cpu in 0..16 {
        let core = cpu % 8;
        let cores = |first: usize, last: usize| format!("{first}-{last},{}-{}\n", first + 8, last + 8);
        made.put(&format!("{CPU}/cpu{cpu}/topology/thread_siblings_list"), format!("{core},{}\n", core + 8));
        made.put(&format!("{CPU}/cpu{cpu}/cache/index0/level"), "3\n");
        made.put(
            &format!("{CPU}/cpu{cpu}/cache/index0/shared_cpu_list"),
            cores(core / 2 * 2, core / 2 * 2 + 1),
        );
    }
    for (file, text) in
        [("online", "0-1\n"), ("node0/cpulist", "0-3,8-11\n"), ("node1/cpulist", "4-7,12-15\n")]
    {
        made.put(&format!("{NUMA}/{file}"), text);
    }
    made
}

/// Adds interrupts that may go to any CPU, by number and NUMA node.
fn with_interrupts(made: &Made, interrupts: impl IntoIterator<Item = (u32, i32)>) {
    for (number, numa_node) in interrupts {
        made.put(&format!("/proc/irq/{number}/smp_affinity_list"), "0-15\n");
        made.put(&format!("/proc/irq/{number}/eth{number}/x"), "");
        made.put(&format!("/proc/irq/{number}/node"), format!("{numa_node}\n"));
    }
}

/// The job's CPUs if these are spare.
fn all_but(spare: &str) -> String {
    let all: CpuSet = "0-15".parse().expect("a list");
    all.without(&spare.parse().expect("a list")).to_string()
}

#[test]
fn the_default_cpus_leave_a_core_of_each_numa_node() {
    let default = |made: &Made| Node::open(made.root(), None).expect("a node").job().to_string();
    let made = large();
    assert_eq!(default(&made), "1-3,5-7,9-11,13-15");
    // a node of memory, and one of a single core
    for (file, text) in [
        ("online", "0-2\n"),
        ("node0/cpulist", "0-6,8-14\n"),
        ("node1/cpulist", "7,15\n"),
        ("node2/cpulist", "\n"),
    ] {
        made.put(&format!("{NUMA}/{file}"), text);
    }
    assert_eq!(default(&made), "1-7,9-15");
}

#[test]
fn spare_cores_are_proposed_by_cache_or_numa_node_if_they_are_such() {
    let proposed = |spare: &str| {
        let finding = large().finding_for(&all_but(spare), "isolation");
        let command = finding.remedies[0].commands().remove(0);
        command
            .split_once("--spare-cores ")
            .expect("spare cores")
            .1
            .split(' ')
            .next()
            .expect("a word")
            .to_owned()
    };
    assert_eq!(proposed("0,2,4,6,8,10,12,14"), "1/l3");
    assert_eq!(proposed("0,4,8,12"), "1/numa");
    assert_eq!(proposed("0-1,4-5,8-9,12-13"), "2/numa");
    // one core of one cache, half of a core, and cores of one node only
    for spare in ["0,8", "0,2,4,6", "0-1,8-9", "0,4,5,8,12-13"] {
        let list: CpuSet = spare.parse().expect("a list");
        assert_eq!(proposed(spare), list.to_string());
    }
    // a collection without the files of caches and nodes
    let made = Made::new(&[("/proc/cmdline", ""), ("/sys/devices/system/cpu/isolated", "\n")]);
    let command = made.finding("isolation").remedies[0].commands().remove(0);
    assert!(command.contains("--spare-cores 0-0 "), "{command}");
}

#[test]
fn interrupts_go_to_spare_cpus_of_their_devices_numa_node() {
    let made = large();
    with_interrupts(&made, [(30, 0), (31, 1), (32, 1), (33, -1)]);
    let finding = made.finding_for(&all_but("0,4,8,12"), "irq-movable");
    let file = |number: u32| format!("/proc/irq/{number}/smp_affinity_list");
    assert_eq!(
        finding.remedies[0].commands(),
        [
            format!("echo 0,8 > {}", file(30)),
            format!("echo 4,12 | tee {} {} > /dev/null", file(31), file(32)),
            format!("echo 0,4,8,12 > {}", file(33)),
        ]
    );
    assert!(finding.remedies[0].risk.contains("2 interrupts on CPUs 4,12"), "{}", finding.remedies[0].risk);
    assert!(!finding.advice.expect("an advice").contains("--spare-cores"));
}

#[test]
fn a_numa_node_without_a_spare_cpu_is_named_and_so_are_more_interrupts_than_a_cpu_serves() {
    let made = large();
    with_interrupts(&made, (100..227).map(|number| (number, if number < 102 { 1 } else { 0 })));
    let finding = made.finding_for(&all_but("0-0"), "irq-movable");
    assert!(finding.remedies[0].risk.contains("127 interrupts on CPU 0"), "{}", finding.remedies[0].risk);
    let advice = finding.advice.expect("an advice");
    assert!(
        advice.contains("No CPU of NUMA node 1 is spare, so interrupts 100, 101 of its devices")
            && advice.contains("1/numa"),
        "{advice}"
    );
    assert!(!advice.contains("leave more cores"), "{advice}");
    with_interrupts(&made, (227..301).map(|number| (number, 0)));
    let advice = made.finding_for(&all_but("0-0"), "irq-movable").advice.expect("an advice");
    assert!(advice.contains("CPU 0 cannot take 201 interrupts beside 0 that are there"), "{advice}");
    // those that the spare CPU serves already count
    for number in 227..301 {
        made.put(&format!("/proc/irq/{number}/smp_affinity_list"), "0\n");
    }
    let advice = made.finding_for(&all_but("0-0"), "irq-movable").advice.expect("an advice");
    assert!(advice.contains("cannot take 127 interrupts beside 74 that are there"), "{advice}");
    // two CPUs hold twice as many, and devices of a node that nobody has collected may go to any
    let made = Made::new(&[]);
    made.put("/sys/devices/system/cpu/online", "0-15\n");
    with_interrupts(&made, (100..301).map(|number| (number, 3)));
    let finding = made.finding_for(&all_but("0-1"), "irq-movable");
    let advice = finding.advice.expect("an advice");
    assert!(!advice.contains("leave more cores") && !advice.contains("NUMA"), "{advice}");
}
