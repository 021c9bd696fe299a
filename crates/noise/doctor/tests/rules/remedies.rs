// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remedies are correct commands, and proposed only where they can help.

use colony_doctor::{Level, Node};

use crate::node::{Made, Ruled, boot_remedy};

const ISOLATED: (&str, &str) = ("/sys/devices/system/cpu/isolated", "");

#[test]
fn a_parameter_that_is_there_is_extended_not_repeated() {
    let made = Made::new(&[
        ("/sys/devices/system/cpu/nohz_full", "2\n"),
        ("/proc/cmdline", "nohz-full=2 isolcpus=nohz,2 -- rcu_nocbs=1-3"),
        ISOLATED,
    ]);
    let commands = |id| boot_remedy(&made.finding(id)).expect("a parameter").commands();
    assert_eq!(
        commands("nohz-full"),
        [
            "# on the kernel command line, replace nohz_full=2, then reboot: nohz_full=1-3",
            // the kernel ignores the second of both unless they are the same
            "# on the kernel command line, replace isolcpus=nohz,2, then reboot: isolcpus=nohz,1-3"
        ]
    );
    // what follows -- is for the first program
    assert_eq!(commands("rcu-nocbs"), ["# add to the kernel command line, then reboot: rcu_nocbs=1-3"]);
    let isolation = made.finding("isolation");
    let isolation = boot_remedy(&isolation).expect("a parameter");
    assert_eq!(
        isolation.undo_commands(),
        [
            "# on the kernel command line, replace nohz_full=1-3, then reboot: nohz_full=2",
            "# on the kernel command line, replace isolcpus=nohz,managed_irq,domain,1-3, then reboot: isolcpus=nohz,2"
        ]
    );
}

#[test]
fn nohz_full_offloads_callbacks_where_the_kernel_has_it() {
    let files = [("/proc/cmdline", "nohz_full=1-3"), ("/sys/devices/system/cpu/nohz_full", "1-3")];
    assert!(matches!(Made::new(&files).rule("rcu-nocbs"), Ruled::Passed));
    // nobody has collected the kernel's answer
    assert!(matches!(Made::new(&files[..1]).rule("rcu-nocbs"), Ruled::Undecided(_)));
    let old = [("/proc/cmdline", "quiet"), ("/proc/sys/kernel/osrelease", "5.4.0"), ISOLATED];
    let isolation = Made::new(&old).finding("isolation");
    let isolation = boot_remedy(&isolation).expect("a parameter");
    assert_eq!(isolation.commands(), ["# add to the kernel command line, then reboot: isolcpus=1-3"]);
}

#[test]
fn kernels_that_cannot_offload_callbacks_are_not_asked_to() {
    let made = |config: &str| {
        let made = Made::new(&[("/proc/cmdline", "quiet"), ("/proc/sys/kernel/osrelease", "6.1.0\n")]);
        made.put("/boot/config-6.1.0", config);
        made
    };
    assert!(matches!(made("# none\n").rule("rcu-nocbs"), Ruled::Undecided(_)));
    assert!(matches!(made("CONFIG_RCU_NOCB_CPU=y\n").rule("rcu-nocbs"), Ruled::Found(_)));
    let all = "CONFIG_RCU_NOCB_CPU=y\nCONFIG_RCU_NOCB_CPU_DEFAULT_ALL=y\n";
    assert!(matches!(made(all).rule("rcu-nocbs"), Ruled::Passed));
}

#[test]
fn masks_of_large_nodes_have_commas() {
    let made = Made::new(&[("/sys/devices/virtual/workqueue/cpumask", "ff,ffffffff\n")]);
    made.put("/sys/devices/system/cpu/online", "0-39");
    let node = Node::open(made.root(), Some(&"0-31".parse().expect("a list"))).expect("a node");
    let all = colony_doctor::examine(&node);
    let finding = all.findings.iter().find(|f| f.id == "workqueue-unbound").expect("found");
    let commands = finding.remedies[0].commands();
    assert_eq!(commands, ["echo ff,00000000 > /sys/devices/virtual/workqueue/cpumask"]);
    assert_eq!(
        finding.remedies[0].undo_commands(),
        ["echo ff,ffffffff > /sys/devices/virtual/workqueue/cpumask"]
    );
}

