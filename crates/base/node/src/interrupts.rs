// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's count of interrupts (`/proc/interrupts`).

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt<'a> {
    /// Its number or its short name, as `24` or `LOC`.
    pub label: &'a str,
    /// Arrivals since boot by CPU; the table's columns are the online CPUs.
    pub counts: Vec<(usize, u64)>,
    /// `true` if every column has a count; `ERR` and `MIS` are one sum of all CPUs.
    pub is_per_cpu: bool,
    /// Words behind the counts: chip, trigger and device names, or a description.
    pub words: Vec<&'a str>,
}

impl Interrupt<'_> {
    /// The names of its devices, or its description.
    #[must_use]
    pub fn names(&self) -> String {
        self.words.get(self.source().1..).unwrap_or_default().join(" ")
    }

    /// The name of its interrupt controller, such as `GICv3`, `IR-PCI-MSIX-0000:c1:00.0`, `RISC-V INTC` or `xen-percpu`;
    /// empty for lines that are no device's.
    #[must_use]
    pub fn chip(&self) -> String {
        self.words.get(..self.source().0).unwrap_or_default().join(" ")
    }

    /// The number by which its controller knows it; `None` if the line has none.
    #[must_use]
    pub fn hardware_number(&self) -> Option<u64> {
        let (chip, names) = self.source();
        let number = self.words.get(chip..names)?.first()?;
        number.split('-').next()?.parse().ok()
    }

    /// Word counts (`kernel/irq/proc.c`, `show_interrupts`): of the chip's name, and of all before the names of devices. Behind the
    /// chip are the hardware number, `Level` or `Edge`, and the flow's name behind a hyphen; each may be missing, and some kernels
    /// have no blank before the hyphen.
    fn source(&self) -> (usize, usize) {
        if self.label.parse::<u32>().is_err() {
            return (0, 0);
        }
        let is_number = |word: &str| {
            let number = word.split('-').next().unwrap_or_default();
            word.starts_with('-') || (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
        };
        let Some(chip) = self.words.iter().skip(1).position(|word| is_number(word)).map(|at| at + 1) else {
            let chip = self.words.len().min(1);
            return (chip, chip);
        };
        let has_type = |at: usize| self.words.get(at).is_some_and(|w| matches!(*w, "Level" | "Edge"));
        let has_flow = |at: usize| self.words.get(at).is_some_and(|w| w.starts_with('-'));
        let mut names = if has_flow(chip) { chip } else { chip + 1 };
        names += usize::from(has_type(names));
        names += usize::from(has_flow(names));
        (chip, names)
    }
}

/// The lines of a table. One without a header has no counts.
pub fn parse(table: &str) -> impl Iterator<Item = Interrupt<'_>> {
    let header = table.lines().next().unwrap_or_default();
    let columns: Vec<usize> =
        header.split_whitespace().filter_map(|c| c.strip_prefix("CPU")?.parse().ok()).collect();
    // a header has no label
    table.lines().filter_map(move |line| {
        let (label, rest) = line.split_once(':')?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let numbers: Vec<u64> = words.iter().map_while(|w| w.parse().ok()).collect();
        let words = words.get(numbers.len()..).unwrap_or_default().to_vec();
        let counts: Vec<(usize, u64)> = columns.iter().copied().zip(numbers).collect();
        Some(Interrupt { label: label.trim(), is_per_cpu: counts.len() == columns.len(), counts, words })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn columns_are_online_cpus_and_sums_are_not_of_a_cpu() {
        let table = "      CPU0  CPU2\n 24:    1    20  PCI-MSI 65536-edge  virtio0-req, eth0\nLOC: 3 4 Local timer interrupts\nERR: 4\n";
        let found: Vec<Interrupt<'_>> = parse(table).collect();
        let names: Vec<_> = found.iter().map(|i| (i.label, i.names(), i.is_per_cpu)).collect();
        let name = |label, names: &str, is_per_cpu| (label, names.to_owned(), is_per_cpu);
        assert_eq!(
            names,
            [
                name("24", "virtio0-req, eth0", true),
                name("LOC", "Local timer interrupts", true),
                name("ERR", "", false)
            ]
        );
        assert_eq!(found[0].counts, [(0, 1), (2, 20)]);
    }

    #[test]
    fn chips_and_devices_are_told_apart_on_every_architecture() {
        let lines = [
            (" 11: 9 GICv3  30 Level     arch_timer", "GICv3", Some(30), "arch_timer"),
            ("  5: 9 RISC-V INTC   5 Edge      riscv-timer", "RISC-V INTC", Some(5), "riscv-timer"),
            (" 48: 9 xen-percpu    -virq      timer0", "xen-percpu", None, "timer0"),
            ("  4: 9 IR-IO-APIC    4-edge      ttyS0", "IR-IO-APIC", Some(4), "ttyS0"),
            (" 61: 9 IR-PCI-MSIX-0000:05:00.0   1-edge  a, b", "IR-PCI-MSIX-0000:05:00.0", Some(1), "a, b"),
            (" 70: 9 PCI-MSI 524289-edge", "PCI-MSI", Some(524_289), ""),
            ("IPI0: 9 Rescheduling interrupts", "", None, "Rescheduling interrupts"),
        ];
        for (line, chip, number, names) in lines {
            let table = format!("     CPU0\n{line}\n");
            let found = parse(&table).next().expect(line);
            assert_eq!(
                (found.chip(), found.hardware_number(), found.names()),
                (chip.into(), number, names.into())
            );
        }
    }

    proptest! {
        #[test]
        fn no_table_panics(table in "(.{0,40}\n){0,6}") {
            parse(&table).for_each(|i| drop((i.names(), i.chip(), i.hardware_number())));
        }
    }
}
