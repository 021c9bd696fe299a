// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomic words, of memory or of a model.

use std::sync::atomic::{AtomicU64, Ordering};

/// A word that several ranks read and write.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn compare_exchange(&self, old: u64, new: u64, done: Ordering, failed: Ordering) -> Result<u64, u64>;
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        Self::store(self, value, order);
    }

    fn compare_exchange(&self, old: u64, new: u64, done: Ordering, failed: Ordering) -> Result<u64, u64> {
        Self::compare_exchange(self, old, new, done, failed)
    }
}

#[cfg(test)]
impl Word for loom::sync::atomic::AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order)
    }

    fn store(&self, value: u64, order: Ordering) {
        Self::store(self, value, order);
    }

    fn compare_exchange(&self, old: u64, new: u64, done: Ordering, failed: Ordering) -> Result<u64, u64> {
        Self::compare_exchange(self, old, new, done, failed)
    }
}

/// A value in shared memory that the protocol does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Insane;