#[test]
fn an_interrupt_is_called_what_a_trace_calls_it() {
    let made = Made::new(&[
        ("/proc/irq/24/smp_affinity_list", "0-3\n"),
        ("/proc/irq/24/virtio0-reporting_vq/x", ""),
        ("/proc/irq/25/smp_affinity_list", "1\n"),
        ("/proc/irq/26/smp_affinity_list", "1\n"),
        ("/proc/interrupts", " 25: 0 7 0 0 PCI-MSI 1-edge a/b, c\n"),
    ]);
    let finding = made.finding("irq-movable");
    for source in ["irq:virtio0-reporti", "thread:irq/24-virtio0-", "irq:a/b", "irq:c"] {
        assert!(finding.touches.has(source), "{source}: {:?}", finding.touches);
    }
    assert!(!finding.touches.has("irq:virtio0"));
    // the third has no handler: it never arrives
    assert!(finding.title.contains("24, 25 are"), "{}", finding.title);
    let commands = finding.remedies[0].commands();
    assert_eq!(
        commands,
        ["echo 0 | tee /proc/irq/24/smp_affinity_list /proc/irq/25/smp_affinity_list > /dev/null"]
    );
    let undo = finding.remedies[0].undo_commands();
    assert_eq!(
        undo,
        ["echo 0-3 > /proc/irq/24/smp_affinity_list", "echo 1 > /proc/irq/25/smp_affinity_list"]
    );
}

#[test]
fn a_file_without_a_bit_for_writing_is_a_managed_interrupt() {
    let made = Made::new(&[
        ("/proc/irq/24/smp_affinity_list", "0-3\n"),
        ("/proc/irq/24/disk/x", ""),
        ("/proc/cmdline", ""),
    ])
    .read_only("/proc/irq/24/smp_affinity_list");
    let finding = made.finding("irq-managed");
    assert!(finding.remedies[0].needs_reboot(), "{finding:?}");
    assert!(matches!(made.rule("irq-movable"), Ruled::Passed));
    let movable = Made::new(&[("/proc/irq/24/smp_affinity_list", "0-3\n"), ("/proc/irq/24/nvme0q1/x", "")]);
    movable.put("/sys/kernel/debug/irq/irqs/24", "dstate: 0x1\n  IRQD_ACTIVATED\n");
    assert!(matches!(movable.rule("irq-managed"), Ruled::Passed), "debugfs knows");
}

#[test]
fn a_job_with_every_cpu_gets_no_remedy_that_needs_another() {
    let made = Made::new(&[
        ("/proc/irq/24/smp_affinity_list", "0-3\n"),
        ("/proc/irq/24/eth0/x", ""),
        ("/proc/cmdline", ""),
        ("/sys/devices/system/cpu/nohz_full", ""),
        ISOLATED,
    ]);
    let node = Node::open(made.root(), Some(&"0-3".parse().expect("a list"))).expect("a node");
    let all = colony_doctor::examine(&node);
    assert!(all.findings.iter().any(|f| f.id == "irq-movable"));
    for finding in &all.findings {
        assert!(
            finding.remedies.iter().flat_map(|r| r.commands()).all(|c| !c.contains("echo  ")),
            "{finding:?}"
        );
        assert!(
            !["nohz-full", "isolation", "irq-movable"].contains(&finding.id.as_str())
                || finding.remedies.is_empty()
        );
    }
    let levels: Vec<Level> = all.findings.iter().map(|f| f.level).collect();
    assert!(levels.is_sorted_by(|a, b| a >= b), "{levels:?}");
}

#[test]
fn in_a_container_a_missing_file_says_so() {
    let made = Made::new(&[("/.dockerenv", "")]);
    assert!(matches!(made.rule("ksm"), Ruled::Undecided(why) if why.contains("container")));
}
