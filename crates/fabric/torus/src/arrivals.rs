// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets that came before the program asked for them, in this rank's own memory, and the credits of their senders.
//!
//! A sender has [`credits`](crate::layout::Layout::credits) for each rank, and gets half of them back when the program there
//! has asked for so many of its packets. So the packets of a rank that nobody waits for stop at their sender.

use std::collections::VecDeque;

use crate::atomic::Insane;
use crate::layout::PAYLOAD_BYTES;
use crate::packet::Packet;

/// Packets kept and credits owed, of all ranks.
#[derive(Debug)]
pub(crate) struct Arrivals {
    sources: Vec<Source>,
    /// Packets a credit packet stands for.
    half: usize,
    /// Packets kept, of all sources.
    kept: usize,
    /// Ranks that a credit packet is owed to; twice if two are.
    owed: VecDeque<usize>,
}

/// Packets kept and credits owed, of one rank.
#[derive(Debug, Default)]
struct Source {
    queue: VecDeque<Kept>,
    /// Packets that the program has had since the last credit packet.
    had: usize,
    /// Credit packets owed.
    owed: usize,
}

#[derive(Debug)]
struct Kept {
    packet: Packet,
    payload: [u8; PAYLOAD_BYTES],
}

impl Arrivals {
    pub(crate) fn new(ranks: usize, credits: usize) -> Self {
        let sources = (0..ranks).map(|_| Source::default()).collect();
        Self { sources, half: credits / 2, kept: 0, owed: VecDeque::new() }
    }

    /// Checks that a packet that has come was sent for a credit.
    pub(crate) fn check(&self, packet: Packet) -> Result<(), Insane> {
        let source = self.sources.get(packet.from).ok_or(Insane)?;
        let used = source.queue.len() + source.had + source.owed * self.half;
        if used < 2 * self.half { Ok(()) } else { Err(Insane) }
    }

    /// Room for the bytes of a checked packet, which is kept from now on.
    pub(crate) fn keep(&mut self, packet: Packet) -> &mut [u8] {
        let queue = &mut self.sources[packet.from].queue;
        queue.push_back(Kept { packet, payload: [0; PAYLOAD_BYTES] });
        self.kept += 1;
        queue.back_mut().map_or(&mut [], |kept| &mut kept.payload[..packet.length])
    }

    /// The first packet kept of a rank, into `bytes` as far as it fits.
    #[inline]
    pub(crate) fn pop(&mut self, from: usize, bytes: &mut [u8]) -> Option<Packet> {
        if self.kept == 0 {
            return None;
        }
        let Kept { packet, payload } = self.sources[from].queue.pop_front()?;
        self.kept -= 1;
        let fits = packet.length.min(bytes.len());
        bytes[..fits].copy_from_slice(&payload[..fits]);
        Some(packet)
    }

    /// A rank of which packets are kept.
    pub(crate) fn any(&self) -> Option<usize> {
        if self.kept == 0 { None } else { self.sources.iter().position(|source| !source.queue.is_empty()) }
    }

    /// Counts a packet that the program has had. Returns `true` if credit packets are owed.
    #[inline]
    pub(crate) fn had(&mut self, from: usize) -> bool {
        let source = &mut self.sources[from];
        source.had += 1;
        if source.had == self.half {
            source.had = 0;
            source.owed += 1;
            self.owed.push_back(from);
        }
        !self.owed.is_empty()
    }

    /// Pays each credit packet owed for which `pay` returns `true`.
    pub(crate) fn pay<E>(&mut self, mut pay: impl FnMut(usize) -> Result<bool, E>) -> Result<(), E> {
        for _ in 0..self.owed.len() {
            let Some(to) = self.owed.pop_front() else { break };
            if pay(to)? {
                self.sources[to].owed -= 1;
            } else {
                // its inbox is full: the others are not to wait for that
                self.owed.push_back(to);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::packet::Kind;

    use super::*;

    fn packet(from: usize, length: usize) -> Packet {
        Packet { from, length, more: false, kind: Kind::Message }
    }

    proptest! {
        /// Senders that keep to their credits never go without, and what is kept is bounded.
        #[test]
        fn packets_come_out_in_order_and_every_credit_comes_back(
            steps in prop::collection::vec((0usize..3, 0usize..3), 0..400),
        ) {
            const CREDITS: usize = 8;
            let mut arrivals = Arrivals::new(3, CREDITS);
            let (mut free, mut sent, mut got) = ([CREDITS; 3], [0u8; 3], [0u8; 3]);
            for (from, act) in steps {
                match act {
                    0 if free[from] > 0 => {
                        free[from] -= 1;
                        prop_assert_eq!(arrivals.check(packet(from, 1)), Ok(()));
                        arrivals.keep(packet(from, 1))[0] = sent[from];
                        sent[from] = sent[from].wrapping_add(1);
                    }
                    0 => prop_assert_eq!(arrivals.check(packet(from, 1)), Err(Insane)),
                    1 => {
                        let mut byte = [0];
                        let there = sent[from] != got[from];
                        prop_assert_eq!(arrivals.pop(from, &mut byte).is_some(), there);
                        if there {
                            prop_assert_eq!(byte[0], got[from]);
                            got[from] = got[from].wrapping_add(1);
                            arrivals.had(from);
                        }
                    }
                    _ => arrivals.pay(|to| {
                        // rank `from` takes none now
                        let takes = to != from;
                        free[to] += if takes { CREDITS / 2 } else { 0 };
                        Ok::<_, Insane>(takes)
                    }).expect("never refused"),
                }
                let waiting = (0..3).any(|rank| sent[rank] != got[rank]);
                prop_assert_eq!(arrivals.any().is_some(), waiting);
                prop_assert!(free.iter().all(|&free| free <= CREDITS));
            }
            let paid = arrivals.pay(|to| {
                free[to] += CREDITS / 2;
                Ok::<_, Insane>(true)
            });
            prop_assert_eq!(paid, Ok(()));
            for rank in 0..3 {
                let under_way = usize::from(sent[rank].wrapping_sub(got[rank]));
                prop_assert!(free[rank] + under_way > CREDITS / 2, "it goes on when it was asked for");
            }
        }
    }

    #[test]
    fn ranks_that_do_not_exist_are_insane() {
        assert_eq!(Arrivals::new(3, 8).check(packet(3, 0)), Err(Insane));
    }
}
