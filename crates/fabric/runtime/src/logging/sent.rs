// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parcels that a PE has sent to another one since its last checkpoint.

use std::collections::VecDeque;

use super::checksum::Checksum;
use crate::message::Malformed;
use crate::parcel::{MESSAGE, split};

/// Bytes of a piece of the log: a parcel is wholly in one piece.
const PIECE: usize = 256 << 10;

/// Encoded parcels, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Sent {
    pieces: VecDeque<Vec<u8>>,
    /// The number of parcels.
    pub(super) parcels: u64,
}

impl Sent {
    /// Adds a parcel. Pieces for it come from `free` if there are any.
    pub(crate) fn push(&mut self, parcel: &[u8], free: &mut Vec<Vec<u8>>) {
        self.parcels += 1;
        match self.pieces.back_mut() {
            Some(last) if last.len() + parcel.len() <= PIECE => last.extend_from_slice(parcel),
            _ => {
                let mut piece = free.pop().unwrap_or_default();
                piece.extend_from_slice(parcel);
                self.pieces.push_back(piece);
            }
        }
    }

    /// Forgets all parcels. The memory of pieces goes to `free`, so the next ones need no new pages.
    pub(crate) fn clear(&mut self, free: &mut Vec<Vec<u8>>) {
        self.parcels = 0;
        for mut piece in self.pieces.drain(..).filter(|piece| piece.capacity() <= 2 * PIECE) {
            piece.clear();
            free.push(piece);
        }
    }

    /// The encoded parcels from number `first` on.
    pub(crate) fn after(&self, first: u64) -> Result<Vec<u8>, Malformed> {
        let mut left = first;
        let mut bytes = Vec::new();
        for piece in &self.pieces {
            let mut rest = &piece[..];
            while left > 0 && !rest.is_empty() {
                (.., rest) = split(rest)?;
                left -= 1;
            }
            bytes.extend_from_slice(rest);
        }
        Ok(bytes)
    }

    /// The checksum of the messages among the first `count` parcels; none if there are fewer.
    pub(crate) fn checksum(&self, count: u64) -> Result<Option<u32>, Malformed> {
        let mut sum = Checksum::default();
        let mut left = count;
        for piece in &self.pieces {
            let mut rest = &piece[..];
            while left > 0 && !rest.is_empty() {
                let (_, parcel, after) = split(rest)?;
                if parcel.kind == MESSAGE {
                    sum.add(parcel.bytes);
                }
                rest = after;
                left -= 1;
            }
        }
        Ok((left == 0).then(|| sum.value()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::parcel::{Encoded, SYSTEM};

    proptest! {
        #[test]
        fn any_tail_of_the_log_is_what_was_sent_then(
            lengths in prop::collection::vec(0usize..200_000, 0..12), first in 0usize..14,
        ) {
            let (mut sent, mut free) = (Sent::default(), Vec::new());
            // a log that has been used before
            sent.push(&[1; PIECE], &mut free);
            sent.clear(&mut free);
            let mut parcels = Vec::new();
            for (number, length) in lengths.iter().enumerate() {
                let kind = if number % 3 == 0 { SYSTEM } else { MESSAGE };
                let mut bytes = Vec::new();
                Encoded { kind, bytes: &vec![number as u8; *length] }.append_to(&mut bytes);
                sent.push(&bytes, &mut free);
                parcels.push(bytes);
            }
            let tail = parcels.get(first..).unwrap_or_default().concat();
            prop_assert_eq!(sent.after(first as u64).expect("whole"), tail);
            let messages = parcels.iter().take(first).enumerate().filter(|(number, _)| number % 3 > 0);
            let head = 7; // bytes before those of a parcel
            let mut expected = Checksum::default();
            messages.for_each(|(_, bytes)| expected.add(&bytes[head..]));
            let sum = (first <= parcels.len()).then(|| expected.value());
            prop_assert_eq!(sent.checksum(first as u64).expect("whole"), sum);
        }
    }
}
