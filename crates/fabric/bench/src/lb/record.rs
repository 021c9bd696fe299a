// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the PEs of a process record while they run, and what a rank tells the command at its end.
//!
//! The record is the process's own, not the objects': it costs no messages, and does not migrate.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use colony_runtime::BalanceReport;
use serde::{Deserialize, Serialize};

/// An iteration on one PE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Iteration {
    /// When the last object there ended it, in nanoseconds of the monotonic clock; 0 if no object did.
    pub(super) end_ns: i64,
    /// CPU time of the work of all objects there, in nanoseconds.
    pub(super) cpu_ns: i64,
}

/// One PE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OfPe {
    pub(super) iterations: Vec<Iteration>,
    /// When the first object there began each stretch of iterations; 0 if none did.
    pub(super) began_ns: Vec<i64>,
    /// Objects that arrived from another PE, and their bytes.
    pub(super) arrived: u64,
    pub(super) arrived_bytes: u64,
}

/// The PEs of one process, or of all.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) pes: BTreeMap<u32, OfPe>,
    /// Objects that have ended, and the sum of their checksums.
    pub(super) objects: u64,
    pub(super) checksum: u64,
}

/// A load balancing as the runtime reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) round: u64,
    pub(super) strategy: Option<String>,
    pub(super) moved: u64,
    pub(super) imbalance: [f64; 2],
    pub(super) decision_s: f64,
}

impl From<&BalanceReport> for Report {
    fn from(report: &BalanceReport) -> Self {
        let BalanceReport { round, strategy, moved, imbalance, decision_s, .. } = *report;
        Self { round, strategy: strategy.map(str::to_owned), moved, imbalance, decision_s }
    }
}

/// The end of a rank: one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Told {
    Ended { record: Record, reports: Vec<Report> },
    Failed(String),
}

/// The element of a vector that is as long as it has to be.
fn at<T: Default + Clone>(all: &mut Vec<T>, number: u32) -> &mut T {
    let number = number as usize;
    if all.len() <= number {
        all.resize(number + 1, T::default());
    }
    &mut all[number]
}

impl Record {
    pub(super) const fn new() -> Self {
        Self { pes: BTreeMap::new(), objects: 0, checksum: 0 }
    }

    fn of(&mut self, pe: u32) -> &mut OfPe {
        self.pes.entry(pe).or_default()
    }

    /// An object begins a stretch.
    pub(super) fn begins(&mut self, pe: u32, stretch: u32, now_ns: i64) {
        let first = at(&mut self.of(pe).began_ns, stretch);
        if *first == 0 {
            *first = now_ns;
        }
    }

    /// An object has ended an iteration, whose work took it this CPU time.
    pub(super) fn ends(&mut self, pe: u32, iteration: u32, now_ns: i64, cpu_ns: i64) {
        let of = at(&mut self.of(pe).iterations, iteration);
        of.end_ns = of.end_ns.max(now_ns);
        of.cpu_ns += cpu_ns;
    }

    /// An object has arrived from another PE.
    pub(super) fn arrives(&mut self, pe: u32, bytes: u64) {
        let of = self.of(pe);
        of.arrived += 1;
        of.arrived_bytes += bytes;
    }

    /// An object has ended all iterations.
    pub(super) fn finishes(&mut self, checksum: u64) {
        self.objects += 1;
        self.checksum = self.checksum.wrapping_add(checksum);
    }

    /// Adds the record of another process.
    pub(super) fn merge(&mut self, other: Self) {
        self.pes.extend(other.pes);
        self.objects += other.objects;
        self.checksum = self.checksum.wrapping_add(other.checksum);
    }
}

static RECORD: Mutex<Record> = Mutex::new(Record::new());

/// The record of this process.
pub(super) fn record() -> MutexGuard<'static, Record> {
    RECORD.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_processes_add_up() {
        let mut all = Record::new();
        for pe in [1, 0] {
            let mut one = Record::new();
            one.begins(pe, 1, 50);
            one.begins(pe, 1, 70);
            one.ends(pe, 2, 90, 5);
            one.ends(pe, 2, 80, 6);
            one.arrives(pe, 512);
            one.finishes(u64::MAX);
            let text = serde_json::to_string(&one).expect("packs");
            all.merge(serde_json::from_str(&text).expect("unpacks"));
        }
        assert_eq!((all.objects, all.checksum), (2, u64::MAX - 1));
        let of = &all.pes[&1];
        assert_eq!(of.began_ns, [0, 50]);
        assert_eq!(of.iterations[2], Iteration { end_ns: 90, cpu_ns: 11 });
        assert_eq!((of.arrived, of.arrived_bytes), (1, 512));
    }
}
