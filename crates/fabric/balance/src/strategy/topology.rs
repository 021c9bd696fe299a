// SPDX-License-Identifier: MIT OR Apache-2.0
use serde::Deserialize;

use super::greedy::fixed_times_s;
use super::options::{Checked, tolerance_problem};
use super::shed::{Pick, Refinement};
use super::{Effort, Outcome, Strategy};
use crate::database::{Database, Pe};
use crate::error::BalanceError;
use crate::quality::{step_times_s, water_level};
use crate::topology::Topology;

/// Maps objects to a torus or a fat tree so that messages cross few links (hop-bytes), with even loads.
///
/// Objects and PEs are halved together, again and again: PEs along the longest dimension of the torus or between the switches of
/// the tree, objects along a front that moves through their messages. Then single objects move next to their partners
/// where the loads allow it, and overloaded PEs give objects away.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TopologyAware {
    /// Step time allowed, over the ideal one.
    pub tolerance: f64,
    /// `true`: computes a new mapping. `false`: improves the present placement.
    pub anew: bool,
    /// Passes over all objects that move them next to their partners.
    pub passes: u32,
}

impl Default for TopologyAware {
    fn default() -> Self {
        Self { tolerance: 1.02, anew: true, passes: 4 }
    }
}

impl Checked for TopologyAware {
    fn problem(&self) -> Option<String> {
        tolerance_problem(self.tolerance).or_else(|| {
            (self.passes > 100).then(|| format!("passes is {}; at most 100 are possible", self.passes))
        })
    }
}

/// Partners of each object, both ways.
struct Partners {
    starts: Vec<u32>,
    /// The partner, and the bytes.
    links: Vec<(u32, f32)>,
}

impl Partners {
    fn of(database: &Database) -> Self {
        let mut starts = vec![0u32; database.objects() + 1];
        let between = || database.edges().iter().filter(|e| e.from != e.to);
        between().flat_map(|e| [e.from, e.to]).for_each(|n| starts[n as usize + 1] += 1);
        (1..starts.len()).for_each(|i| starts[i] += starts[i - 1]);
        let mut next = starts.clone();
        let mut links = vec![(0u32, 0f32); starts[database.objects()] as usize];
        for edge in between() {
            for (a, b) in [(edge.from, edge.to), (edge.to, edge.from)] {
                links[next[a as usize] as usize] = (b, edge.bytes as f32);
                next[a as usize] += 1;
            }
        }
        Self { starts, links }
    }

    fn get(&self, number: u32) -> &[(u32, f32)] {
        &self.links[self.starts[number as usize] as usize..self.starts[number as usize + 1] as usize]
    }
}

/// Halves objects and PEs together.
struct Mapping<'a> {
    database: &'a Database,
    topology: &'a Topology,
    partners: &'a Partners,
    /// Work that each PE shall get.
    shares: Vec<f64>,
    /// The part that each object is in, so that fronts stay inside.
    part: Vec<u32>,
    parts: u32,
    placement: Vec<u32>,
}

/// No part: an object that may not move.
const NO_PART: u32 = u32::MAX;

impl Mapping<'_> {
    /// Maps objects to these PEs. The depth is the logarithm of the number of PEs.
    fn map(&mut self, objects: Vec<u32>, pes: Vec<u32>) {
        if pes.len() <= 1 || objects.is_empty() {
            if let Some(&pe) = pes.first() {
                objects.into_iter().for_each(|n| self.placement[n as usize] = pe);
            }
            return;
        }
        let (low, high) = halves(self.topology, pes);
        let share = |pes: &[u32]| pes.iter().map(|&pe| self.shares[pe as usize]).sum::<f64>();
        let (of_low, of_high) = (share(&low), share(&high));
        let part = if of_low + of_high > 0.0 { of_low / (of_low + of_high) } else { 0.5 };
        let (first, second) = self.split(&objects, part);
        drop(objects);
        self.map(first, low);
        self.map(second, high);
    }

    /// Splits objects in two along a front: `share` of their work behind it.
    fn split(&mut self, objects: &[u32], share: f64) -> (Vec<u32>, Vec<u32>) {
        let [inside, seen, ordered] = [1, 2, 3].map(|i| self.parts + i);
        self.parts += 3;
        objects.iter().for_each(|&n| self.part[n as usize] = inside);
        // the last object that a front from anywhere reaches lies at an end
        let end = self.front(objects[0], inside, seen).last().copied();
        let mut order = self.front(end.unwrap_or(objects[0]), seen, ordered);
        for &n in objects {
            // objects that no message connects with the first
            if self.part[n as usize] == inside {
                order.extend(self.front(n, inside, ordered));
            }
        }
        let load = |n: u32| self.database.loads_s()[n as usize];
        let all: f64 = order.iter().map(|&n| load(n)).sum();
        let mut behind = 0.0;
        let at = order.iter().position(|&n| {
            behind += load(n);
            behind - load(n) / 2.0 >= all * share
        });
        let second = order.split_off(at.unwrap_or(order.len()));
        (order, second)
    }

    /// Objects of a part in the order in which a front from `from` reaches them; they become part `mark`.
    fn front(&mut self, from: u32, part: u32, mark: u32) -> Vec<u32> {
        let (mut order, mut at) = (vec![from], 0);
        self.part[from as usize] = mark;
        while let Some(&number) = order.get(at) {
            at += 1;
            for &(other, _) in self.partners.get(number) {
                if self.part[other as usize] == part {
                    self.part[other as usize] = mark;
                    order.push(other);
                }
            }
        }
        order
    }
}

