// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets from one rank to another, in order: a ring with one writer and one reader.
//!
//! Each slot begins with a word that says which packet it holds and how long that is. The writer stores it
//! last, so that a packet is one transfer of cache lines; the reader says in `head` how far it is, which
//! the writer reads only when its last knowledge of it leaves no room.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::atomic::{Insane, Word};
use crate::layout::{PAYLOAD_BYTES, RING_HEAD_WORDS, SLOT_WORDS};

/// One direction of one pair.
pub(crate) struct Ring<'a, W> {
    head: &'a W,
    slots: &'a [W],
    count: u64,
}

/// The place of one end of a ring, in this rank's own memory: no other rank writes it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    /// The next packet.
    next: u64,
    /// The writer's last knowledge of the reader's `next`.
    seen: u64,
}

/// The kind of message that a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Message,
    Collective,
}

/// A packet without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) length: usize,
    /// True if the message continues in the next packet.
    pub(crate) more: bool,
    pub(crate) kind: Kind,
}

const LENGTH_BITS: u64 = 14;
const MORE: u64 = 1 << 14;
const COLLECTIVE: u64 = 1 << 15;
const NUMBER_SHIFT: u32 = 16;

impl Packet {
    /// The first word of the slot of packet `number`. Numbers begin at 1: 0 is an empty slot.
    fn word(self, number: u64) -> u64 {
        let more = if self.more { MORE } else { 0 };
        let kind = if self.kind == Kind::Collective { COLLECTIVE } else { 0 };
        number << NUMBER_SHIFT | kind | more | self.length as u64
    }

    fn of(word: u64) -> Result<Self, Insane> {
        let length = (word & ((1 << LENGTH_BITS) - 1)) as usize;
        let kind = if word & COLLECTIVE == 0 { Kind::Message } else { Kind::Collective };
        if length > PAYLOAD_BYTES { Err(Insane) } else { Ok(Self { length, more: word & MORE != 0, kind }) }
    }
}

impl<'a, W: Word> Ring<'a, W> {
    /// The ring in these words: as many slots, a power of two, as fit.
    pub(crate) fn new(words: &'a [W]) -> Self {
        let (head, slots) = words.split_at(RING_HEAD_WORDS);
        Self { head: &head[0], slots, count: (slots.len() / SLOT_WORDS) as u64 }
    }

