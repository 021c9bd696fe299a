// SPDX-License-Identifier: MIT OR Apache-2.0
//! The packets on their way to one rank: a ring with many writers and one reader.
//!
//! A writer takes the next slot by moving `tail`. Each slot begins with a word that says which packet it holds and how
//! long that is ([`Packet::word`]). The writer stores it last, so that a packet is one transfer of cache lines; the reader
//! says in `head` how far it is, which a writer reads only when its last knowledge of it leaves no room.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::atomic::{Insane, Word};
use crate::layout::{INBOX_HEAD_WORDS, INBOX_LINE_WORDS, SLOT_WORDS};
use crate::packet::{Packet, number_of, read_bytes, write_bytes};

/// The inbox of a rank.
pub(crate) struct Inbox<'a, W> {
    /// Packets that the reader has taken.
    head: &'a W,
    /// Packets that have a slot.
    tail: &'a W,
    slots: &'a [W],
    count: u64,
}

impl<'a, W: Word> Inbox<'a, W> {
    /// The inbox in these words: as many slots, a power of two, as fit.
    pub(crate) fn new(words: &'a [W]) -> Self {
        let (lines, slots) = words.split_at(INBOX_HEAD_WORDS);
        let count = (slots.len() / SLOT_WORDS) as u64;
        Self { head: &lines[0], tail: &lines[INBOX_LINE_WORDS], slots, count }
    }

    /// The slot of packet `number + 1`.
    fn slot(&self, number: u64) -> (&'a W, &'a [W]) {
        let at = (number % self.count) as usize * SLOT_WORDS;
        let words = &self.slots[at..at + SLOT_WORDS];
        (&words[0], &words[1..])
    }

    /// Writes a packet; `false` if there is no room now. `seen` is this writer's last knowledge of `head`, 0 at first.
    pub(crate) fn push(&self, seen: &mut u64, packet: Packet, bytes: &[u8]) -> Result<bool, Insane> {
        debug_assert!(bytes.len() == packet.length);
        let mut tail = self.tail.load(Relaxed);
        loop {
            if tail.wrapping_sub(*seen) >= self.count {
                let head = self.head.load(Acquire);
                // the packets that the reader has taken had slots before it took them
                tail = self.tail.load(Relaxed);
                if head < *seen || head > tail {
                    return Err(Insane);
                }
                *seen = head;
                if tail - head >= self.count {
                    return Ok(false);
                }
            }
            match self.tail.compare_exchange(tail, tail.wrapping_add(1), Relaxed, Relaxed) {
                Ok(_) => break,
                Err(now) => tail = now,
            }
        }
        let (first, payload) = self.slot(tail);
        write_bytes(payload, bytes);
        first.store(packet.word(tail.wrapping_add(1)), Release);
        Ok(true)
    }

    /// The next packet, if it is there; `next` is the number of packets taken. It stays where it is.
    #[inline]
    pub(crate) fn peek(&self, next: u64) -> Result<Option<Packet>, Insane> {
        // numbers as heads have them
        const NUMBERS: u64 = number_of(u64::MAX);
        let word = self.slot(next).0.load(Acquire);
        let number = number_of(word);
        if number == (next + 1) & NUMBERS {
            return Packet::of(word).map(Some);
        }
        // what was there one time around before, or nothing yet
        let before = (next + 1).saturating_sub(self.count) & NUMBERS;
        if number == before { Ok(None) } else { Err(Insane) }
    }

    /// Reads the packet that [`peek`](Self::peek) has found into `bytes`, as far as it fits, and gives its slot free.
    pub(crate) fn take(&self, next: &mut u64, packet: Packet, bytes: &mut [u8]) {
        let fits = packet.length.min(bytes.len());
        read_bytes(self.slot(*next).1, &mut bytes[..fits]);
        *next += 1;
        self.head.store(*next, Release);
    }

