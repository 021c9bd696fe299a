// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of messages between two objects.
//!
//! The sender numbers its messages to each receiver from 0; the receiver delivers each number once and in order. Both
//! tables are part of the objects' state and migrate with them, so the order holds whichever way a message takes.
//!
//! A pair of objects that no longer talks is *retired*: both forget it, and its numbers begin at 0 again.
//!
//! | event | action |
//! |---|---|
//! | the sender has not used a pair for a while, or has been removed | it asks the receiver to retire the pair at its next number `n` ([`Outgoing::sweep`], [`Outgoing::retire_all`]) |
//! | the receiver has been removed | it tells its senders, which ask ([`Outgoing::ask_one`]) |
//! | the receiver has delivered all numbers below `n`, and none from `n` on has arrived | it forgets the pair and answers `n` ([`Incoming::retire`]) |
//! | numbers below `n` are still under way | it notes `n`, and answers once it has delivered them ([`Incoming::take_retired`]) |
//! | a number from `n` on has arrived | it ignores the question: the pair talks |
//! | the answer `n` arrives, and the sender's next number is `n` | nothing is under way: the sender forgets the pair |
//! | the answer `n` arrives, and the sender has sent more | it tells the receiver to go on at `n` ([`Incoming::resume`]), which kept these messages as early ones |
//!
//! Each number arrives exactly once, so a receiver that has delivered the numbers below `n` knows that no copy of them is under way. Until
//! the sender has the answer it goes on with the old numbers, so no message of a new row is taken for one of an old row. Of a pair, one answer at
//! most is under way: to answer again, the receiver must have delivered a number, which it can only after the sender has taken the
//! answer before. So questions and answers may overtake each other and messages. The model `delivery` checks this.
//!
//! In a job that goes on with another number of PEs, both sides of a pair whose sender was a PE that has ended are forgotten as well: the PE
//! has ended with its table, and the receivers forget their numbers (`Incoming::forget_pes_from`).

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::address::Address;
use crate::numbers::Numbers;

/// The fewest messages between two searches for pairs that are idle. Debug builds search often, so that all tests do.
const SEARCH: u32 = if cfg!(debug_assertions) { 16 } else { 1024 };

/// A step of the protocol that retires a pair of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Retirement {
    /// To the sender: the receiver has been removed.
    Leave,
    /// To the receiver: the sender has no messages after those below this number.
    Ask(u64),
    /// To the sender: the receiver has delivered them, and has forgotten the pair.
    Done(u64),
    /// To the receiver: the sender has sent more, from this number on.
    GoOn(u64),
}

/// Messages from one object to another since the last load balancing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes of the packed messages.
    pub bytes: u64,
    /// The number of messages.
    pub messages: u32,
}

/// The pair has been used since the last search.
const USED: u64 = 1;
/// The receiver has been asked to retire the pair at this number.
const ASKED: u64 = 2;
/// The lowest bit of the number.
const NUMBER: u32 = 2;

/// The numbers that a sender gives to its messages, by receiver, and its traffic where that is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outgoing {
    /// The next number, above [`USED`] and [`ASKED`].
    next: Numbers,
    /// Messages until the next search, in a long table.
    left: u32,
    traffic: Option<Box<FxHashMap<Address, Traffic>>>,
}

/// Traffic changes no message.
impl std::hash::Hash for Outgoing {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        (&self.next, self.left).hash(hasher);
    }
}

impl Outgoing {
    /// The number of the next message to a receiver.
    #[inline]
    pub fn next(&mut self, receiver: Address) -> u64 {
        if self.next.is_long() {
            self.left = self.left.saturating_sub(1);
        }
        match self.next.get_mut(receiver) {
            Some(next) => {
                let number = *next >> NUMBER;
                *next = (number + 1) << NUMBER | USED;
                number
            }
            None => {
                self.next.insert(receiver, 1 << NUMBER | USED);
                0
            }
        }
    }

