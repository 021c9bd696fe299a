//! Messages that have come before their receive, and receives that wait for their message, where the
//! schedule does not say which belong together.

use std::collections::{HashMap, VecDeque};

use crate::goal::{ANY, Packed};

/// A message under way or waiting, or a receive that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Letter {
    /// Sender.
    pub(super) from: u32,
    /// Operation of the sender.
    pub(super) operation: u32,
    /// Shape of the send.
    pub(super) shape: u32,
    pub(super) tag: u32,
    /// Its channel, where it has one.
    pub(super) channel: u32,
    /// When its receipt began, where that has been (asynchronous progress).
    pub(super) begun_ns: u64,
    /// When its receipt ended, where that has been.
    pub(super) done_ns: u64,
}

impl Letter {
    /// The message of send number `operation` of rank `from`.
    pub(super) const fn message(from: u32, operation: u32, send: &Packed, channel: u32) -> Self {
        let (shape, tag) = (send.shape() as u32, send.tag);
        Self { from, operation, shape, tag, channel, begun_ns: 0, done_ns: 0 }
    }

    /// Receive number `operation` of a rank.
    pub(super) const fn receive(rank: u32, operation: u32, channel: u32) -> Self {
        Self { from: rank, operation, shape: 0, tag: 0, channel, begun_ns: 0, done_ns: 0 }
    }
}

const NIL: u32 = u32::MAX;

/// Letters in one place, in lists.
#[derive(Debug, Default)]
pub(super) struct Letters {
    letters: Vec<(Letter, u32)>,
    free: Vec<u32>,
}

impl Letters {
    pub(super) fn add(&mut self, letter: Letter) -> u32 {
        match self.free.pop() {
            Some(i) => {
                self.letters[i as usize] = (letter, NIL);
                i
            }
            None => {
                self.letters.push((letter, NIL));
                self.letters.len() as u32 - 1
            }
        }
    }

    pub(super) fn take(&mut self, i: u32) -> Letter {
        self.free.push(i);
        self.letters[i as usize].0
    }

    pub(super) fn get(&self, i: u32) -> &Letter {
        &self.letters[i as usize].0
    }
}

/// What waits in a channel: messages, or receives (by their number, as a letter's operation). Never both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channel {
    head: u32,
    tail: u32,
    receives: bool,
}

impl Channel {
    pub(super) const EMPTY: Self = Self { head: NIL, tail: NIL, receives: false };

    /// The first of the messages, or receives, that wait.
    pub(super) fn take(&mut self, letters: &mut Letters, receive: bool) -> Option<Letter> {
        if self.head == NIL || self.receives != receive {
            return None;
        }
        let first = self.head;
        self.head = letters.letters[first as usize].1;
        Some(letters.take(first))
    }

    /// Lets a message, or a receive, wait behind those like it.
    pub(super) fn wait(&mut self, letters: &mut Letters, letter: Letter, receive: bool) {
        let i = letters.add(letter);
        if self.head == NIL {
            (self.head, self.receives) = (i, receive);
        } else {
            letters.letters[self.tail as usize].1 = i;
        }
        self.tail = i;
    }
}

/// Messages and receives of a rank that has receives from any rank or with any tag: first come, first
/// served, in a constant number of look-ups each.
#[derive(Debug, Default)]
pub(super) struct Open {
    next: u64,
    /// Receives by the source and tag they take.
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

    fn letter(from: u32, tag: u32, operation: u32) -> Letter {
        Letter { tag, ..Letter::receive(from, operation, 0) }
    }

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
                    let l = letter(a % 3, b % 3, number);
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
