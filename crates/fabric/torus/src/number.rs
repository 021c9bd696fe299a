// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers that the tree combines.

/// The operation of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// The sum; integers wrap around.
    Sum,
    /// The larger one.
    Max,
    /// The smaller one.
    Min,
}

impl Op {
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Sum => 0,
            Self::Max => 1,
            Self::Min => 2,
        }
    }
}

/// A number of 64 bits.
pub trait Number: Copy + private::Sealed {
    /// Tells the types apart: ranks must agree on it.
    #[doc(hidden)]
    const CODE: u8;

    /// As a word of the window.
    fn to_word(self) -> u64;

    /// From a word of the window.
    fn from_word(word: u64) -> Self;

    /// `self op other`.
    #[must_use]
    fn combined(self, op: Op, other: Self) -> Self;
}

mod private {
    pub trait Sealed {}
    impl Sealed for f64 {}
    impl Sealed for i64 {}
    impl Sealed for u64 {}
}

impl Number for f64 {
    const CODE: u8 = 0;

    fn to_word(self) -> u64 {
        self.to_bits()
    }

    fn from_word(word: u64) -> Self {
        Self::from_bits(word)
    }

    fn combined(self, op: Op, other: Self) -> Self {
        match op {
            Op::Sum => self + other,
            Op::Max => self.max(other),
            Op::Min => self.min(other),
        }
    }
}

impl Number for i64 {
    const CODE: u8 = 1;

    fn to_word(self) -> u64 {
        self as u64
    }

    fn from_word(word: u64) -> Self {
        word as Self
    }

    fn combined(self, op: Op, other: Self) -> Self {
        match op {
            Op::Sum => self.wrapping_add(other),
            Op::Max => self.max(other),
            Op::Min => self.min(other),
        }
    }
}

impl Number for u64 {
    const CODE: u8 = 2;

    fn to_word(self) -> u64 {
        self
    }

    fn from_word(word: u64) -> Self {
        word
    }

    fn combined(self, op: Op, other: Self) -> Self {
        match op {
            Op::Sum => self.wrapping_add(other),
            Op::Max => self.max(other),
            Op::Min => self.min(other),
        }
    }
}
