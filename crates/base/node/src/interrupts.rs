// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's count of interrupts (`/proc/interrupts`).

use crate::cpu::CpuSet;

/// A line of the table. `C`: its counts, by CPU or as [`Totals`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt<'a, C = Vec<(usize, u64)>> {
    /// Its number or its short name, as `24` or `LOC`.
    pub label: &'a str,
    /// Arrivals since boot by CPU; the table's columns are the online CPUs.
    pub counts: C,
    /// `true` if every column has a count; `ERR` and `MIS` are one sum of all CPUs.
    pub is_per_cpu: bool,
    /// Words behind the counts: chip, trigger and device names, or a description.
    pub words: Vec<&'a str>,
}

/// Arrivals since boot, summed over a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Arrivals on the CPUs that were asked for.
    pub on_cpus: u64,
    /// Number of CPUs with an arrival.
    pub arrived_on: usize,
    /// Number of columns with a count.
    pub columns: usize,
}

impl<C> Interrupt<'_, C> {
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
    let columns = columns(table);
    table.lines().filter_map(move |line| {
        let mut counts = Vec::with_capacity(columns.len());
        split_line(line, |column, n| counts.extend(columns.get(column).map(|cpu| (*cpu, n))))
            .map(|parts| parts.with(counts.len() == columns.len(), counts))
    })
}

/// The lines of a table with the arrivals on `cpus`, as [`parse`]. A table of 1,024 CPUs has millions of counts: none is kept.
pub fn totals<'a>(table: &'a str, cpus: &CpuSet) -> impl Iterator<Item = Interrupt<'a, Totals>> + use<'a> {
    // a set in a tree is slow for each of millions of counts
    let is_asked_for: Vec<bool> = columns(table).into_iter().map(|cpu| cpus.contains(cpu)).collect();
    table.lines().filter_map(move |line| total_line(line, &is_asked_for))
}

/// A line with its arrivals. `is_asked_for`: one value a column.
fn total_line<'a>(line: &'a str, is_asked_for: &[bool]) -> Option<Interrupt<'a, Totals>> {
    let mut totals = Totals::default();
    let parts = split_line(line, |column, n| {
        if let Some(is_asked_for) = is_asked_for.get(column) {
            totals.columns += 1;
            totals.arrived_on += usize::from(n > 0);
            if *is_asked_for {
                totals.on_cpus = totals.on_cpus.saturating_add(n);
            }
        }
    })?;
    Some(parts.with(totals.columns == is_asked_for.len(), totals))
}

/// The CPUs of the table's columns.
fn columns(table: &str) -> Vec<usize> {
    let header = table.lines().next().unwrap_or_default();
    header.split_whitespace().filter_map(|c| c.strip_prefix("CPU")?.parse().ok()).collect()
}

/// A line without its counts.
struct Parts<'a> {
    label: &'a str,
    words: Vec<&'a str>,
}

impl<'a> Parts<'a> {
    fn with<C>(self, is_per_cpu: bool, counts: C) -> Interrupt<'a, C> {
        Interrupt { label: self.label, counts, is_per_cpu, words: self.words }
    }
}

/// Splits a line, and hands each count with the place of its column to `add`; `None` for a header, which has no label.
fn split_line(line: &str, mut add: impl FnMut(usize, u64)) -> Option<Parts<'_>> {
    let (label, mut rest) = line.split_once(':')?;
    let mut column = 0;
    while let Some((count, behind)) = leading_number(rest) {
        add(column, count);
        column += 1;
        rest = behind;
    }
    Some(Parts { label: label.trim(), words: rest.split_whitespace().collect() })
}

/// The number that a text begins with, and the text behind it; `None` if the first word is no number. Reads bytes: a large table is
/// 45 MB of numbers.
fn leading_number(text: &str) -> Option<(u64, &str)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    let begin = at;
    let mut number = 0u64;
    while let Some(digit) = bytes.get(at).map(|b| b.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
        at += 1;
    }
    let ends = bytes.get(at).is_none_or(|b| b.is_ascii_whitespace());
    // behind blanks and digits begins a character
    (at > begin && ends).then(|| (number, &text[at..]))
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
        let totals: Vec<Totals> =
            totals(table, &"1-2".parse().expect("a list")).map(|line| line.counts).collect();
        let of = |on_cpus, arrived_on, columns| Totals { on_cpus, arrived_on, columns };
        assert_eq!(totals, [of(20, 2, 2), of(4, 2, 2), of(0, 1, 1)]);
    }

    #[test]
    fn a_word_that_only_begins_with_digits_is_no_count() {
        let table = "  CPU0 CPU1\n 3: 18446744073709551615 0\n 4: 1 2x 3\n 5: 99999999999999999999 7\n 6: 1 2 3 4 a\n";
        let found: Vec<_> = parse(table).map(|i| (i.counts, i.words)).collect();
        assert_eq!(found[0], (vec![(0, u64::MAX), (1, 0)], vec![]));
        assert_eq!(found[1], (vec![(0, 1)], vec!["2x", "3"]));
        assert_eq!(found[2], (vec![], vec!["99999999999999999999", "7"]));
        assert_eq!(found[3], (vec![(0, 1), (1, 2)], vec!["a"]));
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

        #[test]
        fn totals_are_those_of_the_counts(table in " {0,3}CPU0 CPU1 CPU2\n( [0-9]{1,2}:( {1,2}[0-9x]{1,3}){0,5}\n){0,6}", cpus in prop::collection::btree_set(0usize..3, 0..3)) {
            let cpus: CpuSet = cpus.into_iter().collect();
            let summed = parse(&table).map(|i| Totals {
                on_cpus: i.counts.iter().filter(|(cpu, _)| cpus.contains(*cpu)).map(|(_, n)| n).sum(),
                arrived_on: i.counts.iter().filter(|(_, n)| *n > 0).count(),
                columns: i.counts.len(),
            });
            prop_assert_eq!(totals(&table, &cpus).map(|i| i.counts).collect::<Vec<_>>(), summed.collect::<Vec<_>>());
        }
    }
}
