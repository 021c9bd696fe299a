// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupts on the job's CPUs, counted by the kernel.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use colony_node::cpu::CpuSet;
use colony_node::interrupts::{self, Interrupt};

use super::report::Arrivals;

/// Length of the sample before the reservation.
const SAMPLE: Duration = Duration::from_millis(100);

/// Counts of `/proc/interrupts` on some CPUs, and the time they were read.
#[derive(Debug)]
pub(super) struct Counts {
    at: Instant,
    by_name: BTreeMap<String, PerCpu>,
}

/// Counts by CPU.
type PerCpu = BTreeMap<usize, u64>;

impl Counts {
    /// # Errors
    /// The kernel's answer if `/proc/interrupts` cannot be read.
    pub(super) fn now(cpus: &CpuSet) -> io::Result<Self> {
        let table = std::fs::read_to_string("/proc/interrupts")?;
        Ok(Self { at: Instant::now(), by_name: parse(&table, cpus) })
    }

    /// Arrivals a second since `before`, by name.
    fn rates_since<'a>(&'a self, before: &Self) -> BTreeMap<&'a str, (u64, f64)> {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(1e-9);
        // a CPU that was offline at one of both times has no difference
        let since_of = |now: &PerCpu, old: &PerCpu| -> u64 {
            let new = |(cpu, count): (&usize, &u64)| old.get(cpu).map(|old| count.saturating_sub(*old));
            now.iter().filter_map(new).sum()
        };
        let since = |(name, now): (&'a String, &PerCpu)| {
            let new = before.by_name.get(name).map_or_else(|| now.values().sum(), |old| since_of(now, old));
            (name.as_str(), (new, new as f64 / seconds))
        };
        self.by_name.iter().map(since).collect()
    }
}

/// The interrupts of a run, before and during it.
#[derive(Debug)]
pub(super) struct Comparison {
    cpus: CpuSet,
    sample: (Counts, Counts),
    start: Counts,
}

impl Comparison {
    /// Takes the sample before the reservation.
    ///
    /// # Errors
    /// As [`Counts::now`].
    pub(super) fn sample(cpus: &CpuSet) -> io::Result<Self> {
        let first = Counts::now(cpus)?;
        std::thread::sleep(SAMPLE);
        Ok(Self { cpus: cpus.clone(), sample: (first, Counts::now(cpus)?), start: Counts::now(cpus)? })
    }

    /// Begins to count for the run.
    ///
    /// # Errors
    /// As [`Counts::now`].
    pub(super) fn start(&mut self) -> io::Result<()> {
        self.start = Counts::now(&self.cpus)?;
        Ok(())
    }

    /// Interrupts that arrived in the sample or during the run, the most frequent of the run first.
    ///
    /// # Errors
    /// As [`Counts::now`].
    pub(super) fn arrivals(&self) -> io::Result<Vec<Arrivals>> {
        let now = Counts::now(&self.cpus)?;
        let before = self.sample.1.rates_since(&self.sample.0);
        let during = now.rates_since(&self.start);
        let mut all: Vec<Arrivals> = during
            .into_iter()
            .map(|(name, (count, per_s))| {
                let before_per_s = before.get(name).map_or(0.0, |&(_, rate)| rate);
                Arrivals { name: name.to_owned(), before_per_s, count, per_s }
            })
            .filter(|a| a.count > 0 || a.before_per_s > 0.0)
            .collect();
        all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| b.before_per_s.total_cmp(&a.before_per_s)));
        Ok(all)
    }
}

/// The counts of `cpus`, by the label and the device names of each line.
fn parse(table: &str, cpus: &CpuSet) -> BTreeMap<String, PerCpu> {
    let of_line = |i: Interrupt<'_>| {
        let name = format!("{} {}", i.label, i.names()).trim().to_owned();
        (name, i.counts.into_iter().filter(|(cpu, _)| cpus.contains(*cpu)).collect())
    };
    interrupts::parse(table).filter(|i| i.is_per_cpu).map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TABLE: &str = "           CPU0       CPU2       CPU3
  1:          9         10         20   IO-APIC   1-edge      i8042
 24:          0          0          7   PCI-MSI 65536-edge      virtio0-config, virtio0-req
LOC:        100        200        300   Local timer interrupts
ERR:          4
";

    #[test]
    fn columns_are_online_cpus_and_names_have_no_chip() {
        let counts = parse(TABLE, &"2-3".parse().expect("a list"));
        let found: Vec<_> = counts.iter().map(|(n, c)| (n.as_str(), c.values().sum::<u64>())).collect();
        assert_eq!(
            found,
            [("1 i8042", 30), ("24 virtio0-config, virtio0-req", 7), ("LOC Local timer interrupts", 500)]
        );
    }

    #[test]
    fn a_cpu_that_goes_offline_takes_no_arrivals_of_others_with_it() {
        let counts = |at, table: &str| Counts { at, by_name: parse(table, &"2-3".parse().expect("a list")) };
        let begin = Instant::now();
        let later = "           CPU0       CPU2\nLOC:        100        260   Local timer interrupts\n";
        let (old, now) = (counts(begin, TABLE), counts(begin + Duration::from_secs(2), later));
        assert_eq!(now.rates_since(&old), [("LOC Local timer interrupts", (60, 30.0))].into());
        let back = counts(begin + Duration::from_secs(4), TABLE);
        assert_eq!(back.rates_since(&now)["LOC Local timer interrupts"].0, 0, "not what came before");
    }

    #[test]
    fn this_kernel_counts_its_timer() {
        let cpus = colony_node::cpu::online().expect("linux");
        assert!(!Counts::now(&cpus).expect("linux").by_name.is_empty());
    }

    proptest! {
        #[test]
        fn no_table_panics(table in "(.{0,40}\n){0,6}") {
            let _ = parse(&table, &"0-3".parse().expect("a list"));
        }
    }
}