    /// Returns `true` if no writer has a slot that was not taken: not even one that it has not filled yet.
    pub(crate) fn is_empty(&self, next: u64) -> bool {
        self.tail.load(Acquire) == next
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::atomic::AtomicU64;

    use proptest::prelude::*;

    use crate::layout::PAYLOAD_BYTES;
    use crate::packet::Kind;

    use super::*;

    fn memory(slots: usize) -> Vec<AtomicU64> {
        (0..INBOX_HEAD_WORDS + slots * SLOT_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn packet(from: usize, bytes: &[u8]) -> Packet {
        Packet { from, length: bytes.len(), more: false, kind: Kind::Message }
    }

    fn pop<W: Word>(inbox: &Inbox<'_, W>, next: &mut u64) -> Option<(usize, Vec<u8>)> {
        let packet = inbox.peek(*next).expect("sane")?;
        let mut bytes = vec![0; packet.length];
        inbox.take(next, packet, &mut bytes);
        Some((packet.from, bytes))
    }

    proptest! {
        #[test]
        fn it_is_a_queue_of_bounded_length(
            slots in 0u32..4,
            steps in prop::collection::vec(prop::option::of((0usize..3, prop::collection::vec(any::<u8>(), 0..=PAYLOAD_BYTES))), 0..200),
        ) {
            let slots = 1usize << slots;
            let words = memory(slots);
            let inbox = Inbox::new(&words);
            let (mut seen, mut next) = ([0; 3], 0);
            let mut model = VecDeque::new();
            for step in steps {
                if let Some((from, bytes)) = step {
                    let room = model.len() < slots;
                    prop_assert_eq!(inbox.push(&mut seen[from], packet(from, &bytes), &bytes), Ok(room));
                    if room {
                        model.push_back((from, bytes));
                    }
                } else {
                    prop_assert_eq!(inbox.is_empty(next), model.is_empty());
                    prop_assert_eq!(pop(&inbox, &mut next), model.pop_front());
                }
            }
        }

        #[test]
        fn whatever_a_peer_writes_no_end_panics_or_reads_past_a_packet(
            noise in prop::collection::vec((0usize..INBOX_HEAD_WORDS + 2 * SLOT_WORDS, any::<u64>()), 1..60),
            small in any::<bool>(),
        ) {
            let words = memory(2);
            let inbox = Inbox::new(&words);
            let (mut seen, mut next) = (0, 0);
            for (place, value) in noise {
                // small values are more often nearly right
                words[place].store(if small { ((value % 4) << 24) | (value >> 56) } else { value }, Relaxed);
                let _ = inbox.push(&mut seen, packet(0, &[1, 2, 3]), &[1, 2, 3]);
                let mut bytes = [0; 5];
                if let Ok(Some(packet)) = inbox.peek(next) {
                    inbox.take(&mut next, packet, &mut bytes);
                    prop_assert!(packet.length <= PAYLOAD_BYTES);
                }
            }
        }

        #[test]
        fn numbers_begin_again_without_a_packet_lost_or_twice(behind in 0u64..6, slots in 0u32..3) {
            let slots = 1usize << slots;
            let words = memory(slots);
            let inbox = Inbox::new(&words);
            // as after almost 2^40 packets
            let start = (1u64 << 40) - behind;
            inbox.head.store(start, Relaxed);
            inbox.tail.store(start, Relaxed);
            for number in start - slots as u64..start {
                inbox.slot(number).0.store(packet(0, &[]).word(number + 1), Relaxed);
            }
            let (mut seen, mut next) = (start, start);
            for n in 0..20u8 {
                prop_assert_eq!(pop(&inbox, &mut next), None);
                prop_assert_eq!(inbox.push(&mut seen, packet(7, &[n]), &[n]), Ok(true));
                prop_assert_eq!(pop(&inbox, &mut next), Some((7, vec![n])));
            }
        }
    }

    #[test]
    fn impossible_values_are_insane() {
        let words = memory(2);
        let inbox = Inbox::new(&words);
        let mut seen = 0;
        words[INBOX_HEAD_WORDS].store(packet(0, &[]).word(7), Relaxed);
        assert_eq!(inbox.peek(0), Err(Insane), "a packet from the future");
        let mut push = || inbox.push(&mut seen, packet(0, &[]), &[]);
        assert_eq!((push(), push(), push()), (Ok(true), Ok(true), Ok(false)));
        words[0].store(3, Relaxed);
        assert_eq!(push(), Err(Insane), "more read than written");
    }

    /// All interleavings, and all values that the memory model lets relaxed loads give: two writers into one inbox, and its
    /// reader. None of them waits for another; what is left is read at the end.
    fn every_interleaving(slots: usize, packets: [u8; 2], looks: usize) {
        use loom::sync::Arc;
        use loom::sync::atomic::AtomicU64;
        loom::model(move || {
            let words: Arc<Vec<AtomicU64>> =
                Arc::new((0..INBOX_HEAD_WORDS + slots * SLOT_WORDS).map(|_| AtomicU64::new(0)).collect());
            let write = |from: usize| {
                let words = Arc::clone(&words);
                move || {
                    let (inbox, mut seen) = (Inbox::new(&words[..]), 0);
                    let sent = (1..=packets[from]).take_while(|&n| {
                        let bytes = [n, from as u8, n];
                        inbox.push(&mut seen, packet(from, &bytes), &bytes).expect("sane")
                    });
                    sent.count()
                }
            };
            let writers = [loom::thread::spawn(write(0)), loom::thread::spawn(write(1))];
            let (inbox, mut next) = (Inbox::new(&words[..]), 0);
            let mut got: Vec<_> = (0..looks).filter_map(|_| pop(&inbox, &mut next)).collect();
            let sent = writers.map(|writer| writer.join().expect("no panic"));
            got.extend(std::iter::from_fn(|| pop(&inbox, &mut next)));
            assert!(inbox.is_empty(next));
            for (from, &sent) in sent.iter().enumerate() {
                let of: Vec<_> =
                    got.iter().filter(|(rank, _)| *rank == from).map(|(_, bytes)| bytes).collect();
                let all: Vec<_> = (1..=sent as u8).map(|n| vec![n, from as u8, n]).collect();
                assert_eq!(of, all.iter().collect::<Vec<_>>(), "whole, and in the order of the sender");
            }
            // who comes first has room
            assert!(sent[0] + sent[1] >= slots.min(usize::from(packets[0] + packets[1])));
        });
    }

    #[test]
    fn in_every_interleaving_packets_arrive_whole_and_in_the_order_of_their_sender() {
        every_interleaving(1, [2, 1], 2);
        every_interleaving(2, [2, 1], 1);
    }
}