    /// Returns `true` if it is time to look for idle pairs. Short tables are left alone.
    #[inline]
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.left == 0 && self.next.is_long()
    }

    /// Returns `true` if it is worth while to look for idle pairs.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.next.is_long()
    }

    /// Looks for pairs that have not been used since the last search. The receivers that are to be asked to retire them, with the numbers.
    pub fn sweep(&mut self) -> Vec<(Address, u64)> {
        let idle = self.ask(|next| next & (USED | ASKED) == 0);
        let mut used = 0u32;
        for next in self.next.values_mut().filter(|next| **next & USED > 0) {
            *next &= !USED;
            used = used.saturating_add(1);
        }
        self.left = SEARCH.max(used.saturating_mul(2));
        idle
    }

    /// A receiver is to be asked to retire the pair: the number, unless it has been asked.
    pub fn ask_one(&mut self, receiver: Address) -> Option<u64> {
        let next = self.next.get_mut(receiver).filter(|next| **next & ASKED == 0)?;
        *next |= ASKED;
        Some(*next >> NUMBER)
    }

    /// The same for all pairs, of an object that has been removed.
    pub fn retire_all(&mut self) -> Vec<(Address, u64)> {
        self.ask(|next| next & ASKED == 0)
    }

    fn ask(&mut self, is_wanted: impl Fn(u64) -> bool) -> Vec<(Address, u64)> {
        let mut all = self.next.sorted(is_wanted);
        for (receiver, next) in &mut all {
            if let Some(entry) = self.next.get_mut(*receiver) {
                *entry |= ASKED;
            }
            *next >>= NUMBER;
        }
        all
    }

    /// A receiver has retired the pair at this number. Returns `true` if it has to go on there, because it has been sent more.
    pub fn retired(&mut self, receiver: Address, number: u64) -> bool {
        let Some(next) = self.next.get_mut(receiver).map(|next| *next >> NUMBER) else { return false };
        if next == number {
            self.next.remove(receiver);
        }
        next > number
    }

    /// Pairs with a receiver.
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.next.len()
    }

    /// Records a message as traffic.
    pub fn record(&mut self, receiver: Address, bytes: u64) {
        let traffic = self.traffic.get_or_insert_default().entry(receiver).or_default();
        traffic.bytes = traffic.bytes.saturating_add(bytes);
        traffic.messages = traffic.messages.saturating_add(1);
    }

    /// The traffic to each receiver that has been sent a message since [`forget_traffic`](Self::forget_traffic), by address.
    #[must_use]
    pub fn traffic(&self) -> Vec<(Address, Traffic)> {
        let all = self.traffic.iter().flat_map(|traffic| traffic.iter());
        let mut all: Vec<_> = all.map(|(to, traffic)| (*to, *traffic)).collect();
        all.sort_unstable_by_key(|(to, _)| *to);
        all
    }

    /// Begins a new interval of traffic.
    pub fn forget_traffic(&mut self) {
        self.traffic = None;
    }
}

/// The numbers that a receiver has delivered, by sender, and messages that arrived before their turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Incoming<M> {
    /// The number of the next message to deliver; 0 has no entry.
    expected: Numbers,
    /// Messages that arrived before their turn, by sender and number.
    #[expect(clippy::box_collection, reason = "8 bytes in each object; few objects have early messages")]
    early: Option<Box<BTreeMap<(Address, u64), M>>>,
    /// Pairs that are to be retired at a number that is still to come.
    #[expect(clippy::box_collection, reason = "8 bytes in each object; few objects have such pairs")]
    retiring: Option<Box<BTreeMap<Address, u64>>>,
}

impl<M> Default for Incoming<M> {
    fn default() -> Self {
        Self { expected: Numbers::default(), early: None, retiring: None }
    }
}

/// The fate of a message that has arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival<M> {
    /// It is the next one: deliver it, then those that [`Incoming::next_early`] gives.
    Deliver(M),
    /// It is kept until the messages before it have arrived.
    Early,
    /// It was delivered or is kept already.
    Duplicate,
}

