// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations that all ranks of a group make together.

use std::time::Duration;

use crate::layout::{CELL_DATA_WORDS, CELL_WORDS};
use crate::packet::Kind;
use crate::tree::{Broken, Tag, Tree, is_below};
use crate::{Error, Number, Op, Torus};

/// The first ranks of a torus, up to all of them: they make collective operations, all the same ones in
/// the same order.
///
/// Combining is in one fixed order, the same in every run, and all ranks have the same result, bit for bit.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    torus: &'a Torus,
    size: usize,
    channel: usize,
}

const BARRIER: u8 = 0;
const BROADCAST: u8 = 1;
const OWN: u8 = 2;
const REDUCE: u8 = 0x10;

impl Torus {
    /// All ranks, for collective operations.
    #[must_use]
    pub fn world(&self) -> Group<'_> {
        Group::new(self, self.size(), 0)
    }

    /// The first `size` ranks: all, or a power of two. Only they may use the group.
    ///
    /// # Errors
    /// [`Error::Group`] for other sizes.
    pub fn first(&self, size: usize) -> Result<Group<'_>, Error> {
        let ranks = self.size();
        if size == ranks {
            return Ok(self.world());
        }
        if size > ranks || !size.is_power_of_two() {
            return Err(Error::Group { size, ranks });
        }
        Ok(Group::new(self, size, 1 + size.ilog2() as usize))
    }
}

impl<'a> Group<'a> {
    pub(crate) const fn new(torus: &'a Torus, size: usize, channel: usize) -> Self {
        Self { torus, size, channel }
    }

    /// This rank; that of the torus, since a group is its first ranks.
    #[must_use]
    pub const fn rank(&self) -> usize {
        self.torus.rank()
    }