    fn slot(&self, number: u64) -> &'a [W] {
        let at = (number % self.count) as usize * SLOT_WORDS;
        &self.slots[at..at + SLOT_WORDS]
    }

    /// Writes a packet of at most [`PAYLOAD_BYTES`]; `false` where there is no room now.
    pub(crate) fn push(&self, at: &mut Cursor, bytes: &[u8], more: bool, kind: Kind) -> Result<bool, Insane> {
        debug_assert!(bytes.len() <= PAYLOAD_BYTES);
        if at.next - at.seen == self.count {
            let head = self.head.load(Acquire);
            // the reader only goes forward, and not past what was written
            if head < at.seen || head > at.next {
                return Err(Insane);
            }
            at.seen = head;
            if at.next - head == self.count {
                return Ok(false);
            }
        }
        let (first, payload) = self.slot(at.next).split_at(1);
        write_bytes(payload, bytes);
        at.next += 1;
        first[0].store(Packet { length: bytes.len(), more, kind }.word(at.next), Release);
        Ok(true)
    }

    /// Reads the next packet into `bytes`, as far as it fits; `None` where there is none now.
    pub(crate) fn pop(&self, at: &mut Cursor, bytes: &mut [u8]) -> Result<Option<Packet>, Insane> {
        let (first, payload) = self.slot(at.next).split_at(1);
        let word = first[0].load(Acquire);
        let number = word >> NUMBER_SHIFT;
        if number != at.next + 1 {
            // what was there one time around before, or nothing yet
            let before = (at.next + 1).saturating_sub(self.count);
            return if number == before { Ok(None) } else { Err(Insane) };
        }
        let packet = Packet::of(word)?;
        let fits = packet.length.min(bytes.len());
        read_bytes(payload, &mut bytes[..fits]);
        at.next += 1;
        self.head.store(at.next, Release);
        Ok(Some(packet))
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
fn read_bytes<W: Word>(words: &[W], bytes: &mut [u8]) {
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
    use std::collections::VecDeque;
    use std::sync::atomic::AtomicU64;

    use proptest::prelude::*;

    use super::*;

    fn memory(slots: usize) -> Vec<AtomicU64> {
        (0..RING_HEAD_WORDS + slots * SLOT_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    proptest! {
        #[test]
        fn it_is_a_queue_of_bounded_length(
            slots in 0u32..4,
            steps in prop::collection::vec(prop::option::of((prop::collection::vec(any::<u8>(), 0..=PAYLOAD_BYTES), any::<bool>())), 0..200),
        ) {
            let slots = 1usize << slots;
            let words = memory(slots);
            let ring = Ring::new(&words);
            let (mut writer, mut reader) = (Cursor::default(), Cursor::default());
            let mut model = VecDeque::new();
            for step in steps {
                if let Some((bytes, more)) = step {
                    let room = model.len() < slots;
                    prop_assert_eq!(ring.push(&mut writer, &bytes, more, Kind::Message), Ok(room));
                    if room {
                        model.push_back((bytes, more));
                    }
                } else {
                    let mut got = [0; PAYLOAD_BYTES];
                    let packet = ring.pop(&mut reader, &mut got).expect("sane");
                    let expected = model.pop_front();
                    prop_assert_eq!(
                        packet.map(|p| (got[..p.length].to_vec(), p.more)),
                        expected
                    );
                }
            }
        }

        #[test]
        fn whatever_a_peer_writes_no_end_panics_or_reads_past_a_packet(
            noise in prop::collection::vec((0usize..RING_HEAD_WORDS + 2 * SLOT_WORDS, any::<u64>()), 1..60),
            small in any::<bool>(),
        ) {
            let words = memory(2);
            let ring = Ring::new(&words);
            let (mut writer, mut reader) = (Cursor::default(), Cursor::default());
            for (place, value) in noise {
                // small values are more often nearly right
                words[place].store(if small { ((value % 4) << 16) | (value >> 48) } else { value }, Relaxed);
                let _ = ring.push(&mut writer, &[1, 2, 3], false, Kind::Message);
                let mut bytes = [0; 5];
                if let Ok(Some(packet)) = ring.pop(&mut reader, &mut bytes) {
                    prop_assert!(packet.length <= PAYLOAD_BYTES);
                }
            }
        }
    }

    #[test]
    fn impossible_values_are_insane() {
        let words = memory(2);
        let ring = Ring::new(&words);
        let (mut writer, mut reader) = (Cursor::default(), Cursor::default());
        words[RING_HEAD_WORDS].store(7 << NUMBER_SHIFT, Relaxed);
        assert_eq!(ring.pop(&mut reader, &mut []), Err(Insane), "a packet from the future");
        words[RING_HEAD_WORDS].store(1 << NUMBER_SHIFT | 249, Relaxed);
        assert_eq!(ring.pop(&mut reader, &mut []), Err(Insane), "longer than a packet can be");
        let mut push = || ring.push(&mut writer, &[], false, Kind::Message);
        assert_eq!((push(), push(), push()), (Ok(true), Ok(true), Ok(false)));
        words[0].store(3, Relaxed);
        assert_eq!(push(), Err(Insane), "more read than written");
    }

    /// All interleavings, and all values that the memory model lets relaxed loads give.
    #[test]
    fn in_every_interleaving_packets_arrive_whole_and_in_order() {
        use loom::sync::Arc;
        use loom::sync::atomic::AtomicU64;
        const PACKETS: u8 = 3;
        loom::model(|| {
            // a slot is long: the model has only the words that are used, of a ring of one slot
            let words: Arc<Vec<AtomicU64>> =
                Arc::new((0..RING_HEAD_WORDS + SLOT_WORDS).map(|_| AtomicU64::new(0)).collect());
            let writer = {
                let words = Arc::clone(&words);
                loom::thread::spawn(move || {
                    let (ring, mut at) = (Ring::new(&words[..]), Cursor::default());
                    for n in 1..=PACKETS {
                        while !ring.push(&mut at, &[n; 9], n < PACKETS, Kind::Message).expect("sane") {
                            loom::thread::yield_now();
                        }
                    }
                })
            };
            let (ring, mut at) = (Ring::new(&words[..]), Cursor::default());
            for n in 1..=PACKETS {
                let mut bytes = [0; 9];
                let packet = loop {
                    match ring.pop(&mut at, &mut bytes).expect("sane") {
                        Some(packet) => break packet,
                        None => loom::thread::yield_now(),
                    }
                };
                assert_eq!((packet.length, packet.more, bytes), (9, n < PACKETS, [n; 9]));
            }
            writer.join().expect("no panic");
        });
    }
}
