// SPDX-License-Identifier: MIT OR Apache-2.0
//! Broadcasts to the elements of an array, as a state machine that sends nothing itself.
//!
//! An array's root numbers its broadcasts. Every PE keeps each broadcast until no element can arrive that has not been
//! given it, and every element knows the number of the next one. So each element gets each broadcast once, in order,
//! although it migrates meanwhile: a PE gives an element that arrives the broadcasts that it missed, and does not give
//! it those that it was given elsewhere. Broadcasts that an element was given and has not run migrate with it.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A broadcast.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Broadcast {
    pub(crate) entry: u16,
    /// The broadcast in the time line.
    pub(crate) id: u64,
    pub(crate) message: Arc<[u8]>,
}

/// Broadcasts that a PE acknowledges at once.
const BATCH: u64 = 16;

/// The broadcasts of one array, on one PE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Broadcasts {
    /// The number of the first one in the log.
    first: u64,
    log: VecDeque<Broadcast>,
    /// Broadcasts below this number are acknowledged.
    acknowledged: u64,
    /// At the root: the number of the next one.
    pub(crate) next: u64,
    /// At the root: what each PE has acknowledged.
    done: Vec<u64>,
}

impl Broadcasts {
    /// Of an array whose elements have run the first `count` broadcasts, on a job of `pes` PEs.
    pub(crate) fn after(count: u64, pes: u32) -> Self {
        let done = vec![count; pes as usize];
        Self { first: count, log: VecDeque::new(), acknowledged: count, next: count, done }
    }

    /// The number of the next broadcast that arrives here.
    pub(crate) fn count(&self) -> u64 {
        self.first + self.log.len() as u64
    }

    /// A broadcast arrives. They arrive in order, since each comes the same way down the tree.
    pub(crate) fn arrive(&mut self, broadcast: Broadcast) {
        self.log.push_back(broadcast);
    }

    /// A broadcast in the log.
    pub(crate) fn get(&self, number: u64) -> Option<&Broadcast> {
        self.log.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// The number below which this PE acknowledges broadcasts: it has received them, and no element that left it needs
    /// them. `leaving` is the lowest number of a broadcast that an element under way has not been given. `None` if the
    /// acknowledgement is not worth a message.
    pub(crate) fn acknowledge(&mut self, leaving: Option<u64>) -> Option<u64> {
        self.acknowledge_some(leaving, BATCH)
    }

    /// The same, for at least `batch` broadcasts.
    pub(crate) fn acknowledge_some(&mut self, leaving: Option<u64>, batch: u64) -> Option<u64> {
        let below = leaving.map_or(self.count(), |leaving| leaving.min(self.count()));
        if below < self.acknowledged + batch {
            return None;
        }
        self.acknowledged = below;
        Some(below)
    }

    /// At the root: a PE's acknowledgement. Returns what all have acknowledged, if that is more than before.
    pub(crate) fn done(&mut self, pe: u32, pes: u32, below: u64) -> Option<u64> {
        self.done.resize(pes as usize, 0);
        let before = self.done.iter().min().copied();
        if let Some(place) = self.done.get_mut(pe as usize) {
            *place = (*place).max(below);
        }
        let now = self.done.iter().min().copied();
        now.filter(|now| before.is_none_or(|before| *now > before))
    }

    /// Forgets broadcasts that no element needs any more.
    pub(crate) fn trim(&mut self, below: u64) {
        while self.first < below && self.log.pop_front().is_some() {
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_trimmed_once_every_pe_has_acknowledged() {
        let mut root = Broadcasts::default();
        for _ in 0..BATCH {
            assert_eq!(root.acknowledge(None), None);
            root.arrive(Broadcast { entry: 0, id: 0, message: Arc::new([]) });
        }
        assert_eq!(root.acknowledge(Some(BATCH - 1)), None, "an element under way needs the last of them");
        assert_eq!(root.acknowledge(Some(BATCH + 1)), Some(BATCH), "one under way was given them elsewhere");
        assert_eq!(root.done(0, 2, BATCH), None);
        assert_eq!(root.done(1, 2, BATCH), Some(BATCH));
        root.trim(BATCH - 1);
        assert!(root.get(BATCH - 2).is_none() && root.get(BATCH - 1).is_some());
        assert_eq!(root.count(), BATCH);
    }
}
