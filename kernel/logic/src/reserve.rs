// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses that a program reserves: they take no memory until it uses them.
//!
//! The zone of reservations lies behind the memory of the process, and is mapped as that is. The host of the node gives
//! memory where something was written. So no memory is cleared that nobody could have used: what a program may write is
//! noted, in granules.

use crate::round_down;
use crate::space::{Content, Piece, Space};

/// Bytes of a granule.
const GRANULE: u64 = 4 << 20;
/// Words with a bit for each granule.
const WORDS: usize = 64;
/// Bytes of a zone at most.
pub const MOST: u64 = GRANULE * 64 * WORDS as u64;

/// The zone of a process.
pub struct Zone {
    first: u64,
    end: u64,
    space: Space,
    used: Used,
}

/// Granules that may have been written.
struct Used {
    first: u64,
    bits: [u64; WORDS],
}

impl Used {
    /// Parts of `piece` in granules of which this is so, and their numbers.
    fn parts(&self, piece: Piece) -> impl Iterator<Item = (usize, Piece)> {
        let first = self.first;
        let numbers =
            (piece.first.saturating_sub(first) / GRANULE)..piece.end.saturating_sub(first).div_ceil(GRANULE);
        numbers.map_while(move |n| {
            let at = first + n * GRANULE;
            let part = Piece { first: at.max(piece.first), end: (at + GRANULE).min(piece.end) };
            (n < 64 * WORDS as u64).then_some((n as usize, part))
        })
    }

    fn has(&self, granule: usize) -> bool {
        self.bits[granule / 64] >> (granule % 64) & 1 != 0
    }

    fn set(&mut self, piece: Piece) {
        let mut bits = self.bits;
        self.parts(piece).for_each(|(n, _)| bits[n / 64] |= 1 << (n % 64));
        self.bits = bits;
    }

    /// Clears what of `piece` may have been written.
    fn clear(&self, piece: Piece, content: &mut dyn Content) {
        self.parts(piece).filter(|(n, _)| self.has(*n)).for_each(|(_, part)| content.clear(part));
    }
}

/// Changes of the memory, where it may have been written.
struct Written<'a>(&'a mut Used, &'a mut dyn Content);

impl Content for Written<'_> {
    fn clear(&mut self, piece: Piece) {
        self.0.clear(piece, self.1);
    }

    fn copy(&mut self, from: Piece, to: u64) {
        self.0.set(Piece { first: to, end: to + from.length() });
        self.1.copy(from, to);
    }
}

impl Zone {
    /// There is none: all zero.
    pub const NONE: Self =
        Self { first: 0, end: 0, space: Space::new(0, 0), used: Used { first: 0, bits: [0; WORDS] } };

    /// From one address to another, both those of pages.
    pub fn restart(&mut self, first: u64, end: u64) {
        (self.first, self.end) = (first, end.min(first.saturating_add(MOST)).max(first));
        self.space.restart(first, self.end);
        self.used = Used { first: round_down(first, GRANULE), bits: [0; WORDS] };
    }

    /// Returns `true` if an address is in the zone.
    pub fn has(&self, address: u64) -> bool {
        self.first <= address && address < self.end
    }

    /// Changes the reservations: what may have been written is cleared when it is given out again.
    pub fn change<R>(
        &mut self,
        content: &mut dyn Content,
        change: impl FnOnce(&mut Space, &mut dyn Content) -> R,
    ) -> R {
        change(&mut self.space, &mut Written(&mut self.used, content))
    }

    /// The program may write there from now on, if that is in the zone.
    pub fn allow(&mut self, at: u64, length: u64) {
        if self.has(at) {
            self.used.set(Piece { first: at, end: at.saturating_add(length) });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use colony_fship::Errno;
    use colony_fship::layout::PAGE;

    use super::*;

    const FIRST: u64 = (64 << 20) + (2 << 20);
    const END: u64 = 1 << 30;

    /// What was cleared.
    #[derive(Default)]
    struct Cleared(Vec<Piece>);

    impl Content for Cleared {
        fn clear(&mut self, piece: Piece) {
            self.0.push(piece);
        }

        fn copy(&mut self, _: Piece, _: u64) {}
    }

    fn zone() -> Zone {
        let mut zone = Zone::NONE;
        zone.restart(FIRST, END);
        zone
    }

    impl Zone {
        fn map(&mut self, length: u64, content: &mut Cleared) -> Result<u64, Errno> {
            self.change(content, |space, content| space.map(length, content))
        }

        fn map_at(&mut self, at: u64, length: u64, content: &mut Cleared) -> Result<u64, Errno> {
            self.change(content, |space, content| space.map_at(at, length, false, content))
        }
    }

    #[test]
    fn a_reservation_is_not_cleared_until_it_was_used() {
        let (mut zone, mut cleared) = (zone(), Cleared::default());
        let at = zone.map(512 << 20, &mut cleared).expect("room");
        assert!(zone.has(at) && !zone.has(END) && !zone.has(FIRST - 1));
        for step in 0..8 {
            zone.map_at(at + step * (32 << 20), PAGE, &mut cleared).expect("reserved");
        }
        assert!(cleared.0.is_empty(), "nobody has written there");
        zone.allow(at, PAGE);
        zone.map_at(at, 64 << 20, &mut cleared).expect("reserved");
        let bytes: u64 = cleared.0.iter().map(|p| p.length()).sum();
        assert!(cleared.0.iter().any(|p| p.first == at) && bytes <= GRANULE, "{:?}", cleared.0);
    }

    #[test]
    fn a_zone_has_an_end() {
        let mut zone = zone();
        assert_eq!(zone.map(END, &mut Cleared::default()), Err(Errno::ENOMEM));
        zone.restart(FIRST, !(PAGE - 1));
        assert!(zone.has(FIRST + MOST - 1) && !zone.has(FIRST + MOST));
        zone.restart(FIRST, FIRST);
        assert!(!zone.has(FIRST));
        assert_eq!(zone.map(PAGE, &mut Cleared::default()), Err(Errno::ENOMEM));
    }

    proptest! {
        /// All that may have been written is cleared before it is given again; other memory is not touched.
        #[test]
        fn what_was_used_is_cleared(uses in prop::collection::vec((0..200_000u64, 1..5000u64), 1..20)) {
            let (mut zone, mut cleared) = (zone(), Cleared::default());
            let length = END - FIRST;
            let at = zone.map(length, &mut cleared).expect("all of it");
            prop_assert!(cleared.0.is_empty());
            let mut granules = std::collections::BTreeSet::new();
            let uses: Vec<_> = uses
                .iter()
                .map(|&(page, pages)| (at + page * PAGE, pages * PAGE))
                .filter(|(from, bytes)| from + bytes <= END)
                .collect();
            for &(from, bytes) in &uses {
                zone.allow(from, bytes);
                granules.extend(from / GRANULE..(from + bytes).div_ceil(GRANULE));
            }
            zone.map_at(at, length, &mut cleared).expect("again");
            for &(from, bytes) in &uses {
                let done: u64 = cleared.0.iter().filter_map(|p| p.between(from, from + bytes)).map(Piece::length).sum();
                prop_assert_eq!(done, bytes);
            }
            prop_assert!(cleared.0.iter().all(|p| granules.contains(&(p.first / GRANULE))));
        }
    }
}
