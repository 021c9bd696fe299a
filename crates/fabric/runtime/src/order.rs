// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of messages between two objects.
//!
//! The sender numbers its messages to each receiver from 0; the receiver delivers each number once and in order. Both
//! tables are part of the objects' state and migrate with them, so the order holds whichever way a message takes.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::address::Address;

/// Entries that are searched one by one; with more, the table becomes a map.
const FEW: usize = 8;

/// A table by address: a list while it is short, then a map. Most objects have a handful of neighbours.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Table<T> {
    few: Vec<(Address, T)>,
    many: Option<Box<FxHashMap<Address, T>>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { few: Vec::new(), many: None }
    }
}

impl<T> Table<T> {
    #[inline]
    fn entry(&mut self, address: Address, new: impl FnOnce() -> T) -> &mut T {
        if let Some(at) = self.few.iter().position(|(a, _)| *a == address) {
            return &mut self.few[at].1;
        }
        if self.many.is_none() && self.few.len() < FEW {
            self.few.push((address, new()));
            let last = self.few.len() - 1;
            return &mut self.few[last].1;
        }
        let Self { few, many } = self;
        many.get_or_insert_with(|| Box::new(few.drain(..).collect())).entry(address).or_insert_with(new)
    }

    fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, t)| t)
    }

    fn iter(&self) -> impl Iterator<Item = (&Address, &T)> {
        let few = self.few.iter().map(|(address, t)| (address, t));
        few.chain(self.many.iter().flat_map(|m| m.iter()))
    }

    fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let many = self.many.iter_mut().flat_map(|m| m.values_mut());
        self.few.iter_mut().map(|(_, t)| t).chain(many)
    }

    fn sorted(&self) -> Vec<(&Address, &T)> {
        let mut all: Vec<_> = self.iter().collect();
        all.sort_unstable_by_key(|(address, _)| **address);
        all
    }
}

/// Tables are equal if they hold the same, in whatever order it was entered.
impl<T: PartialEq> PartialEq for Table<T> {
    fn eq(&self, other: &Self) -> bool {
        self.sorted() == other.sorted()
    }
}

impl<T: Eq> Eq for Table<T> {}

impl<T: Hash> Hash for Table<T> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.sorted().hash(hasher);
    }
}

/// Messages to one receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Sent {
    /// The number of the next message.
    next: u64,
    traffic: Traffic,
}

/// Messages from one object to another since the last load balancing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Traffic {
    /// Bytes of the packed messages.
    pub bytes: u64,
    /// The number of messages.
    pub messages: u32,
}

/// The numbers that a sender gives to its messages, by receiver, and its traffic where that is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Outgoing(Table<Sent>);

impl Outgoing {
    /// The number of the next message to a receiver.
    #[inline]
    pub fn next(&mut self, receiver: Address) -> u64 {
        let sent = self.0.entry(receiver, Sent::default);
        sent.next += 1;
        sent.next - 1
    }

    /// Records a message as traffic.
    pub fn record(&mut self, receiver: Address, bytes: u64) {
        let traffic = &mut self.0.entry(receiver, Sent::default).traffic;
        traffic.bytes = traffic.bytes.saturating_add(bytes);
        traffic.messages = traffic.messages.saturating_add(1);
    }

    /// The traffic to each receiver that has been sent a message since [`forget_traffic`](Self::forget_traffic).
    pub fn traffic(&self) -> impl Iterator<Item = (Address, Traffic)> {
        self.0.iter().filter(|(_, sent)| sent.traffic.messages > 0).map(|(to, sent)| (*to, sent.traffic))
    }

    /// Begins a new interval of traffic.
    pub fn forget_traffic(&mut self) {
        self.0.values_mut().for_each(|sent| sent.traffic = Traffic::default());
    }
}

/// Messages from one sender that a receiver has not yet delivered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct FromSender<M> {
    /// The number of the next message to deliver.
    expected: u64,
    /// Messages that arrived before their turn.
    early: BTreeMap<u64, M>,
}

/// The numbers that a receiver has delivered, by sender, and messages that arrived before their turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Incoming<M>(Table<FromSender<M>>);

impl<M> Default for Incoming<M> {
    fn default() -> Self {
        Self(Table::default())
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
        let from = self.0.entry(sender, || FromSender { expected: 0, early: BTreeMap::new() });
        if number == from.expected {
            from.expected += 1;
            return Arrival::Deliver(message);
        }
        if number < from.expected || from.early.contains_key(&number) {
            return Arrival::Duplicate;
        }
        from.early.insert(number, message);
        Arrival::Early
    }

    /// The next message of a sender, if it has arrived early. Call it until it gives none.
    #[inline]
    pub fn next_early(&mut self, sender: Address) -> Option<M> {
        let from = self.0.entry(sender, || FromSender { expected: 0, early: BTreeMap::new() });
        if from.early.is_empty() {
            return None;
        }
        let message = from.early.remove(&from.expected)?;
        from.expected += 1;
        Some(message)
    }

    /// Takes the kept messages that are the next of their senders, in no order of the senders. An object may migrate
    /// after a message while the next ones are here: on its new PE the first of them arrives again, and the others
    /// follow it.
    pub fn take_due(&mut self) -> Vec<M> {
        let Table { few, many } = &mut self.0;
        let few = few.iter_mut().map(|(_, from)| from);
        let all = few.chain(many.iter_mut().flat_map(|m| m.values_mut()));
        all.filter(|from| !from.early.is_empty())
            .filter_map(|from| from.early.remove(&from.expected))
            .collect()
    }

    /// The number of messages that are kept.
    #[must_use]
    pub fn early(&self) -> usize {
        self.0.values().map(|from| from.early.len()).sum()
    }

    /// The same table with other messages, such as packed ones.
    pub fn map<N>(self, mut f: impl FnMut(M) -> N) -> Incoming<N> {
        let mut one = |from: FromSender<M>| FromSender {
            expected: from.expected,
            early: from.early.into_iter().map(|(number, message)| (number, f(message))).collect(),
        };
        let few = self.0.few.into_iter().map(|(a, from)| (a, one(from))).collect();
        let many = self.0.many.map(|m| Box::new(m.into_iter().map(|(a, from)| (a, one(from))).collect()));
        Incoming(Table { few, many })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
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
