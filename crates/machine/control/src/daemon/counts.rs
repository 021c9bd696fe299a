// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of connections by their other end, so that no host and no user takes all of them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use super::control::lock;

/// Connections by host, or by user.
#[derive(Debug)]
pub(super) struct Counts<K: Eq + Hash>(Mutex<HashMap<K, usize>>);

/// A connection that counts as long as this lives.
#[derive(Debug)]
pub(super) struct Counted<K: Eq + Hash> {
    counts: Arc<Counts<K>>,
    key: K,
}

impl<K: Eq + Hash> Default for Counts<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Copy + Eq + Hash> Counts<K> {
    /// Counts a connection, unless its other end has `most` already.
    pub(super) fn count(self: &Arc<Self>, key: K, most: usize) -> Option<Counted<K>> {
        let mut all = lock(&self.0);
        let count = all.entry(key).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        drop(all);
        Some(Counted { counts: self.clone(), key })
    }

    /// Returns `true` if there are no connections.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }
}

impl<K: Eq + Hash> Drop for Counted<K> {
    fn drop(&mut self) {
        let mut all = lock(&self.counts.0);
        if let Some(count) = all.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.key);
            }
        }
    }
}
