// SPDX-License-Identifier: MIT OR Apache-2.0
//! The moves of refinement: overloaded PEs give objects away, which fill the gaps of the others.

use std::collections::BTreeSet;

use super::greedy::{fixed_times_s, ordered};
use crate::database::{Database, Pe};
use crate::quality::{step_times_s, water_level};

/// A placement being refined: no PE shall take longer than `limit_s`.
pub(super) struct Refinement<'a> {
    database: &'a Database,
    pub(super) placement: Vec<u32>,
    times_s: Vec<f64>,
    limit_s: f64,
}

/// Selection of the objects that an overloaded PE gives away.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Pick {
    /// The heaviest objects that fit into the excess, so that few objects move.
    Heaviest,
    /// The lightest objects, until the PE is not overloaded. Light objects fit into small gaps.
    Lightest,
}

/// Objects of some PEs, in one array.
pub(super) struct Groups {
    /// Place of each PE of the database among the chosen ones.
    place: Vec<u32>,
    starts: Vec<u32>,
    numbers: Vec<u32>,
}

const NOT_CHOSEN: u32 = u32::MAX;

impl Groups {
    /// The migratable objects on the PEs `chosen`.
    pub(super) fn of(database: &Database, placement: &[u32], chosen: &[u32]) -> Self {
        let mut place = vec![NOT_CHOSEN; database.pes().len()];
        (0..).zip(chosen).for_each(|(i, &pe)| place[pe as usize] = i);
        let mut starts = vec![0u32; chosen.len() + 1];
        let all_move = !database.has_fixed();
        let member = |i: usize, pe: u32| {
            let at = place[pe as usize];
            (at != NOT_CHOSEN && (all_move || database.is_migratable(i))).then_some(at as usize)
        };
        for at in placement.iter().enumerate().filter_map(|(i, &pe)| member(i, pe)) {
            starts[at + 1] += 1;
        }
        (1..starts.len()).for_each(|i| starts[i] += starts[i - 1]);
        let mut numbers = vec![0u32; starts[chosen.len()] as usize];
        for (i, &pe) in placement.iter().enumerate() {
            if let Some(at) = member(i, pe) {
                numbers[starts[at] as usize] = i as u32;
                starts[at] += 1;
            }
        }
        // each start has become its group's end
        starts.rotate_right(1);
        starts[0] = 0;
        Self { place, starts, numbers }
    }

    /// Index of the first object of each chosen PE, and the objects.
    pub(super) fn into_parts(self) -> (Vec<u32>, Vec<u32>) {
        (self.starts, self.numbers)
    }

    /// The objects of a chosen PE.
    pub(super) fn get_mut(&mut self, pe: u32) -> &mut [u32] {
        let at = self.place[pe as usize] as usize;
        &mut self.numbers[self.starts[at] as usize..self.starts[at + 1] as usize]
    }
}

/// The step time that no placement can go below, with these floors: the level to which work can be divided, a fixed part,
/// or the heaviest object on the fastest PE.
fn least_step_s(database: &Database, floors_s: &[f64]) -> (f64, f64) {
    let (mut work, mut heaviest) = (0.0, 0.0f64);
    let movable = database.loads_s().iter().enumerate().filter(|(i, _)| database.is_migratable(*i));
    for (_, &load) in movable {
        work += load;
        heaviest = heaviest.max(load);
    }
    let floors = database.pes().iter().zip(floors_s);
    let pes: Vec<Pe> = floors.map(|(p, &background_s)| Pe { background_s, speed: p.speed }).collect();
    let fastest = pes.iter().map(|p| p.speed).fold(0.0, f64::max);
    let highest = floors_s.iter().copied().fold(0.0, f64::max);
    (water_level(&pes, work), highest.max(heaviest / fastest))
}

impl<'a> Refinement<'a> {
    /// Begins with the placement that the database has; PEs may take `tolerance` times the ideal step time.
    pub(super) fn new(database: &'a Database, tolerance: f64) -> Self {
        Self::from(database, database.placement().to_vec(), tolerance)
    }

    /// Begins with another placement.
    pub(super) fn from(database: &'a Database, placement: Vec<u32>, tolerance: f64) -> Self {
        let times_s = step_times_s(database, &placement);
        let (level, least) = least_step_s(database, &fixed_times_s(database));
        Self { database, placement, times_s, limit_s: (level * tolerance).max(least) }
    }

