// SPDX-License-Identifier: MIT OR Apache-2.0
//! The load database of one domain of PEs, as the PE holds it that balances the domain. It is compact: 27 bytes an object
//! of a two-dimensional mesh, links included.

use super::greedy::{Earliest, ordered};

/// PEs, objects and links of one domain. Numbers of PEs and objects are those within the domain.
#[derive(Default)]
pub(super) struct Domain {
    /// Time that a PE takes without the objects that can move.
    floors_s: Vec<f32>,
    speeds: Vec<f32>,
    /// The PE that each object is on, and at the end the one it shall be on.
    on: Vec<u16>,
    loads_s: Vec<f32>,
    links: Links,
}

/// A PE's share of the level up to which objects go where their partners are. The rest is filled by load alone.
const TOGETHER: f64 = 0.97;

impl Domain {
    /// The most PEs of a domain.
    pub(super) const MAX_PES: u32 = 1 << 16;

    pub(super) fn clear(&mut self) {
        self.floors_s.clear();
        self.speeds.clear();
        self.on.clear();
        self.loads_s.clear();
    }

    pub(super) fn push_pe(&mut self, floor_s: f64, speed: f64) {
        self.floors_s.push(floor_s as f32);
        self.speeds.push(speed as f32);
    }

    /// Adds an object that can move, and returns its number.
    pub(super) fn push_object(&mut self, pe: u32, load_s: f64) -> u32 {
        self.on.push(pe as u16);
        self.loads_s.push(load_s as f32);
        self.on.len() as u32 - 1
    }

    /// Sets the links between objects: pairs and bytes, in any order.
    pub(super) fn set_links(&mut self, pairs: &mut Vec<(u32, u32, f32)>) {
        self.links.set(self.on.len(), pairs);
    }

    /// Bytes of this database.
    pub(super) fn memory_bytes(&self) -> u64 {
        (self.floors_s.len() * 8 + self.on.len() * 6) as u64 + self.links.memory_bytes()
    }

    /// The PE of each object within the domain.
    pub(super) fn decisions(&self) -> &[u16] {
        &self.on
    }

    fn level_s(&self) -> f64 {
        let speed: f64 = self.speeds.iter().map(|&s| f64::from(s)).sum();
        let floors = self.floors_s.iter().zip(&self.speeds).map(|(&f, &s)| f64::from(f) * f64::from(s));
        let work: f64 = self.loads_s.iter().map(|&l| f64::from(l)).sum();
        (floors.sum::<f64>() + work) / speed
    }

    /// Greedy: the heaviest objects first. An object goes to the PE with which it exchanges most bytes while that PE is
    /// below the level that all shall reach, and else to the PE that finishes it first.
    pub(super) fn greedy(&mut self) {
        let limit_s = self.level_s() * TOGETHER;
        let load = |n: u32| f64::from(self.loads_s[n as usize]);
        let mut order: Vec<u32> = (0..self.on.len() as u32).filter(|&n| load(n) > 0.0).collect();
        order.sort_unstable_by_key(|&n| (!ordered(load(n)), n));
        let wide = |narrow: &[f32]| narrow.iter().map(|&x| f64::from(x)).collect();
        let mut pes = Earliest::new(wide(&self.speeds), wide(&self.floors_s));
        let mut placed = vec![0u64; self.on.len().div_ceil(64)];
        for number in order {
            let load = load(number);
            let partner = self.links.of(number).fold(None, |best: Option<(f32, u16)>, (other, bytes)| {
                let pe = self.on[other as usize];
                let there = placed[other as usize / 64] >> (other % 64) & 1 == 1;
                let heavier = best.is_none_or(|(most, _)| bytes > most);
                if there && heavier && pes.done_s(pe.into(), load) <= limit_s {
                    Some((bytes, pe))
                } else {
                    best
                }
            });
            let pe = match partner {
                Some((_, pe)) => {
                    pes.give_to(pe.into(), load);
                    pe
                }
                None => pes.give(load) as u16,
            };
            self.on[number as usize] = pe;
            placed[number as usize / 64] |= 1 << (number % 64);
        }
    }
}

/// Links of each object, both ways: a partner and the bytes exchanged with it, 5 bytes a link. An object has at most
/// 255 links, those with most bytes.
#[derive(Default)]
struct Links {
    /// Index of the first link of each 16th object.
    starts: Vec<u32>,
    /// Number of links of each object.
    degrees: Vec<u8>,
    to: Vec<u32>,
    /// Eight times the binary logarithm of the bytes.
    weights: Vec<u8>,
}

