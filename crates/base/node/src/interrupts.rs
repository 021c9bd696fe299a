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
        // chip and trigger come first in lines of devices
        let is_device = self.label.parse::<u32>().is_ok();
        self.words.get(if is_device { 2 } else { 0 }..).unwrap_or_default().join(" ")
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

    proptest! {
        #[test]
        fn no_table_panics(table in "(.{0,40}\n){0,6}") {
            parse(&table).for_each(|i| drop(i.names()));
        }
    }
}