impl<M> Incoming<M> {
    /// Takes a message that has arrived.
    #[inline]
    pub fn arrive(&mut self, sender: Address, number: u64, message: M) -> Arrival<M> {
        let expected = match self.expected.get_mut(sender) {
            Some(expected) if *expected == number => {
                *expected += 1;
                return Arrival::Deliver(message);
            }
            None if number == 0 => {
                self.expected.insert(sender, 1);
                return Arrival::Deliver(message);
            }
            known => known.map_or(0, |expected| *expected),
        };
        let key = (sender, number);
        if number < expected || self.early.as_ref().is_some_and(|early| early.contains_key(&key)) {
            return Arrival::Duplicate;
        }
        self.early.get_or_insert_default().insert(key, message);
        Arrival::Early
    }

    /// The next message of a sender, if it has arrived early. Call it until it gives none.
    #[inline]
    pub fn next_early(&mut self, sender: Address) -> Option<M> {
        self.early.as_ref()?;
        let expected = self.expected.get_mut(sender)?;
        let message = take_early(&mut self.early, (sender, *expected))?;
        *expected += 1;
        Some(message)
    }

    /// Takes the kept messages that are the next of their senders, in the order of these. An object may migrate
    /// after a message while the next ones are here: on its new PE the first of them arrives again, and the others
    /// follow it.
    pub fn take_due(&mut self) -> Vec<M> {
        let Self { expected, early, .. } = self;
        let mut senders: Vec<Address> =
            early.iter().flat_map(|early| early.keys()).map(|(a, _)| *a).collect();
        senders.dedup();
        let next = senders.into_iter().map(|sender| (sender, expected.get_mut(sender).map_or(0, |n| *n)));
        next.filter_map(|key| take_early(early, key)).collect()
    }

    /// The sender asks to retire the pair at this number. Returns `true` if that has been done now.
    pub fn retire(&mut self, sender: Address, number: u64) -> bool {
        let expected = self.expected.get_mut(sender).map_or(0, |expected| *expected);
        if expected > number || number == 0 {
            return false;
        }
        // questions may overtake each other: the last one counts
        let at = self.retiring.get_or_insert_default().entry(sender).or_default();
        *at = number.max(*at);
        self.take_retired(sender).is_some()
    }

    /// The number at which a pair has been retired, if its time has come. Call it when messages of the sender have been delivered.
    #[inline]
    pub fn take_retired(&mut self, sender: Address) -> Option<u64> {
        let retiring = self.retiring.as_mut()?;
        let number = *retiring.get(&sender)?;
        let expected = self.expected.get_mut(sender).map_or(0, |expected| *expected);
        if expected < number {
            return None;
        }
        retiring.remove(&sender);
        if retiring.is_empty() {
            self.retiring = None;
        }
        let is_early = self.early.as_ref().is_some_and(|early| has_early(early, sender));
        if expected > number || is_early {
            return None;
        }
        self.expected.remove(sender);
        Some(number)
    }

    /// The same for all senders, of an object that has arrived.
    pub fn take_all_retired(&mut self) -> Vec<(Address, u64)> {
        let senders: Vec<Address> =
            self.retiring.iter().flat_map(|retiring| retiring.keys()).copied().collect();
        senders.into_iter().filter_map(|sender| Some((sender, self.take_retired(sender)?))).collect()
    }

    /// The sender goes on at this number, after the pair has been retired there. [`take_due_of`](Self::take_due_of) gives the message
    /// of this number, if it has arrived.
    pub fn resume(&mut self, sender: Address, number: u64) {
        self.expected.insert(sender, number);
    }

    /// Takes the kept message that is the next of a sender: it arrives again.
    pub fn take_due_of(&mut self, sender: Address) -> Option<M> {
        let expected = self.expected.get_mut(sender).map_or(0, |expected| *expected);
        take_early(&mut self.early, (sender, expected))
    }

