// SPDX-License-Identifier: MIT OR Apache-2.0
//! Items of a heap that gives the one with the smallest key first.

use std::cmp::Ordering;

/// An item with its key. Keys are unique, so that the order is defined.
pub(crate) struct Queued<K, T> {
    pub(crate) key: K,
    pub(crate) item: T,
}

impl<K: Ord, T> PartialEq for Queued<K, T> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl<K: Ord, T> Eq for Queued<K, T> {}
impl<K: Ord, T> PartialOrd for Queued<K, T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<K: Ord, T> Ord for Queued<K, T> {
    // a heap gives its largest first
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(&self.key)
    }
}
