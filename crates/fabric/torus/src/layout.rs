// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layout of the window.
//!
//! ```text
//! 0                 header, one page
//! 4096              a line of 64 bytes a rank: its state
//! then              CHANNELS trees: a cell for the result, and one a rank, 2 KiB each
//! then              an inbox a rank: two lines, and 256 packets
//! ```
//! All words are 64 bits, little-endian. A window is as long as the next power of two, so that it can be
//! the memory of a device.
//!
//! The window grows with the number of ranks: each has 64 KiB of packets and 28 KiB of cells. 512 ranks have a window of
//! 64 MiB, and 4096 one of 512 MiB. Memory of the host is taken only for pages that are used.
//!
//! A rank keeps packets that came before it asked for them in memory of its own, which the [credits](Layout::credits) of
//! their senders bound.

use crate::{Dims, Error};

/// `COLTORUS`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"COLTORUS");
/// Version of this layout. A rank joins only windows of its own version.
pub const VERSION: u64 = 2;
/// The most ranks of a window.
pub const MAX_RANKS: usize = 4096;
/// Trees: one of all ranks, and one for each power of two of first ranks.
pub const CHANNELS: usize = 14;
/// Bytes that a packet carries; with the word before them 256, the largest packet of Blue Gene/L's torus.
pub const PAYLOAD_BYTES: usize = 248;

pub(crate) const SLOT_WORDS: usize = 32;
pub(crate) const INBOX_LINE_WORDS: usize = 8;
/// A cache line for the reader's word, and one for the writers'.
pub(crate) const INBOX_HEAD_WORDS: usize = 2 * INBOX_LINE_WORDS;
pub(crate) const CELL_WORDS: usize = 256;
pub(crate) const CELL_DATA_WORDS: usize = CELL_WORDS - 1;
const HEADER_WORDS: usize = 512;
const STATE_WORDS: usize = 8;

/// Words of the header.
pub(crate) mod header {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const VERSION: usize = 1;
    pub(crate) const RANKS: usize = 2;
    pub(crate) const DIMS: usize = 3;
    pub(crate) const SLOTS: usize = 6;
    pub(crate) const BYTES: usize = 7;
    /// 0, or 1 + the rank that others are told has failed.
    pub(crate) const ABORT: usize = 64;
}

/// Values of a rank's state.
pub(crate) mod state {
    pub(crate) const JOINED: u64 = 1;
    pub(crate) const LEFT: u64 = 2;
}

/// Packets that an inbox holds.
const SLOTS: usize = 256;

/// The sizes of a window, which decide where everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    dims: Dims,
    slots: usize,
}

impl Layout {
    /// For `dims.ranks()` ranks.
    ///
    /// # Errors
    /// [`Error::Dims`] where there are too many ranks.
    pub fn new(dims: Dims) -> Result<Self, Error> {
        Self::with_slots(dims, SLOTS)
    }

    pub(crate) fn with_slots(dims: Dims, slots: usize) -> Result<Self, Error> {
        if dims.ranks() > MAX_RANKS {
            return Err(Error::Dims { found: dims.to_string() });
        }
        Ok(Self { dims, slots })
    }

    /// The torus.
    #[must_use]
    pub const fn dims(&self) -> Dims {
        self.dims
    }

    /// Packets that an inbox holds.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.slots
    }

    /// Packets that a rank may have on their way to another, from their sending until the program there asks for them: 64, or
    /// fewer (down to 16) if there are more than 64 ranks. So a rank keeps at most 1 MiB of packets for up to 256 ranks, and
    /// 4 KiB for each rank of more. A power of two.
    #[must_use]
    pub const fn credits(&self) -> usize {
        match self.dims.ranks() {
            0..=64 => 64,
            65..=128 => 32,
            _ => 16,
        }
    }

    /// Bytes of the window: a power of two.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let words = self.inboxes_at() + self.dims.ranks() * inbox_words(self.slots);
        // at least one large page, which kernels map at once
        (words * 8).next_power_of_two().max(2 << 20)
    }

    pub(crate) const fn state_at(rank: usize) -> usize {
        HEADER_WORDS + rank * STATE_WORDS
    }

    fn cells_at(&self) -> usize {
        Self::state_at(self.dims.ranks())
    }

    fn tree_words(&self) -> usize {
        (1 + self.dims.ranks()) * CELL_WORDS
    }

    /// Words of the tree of a channel.
    pub(crate) fn tree(&self, channel: usize) -> std::ops::Range<usize> {
        let at = self.cells_at() + channel * self.tree_words();
        at..at + self.tree_words()
    }

    fn inboxes_at(&self) -> usize {
        self.cells_at() + CHANNELS * self.tree_words()
    }

    /// Words of the inbox of a rank.
    pub(crate) fn inbox(&self, rank: usize) -> std::ops::Range<usize> {
        let words = inbox_words(self.slots);
        let at = self.inboxes_at() + rank * words;
        at..at + words
    }
}

const fn inbox_words(slots: usize) -> usize {
    INBOX_HEAD_WORDS + slots * SLOT_WORDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps_and_all_is_inside() {
        for ranks in [1, 2, 17, 100, 512] {
            let layout = Layout::new(Dims::new([ranks, 1, 1]).expect("a torus")).expect("it fits");
            let header = std::iter::once(0..Layout::state_at(ranks));
            let mut places: Vec<_> = header.chain((0..CHANNELS).map(|c| layout.tree(c))).collect();
            places.extend((0..ranks).map(|rank| layout.inbox(rank)));
            assert!(places.is_sorted_by(|a, b| a.end <= b.start), "{ranks}");
            assert!(places.last().expect("some").end * 8 <= layout.bytes());
            assert!(layout.slots().is_power_of_two() && layout.credits().is_power_of_two());
            // one pair cannot fill an inbox, and no rank keeps more than a few MiB for all others
            assert!(layout.credits() < layout.slots() && ranks * layout.credits() * 256 <= 2 << 20);
        }
    }

    #[test]
    fn a_usual_partition_takes_little_memory() {
        let bytes = |ranks| Layout::new(Dims::new([ranks, 1, 1]).expect("a torus")).expect("it fits").bytes();
        assert!(bytes(8) <= 2 << 20, "{}", bytes(8));
        assert!(bytes(128) <= 16 << 20, "{}", bytes(128));
        assert!(Layout::new(Dims::new([5000, 1, 1]).expect("a torus")).is_err());
    }

    #[test]
    fn memory_grows_with_the_number_of_ranks_and_no_faster() {
        let layout = |ranks| Layout::new(Dims::new([ranks, 1, 1]).expect("a torus")).expect("it fits");
        assert_eq!([512, 1024, 4096].map(|ranks| layout(ranks).bytes()), [64 << 20, 128 << 20, 512 << 20]);
        let used = |ranks: usize| layout(ranks).inbox(ranks - 1).end;
        let each = used(2) - used(1);
        assert!((1..4096).all(|ranks| used(ranks + 1) - used(ranks) == each));
    }
}
