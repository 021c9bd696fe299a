// SPDX-License-Identifier: MIT OR Apache-2.0
//! The collective network: values go up a tree, combined on the way, and the result goes down to all.
//!
//! Every rank has a cell that its parent reads, and there is one cell for the result, written by rank 0 and
//! read by all. A cell has one writer. It is written again only after all have read it: a rank takes part
//! in pass `n + 1` when it has read the result of pass `n`, and that result says that all cells were read.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::atomic::Word;
use crate::layout::CELL_DATA_WORDS;

/// Children of a rank: ranks `8 r + 1` to `8 r + 8`, so that the first ranks are a tree, however many.
const ARITY: usize = 8;

/// The part of a pass that all ranks must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    /// The collective operation and, for a reduction, its element and operation.
    pub(crate) kind: u8,
    /// Words of data.
    pub(crate) words: usize,
}

const PASS_SHIFT: u32 = 24;

impl Tag {
    fn word(self, pass: u64) -> u64 {
        pass << PASS_SHIFT | u64::from(self.kind) << 16 | self.words as u64
    }
}

/// A pass that did not end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Broken<E> {
    /// A rank is in another collective.
    Mismatch(usize),
    /// A rank's cell holds what cannot be.
    Insane(usize),
    /// Waiting was in vain.
    Wait(E),
}

/// The cells of a tree: the result's, then one a rank.
pub(crate) struct Tree<'a, W> {
    pub(crate) cells: &'a [W],
    /// Words of a cell.
    pub(crate) cell_words: usize,
    pub(crate) rank: usize,
    pub(crate) size: usize,
}

/// Returns `true` if `rank` is `top` or below it.
pub(crate) fn is_below(rank: usize, top: usize) -> bool {
    let mut at = rank;
    while at > top {
        at = (at - 1) / ARITY;
    }
    at == top
}

impl<'a, W: Word> Tree<'a, W> {
    fn cell(&self, index: usize) -> &'a [W] {
        &self.cells[index * self.cell_words..(index + 1) * self.cell_words]
    }

    /// Takes part in pass number `pass` (the first is 1; each rank counts its own). `combine` is given each
    /// child and its words, in the order of ranks, to add to `data`; at the end `data` is the result.
    /// `wait` is called, with the rank waited for, whenever there is nothing to do.
    pub(crate) fn pass<E>(
        &self,
        pass: u64,
        tag: Tag,
        data: &mut [u64],
        mut combine: impl FnMut(usize, &mut [u64], &[u64]),
        mut wait: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<(), Broken<E>> {
        debug_assert!(data.len() == tag.words && tag.words <= CELL_DATA_WORDS);
        let mut buffer = [0; CELL_DATA_WORDS];
        let first = self.rank * ARITY + 1;
        for child in first..(first + ARITY).min(self.size) {
            let theirs = &mut buffer[..data.len()];
            self.read(1 + child, child, pass, tag, theirs, &mut wait)?;
            combine(child, data, theirs);
        }
        if self.rank == 0 {
            self.write(0, pass, tag, data);
            return Ok(());
        }
        self.write(1 + self.rank, pass, tag, data);
        self.read(0, 0, pass, tag, data, &mut wait)
    }

    fn write(&self, index: usize, pass: u64, tag: Tag, data: &[u64]) {
        let cell = self.cell(index);
        for (word, &value) in cell[1..].iter().zip(data) {
            word.store(value, Relaxed);
        }
        cell[0].store(tag.word(pass), Release);
    }

    fn read<E>(
        &self,
        index: usize,
        rank: usize,
        pass: u64,
        tag: Tag,
        data: &mut [u64],
        wait: &mut impl FnMut(usize) -> Result<(), E>,
    ) -> Result<(), Broken<E>> {
        let cell = self.cell(index);
        loop {
            let word = cell[0].load(Acquire);
            match (word >> PASS_SHIFT).checked_sub(pass - 1) {
                Some(0) => wait(rank).map_err(Broken::Wait)?,
                Some(1) if word == tag.word(pass) => break,
                Some(1) => return Err(Broken::Mismatch(rank)),
                _ => return Err(Broken::Insane(rank)),
            }
        }
        for (value, word) in data.iter_mut().zip(&cell[1..]) {
            *value = word.load(Relaxed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header and one word of data.
    const CELL_WORDS: usize = 2;

    #[test]
    fn every_rank_is_below_those_on_its_way_to_the_top() {
        assert!(is_below(0, 0) && is_below(5, 0) && is_below(17, 2) && is_below(9, 9));
        assert!(!is_below(9, 2) && !is_below(0, 1) && !is_below(16, 2));
    }

    /// All interleavings of some passes, with all values that the memory model lets relaxed loads give.
    fn model(size: usize, passes: u64) {
        use loom::sync::Arc;
        use loom::sync::atomic::AtomicU64;
        loom::model(move || {
            let cells: Arc<Vec<AtomicU64>> =
                Arc::new((0..(1 + size) * CELL_WORDS).map(|_| AtomicU64::new(0)).collect());
            let rank = move |rank: usize, cells: &[AtomicU64]| {
                let tree = Tree { cells, cell_words: CELL_WORDS, rank, size };
                for pass in 1..=passes {
                    let mut data = [pass * (rank as u64 + 1)];
                    let add = |_, sum: &mut [u64], theirs: &[u64]| sum[0] += theirs[0];
                    let wait = |_| {
                        loom::thread::yield_now();
                        Ok::<(), ()>(())
                    };
                    tree.pass(pass, Tag { kind: 1, words: 1 }, &mut data, add, wait).expect("sane");
                    assert_eq!(data[0], pass * (size * (size + 1) / 2) as u64);
                }
            };
            let others: Vec<_> = (1..size)
                .map(|r| {
                    let cells = Arc::clone(&cells);
                    loom::thread::spawn(move || rank(r, &cells))
                })
                .collect();
            rank(0, &cells);
            others.into_iter().for_each(|o| o.join().expect("no panic"));
        });
    }

    #[test]
    fn in_every_interleaving_of_two_ranks_both_have_the_sum() {
        model(2, 3);
    }

    #[test]
    fn another_collective_or_an_impossible_pass_is_told() {
        use std::sync::atomic::AtomicU64;
        let cells: Vec<AtomicU64> = (0..3 * CELL_WORDS).map(|_| AtomicU64::new(0)).collect();
        let tree = Tree { cells: &cells, cell_words: CELL_WORDS, rank: 0, size: 2 };
        let tag = Tag { kind: 3, words: 0 };
        let pass = || tree.pass(1, tag, &mut [], |_, _, _| {}, |_| Err(()));
        assert_eq!(pass(), Err(Broken::Wait(())));
        cells[2 * CELL_WORDS].store(Tag { kind: 4, words: 0 }.word(1), Relaxed);
        assert_eq!(pass(), Err(Broken::Mismatch(1)));
        cells[2 * CELL_WORDS].store(tag.word(2), Relaxed);
        assert_eq!(pass(), Err(Broken::Insane(1)));
        cells[2 * CELL_WORDS].store(tag.word(1), Relaxed);
        assert_eq!(pass(), Ok(()));
    }
}