    /// Ranks of the group.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The torus it is of.
    #[must_use]
    pub const fn torus(&self) -> &'a Torus {
        self.torus
    }

    /// Waits until all are here.
    ///
    /// # Errors
    /// [`Error`], of its second half; so too for the other operations.
    #[inline]
    pub fn barrier(&self) -> Result<(), Error> {
        self.pass(BARRIER, &mut [], |_, _, _| {})
    }

    /// As [`barrier`](Self::barrier), with another longest wait: the others may have long work to do. Ranks
    /// that leave, and aborts, still end it.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn barrier_within(&self, timeout: Duration) -> Result<(), Error> {
        self.pass_within(Some(timeout), BARRIER, &mut [], |_, _, _| {})
    }

    /// Combines the values of all ranks, element by element; all have the result.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn allreduce<T: Number>(&self, values: &mut [T], op: Op) -> Result<(), Error> {
        let kind = REDUCE | T::CODE << 2 | op.code();
        self.combine(kind, values, |a, b| a.combined(op, b))
    }

    /// As [`allreduce`](Self::allreduce), with a function of the caller, which is associative, and the same
    /// on all ranks.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier).
    pub fn allreduce_with<T: Number>(
        &self,
        values: &mut [T],
        op: impl FnMut(T, T) -> T,
    ) -> Result<(), Error> {
        self.combine(OWN, values, op)
    }

    /// Combines the values of all ranks; `root` has the result, the others keep what they had.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier); [`Error::Rank`].
    pub fn reduce<T: Number>(&self, root: usize, values: &mut [T], op: Op) -> Result<(), Error> {
        self.check_rank(root)?;
        if self.rank() == root {
            return self.allreduce(values, op);
        }
        self.allreduce(&mut values.to_vec(), op)
    }

    /// Gives all ranks what `root` has; the length is the same on all.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier); [`Error::Rank`].
    pub fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), Error> {
        self.check_rank(root)?;
        for chunk in bytes.chunks_mut(8 * CELL_DATA_WORDS) {
            let mut data = [0; CELL_DATA_WORDS];
            let data = &mut data[..chunk.len().div_ceil(8)];
            if self.rank() == root {
                for (word, bytes) in data.iter_mut().zip(chunk.chunks(8)) {
                    let mut whole = [0; 8];
                    whole[..bytes.len()].copy_from_slice(bytes);
                    *word = u64::from_le_bytes(whole);
                }
            }
            self.pass(BROADCAST, data, |child, mine, theirs| {
                if is_below(root, child) {
                    mine.copy_from_slice(theirs);
                }
            })?;
            for (word, bytes) in data.iter().zip(chunk.chunks_mut(8)) {
                let length = bytes.len();
                bytes.copy_from_slice(&word.to_le_bytes()[..length]);
            }
        }
        Ok(())
    }

    /// Sends each rank its part of `send`, in the order of ranks, and gets one part of each into `recv`.
    ///
    /// Its packets are on the same links as messages: none of those between ranks of the group may be
    /// under way.
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier); [`Error::Length`] where the buffers are not of one part a rank.
    pub fn alltoall(&self, send: &[u8], recv: &mut [u8]) -> Result<(), Error> {
        let (me, size) = (self.rank(), self.size);
        if send.len() != recv.len() || !send.len().is_multiple_of(size) {
            let found = if send.len() == recv.len() { send.len() } else { recv.len() };
            return Err(Error::Length { found, expected: "buffer of equal parts, one for each rank" });
        }
        let each = send.len() / size;
        let part = |rank: usize| rank * each..(rank + 1) * each;
        recv[part(me)].copy_from_slice(&send[part(me)]);
        for step in 1..size {
            let (to, from) = ((me + step) % size, (me + size - step) % size);
            let got = self.torus.exchange_as(
                Kind::Collective,
                (to, &send[part(to)]),
                (from, &mut recv[part(from)]),
            )?;
            if got != each {
                return Err(self.torus.failed(Error::Mismatch { rank: from }));
            }
        }
        Ok(())
    }

    fn check_rank(&self, rank: usize) -> Result<(), Error> {
        if rank < self.size { Ok(()) } else { Err(Error::Rank { rank, ranks: self.size }) }
    }

    fn combine<T: Number>(
        &self,
        kind: u8,
        values: &mut [T],
        mut op: impl FnMut(T, T) -> T,
    ) -> Result<(), Error> {
        for chunk in values.chunks_mut(CELL_DATA_WORDS) {
            let mut data = [0; CELL_DATA_WORDS];
            let data = &mut data[..chunk.len()];
            for (word, value) in data.iter_mut().zip(&*chunk) {
                *word = value.to_word();
            }
            self.pass(kind, data, |_, mine, theirs| {
                for (a, &b) in mine.iter_mut().zip(theirs) {
                    *a = op(T::from_word(*a), T::from_word(b)).to_word();
                }
            })?;
            for (value, &word) in chunk.iter_mut().zip(&*data) {
                *value = T::from_word(word);
            }
        }
        Ok(())
    }

    #[inline]
    fn pass(
        &self,
        kind: u8,
        data: &mut [u64],
        combine: impl FnMut(usize, &mut [u64], &[u64]),
    ) -> Result<(), Error> {
        self.pass_within(None, kind, data, combine)
    }

    fn pass_within(
        &self,
        timeout: Option<Duration>,
        kind: u8,
        data: &mut [u64],
        combine: impl FnMut(usize, &mut [u64], &[u64]),
    ) -> Result<(), Error> {
        let torus = self.torus;
        if self.rank() >= self.size {
            return Err(Error::Rank { rank: self.rank(), ranks: self.size });
        }
        let done = &torus.passes[self.channel];
        let pass = done.get() + 1;
        let cells = torus.window().words(torus.window().layout().tree(self.channel));
        let tree = Tree { cells, cell_words: CELL_WORDS, rank: self.rank(), size: self.size };
        let mut wait = torus.wait(timeout);
        let tag = Tag { kind, words: data.len() };
        tree.pass(pass, tag, data, combine, |rank| wait.once(rank)).map_err(|broken| {
            torus.failed(match broken {
                Broken::Mismatch(rank) => Error::Mismatch { rank },
                Broken::Insane(rank) => Error::Insane { rank: Some(rank) },
                Broken::Wait(e) => e,
            })
        })?;
        done.set(pass);
        Ok(())
    }
}
