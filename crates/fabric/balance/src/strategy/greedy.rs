// SPDX-License-Identifier: MIT OR Apache-2.0
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Deserialize;

use super::options::Checked;
use super::{Effort, Outcome, Strategy};
use crate::database::Database;
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
    class_of: Vec<u8>,
    speeds: Vec<f64>,
    free_s: Vec<f64>,
}

/// Bits of a time, in the order of times: all are at least 0.
pub(super) const fn ordered(time_s: f64) -> u64 {
    time_s.to_bits()
}

impl Earliest {
    /// PEs with these speeds that are free at `free_s`.
    pub(super) fn new(speeds: Vec<f64>, free_s: Vec<f64>) -> Self {
        let mut distinct = speeds.clone();
        distinct.sort_unstable_by(f64::total_cmp);
        distinct.dedup();
        let mut closeness = 1.03;
        while distinct.len() > MAX_CLASSES {
            distinct.dedup_by(|next, kept| *next < *kept * closeness);
            closeness *= 1.1;
        }
        let class = |speed: &f64| distinct.partition_point(|s| s <= speed).saturating_sub(1) as u8;
        let class_of: Vec<u8> = speeds.iter().map(class).collect();
        let mut heaps: Vec<Vec<Reverse<(u64, u32)>>> = distinct.iter().map(|_| Vec::new()).collect();
        for ((number, &class), &free) in (0u32..).zip(&class_of).zip(&free_s) {
            heaps[usize::from(class)].push(Reverse((ordered(free), number)));
        }
        let classes = distinct.into_iter().zip(heaps).map(|(speed, heap)| Class { speed, heap: heap.into() });
        Self { classes: classes.collect(), class_of, speeds, free_s }
    }

    /// The time at which a PE would have finished a load.
    pub(super) fn done_s(&self, pe: u32, load_s: f64) -> f64 {
        self.free_s[pe as usize] + load_s / self.speeds[pe as usize]
    }

    /// Gives a load to a PE.
    pub(super) fn give_to(&mut self, pe: u32, load_s: f64) {
        let done = self.done_s(pe, load_s);
        self.free_s[pe as usize] = done;
        let class = usize::from(self.class_of[pe as usize]);
        self.classes[class].heap.push(Reverse((ordered(done), pe)));
    }

    /// Gives a load to the PE that finishes it first, and returns the PE.
    pub(super) fn give(&mut self, load_s: f64) -> u32 {
        let Self { classes, free_s, speeds, .. } = self;
        let mut best = (f64::INFINITY, 0);
        for (i, class) in classes.iter_mut().enumerate() {
            // entries from before a load was given are out of date
            while class.heap.peek().is_some_and(|Reverse((bits, pe))| *bits != ordered(free_s[*pe as usize]))
            {
                class.heap.pop();
            }
            let Some(Reverse((free, _))) = class.heap.peek() else { continue };
            let done = f64::from_bits(*free) + load_s / class.speed;
            if done < best.0 {
                best = (done, i);
            }
        }
        let mut top = classes[best.1].heap.peek_mut().expect("each class has a PE, and each PE an entry");
        let Reverse((free, pe)) = *top;
        let done = f64::from_bits(free) + load_s / speeds[pe as usize];
        free_s[pe as usize] = done;
        *top = Reverse((ordered(done), pe));
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
        // an object without load stays: all of them would go to one PE
        let moves = |i: &u32| database.is_migratable(*i as usize) && database.loads_s()[*i as usize] > 0.0;
        let order =
            heaviest_first(database.loads_s(), (0..database.objects() as u32).filter(moves).collect());
        let speeds = database.pes().iter().map(|p| p.speed).collect();
        let mut pes = Earliest::new(speeds, fixed_times_s(database));
        let mut placement = database.placement().to_vec();
        for number in order {
            placement[number as usize] = pes.give(database.loads_s()[number as usize]);
        }
        Ok(Outcome { placement, effort: Effort::central(database) })
    }
}