const BLOCK: usize = 16;

impl Links {
    fn set(&mut self, objects: usize, pairs: &mut Vec<(u32, u32, f32)>) {
        pairs.retain(|(a, b, _)| a != b);
        for i in 0..pairs.len() {
            let (a, b, bytes) = pairs[i];
            pairs.push((b, a, bytes));
        }
        pairs.sort_unstable_by_key(|&(a, b, _)| (a, b));
        pairs.dedup_by(|next, kept| {
            let same = (next.0, next.1) == (kept.0, kept.1);
            kept.2 += if same { next.2 } else { 0.0 };
            same
        });
        self.starts.clear();
        self.degrees.clear();
        self.to.clear();
        self.weights.clear();
        let mut rest = pairs.as_mut_slice();
        for object in 0..objects {
            let (own, others) = rest.split_at_mut(rest.partition_point(|p| p.0 as usize <= object));
            rest = others;
            if own.len() > 255 {
                own.sort_unstable_by(|x, y| y.2.total_cmp(&x.2).then(x.1.cmp(&y.1)));
            }
            let own = &own[..own.len().min(255)];
            if object.is_multiple_of(BLOCK) {
                self.starts.push(self.to.len() as u32);
            }
            self.degrees.push(own.len() as u8);
            self.to.extend(own.iter().map(|p| p.1));
            self.weights.extend(own.iter().map(|p| (p.2.max(1.0).log2() * 8.0).min(255.0) as u8));
        }
    }

    fn of(&self, object: u32) -> impl Iterator<Item = (u32, f32)> + '_ {
        let object = object as usize;
        let block = object / BLOCK;
        let before: usize = self.degrees[block * BLOCK..object].iter().map(|&d| usize::from(d)).sum();
        let start = self.starts[block] as usize + before;
        let own = start..start + usize::from(self.degrees[object]);
        self.to[own.clone()].iter().copied().zip(self.weights[own].iter().map(|&w| f32::from(w)))
    }

    fn memory_bytes(&self) -> u64 {
        (self.starts.len() * 4 + self.degrees.len() + self.to.len() * 5) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_merged_and_known_to_both_ends() {
        let mut links = Links::default();
        let mut pairs = vec![(0, 20, 4.0), (20, 0, 4.0), (5, 5, 1.0), (20, 21, 64.0)];
        links.set(22, &mut pairs);
        assert_eq!(links.of(0).collect::<Vec<_>>(), [(20, 24.0)]);
        assert_eq!(links.of(20).map(|l| l.0).collect::<Vec<_>>(), [0, 21]);
        assert_eq!((links.of(5).count(), links.of(21).count()), (0, 1));
    }

    #[test]
    fn an_object_keeps_its_heaviest_links() {
        let mut links = Links::default();
        let mut pairs: Vec<(u32, u32, f32)> = (1..=300).map(|b| (0, b, b as f32)).collect();
        links.set(301, &mut pairs);
        let partners: Vec<u32> = links.of(0).map(|l| l.0).collect();
        assert_eq!((partners.len(), partners.contains(&300), partners.contains(&1)), (255, true, false));
        assert_eq!(links.of(300).count(), 1);
    }

    #[test]
    fn partners_come_together_and_loads_stay_even() {
        let mut domain = Domain::default();
        (0..4).for_each(|_| domain.push_pe(0.0, 1.0));
        // pairs on different PEs, light enough that each PE has room for many
        let numbers: Vec<u32> = (0..64).map(|i| domain.push_object(i % 4, 1.0 + f64::from(i / 2))).collect();
        let mut pairs: Vec<_> = numbers.chunks(2).map(|p| (p[0], p[1], 1000.0)).collect();
        domain.set_links(&mut pairs);
        domain.greedy();
        let together =
            numbers.chunks(2).filter(|p| domain.on[p[0] as usize] == domain.on[p[1] as usize]).count();
        assert!(together > 20, "{together} of 32");
        let mut times = [0.0; 4];
        numbers.iter().for_each(|&n| times[usize::from(domain.on[n as usize])] += domain.loads_s[n as usize]);
        assert!(times.iter().all(|t| (*t / 264.0 - 1.0).abs() < 0.03), "{times:?}");
    }
}