    /// The step time that no PE shall exceed.
    pub(super) const fn limit_s(&self) -> f64 {
        self.limit_s
    }

    pub(super) fn max_s(&self) -> f64 {
        self.times_s.iter().copied().fold(0.0, f64::max)
    }

    fn overloaded(&self) -> Vec<u32> {
        // the last digits of sums depend on their order
        let limit = self.limit_s * (1.0 + 1e-12);
        (0u32..).zip(&self.times_s).filter(|(_, t)| **t > limit).map(|(pe, _)| pe).collect()
    }

    fn load(&self, number: u32) -> f64 {
        self.database.loads_s()[number as usize]
    }

    /// Work that a PE can take before it reaches the limit; negative if it is beyond.
    fn room(&self, pe: u32) -> f64 {
        (self.limit_s - self.times_s[pe as usize]) * self.database.pes()[pe as usize].speed
    }

    fn change(&mut self, pe: u32, work: f64) {
        self.times_s[pe as usize] += work / self.database.pes()[pe as usize].speed;
    }

    fn gaps(&self) -> BTreeSet<(u64, u32)> {
        let gap = |pe| Some(self.room(pe)).filter(|room| *room > 0.0).map(|room| (ordered(room), pe));
        (0..self.times_s.len() as u32).filter_map(gap).collect()
    }

    /// Lets overloaded PEs give objects away. Each goes into the smallest gap that it fits in; an object that fits nowhere
    /// stays. Returns `true` if no PE is overloaded any more. The slowest PE never becomes slower.
    pub(super) fn shed(&mut self, pick: Pick) -> bool {
        let overloaded = self.overloaded();
        if overloaded.is_empty() {
            return true;
        }
        let mut groups = Groups::of(self.database, &self.placement, &overloaded);
        let mut pool = Vec::new();
        for &pe in &overloaded {
            let excess = -self.room(pe);
            let objects = groups.get_mut(pe);
            let loads = self.database.loads_s();
            objects.sort_unstable_by_key(|&n| (!ordered(loads[n as usize]), n));
            let before = pool.len();
            pick_objects(loads, objects, excess, pick, &mut pool);
            let work: f64 = pool[before..].iter().map(|&n| self.load(n)).sum();
            self.change(pe, -work);
        }
        drop(groups);
        let loads = self.database.loads_s();
        pool.sort_unstable_by_key(|&n| (!ordered(loads[n as usize]), n));
        let mut gaps = self.gaps();
        let mut all = true;
        for number in pool {
            all &= self.place(number, &mut gaps);
        }
        all && self.overloaded().is_empty()
    }

    /// Puts an object that was given away into the smallest gap that it fits in, or back.
    fn place(&mut self, number: u32, gaps: &mut BTreeSet<(u64, u32)>) -> bool {
        let (load, home) = (self.load(number), self.placement[number as usize]);
        let found = gaps.range((ordered(load), 0)..).next().copied();
        let Some((room, pe)) = found else {
            let old = self.room(home);
            if old > 0.0 {
                gaps.remove(&(ordered(old), home));
            }
            self.change(home, load);
            return false;
        };
        gaps.remove(&(room, pe));
        self.change(pe, load);
        self.placement[number as usize] = pe;
        if self.room(pe) > 0.0 {
            gaps.insert((ordered(self.room(pe)), pe));
        }
        true
    }

    /// Exchanges objects of overloaded PEs for lighter ones of PEs with room, where no single object fits. `partners` PEs
    /// are tried for each.
    pub(super) fn exchange(&mut self, partners: usize) -> bool {
        let mut overloaded = self.overloaded();
        if overloaded.is_empty() {
            return true;
        }
        overloaded.sort_unstable_by_key(|&pe| (ordered(-self.room(pe)), pe));
        let largest = self.gaps().into_iter().rev().take(overloaded.len() * 2 + partners);
        let mut gaps: BTreeSet<(u64, u32)> = largest.collect();
        let mut chosen: Vec<u32> = gaps.iter().map(|(_, pe)| *pe).collect();
        chosen.extend(&overloaded);
        let mut groups = Groups::of(self.database, &self.placement, &chosen);
        for &pe in overloaded.iter().rev() {
            self.exchange_one(pe, partners, &mut gaps, &mut groups);
        }
        self.overloaded().is_empty()
    }

