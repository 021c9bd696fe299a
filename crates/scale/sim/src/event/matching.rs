// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages that have come before their receive, and receives that wait for their message, where the
//! schedule does not say which belong together.

use std::collections::{HashMap, VecDeque};

use crate::goal::ANY;
use crate::large::large;

/// Messages, or receives, that wait in a channel: the first and the last. Never both kinds.
#[derive(Clone, Copy, Debug)]
struct Channel {
    /// [`NIL`] if none waits; else with [`RECEIVES`] if receives wait.
    first: u32,
    last: u32,
}

const NIL: u32 = u32::MAX;
const RECEIVES: u32 = 1 << 31;

/// First come, first served in each channel. A message is known by the number of its send among the operations of
/// all ranks, a receive by its own number.
#[derive(Debug)]
pub(super) struct Channels {
    channels: Vec<Channel>,
    /// The one behind each operation, or its message, that waits.
    next: Vec<u32>,
}

impl Channels {
    pub(super) fn new(channels: u32, operations: u64) -> Self {
        let next = if channels > 0 { operations as usize } else { 0 };
        let channel = || Channel { first: NIL, last: NIL };
        Self { channels: large(channels as usize, channel), next: large(next, || NIL) }
    }

    /// Takes the first of the receives, or messages, that wait.
    #[inline]
    pub(super) fn take(&mut self, channel: u32, receive: bool) -> Option<u32> {
        let channel = &mut self.channels[channel as usize];
        if channel.first == NIL || (channel.first & RECEIVES != 0) != receive {
            return None;
        }
        let first = channel.first & !RECEIVES;
        let next = self.next[first as usize];
        channel.first = if next == NIL { NIL } else { next | channel.first & RECEIVES };
        Some(first)
    }

    /// Lets a receive, or a message, wait behind those like it.
    #[inline]
    pub(super) fn wait(&mut self, channel: u32, operation: u32, receive: bool) {
        let channel = &mut self.channels[channel as usize];
        self.next[operation as usize] = NIL;
        if channel.first == NIL {
            channel.first = operation | if receive { RECEIVES } else { 0 };
        } else {
            self.next[channel.last as usize] = operation;
        }
        channel.last = operation;
    }
}

/// A message for a rank with open receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Letter {
    /// Sender.
    pub(super) from: u32,
    pub(super) tag: u32,
    /// Number of its send among the operations of all ranks.
    pub(super) send: u32,
}

/// Messages and receives of a rank that has receives from any rank or with any tag: first come, first
/// served, in a constant number of look-ups each.
#[derive(Debug, Default)]
pub(super) struct Open {
    next: u64,
    /// Receives, by their numbers among the operations of all ranks, by the source and tag they take.
    receives: HashMap<(u32, u32), VecDeque<(u64, u32)>>,
    /// Messages by when they came …
    messages: HashMap<u64, Letter>,
    /// … and that by all that a receive may ask for; those taken are passed over when they are met.
    by: HashMap<(u32, u32), VecDeque<u64>>,
}

const fn takes(source: u32, tag: u32) -> [(u32, u32); 4] {
    [(source, tag), (source, ANY), (ANY, tag), (ANY, ANY)]
}

impl Open {
    /// A message comes: the number of the receive that has waited for it longest, else it waits.
    pub(super) fn arrive(&mut self, letter: Letter) -> Option<u32> {
        let keys = takes(letter.from, letter.tag);
        let first = |k: &(u32, u32)| self.receives.get(k).and_then(|q| q.front()).map(|&(at, _)| (at, *k));
        if let Some((_, key)) = keys.iter().filter_map(first).min() {
            return self.receives.get_mut(&key).and_then(VecDeque::pop_front).map(|(_, operation)| operation);
        }
        self.next += 1;
        self.messages.insert(self.next, letter);
        for key in keys {
            self.by.entry(key).or_default().push_back(self.next);
        }
        None
    }

    /// A receive is reached: the message that has waited for it longest, else it waits.
    pub(super) fn post(&mut self, source: u32, tag: u32, operation: u32) -> Option<Letter> {
        let waiting = self.by.entry((source, tag)).or_default();
        while let Some(at) = waiting.pop_front() {
            if let Some(letter) = self.messages.remove(&at) {
                if self.messages.is_empty() {
                    self.by.clear();
                }
                return Some(letter);
            }
        }
        self.next += 1;
        self.receives.entry((source, tag)).or_default().push_back((self.next, operation));
        None
    }

    /// The messages that wait, in the order they came.
    pub(super) fn messages(&self) -> Vec<Letter> {
        let mut all: Vec<_> = self.messages.iter().collect();
        all.sort_unstable_by_key(|(at, _)| **at);
        all.into_iter().map(|(_, letter)| *letter).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_open_rank_matches_as_a_search_through_two_lists_would(
            steps in prop::collection::vec((any::<bool>(), 0u32..4, 0u32..4), 0..200)
        ) {
            let (mut open, mut messages, mut receives) = (Open::default(), Vec::new(), Vec::new());
            let any = |n: u32| if n == 3 { ANY } else { n };
            let meet = |(s, t): (u32, u32), l: &Letter| (s == ANY || s == l.from) && (t == ANY || t == l.tag);
            for (number, (arrives, a, b)) in steps.into_iter().enumerate() {
                let number = number as u32;
                if arrives {
                    let l = Letter { from: a % 3, tag: b % 3, send: number };
                    let found = receives.iter().position(|&(k, _)| meet(k, &l));
                    let expected = found.map(|i| receives.remove(i).1);
                    if expected.is_none() {
                        messages.push(l);
                    }
                    prop_assert_eq!(open.arrive(l), expected);
                } else {
                    let key = (any(a), any(b));
                    let found = messages.iter().position(|l| meet(key, l));
                    let expected = found.map(|i| messages.remove(i));
                    if expected.is_none() {
                        receives.push((key, number));
                    }
                    prop_assert_eq!(open.post(key.0, key.1, number), expected);
                }
            }
            prop_assert_eq!(open.messages(), messages);
        }
    }
}
