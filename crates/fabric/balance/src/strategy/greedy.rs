// SPDX-License-Identifier: MIT OR Apache-2.0
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Deserialize;

use super::options::Checked;
use super::{Effort, Outcome, Strategy};
use crate::database::{Database, Pe};
use crate::error::BalanceError;
use crate::topology::Topology;

/// Takes all objects, the heaviest first, and gives each to the PE that finishes it first. It comes close to the ideal
/// and moves nearly every object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Greedy {}

impl Checked for Greedy {}

/// PEs of one speed, by the time at which they are free.
struct Class {
    speed: f64,
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

/// Speeds are grouped if there are more of them: looking at each would cost more than the error of a group, 3 %.
const MAX_CLASSES: usize = 16;

/// PEs that can be asked for the one that finishes a load first.
pub(super) struct Earliest {
    classes: Vec<Class>,
    speeds: Vec<f64>,
}

/// Bits of a time, in the order of times: all are at least 0.
pub(super) const fn ordered(time_s: f64) -> u64 {
    time_s.to_bits()
}

impl Earliest {
    /// PEs that are free at `free_s`.
    pub(super) fn new(pes: &[Pe], free_s: &[f64]) -> Self {
        let mut distinct: Vec<f64> = pes.iter().map(|p| p.speed).collect();
        distinct.sort_unstable_by(f64::total_cmp);
        distinct.dedup();
        if distinct.len() > MAX_CLASSES {
            distinct.dedup_by(|next, kept| *next < *kept * 1.03);
        }
        let mut heaps: Vec<Vec<Reverse<(u64, u32)>>> = distinct.iter().map(|_| Vec::new()).collect();
        for ((number, pe), &free) in (0u32..).zip(pes).zip(free_s) {
            let class = distinct.partition_point(|&s| s <= pe.speed).saturating_sub(1);
            heaps[class].push(Reverse((ordered(free), number)));
        }
        let classes = distinct.into_iter().zip(heaps);
        Self {
            classes: classes.map(|(speed, heap)| Class { speed, heap: heap.into() }).collect(),
            speeds: pes.iter().map(|p| p.speed).collect(),
        }
    }

    /// Gives a load to the PE that finishes it first, and returns the PE.
    pub(super) fn give(&mut self, load_s: f64) -> u32 {
        let done = |class: &Class| {
            let Reverse((free, _)) = *class.heap.peek()?;
            Some(f64::from_bits(free) + load_s / class.speed)
        };
        let best = match self.classes.len() {
            1 => 0,
            _ => {
                let at = |i: usize| done(&self.classes[i]).unwrap_or(f64::INFINITY);
                (0..self.classes.len()).min_by(|&a, &b| at(a).total_cmp(&at(b))).unwrap_or(0)
            }
        };
        let mut top =
            self.classes[best].heap.peek_mut().expect("a class has a PE, and there is one class at least");
        let Reverse((free, pe)) = *top;
        *top = Reverse((ordered(f64::from_bits(free) + load_s / self.speeds[pe as usize]), pe));
        pe
    }
}

/// Numbers of objects, the heaviest first; equal loads in the order of their numbers.
pub(super) fn heaviest_first(loads_s: &[f64], mut numbers: Vec<u32>) -> Vec<u32> {
    let mut keyed: Vec<(u64, u32)> = numbers.iter().map(|&n| (!ordered(loads_s[n as usize]), n)).collect();
    keyed.sort_unstable();
    numbers.clear();
    numbers.extend(keyed.into_iter().map(|(_, n)| n));
    numbers
}

/// Step time of each PE with the objects that may not move, and nothing else.
pub(super) fn fixed_times_s(database: &Database) -> Vec<f64> {
    let mut times: Vec<f64> = database.pes().iter().map(|p| p.background_s).collect();
    if database.has_fixed() {
        for i in (0..database.objects()).filter(|&i| !database.is_migratable(i)) {
            let pe = database.placement()[i] as usize;
            times[pe] += database.loads_s()[i] / database.pes()[pe].speed;
        }
    }
    times
}

impl Strategy for Greedy {
    fn name(&self) -> &'static str {
        "greedy"
    }

    fn assign(&self, database: &Database, _: &Topology) -> Result<Outcome, BalanceError> {
        let movable =
            (0..database.objects() as u32).filter(|&i| database.is_migratable(i as usize)).collect();
        let order = heaviest_first(database.loads_s(), movable);
        let mut pes = Earliest::new(database.pes(), &fixed_times_s(database));
        let mut placement = database.placement().to_vec();
        for number in order {
            placement[number as usize] = pes.give(database.loads_s()[number as usize]);
        }
        Ok(Outcome { placement, effort: Effort::central(database) })
    }
}
