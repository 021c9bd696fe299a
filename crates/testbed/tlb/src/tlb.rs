// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fully associative TLB of one page size.

use crate::Replacement;
use crate::index::Index;

/// A fully associative TLB. It is empty at first, and every page that misses is entered.
#[derive(Clone, Debug)]
pub struct Tlb {
    /// Page of each entry that is filled.
    pages: Vec<u64>,
    entries: usize,
    /// The entry of each page.
    index: Index,
    policy: Policy,
}

#[derive(Clone, Debug)]
enum Policy {
    RoundRobin { next: usize },
    Random { state: u64 },
    Lru { stamps: Box<[u64]>, clock: u64 },
}

impl Tlb {
    /// A TLB of so many entries, 1 to [`MOST_ENTRIES`](crate::MOST_ENTRIES), which are all empty. Random replacement begins with `seed`.
    #[must_use]
    pub fn new(entries: u16, replacement: Replacement, seed: u64) -> Self {
        let entries = usize::from(entries.max(1));
        let policy = match replacement {
            Replacement::RoundRobin => Policy::RoundRobin { next: 0 },
            // xorshift stays at zero if it begins there
            Replacement::Random => Policy::Random { state: seed | 1 },
            Replacement::Lru => Policy::Lru { stamps: vec![0; entries].into(), clock: 0 },
        };
        Self { pages: Vec::with_capacity(entries), entries, index: Index::new(entries), policy }
    }

    /// Looks the page up, and enters it if it is not there. Returns `true` for a hit.
    #[inline]
    pub fn access(&mut self, page: u64) -> bool {
        let found = self.index.find(page, &self.pages);
        let entry = found.unwrap_or_else(|| self.enter(page));
        if let Policy::Lru { stamps, clock } = &mut self.policy {
            *clock += 1;
            stamps[entry] = *clock;
        }
        found.is_some()
    }

    /// Puts the page into a free entry, or into that of another page. Returns the entry.
    fn enter(&mut self, page: u64) -> usize {
        let entries = self.entries;
        let entry = if self.pages.len() < entries {
            self.pages.push(page);
            self.pages.len() - 1
        } else {
            let replaced = match &mut self.policy {
                Policy::RoundRobin { next } => {
                    let entry = *next;
                    *next = if entry + 1 == entries { 0 } else { entry + 1 };
                    entry
                }
                Policy::Random { state } => {
                    *state ^= *state << 13;
                    *state ^= *state >> 7;
                    *state ^= *state << 17;
                    // the high bits: a product instead of a remainder has no bias that matters for 1024 entries
                    ((u128::from(*state) * entries as u128) >> 64) as usize
                }
                Policy::Lru { stamps, .. } => {
                    stamps.iter().enumerate().min_by_key(|(_, stamp)| **stamp).map_or(0, |(entry, _)| entry)
                }
            };
            self.index.remove(self.pages[replaced], &self.pages);
            self.pages[replaced] = page;
            replaced
        };
        self.index.insert(page, entry);
        entry
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A TLB without an index: pages in the order of their entry (round robin) or of their last use (LRU), the oldest first.
    fn naive_misses(entries: usize, replacement: Replacement, stream: &[u64]) -> Vec<bool> {
        let mut held: Vec<u64> = Vec::new();
        let access = |&page: &u64| {
            let found = held.iter().position(|&p| p == page);
            match (found, replacement) {
                (Some(at), Replacement::Lru) => {
                    held.remove(at);
                    held.push(page);
                }
                (Some(_), _) => {}
                (None, _) => {
                    if held.len() == entries {
                        held.remove(0);
                    }
                    held.push(page);
                }
            }
            found.is_none()
        };
        stream.iter().map(access).collect()
    }

    fn misses(tlb: &mut Tlb, stream: &[u64]) -> Vec<bool> {
        stream.iter().map(|&page| !tlb.access(page)).collect()
    }

    proptest! {
        #[test]
        fn round_robin_and_lru_miss_where_a_naive_tlb_misses(
            entries in 1_u16..70,
            stream in proptest::collection::vec(0_u64..100, 0..600),
        ) {
            for replacement in [Replacement::RoundRobin, Replacement::Lru] {
                let found = misses(&mut Tlb::new(entries, replacement, 0), &stream);
                prop_assert_eq!(found, naive_misses(entries.into(), replacement, &stream));
            }
        }

        #[test]
        fn a_tlb_that_holds_every_page_misses_each_once(
            stream in proptest::collection::vec(0_u64..1 << 52, 0..64),
        ) {
            let unique: std::collections::BTreeSet<_> = stream.iter().collect();
            for replacement in Replacement::ALL {
                let mut tlb = Tlb::new(64, replacement, 7);
                let found = misses(&mut tlb, &stream).into_iter().filter(|&miss| miss).count();
                prop_assert_eq!(found, unique.len());
                prop_assert!(misses(&mut tlb, &stream).iter().all(|&miss| !miss));
            }
        }

        #[test]
        fn random_replacement_misses_again_in_the_same_places(
            entries in 1_u16..70,
            stream in proptest::collection::vec(0_u64..100, 0..600),
        ) {
            let run = || misses(&mut Tlb::new(entries, Replacement::Random, 3), &stream);
            prop_assert_eq!(run(), run());
        }
    }

    #[test]
    fn lru_and_round_robin_miss_every_page_of_a_loop_one_page_too_long() {
        let stream: Vec<u64> = (0..65).cycle().take(6500).collect();
        for replacement in [Replacement::Lru, Replacement::RoundRobin] {
            assert!(misses(&mut Tlb::new(64, replacement, 0), &stream).iter().all(|&miss| miss));
        }
        // random replacement keeps most of the loop
        let found = misses(&mut Tlb::new(64, Replacement::Random, 1), &stream).into_iter().filter(|&m| m);
        assert!(found.count() < 3250);
    }

    #[test]
    fn a_random_walk_misses_as_often_as_its_pages_are_not_held() {
        // 64 of 1024 pages are held, whichever these are: a share of 15/16 misses
        const STEPS: u32 = 200_000;
        for replacement in Replacement::ALL {
            let (mut tlb, mut state, mut count) = (Tlb::new(64, replacement, 5), 1_u64, 0);
            for _ in 0..STEPS {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                count += u32::from(!tlb.access(state % 1024));
            }
            let expected = f64::from(STEPS) * 15.0 / 16.0;
            // four standard deviations of that many independent trials
            let deviation = 4.0 * (f64::from(STEPS) * 15.0 / 256.0).sqrt();
            assert!((f64::from(count) - expected).abs() < deviation, "{replacement}: {count}");
        }
    }
}
