// SPDX-License-Identifier: MIT OR Apache-2.0
//! Heap and mappings: which addresses of the static map are given out, and which must be cleared first.
//!
//! All memory is mapped from the start; `brk` and `mmap` only say which of it is in use. Memory that no one has used
//! is zero already (the window is clean at the start of a job), so that only memory used before is cleared.

use colony_fship::Errno;
use colony_fship::layout::PAGE;
use heapless::Vec;

use crate::{ensure, round_up};

/// Pieces of memory in use at most; neighbors are one piece. Linux has 65,530 mappings of a process.
pub const PIECES: usize = 384;

/// A piece of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// First address.
    pub first: u64,
    /// Address behind the last.
    pub end: u64,
}

impl Piece {
    fn new(first: u64, length: u64) -> Option<Self> {
        Some(Self { first, end: first.checked_add(round_up(length, PAGE)?)? })
    }

    fn overlaps(self, other: Self) -> bool {
        self.first < other.end && other.first < self.end
    }

    /// The part of it between two addresses.
    pub(crate) fn between(self, first: u64, end: u64) -> Option<Self> {
        let part = Self { first: self.first.max(first), end: self.end.min(end) };
        (part.first < part.end).then_some(part)
    }

    /// Bytes.
    pub fn length(self) -> u64 {
        self.end - self.first
    }
}

/// Changes of the memory itself.
pub trait Content {
    /// Fills with zeroes.
    fn clear(&mut self, piece: Piece);
    /// Copies to another place; the two do not overlap.
    fn copy(&mut self, from: Piece, to: u64);
}

/// Heap and mappings of a process.
pub struct Space {
    heap: u64,
    brk: u64,
    top: u64,
    /// In use, by address, none touching the next.
    used: Vec<Piece, PIECES>,
    /// Never used.
    fresh: Piece,
}

impl Space {
    /// With a heap that begins at `heap` and mappings below `top`.
    pub const fn new(heap: u64, top: u64) -> Self {
        let heap = (heap + PAGE - 1) & !(PAGE - 1);
        let fresh = Piece { first: heap, end: top };
        Self { heap, brk: heap, top, used: Vec::new(), fresh }
    }

    /// As [`Space::new`], in place: a list of pieces does not fit on a stack of the kernel.
    pub fn restart(&mut self, heap: u64, top: u64) {
        let heap = (heap + PAGE - 1) & !(PAGE - 1);
        self.used.clear();
        (self.heap, self.brk, self.top, self.fresh) = (heap, heap, top, Piece { first: heap, end: top });
    }

    fn floor(&self) -> u64 {
        (self.brk + PAGE - 1) & !(PAGE - 1)
    }

    /// Clears what of `piece` was used before; now all of it is.
    fn take(&mut self, piece: Piece, content: &mut dyn Content) {
        let fresh = self.fresh;
        let (below, above) = (piece.between(0, fresh.first), piece.between(fresh.end, u64::MAX));
        for used in [below, above].into_iter().flatten() {
            content.clear(used);
        }
        if piece.overlaps(fresh) {
            // what is fresh stays one piece: the larger of what is left
            let (low, high) = (piece.first.saturating_sub(fresh.first), fresh.end.saturating_sub(piece.end));
            if low > high {
                self.fresh.end = piece.first;
            } else {
                self.fresh.first = piece.end.min(fresh.end);
            }
        }
    }

    /// Moves the end of the heap to `to`, if that can be; where it is then.
    pub fn brk(&mut self, to: u64, content: &mut dyn Content) -> u64 {
        let limit = self.used.first().map_or(self.top, |p| p.first);
        if to < self.heap || to > limit {
            return self.brk;
        }
        if to > self.brk {
            self.take(Piece { first: self.brk, end: to }, content);
        }
        self.brk = to;
        to
    }

    /// The highest free place for `length` bytes.
    fn place(&self, length: u64) -> Option<Piece> {
        let mut end = self.top;
        for piece in self.used.iter().rev() {
            if end - piece.end >= length {
                break;
            }
            end = piece.first;
        }
        let first = end.checked_sub(length)?;
        (first >= self.floor()).then_some(Piece { first, end })
    }

