// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupts are called movable only if the kernel lets root move them.

use crate::node::{Made, Ruled};

const HEADER: &str = "           CPU0       CPU1       CPU2       CPU3\n";

/// A node with the rows of `/proc/interrupts`; each is a number, its CPUs, and the text behind its counts.
fn node(rows: &[(u32, &str, &str)]) -> Made {
    let made = Made::new(&[("/proc/cmdline", "quiet")]);
    let mut table = HEADER.to_owned();
    for (number, cpus, text) in rows {
        table.push_str(&format!("{number:>3}:          9          8          7          6  {text}\n"));
        made.put(&format!("/proc/irq/{number}/smp_affinity_list"), cpus);
        made.put(&format!("/proc/irq/{number}/effective_affinity_list"), cpus);
    }
    made.put("/proc/interrupts", table);
    made
}

#[test]
fn interrupts_that_are_private_to_a_cpu_are_neither_movable_nor_managed() {
    for text in [
        "GICv3  30 Level     arch_timer",
        "GICv3  23 Level     arm-pmu",
        "GICv3 1056 Level    trbe",
        "GIC-0  27 Level     arch_timer",
        "GICv5-PPI  3 Level  arch_timer",
        "RISC-V INTC   5 Edge      riscv-timer",
        "xen-percpu    -virq      timer0",
        "xen-percpu    -ipi       resched1",
        "CPUINTC  12  timer",
        "IR-HPET_MSI    3-edge      hpet3",
    ] {
        for cpus in ["1", "0-3"] {
            let made = node(&[(24, cpus, text)]);
            assert!(matches!(made.rule("irq-movable"), Ruled::Passed), "{text}");
            assert!(matches!(made.rule("irq-managed"), Ruled::Passed), "{text}");
        }
    }
    // alone, one is not several
    let mixed = node(&[(24, "1", "GICv3  30 Level     arch_timer"), (25, "1", "GICv3  55 Level     mmc0")]);
    let finding = mixed.finding("irq-movable");
    assert_eq!(finding.title, "Device interrupt 25 is sent to the job's CPUs.");
    assert!(finding.evidence.iter().any(|e| e.value == "24 belongs to its CPU and cannot be moved"));
    let disk = node(&[(26, "2", "PCI-MSI 2-edge  nvme0q2")]).finding("irq-managed");
    assert_eq!(disk.title, "Managed interrupt 26 is sent to the job's CPUs and cannot be moved.");
    // a controller that nobody knows here
    assert!(matches!(node(&[(24, "0-3", "NEW-CHIP 7 Level timer")]).rule("irq-movable"), Ruled::Passed));
    for text in ["GICv3  55 Level     mmc0", "xen-dyn    -event     eth0", "IO-APIC    9-fasteoi   acpi"] {
        assert!(matches!(node(&[(24, "1", text)]).rule("irq-movable"), Ruled::Found(_)), "{text}");
    }
}

#[test]
fn queues_that_divide_the_cpus_are_managed_whatever_their_driver() {
    let queue =
        |n: u32, cpus, name| (100 + n, cpus, format!("IR-PCI-MSIX-0000:c1:00.0  {n}-edge  {name}{n}"));
    for name in ["mpt3sas0-msix", "lpfc:", "other"] {
        let rows = [queue(0, "0-3", name), queue(1, "0-1", name), queue(2, "2", name), queue(3, "3", name)];
        let rows: Vec<_> = rows.iter().map(|(n, cpus, text)| (*n, *cpus, text.as_str())).collect();
        let made = node(&rows);
        assert!(made.finding("irq-managed").title.contains("101, 102, 103"), "{name}");
        // the first one may go to every CPU
        assert!(made.finding("irq-movable").title.contains("interrupt 100 is"), "{name}");
        // drivers suggest CPUs for interrupts that root may move
        made.put("/proc/irq/102/affinity_hint", "4\n");
        assert!(matches!(made.rule("irq-managed"), Ruled::Passed), "{name}");
    }
    // in older kernels the number has the device's address
    let old = [(50, "0-1", "PCI-MSI 524288-edge a"), (51, "2-3", "PCI-MSI 524289-edge b")];
    assert!(matches!(node(&old).rule("irq-managed"), Ruled::Found(_)));
    // interrupts of two devices
    let two = [(50, "0-1", "PCI-MSI 524288-edge a"), (51, "2-3", "PCI-MSI 526336-edge b")];
    assert!(matches!(node(&two).rule("irq-managed"), Ruled::Passed));
}

#[test]
fn managed_irq_counts_for_the_cpus_that_it_lists() {
    let rows = [(50, "0-1", "PCI-MSI 524288-edge a"), (51, "2-3", "PCI-MSI 524289-edge b")];
    let made = node(&rows);
    made.put("/proc/cmdline", "isolcpus=managed_irq,domain,3");
    let finding = made.finding("irq-managed");
    let commands = finding.remedies[0].commands();
    assert!(commands[0].ends_with("isolcpus=managed_irq,domain,1-3"), "{commands:?}");
    made.put("/proc/cmdline", "isolcpus=managed_irq,domain,1-3");
    assert!(made.finding("irq-managed").remedies.is_empty());
}

#[test]
fn an_interrupt_of_which_nobody_has_collected_the_handler_is_not_known() {
    let made = Made::new(&[("/proc/irq/24/smp_affinity_list", "1\n")]);
    for rule in ["irq-movable", "irq-managed"] {
        assert!(matches!(made.rule(rule), Ruled::Undecided(why) if why.contains("24")), "{rule}");
    }
    made.put("/proc/interrupts", HEADER);
    assert!(matches!(made.rule("irq-movable"), Ruled::Passed), "the table has no handler");
    // the mask stands for the list
    let mask = Made::new(&[("/proc/irq/24/smp_affinity", "2\n"), ("/proc/irq/24/eth0/x", "")]);
    assert!(matches!(mask.rule("irq-movable"), Ruled::Found(_)));
}

#[test]
fn the_table_of_a_large_node_is_read_and_read_once() {
    const CPUS: usize = 1024;
    const INTERRUPTS: u32 = 1000;
    let made = Made::new(&[("/proc/cmdline", "quiet")]);
    made.put("/sys/devices/system/cpu/online", format!("0-{}\n", CPUS - 1));
    let mut table: String = (0..CPUS).map(|cpu| format!("{:>11}", format!("CPU{cpu}"))).collect();
    for number in 0..INTERRUPTS {
        table.push_str(&format!(
            "\n{:>4}:{}  IR-PCI-MSIX-0000:c1:00.0  {number}-edge  eth",
            number + 100,
            "          1".repeat(CPUS)
        ));
        made.put(&format!("/proc/irq/{}/smp_affinity_list", number + 100), "0-1023\n");
        made.put(&format!("/proc/irq/{}/effective_affinity_list", number + 100), "2\n");
    }
    assert!(table.len() > 8 << 20);
    made.put("/proc/interrupts", table);
    let start = std::time::Instant::now();
    let finding = made.finding("irq-movable");
    assert!(finding.title.contains("and 988 more"), "{}", finding.title);
    assert!(finding.evidence[0].value.contains("eth, 3 on job CPUs"), "{finding:?}");
    // a table that is parsed once an interrupt takes minutes
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}
