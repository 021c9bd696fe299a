// SPDX-License-Identifier: MIT OR Apache-2.0
//! The head of a packet, one word, and its bytes.

use std::sync::atomic::Ordering::Relaxed;

use crate::atomic::{Insane, Word};
use crate::layout::PAYLOAD_BYTES;

/// The purpose of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A part of a message.
    Message,
    /// A part of what a rank sends in a collective operation.
    Collective,
    /// The sender of packets may send more of them, see [`credits`](crate::layout::Layout::credits).
    Credit,
}

/// A packet without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// The rank that sent it; not checked: below 4096.
    pub(crate) from: usize,
    pub(crate) length: usize,
    /// True if the message continues in the next packet of its sender.
    pub(crate) more: bool,
    pub(crate) kind: Kind,
}

const MORE: u64 = 1 << 8;
const KIND_SHIFT: u32 = 9;
const FROM_SHIFT: u32 = 12;
const FROM_MASK: u64 = (1 << (NUMBER_SHIFT - FROM_SHIFT)) - 1;
const NUMBER_SHIFT: u32 = 24;

/// The number of a packet as its head has it. Numbers begin at 1, so that 0 is an empty slot, and again after 2^40 packets.
pub(crate) const fn number_of(word: u64) -> u64 {
    word >> NUMBER_SHIFT
}

impl Packet {
    /// The head of this packet as number `number`.
    pub(crate) fn word(self, number: u64) -> u64 {
        let more = if self.more { MORE } else { 0 };
        number << NUMBER_SHIFT
            | (self.from as u64) << FROM_SHIFT
            | (self.kind as u64) << KIND_SHIFT
            | more
            | self.length as u64
    }

    pub(crate) fn of(word: u64) -> Result<Self, Insane> {
        let length = (word & 0xff) as usize;
        let kind = match word >> KIND_SHIFT & 0b111 {
            0 => Kind::Message,
            1 => Kind::Collective,
            2 => Kind::Credit,
            _ => return Err(Insane),
        };
        if length > PAYLOAD_BYTES {
            return Err(Insane);
        }
        let from = (word >> FROM_SHIFT & FROM_MASK) as usize;
        Ok(Self { from, length, more: word & MORE != 0, kind })
    }
}

/// Bytes to words, the first byte lowest; the last word may be in part unused.
pub(crate) fn write_bytes<W: Word>(words: &[W], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks::<8>();
    for (word, bytes) in words.iter().zip(whole) {
        word.store(u64::from_le_bytes(*bytes), Relaxed);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        words[whole.len()].store(u64::from_le_bytes(last), Relaxed);
    }
}

/// As many bytes as there is room for.
pub(crate) fn read_bytes<W: Word>(words: &[W], bytes: &mut [u8]) {
    let (whole, rest) = bytes.as_chunks_mut::<8>();
    for (word, bytes) in words.iter().zip(whole.iter_mut()) {
        *bytes = word.load(Relaxed).to_le_bytes();
    }
    if !rest.is_empty() {
        let last = words[whole.len()].load(Relaxed).to_le_bytes();
        let length = rest.len();
        rest.copy_from_slice(&last[..length]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_head_says_what_it_was_made_of(
            from in 0usize..4096, length in 0..=PAYLOAD_BYTES, more: bool, kind in 0usize..3, number in 1u64..1 << 40,
        ) {
            let kind = [Kind::Message, Kind::Collective, Kind::Credit][kind];
            let packet = Packet { from, length, more, kind };
            let word = packet.word(number);
            prop_assert_eq!(number_of(word), number);
            prop_assert_eq!(Packet::of(word), Ok(packet));
        }
    }

    #[test]
    fn impossible_heads_are_insane() {
        assert_eq!(Packet::of(1 << NUMBER_SHIFT | 249), Err(Insane), "longer than a packet can be");
        assert_eq!(Packet::of(3 << KIND_SHIFT), Err(Insane), "a kind that is none");
    }
}