    fn insert(&mut self, piece: Piece) -> Result<(), Errno> {
        let at = self.used.partition_point(|p| p.end < piece.first);
        // they follow each other from there on
        let touched = self.used[at..].iter().take_while(|p| p.first <= piece.end);
        let (count, merged) = touched.fold((0, piece), |(count, all), p| {
            (count + 1, Piece { first: all.first.min(p.first), end: all.end.max(p.end) })
        });
        drop(self.used.drain(at..at + count));
        self.used.insert(at, merged).map_err(|_| Errno::ENOMEM)
    }

    /// Gives `length` bytes anywhere.
    ///
    /// # Errors
    /// `EINVAL` for no bytes, `ENOMEM`.
    pub fn map(&mut self, length: u64, content: &mut dyn Content) -> Result<u64, Errno> {
        let length = round_up(length, PAGE).ok_or(Errno::ENOMEM)?;
        ensure(length > 0, Errno::EINVAL)?;
        let piece = self.place(length).ok_or(Errno::ENOMEM)?;
        self.insert(piece)?;
        self.take(piece, content);
        Ok(piece.first)
    }

    /// Gives `len` bytes at `at`, whatever was there unless `keep`.
    ///
    /// # Errors
    /// `EINVAL`, `EEXIST` where something is there that is to be kept, `ENOMEM` outside the room for mappings.
    pub fn map_at(&mut self, at: u64, len: u64, keep: bool, bank: &mut dyn Content) -> Result<u64, Errno> {
        let piece = Piece::new(at, len).ok_or(Errno::ENOMEM)?;
        ensure(at.is_multiple_of(PAGE) && len > 0, Errno::EINVAL)?;
        let taken = at < self.floor() || self.used.iter().any(|p| p.overlaps(piece));
        ensure(!(keep && taken), Errno::EEXIST)?;
        ensure(self.heap <= at && piece.end <= self.top, Errno::ENOMEM)?;
        // in the heap it is the heap's already
        if piece.end > self.floor() {
            self.insert(Piece { first: at.max(self.floor()), ..piece })?;
        }
        self.take(piece, bank);
        Ok(at)
    }

    /// Takes back what of `length` bytes at `at` was given.
    ///
    /// # Errors
    /// `EINVAL` for an address that is no page's or no bytes, `ENOMEM` if there are too many pieces.
    pub fn unmap(&mut self, at: u64, length: u64) -> Result<(), Errno> {
        let gone = Piece::new(at, length).ok_or(Errno::EINVAL)?;
        ensure(at.is_multiple_of(PAGE) && length > 0, Errno::EINVAL)?;
        let mut n = 0;
        while let Some(&piece) = self.used.get(n) {
            match (piece.between(0, gone.first), piece.between(gone.end, u64::MAX)) {
                _ if !piece.overlaps(gone) => n += 1,
                (Some(left), Some(right)) => {
                    self.used.insert(n + 1, right).map_err(|_| Errno::ENOMEM)?;
                    self.used[n] = left;
                    return Ok(());
                }
                (Some(rest), None) | (None, Some(rest)) => {
                    self.used[n] = rest;
                    n += 1;
                }
                (None, None) => drop(self.used.remove(n)),
            }
        }
        Ok(())
    }

    /// Makes `old` bytes at `at` to `new`, elsewhere if it must and may be.
    ///
    /// # Errors
    /// `EINVAL`, `EFAULT` for memory that was not given, `ENOMEM`.
    pub fn remap(
        &mut self,
        at: u64,
        old: u64,
        new: u64,
        may_move: bool,
        content: &mut dyn Content,
    ) -> Result<u64, Errno> {
        let from = Piece::new(at, old).ok_or(Errno::EINVAL)?;
        let to = Piece::new(at, new).ok_or(Errno::ENOMEM)?;
        ensure(at.is_multiple_of(PAGE) && old > 0 && new > 0, Errno::EINVAL)?;
        ensure(self.used.iter().any(|p| p.first <= from.first && from.end <= p.end), Errno::EFAULT)?;
        if to.end < from.end {
            self.unmap(to.end, from.end - to.end)?;
        }
        if to.end <= from.end {
            return Ok(at);
        }
        let more = Piece { first: from.end, end: to.end };
        if to.end <= self.top && !self.used.iter().any(|p| p.overlaps(more)) {
            self.insert(more)?;
            self.take(more, content);
            return Ok(at);
        }
        ensure(may_move, Errno::ENOMEM)?;
        let place = self.place(to.length()).ok_or(Errno::ENOMEM)?;
        self.insert(place)?;
        self.take(place, content);
        content.copy(from, place.first);
        self.unmap(from.first, from.length())?;
        Ok(place.first)
    }