/// Halves PEs: along the longest extent of the torus, or between switches.
fn halves(topology: &Topology, mut pes: Vec<u32>) -> (Vec<u32>, Vec<u32>) {
    if let Topology::Torus(sizes) = topology {
        let mut below: u32 = sizes.iter().product();
        let extents = sizes.iter().map(|&size| {
            below /= size;
            let at = |pe: u32| pe / below % size;
            let (low, high) = pes.iter().fold((size, 0), |(l, h), &pe| (l.min(at(pe)), h.max(at(pe))));
            (high.saturating_sub(low), below, size)
        });
        if let Some((extent, below, size)) = extents.max_by_key(|e| e.0).filter(|e| e.0 > 0) {
            let at = |pe: u32| pe / below % size;
            let first = pes.iter().map(|&pe| at(pe)).min().unwrap_or(0);
            let (low, high) = pes.into_iter().partition(|&pe| at(pe) - first <= (extent - 1) / 2);
            return (low, high);
        }
    }
    let mut middle = pes.len() / 2;
    if let Topology::FatTree(below) = topology {
        // at the highest switch that divides these PEs, as near to the middle as its subtrees allow
        let (first, last) = (pes[0], pes[pes.len() - 1]);
        let mut size = below.iter().product::<u32>();
        for &n in below.iter().rev() {
            size /= n;
            if first / size != last / size {
                let cut = (pes[middle] / size) * size;
                let cut = if cut > first { cut } else { (first / size + 1) * size };
                middle = pes.partition_point(|&pe| pe < cut);
                break;
            }
        }
    }
    let high = pes.split_off(middle);
    (pes, high)
}

impl TopologyAware {
    /// Moves single objects to PEs of their partners, or one link from there, if that saves hop-bytes and the PE has room.
    fn pass(&self, database: &Database, topology: &Topology, partners: &Partners, state: &mut Moves) -> u64 {
        let mut moved = 0;
        let mut candidates = Vec::new();
        for number in (0..database.objects() as u32).filter(|&n| database.is_migratable(n as usize)) {
            let links = partners.get(number);
            let home = state.placement[number as usize];
            let cost = |placement: &[u32], pe: u32| {
                let hop_bytes = links.iter().map(|&(other, bytes)| {
                    f64::from(topology.hops(pe, placement[other as usize])) * f64::from(bytes)
                });
                hop_bytes.sum::<f64>()
            };
            let now = cost(&state.placement, home);
            if now == 0.0 {
                continue;
            }
            candidates.clear();
            candidates.extend(links.iter().take(16).map(|&(other, _)| state.placement[other as usize]));
            candidates.sort_unstable();
            candidates.dedup();
            let load = database.loads_s()[number as usize];
            let fits = |pe: u32| {
                pe != home
                    && state.times_s[pe as usize] + load / database.pes()[pe as usize].speed <= state.limit_s
            };
            let better =
                candidates.iter().filter(|&&pe| fits(pe)).map(|&pe| (cost(&state.placement, pe), pe));
            let best = better.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            if let Some((_, pe)) = best.filter(|(cost, _)| *cost < now) {
                state.times_s[home as usize] -= load / database.pes()[home as usize].speed;
                state.times_s[pe as usize] += load / database.pes()[pe as usize].speed;
                state.placement[number as usize] = pe;
                moved += 1;
            }
        }
        moved
    }
}

/// A placement to which single moves are made.
struct Moves {
    placement: Vec<u32>,
    times_s: Vec<f64>,
    limit_s: f64,
}

impl Strategy for TopologyAware {
    fn name(&self) -> &'static str {
        "topology"
    }

    fn uses_communication(&self) -> bool {
        true
    }

    fn assign(&self, database: &Database, topology: &Topology) -> Result<Outcome, BalanceError> {
        topology.check(database.pes().len())?;
        let partners = Partners::of(database);
        let floors_s = fixed_times_s(database);
        let movable: Vec<u32> =
            (0..database.objects() as u32).filter(|&n| database.is_migratable(n as usize)).collect();
        let work = movable.iter().map(|&n| database.loads_s()[n as usize]).sum();
        let pes: Vec<Pe> =
            database.pes().iter().zip(&floors_s).map(|(p, &f)| Pe { background_s: f, ..*p }).collect();
        let level_s = water_level(&pes, work);
        let mut placement = database.placement().to_vec();
        if self.anew && work > 0.0 {
            let shares = pes.iter().map(|p| (level_s - p.background_s).max(0.0) * p.speed).collect();
            let part = vec![NO_PART; database.objects()];
            let mut mapping =
                Mapping { database, topology, partners: &partners, shares, part, parts: 0, placement };
            mapping.map(movable, (0..pes.len() as u32).collect());
            placement = mapping.placement;
        }
        let mut refinement = Refinement::from(database, placement, 1.0 + (self.tolerance - 1.0) / 2.0);
        let _ = refinement.shed(Pick::Heaviest) || refinement.shed(Pick::Lightest);
        let times_s = step_times_s(database, &refinement.placement);
        // a move may fill a PE up to the limit, and never makes the slowest slower
        let limit_s =
            (refinement.limit_s() * self.tolerance).min(refinement.max_s().max(level_s * self.tolerance));
        let mut state = Moves { placement: refinement.placement, times_s, limit_s };
        for _ in 0..self.passes {
            if self.pass(database, topology, &partners, &mut state) == 0 {
                break;
            }
        }
        Ok(Outcome { placement: state.placement, effort: Effort::central(database) })
    }
}