    /// The number of messages that are kept.
    #[must_use]
    pub fn early(&self) -> usize {
        self.early.as_ref().map_or(0, |early| early.len())
    }

    /// Pairs with a sender.
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.expected.len()
    }

    /// Returns `true` if the table says no more than a new one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs() == 0 && self.early.is_none() && self.retiring.is_none()
    }

    /// The senders of the pairs.
    #[must_use]
    pub fn senders(&self) -> Vec<Address> {
        self.expected.sorted(|_| true).into_iter().map(|(sender, _)| sender).collect()
    }

    /// Forgets all of the PEs from this number on: they have ended, and a new PE with the number of one of them numbers its messages
    /// from 0.
    pub(crate) fn forget_pes_from(&mut self, first: u32) {
        let has_ended = |sender: Address| sender.pe_number().is_some_and(|pe| pe >= u64::from(first));
        self.senders().into_iter().filter(|sender| has_ended(*sender)).for_each(|s| self.expected.remove(s));
        if let Some(early) = &mut self.early {
            early.retain(|(sender, _), _| !has_ended(*sender));
        }
        if let Some(retiring) = &mut self.retiring {
            retiring.retain(|sender, _| !has_ended(*sender));
        }
        self.early.take_if(|early| early.is_empty());
        self.retiring.take_if(|retiring| retiring.is_empty());
    }

    /// The same table with other messages, such as packed ones.
    pub fn map<N>(self, mut f: impl FnMut(M) -> N) -> Incoming<N> {
        let Self { expected, early, retiring } = self;
        let early = early.map(|early| Box::new(early.into_iter().map(|(key, m)| (key, f(m))).collect()));
        Incoming { expected, early, retiring }
    }
}

/// Takes an early message. The last one takes the memory with it.
#[expect(clippy::box_collection, reason = "the field of `Incoming`")]
fn take_early<M>(from: &mut Option<Box<BTreeMap<(Address, u64), M>>>, key: (Address, u64)) -> Option<M> {
    let early = from.as_mut()?;
    let message = early.remove(&key);
    if early.is_empty() {
        *from = None;
    }
    message
}

