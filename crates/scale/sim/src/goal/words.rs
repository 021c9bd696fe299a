// SPDX-License-Identifier: MIT OR Apache-2.0
//! The words of a line of text, and the labels of a rank.

use std::collections::HashMap;

/// A statement's words: names and numbers, `:`, `{`, `}`, and a comment's ends are words of their own.
pub(super) struct Words<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Words<'a> {
    pub(super) fn peek(&mut self) -> Option<&'a [u8]> {
        self.rest = self.rest.trim_ascii_start();
        let first = *self.rest.first()?;
        let length = match first {
            b'0'..=b'9' => self.rest.iter().take_while(|c| c.is_ascii_digit()).count(),
            b'-' => 1 + self.rest[1..].iter().take_while(|c| c.is_ascii_digit()).count(),
            c if is_name(c) => self.rest.iter().take_while(|&&c| is_name(c)).count(),
            b'/' if self.rest.len() > 1 => 2,
            _ => 1,
        };
        Some(&self.rest[..length])
    }

    pub(super) fn next(&mut self) -> Option<&'a [u8]> {
        let word = self.peek()?;
        self.rest = &self.rest[word.len()..];
        Some(word)
    }

    /// Takes `word` if it is next.
    pub(super) fn eat(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word.as_bytes());
        if found {
            self.rest = &self.rest[word.len()..];
        }
        found
    }
}

const fn is_name(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'_'
}

/// Text from a line on in the form that generators write.
pub(super) struct Plain<'a>(pub(super) &'a [u8]);

impl Plain<'_> {
    pub(super) fn eat(&mut self, text: &[u8]) -> bool {
        match self.0.strip_prefix(text) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    /// A number of at most nine digits.
    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        let mut digits = 0;
        while let Some(c @ b'0'..=b'9') = self.0.get(digits) {
            number = 10 * number + u64::from(c - b'0');
            digits += 1;
            if digits > 9 {
                return None;
            }
        }
        self.0 = &self.0[digits..];
        (digits > 0).then_some(number)
    }

    /// A label `l` and a number without zeros in front.
    pub(super) fn label(&mut self) -> Option<usize> {
        let first = self.0.strip_prefix(b"l")?;
        self.0 = first;
        let number = self.number()? as usize;
        let zeros = first[0] == b'0';
        (!zeros && number < 100_000_000).then_some(number)
    }

    /// The end of the line.
    pub(super) fn end(&mut self) -> Option<()> {
        self.eat(b"\n").then_some(())
    }
}

/// The labels of a rank.
#[derive(Default)]
pub(super) struct Labels {
    /// Operations with labels `l1`, `l2` … as generators write them, by that number; [`NONE`](Self::NONE) if there is
    /// none.
    numbered: Vec<u32>,
    pub(super) others: HashMap<Vec<u8>, u32>,
}

impl Labels {
    const NONE: u32 = u32::MAX;

    /// The number of a label `l` and digits.
    pub(super) fn number(label: &[u8]) -> Option<usize> {
        match label {
            [b'l', b'0', ..] => None,
            [b'l', digits @ ..]
                if (1..=8).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit) =>
            {
                Some(digits.iter().fold(0, |n, d| 10 * n + usize::from(d - b'0')))
            }
            _ => None,
        }
    }

    pub(super) fn get(&self, label: &[u8]) -> Option<u32> {
        let numbered = Self::number(label).and_then(|n| self.numbered(n));
        numbered.or_else(|| self.others.get(label).copied())
    }

    /// The operation with label `l` and that number, if it is among those kept by number.
    pub(super) fn numbered(&self, number: usize) -> Option<u32> {
        self.numbered.get(number).copied().filter(|&operation| operation != Self::NONE)
    }

    /// The largest number of a label that is kept by number: it costs no more memory than the operations before.
    pub(super) const fn most(operation: u32) -> usize {
        2 * operation as usize + 64
    }

    pub(super) fn insert_numbered(&mut self, number: usize, operation: u32) {
        if number >= self.numbered.len() {
            self.numbered.resize(number + 1, Self::NONE);
        }
        self.numbered[number] = operation;
    }

    /// Gives `operation` the label, unless an earlier operation of the rank has it: LogGOPSim's `txt2bin` inserts labels
    /// into a `std::map`, which keeps the first.
    pub(super) fn insert(&mut self, label: &[u8], operation: u32) {
        if self.get(label).is_some() {
            return;
        }
        match Self::number(label).filter(|&n| n <= Self::most(operation)) {
            Some(number) => self.insert_numbered(number, operation),
            None => {
                self.others.insert(label.to_vec(), operation);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.numbered.clear();
        self.others.clear();
    }
}
