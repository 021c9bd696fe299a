// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layout of the window.
//!
//! ```text
//! 0                 header, one page
//! 4096              a line of 64 bytes a rank: its state
//! then              CHANNELS trees: a cell for the result, and one a rank, 2 KiB each
//! then              a ring for each pair, those to one rank together
//! ```
//! All words are 64 bits, little-endian. A window is as long as the next power of two, so that it can be
//! the memory of a device.
//!
//! The window grows with the square of the number of ranks: a ring for each pair has at least 4 packets, 1088 bytes. 512
//! ranks have 512 MiB, 1024 have 2 GiB, and 4096 have 32 GiB. Memory of the host is taken only for pages that are used.

use crate::{Dims, Error};

/// `COLTORUS`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"COLTORUS");
/// Version of this layout. A rank joins only windows of its own version.
pub const VERSION: u64 = 1;
/// The most ranks of a window.
pub const MAX_RANKS: usize = 4096;
/// Trees: one of all ranks, and one for each power of two of first ranks.
pub const CHANNELS: usize = 14;
/// Bytes that a packet carries; with the word before them 256, the largest packet of Blue Gene/L's torus.
pub const PAYLOAD_BYTES: usize = 248;

pub(crate) const SLOT_WORDS: usize = 32;
/// A cache line for the reader's word.
pub(crate) const RING_HEAD_WORDS: usize = 8;
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

/// The size of all rings of a window together, if the smallest rings fit into it.
const RINGS_BYTES: usize = 64 << 20;

/// The sizes of a window, which decide where everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    dims: Dims,
    slots: usize,
}

impl Layout {
    /// For `dims.ranks()` ranks: rings of 64 packets, of fewer (down to 4) where there are many ranks.
    ///
    /// # Errors
    /// [`Error::Dims`] where there are too many ranks.
    pub fn new(dims: Dims) -> Result<Self, Error> {
        let ranks = dims.ranks();
        let mut slots = 64;
        while slots > 4 && ranks * ranks * ring_words(slots) * 8 > RINGS_BYTES {
            slots /= 2;
        }
        Self::with_slots(dims, slots)
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

    /// Packets that a ring holds.
    #[must_use]
    pub const fn slots(&self) -> usize {
        self.slots
    }

    /// Bytes of the window: a power of two.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let words = self.rings_at() + self.dims.ranks() * self.dims.ranks() * ring_words(self.slots);
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

    fn rings_at(&self) -> usize {
        self.cells_at() + CHANNELS * self.tree_words()
    }

    /// Words of the ring from one rank to another.
    pub(crate) fn ring(&self, from: usize, to: usize) -> std::ops::Range<usize> {
        let words = ring_words(self.slots);
        let at = self.rings_at() + (to * self.dims.ranks() + from) * words;
        at..at + words
    }
}

const fn ring_words(slots: usize) -> usize {
    RING_HEAD_WORDS + slots * SLOT_WORDS
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
            places.extend((0..ranks).flat_map(|to| (0..ranks).map(move |from| layout.ring(from, to))));
            assert!(places.is_sorted_by(|a, b| a.end <= b.start), "{ranks}");
            assert!(places.last().expect("some").end * 8 <= layout.bytes());
            assert!(layout.slots().is_power_of_two() && layout.slots() >= 4);
        }
    }

    #[test]
    fn a_usual_partition_takes_little_memory() {
        let bytes = |ranks| Layout::new(Dims::new([ranks, 1, 1]).expect("a torus")).expect("it fits").bytes();
        assert!(bytes(8) <= 4 << 20, "{}", bytes(8));
        assert!(bytes(128) <= 128 << 20, "{}", bytes(128));
        assert!(Layout::new(Dims::new([5000, 1, 1]).expect("a torus")).is_err());
    }

    #[test]
    fn a_midplane_takes_at_most_a_gibibyte_and_growth_is_quadratic() {
        let layout = |ranks| Layout::new(Dims::new([ranks, 1, 1]).expect("a torus")).expect("it fits");
        let rings = |ranks| ranks * ranks * ring_words(layout(ranks).slots()) * 8;
        assert_eq!([512, 1024, 4096].map(|ranks| layout(ranks).bytes()), [512 << 20, 2 << 30, 32 << 30]);
        assert_eq!(
            [512, 1024, 4096].map(|ranks| rings(ranks) / ranks),
            [512, 1024, 4096].map(|ranks| ranks * 1088)
        );
    }
}