fn has_early<M>(early: &BTreeMap<(Address, u64), M>, sender: Address) -> bool {
    early.range((sender, 0)..=(sender, u64::MAX)).next().is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::address::ArrayId;
    use crate::index::Index;

    #[test]
    fn a_new_pe_with_the_number_of_one_that_has_ended_begins_at_0_and_other_senders_go_on() {
        let object = Address { array: ArrayId(0), index: Index::from_halves([0, 7]) };
        let mut incoming = Incoming::default();
        for sender in [Address::pe(1), Address::pe(2), Address::pe(3), object] {
            assert_eq!(incoming.arrive(sender, 0, 'a'), Arrival::Deliver('a'));
            assert_eq!(incoming.arrive(sender, 2, 'c'), Arrival::Early);
            assert!(!incoming.retire(sender, 2));
        }
        incoming.forget_pes_from(2);
        assert_eq!(incoming.senders(), [object, Address::pe(1)]);
        assert_eq!(incoming.early(), 2);
        for sender in [Address::pe(2), Address::pe(3)] {
            assert_eq!(incoming.arrive(sender, 0, 'A'), Arrival::Deliver('A'));
            assert_eq!((incoming.next_early(sender), incoming.take_retired(sender)), (None, None));
        }
        for sender in [Address::pe(1), object] {
            assert_eq!(incoming.arrive(sender, 1, 'b'), Arrival::Deliver('b'));
            assert_eq!(incoming.next_early(sender), Some('c'));
        }
        incoming.forget_pes_from(0);
        assert_eq!(incoming.senders(), [object]);
    }

    proptest! {
        // a PE that runs again from its image has to send what it sent before
        #[test]
        fn a_table_from_an_image_asks_for_the_same_pairs_as_the_one_that_goes_on(
            steps in prop::collection::vec((0u64..40, 0u8..5), 0..600),
            saved in 0usize..600,
        ) {
            let address = |index| Address { array: ArrayId(0), index: Index::from_halves([0, index]) };
            let step = |table: &mut Outgoing, to: u64, what: u8| match what {
                0 => format!("{:?}", table.ask_one(address(to))),
                1 => {
                    let asked = table.ask_one(address(to));
                    format!("{:?}", asked.map(|number| table.retired(address(to), number)))
                }
                _ => {
                    let number = table.next(address(to));
                    format!("{number} {:?}", table.is_due().then(|| table.sweep()))
                }
            };
            let (mut first, mut again) = (Outgoing::default(), Outgoing::default());
            for (at, (to, what)) in steps.into_iter().enumerate() {
                if at == saved {
                    let mut image = Vec::new();
                    crate::message::pack(&first, &mut image).expect("numbers can be packed");
                    again = crate::message::unpack(&image).expect("it was packed");
                }
                let sent = step(&mut first, to, what);
                if at >= saved {
                    prop_assert_eq!(sent, step(&mut again, to, what));
                }
            }
        }

        #[test]
        fn messages_in_any_order_and_twice_are_delivered_once_and_in_order(
            senders in 1u32..20,
            count in 1u64..20,
            order in prop::collection::vec(any::<prop::sample::Index>(), 800),
        ) {
            let all: Vec<(u32, u64)> = (0..senders).flat_map(|s| (0..count).map(move |n| (s, n))).collect();
            let mut left: Vec<_> = all.iter().chain(&all).copied().collect();
            let mut incoming = Incoming::default();
            let mut delivered = vec![Vec::new(); senders as usize];
            for at in order {
                if left.is_empty() {
                    break;
                }
                let (sender, number) = left.swap_remove(at.index(left.len()));
                let from = Address::pe(sender);
                if let Arrival::Deliver(message) = incoming.arrive(from, number, number) {
                    delivered[sender as usize].push(message);
                    while let Some(next) = incoming.next_early(from) {
                        delivered[sender as usize].push(next);
                    }
                }
            }
            if left.is_empty() {
                prop_assert_eq!(incoming.early(), 0);
                for numbers in &delivered {
                    prop_assert_eq!(numbers, &(0..count).collect::<Vec<_>>());
                }
            }
            for numbers in &delivered {
                prop_assert!(numbers.windows(2).all(|two| two[0] + 1 == two[1]));
            }
        }

        #[test]
        fn messages_that_are_due_are_taken_once_for_each_sender(count in 2u64..20, senders in 1u32..12) {
            let mut incoming = Incoming::default();
            for sender in 0..senders {
                for number in (0..count).rev() {
                    let arrival = incoming.arrive(Address::pe(sender), number, (sender, number));
                    let expected = if number == 0 { Arrival::Deliver((sender, 0)) } else { Arrival::Early };
                    prop_assert_eq!(arrival, expected);
                }
            }
            let mut due = incoming.take_due();
            due.sort_unstable();
            prop_assert_eq!(due, (0..senders).map(|sender| (sender, 1)).collect::<Vec<_>>());
            prop_assert_eq!(incoming.take_due(), Vec::new(), "the next ones follow those that were taken");
            prop_assert_eq!(incoming.early() as u64, u64::from(senders) * (count - 2));
            for sender in 0..senders {
                let from = Address::pe(sender);
                prop_assert_eq!(incoming.arrive(from, 1, (sender, 1)), Arrival::Deliver((sender, 1)));
                for number in 2..count {
                    prop_assert_eq!(incoming.next_early(from), Some((sender, number)));
                }
            }
        }

        #[test]
        fn numbers_to_each_receiver_begin_at_0_and_have_no_gap(receivers in prop::collection::vec(0u32..30, 0..200)) {
            let mut outgoing = Outgoing::default();
            let mut expected = [0u64; 30];
            for receiver in receivers {
                prop_assert_eq!(outgoing.next(Address::pe(receiver)), expected[receiver as usize]);
                expected[receiver as usize] += 1;
            }
        }
    }
}