    /// Bytes that can still be given out.
    pub fn free(&self) -> u64 {
        let used: u64 = self.used.iter().map(|p| p.length()).sum();
        (self.top - self.floor()).saturating_sub(used)
    }

    /// Clears what of `length` bytes at `at` is in use (`MADV_DONTNEED`).
    pub fn forget(&mut self, at: u64, length: u64, content: &mut dyn Content) {
        let Some(piece) = Piece::new(at, length) else { return };
        let heap = Piece { first: self.heap, end: self.floor() };
        for used in self.used.iter().chain([&heap]) {
            if let Some(both) = used.between(piece.first, piece.end) {
                content.clear(both);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const HEAP: u64 = 0x50_0000;
    const TOP: u64 = 0x90_0000;

    /// Content of each page; a missing page is zero. Only the first byte of a page is looked at.
    #[derive(Default)]
    struct Pages(BTreeMap<u64, u64>);

    impl Content for Pages {
        fn clear(&mut self, piece: Piece) {
            let gone: Vec<u64> = self.0.range(piece.first..piece.end).map(|(&at, _)| at).collect();
            for at in gone {
                self.0.remove(&at);
            }
        }

        fn copy(&mut self, from: Piece, to: u64) {
            let moved: Vec<_> =
                self.0.range(from.first..from.end).map(|(&at, &v)| (at - from.first + to, v)).collect();
            self.0.extend(moved);
        }
    }

    impl Pages {
        fn used(&mut self, first: u64, length: u64, mark: u64) {
            self.0.extend((first..first + length).step_by(PAGE as usize).map(|at| (at, mark)));
        }
    }

    #[derive(Clone, Debug)]
    enum Wish {
        Map(u64),
        MapAt(u64, u64, bool),
        Unmap(u64, u64),
        Remap(usize, u64, bool),
        Brk(u64),
    }

    fn wish() -> impl Strategy<Value = Wish> {
        let page = HEAP / PAGE..TOP / PAGE;
        prop_oneof![
            3 => (1..200u64).prop_map(|n| Wish::Map(n * PAGE)),
            1 => (page.clone(), 1..50u64, any::<bool>()).prop_map(|(a, n, k)| Wish::MapAt(a * PAGE, n * PAGE, k)),
            3 => (page, 1..300u64).prop_map(|(a, n)| Wish::Unmap(a * PAGE, n * PAGE)),
            1 => (any::<usize>(), 1..200u64, any::<bool>()).prop_map(|(i, n, m)| Wish::Remap(i, n * PAGE, m)),
            1 => (0..TOP - HEAP).prop_map(|n| Wish::Brk(HEAP + n)),
        ]
    }

    /// Against a model that knows every page: what is given out is free, zero, and in the room for it.
    fn try_wishes(wishes: Vec<Wish>) -> Result<(), TestCaseError> {
        let (mut space, mut pages) = (Space::new(HEAP, TOP), Pages::default());
        // page → number of the mapping
        let mut model: BTreeMap<u64, u64> = BTreeMap::new();
        let mut brk = HEAP;
        let range = |first: u64, length: u64| (first..first + length).step_by(PAGE as usize);
        for (n, wish) in (1..).zip(wishes) {
            match wish {
                Wish::Map(length) => {
                    if let Ok(at) = space.map(length, &mut pages) {
                        prop_assert!(at >= brk && at + length <= TOP, "{:x}", at);
                        for page in range(at, length) {
                            prop_assert_eq!(model.insert(page, n), None, "given twice");
                            prop_assert_eq!(pages.0.get(&page), None, "not zero");
                        }
                        pages.used(at, length, n);
                    }
                }
                Wish::MapAt(at, length, keep) => {
                    if space.map_at(at, length, keep, &mut pages).is_ok() {
                        prop_assert!(!keep || range(at, length).all(|p| !model.contains_key(&p) && p >= brk));
                        for page in range(at, length) {
                            prop_assert_eq!(pages.0.get(&page), None, "not zero");
                            if page >= brk {
                                model.insert(page, n);
                            }
                        }
                        pages.used(at, length, n);
                    }
                }
                Wish::Unmap(at, length) => {
                    prop_assert_eq!(space.unmap(at, length), Ok(()));
                    model.retain(|page, _| !(at..at + length).contains(page));
                }
                Wish::Remap(which, new, may_move) => {
                    let Some(&at) = model.keys().nth(which % model.len().max(1)) else { continue };
                    let mark = model[&at];
                    if let Ok(to) = space.remap(at, PAGE, new, may_move, &mut pages) {
                        model.remove(&at);
                        for page in range(to, new) {
                            prop_assert_eq!(model.insert(page, mark), None, "given twice");
                            let expected = (page == to).then_some(mark);
                            prop_assert_eq!(pages.0.get(&page).copied(), expected, "content");
                        }
                        pages.used(to, new, mark);
                    }
                }
                Wish::Brk(to) => {
                    let got = space.brk(to, &mut pages);
                    prop_assert!(got == to || got == brk);
                    let fresh = round_up(brk, PAGE).unwrap_or(brk)..got;
                    for page in fresh.clone().step_by(PAGE as usize) {
                        prop_assert_eq!(pages.0.get(&page), None, "not zero");
                        prop_assert!(!model.contains_key(&page));
                    }
                    pages.used(fresh.start, fresh.end.saturating_sub(fresh.start), n);
                    brk = got;
                }
            }
        }
        let given = model.len() as u64 * PAGE;
        prop_assert_eq!(space.free(), TOP - round_up(brk, PAGE).unwrap_or(brk) - given);
        Ok(())
    }

    proptest! {
        #[test]
        fn memory_is_given_once_and_zero(wishes in prop::collection::vec(wish(), 1..120)) {
            try_wishes(wishes)?;
        }
    }

    #[test]
    fn fresh_memory_is_not_cleared() {
        struct Never;
        impl Content for Never {
            fn clear(&mut self, piece: Piece) {
                panic!("cleared {piece:x?}");
            }
            fn copy(&mut self, _: Piece, _: u64) {}
        }
        let mut space = Space::new(HEAP, TOP);
        for _ in 0..10 {
            space.map(5 * PAGE, &mut Never).expect("room");
            let brk = space.brk(0, &mut Never);
            space.brk(brk + 1000, &mut Never);
        }
    }

    #[test]
    fn memory_may_have_hundreds_of_pieces_and_one_too_many_is_refused() {
        let top = HEAP + 2 * (PIECES as u64 + 1) * PAGE;
        let (mut space, mut pages) = (Space::new(HEAP, TOP), Pages::default());
        space.restart(HEAP, top);
        space.map_at(HEAP, top - HEAP, false, &mut pages).expect("all of it");
        let hole = |n: u64| HEAP + (2 * n + 1) * PAGE;
        for n in 0..PIECES as u64 - 1 {
            space.unmap(hole(n), PAGE).expect("one piece more");
        }
        let free = space.free();
        assert_eq!(space.unmap(hole(PIECES as u64 - 1), PAGE), Err(Errno::ENOMEM));
        assert_eq!(space.free(), free, "nothing has changed");
        // the highest free place
        assert_eq!(space.map(PAGE, &mut pages), Ok(hole(PIECES as u64 - 2)));
        space.restart(HEAP, TOP);
        assert_eq!(space.free(), TOP - HEAP);
    }

    #[test]
    fn invalid_ranges_are_refused() {
        let (mut space, mut pages) = (Space::new(HEAP, TOP), Pages::default());
        assert_eq!(space.map(0, &mut pages), Err(Errno::EINVAL));
        assert_eq!(space.map(u64::MAX, &mut pages), Err(Errno::ENOMEM));
        assert_eq!(space.map(TOP - HEAP + 1, &mut pages), Err(Errno::ENOMEM));
        assert_eq!(space.unmap(HEAP + 1, PAGE), Err(Errno::EINVAL));
        assert_eq!(space.map_at(TOP, PAGE, false, &mut pages), Err(Errno::ENOMEM));
        assert_eq!(space.remap(TOP - PAGE, PAGE, 2 * PAGE, true, &mut pages), Err(Errno::EFAULT));
        assert_eq!(space.brk(TOP + 1, &mut pages), HEAP);
    }
}