    fn exchange_one(
        &mut self,
        pe: u32,
        partners: usize,
        gaps: &mut BTreeSet<(u64, u32)>,
        groups: &mut Groups,
    ) {
        // a bound of tries: each brings the PE closer to the limit
        for _ in 0..8 {
            let excess = -self.room(pe);
            if excess <= self.limit_s * 1e-12 {
                return;
            }
            let candidates: Vec<(u64, u32)> = gaps.iter().rev().take(partners).copied().collect();
            let mut own = groups.get_mut(pe).to_vec();
            let loads = self.database.loads_s();
            own.sort_unstable_by_key(|&n| (ordered(loads[n as usize]), n));
            let mut best: Option<(f64, u32, u32, (u64, u32))> = None;
            for &gap in &candidates {
                let mut others = groups.get_mut(gap.1).to_vec();
                others.sort_unstable_by_key(|&n| (ordered(loads[n as usize]), n));
                let pair = best_pair(loads, &own, &others, excess, f64::from_bits(gap.0));
                if let Some((gain, a, b)) = pair.filter(|pair| best.is_none_or(|(old, ..)| pair.0 > old)) {
                    best = Some((gain, a, b, gap));
                    if gain >= excess {
                        break;
                    }
                }
            }
            let Some((gain, a, b, gap)) = best else { return };
            gaps.remove(&gap);
            let partner = gap.1;
            self.placement.swap(a as usize, b as usize);
            for (group, out, into) in [(pe, a, b), (partner, b, a)] {
                if let Some(slot) = groups.get_mut(group).iter_mut().find(|n| **n == out) {
                    *slot = into;
                }
            }
            self.change(pe, -gain);
            self.change(partner, gain);
            if self.room(partner) > 0.0 {
                gaps.insert((ordered(self.room(partner)), partner));
            }
        }
    }
}

/// Chooses objects, sorted by falling load, of together at least `excess`, or all.
fn pick_objects(loads: &[f64], sorted: &[u32], excess: f64, pick: Pick, pool: &mut Vec<u32>) {
    let load = |n: u32| loads[n as usize];
    let mut left = excess;
    if pick == Pick::Lightest {
        for &n in sorted.iter().rev().filter(|&&n| load(n) > 0.0) {
            if left <= 0.0 {
                return;
            }
            pool.push(n);
            left -= load(n);
        }
        return;
    }
    let begin = pool.len();
    let mut lightest_kept = None;
    for &n in sorted {
        // the excess is a difference of sums: what remains of it may be its last digits
        if left <= excess * 1e-12 {
            return;
        }
        if load(n) <= left {
            pool.push(n);
            left -= load(n);
        } else {
            lightest_kept = Some(n);
        }
    }
    // every object still here is heavier than what is left: the lightest of them goes, and takes the place of those that
    // are not needed any more
    if left > excess * 1e-12
        && let Some(last) = lightest_kept
    {
        pool.push(last);
        let mut spare = load(last) - left;
        let mut i = begin;
        while i + 1 < pool.len() {
            if load(pool[i]) <= spare {
                spare -= load(pool[i]);
                pool.remove(i);
            } else {
                i += 1;
            }
        }
    }
}

/// The pair of an own object and another's whose difference of loads is the least above `excess` and at most `room`; else
/// the one with the largest positive difference below. Both lists are sorted by rising load.
fn best_pair(loads: &[f64], own: &[u32], others: &[u32], excess: f64, room: f64) -> Option<(f64, u32, u32)> {
    let load = |n: u32| loads[n as usize];
    let mut best: Option<(f64, u32, u32)> = None;
    let mut from = 0;
    for &a in own {
        // the lightest partner within the room; it only moves up as `a` becomes heavier
        while from < others.len() && load(a) - load(others[from]) > room {
            from += 1;
        }
        // the heaviest partner that still frees the excess
        let enough = others.partition_point(|&b| load(a) - load(b) >= excess);
        if enough > from {
            let b = others[enough - 1];
            let gain = load(a) - load(b);
            if best.is_none_or(|(old, ..)| old < excess || gain < old) {
                best = Some((gain, a, b));
            }
        } else if let Some(&b) = others.get(from) {
            let gain = load(a) - load(b);
            if gain > 0.0 && gain < excess && best.is_none_or(|(old, ..)| old < excess && gain > old) {
                best = Some((gain, a, b));
            }
        }
    }
    best
}
