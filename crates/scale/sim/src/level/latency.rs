// SPDX-License-Identifier: MIT OR Apache-2.0
//! Latency of the first byte to each rank, pattern by pattern.

use std::collections::HashMap;

use super::pattern::Pattern;
use crate::network::{MachineNetwork, Network};

/// The latencies of the patterns of a job. Counting hops costs more than all else a message needs, so
/// where they differ they are kept, while there is room.
pub(crate) struct Latencies<'a> {
    network: &'a MachineNetwork,
    ranks: u32,
    kept: HashMap<Pattern, Vec<u32>>,
    room: usize,
}

/// The latencies of one pattern.
#[derive(Clone, Copy)]
pub(crate) enum Latency<'a> {
    /// Always the same.
    Uniform(u64),
    /// By the rank that receives; 0 for those that do not.
    Kept(&'a [u32]),
    /// To be asked for.
    Asked(&'a MachineNetwork, Pattern),
}

/// Latencies that are kept: 64 MiB of them.
const MOST_KEPT: usize = 1 << 24;

impl<'a> Latencies<'a> {
    pub(crate) fn new(network: &'a MachineNetwork, ranks: u32) -> Self {
        Self { network, ranks, kept: HashMap::new(), room: MOST_KEPT }
    }

    /// Counts the hops of `pattern`, while there is room to keep them.
    pub(crate) fn keep(&mut self, pattern: Pattern) {
        if self.network.uniform_ns().is_some()
            || self.kept.contains_key(&pattern)
            || self.room < self.ranks as usize
        {
            return;
        }
        let asked = Latency::Asked(self.network, pattern);
        let all: Option<Vec<u32>> = (0..self.ranks).map(|rank| asked.to(rank).try_into().ok()).collect();
        self.room = all.as_ref().map_or(0, |all| self.room - all.len());
        self.kept.extend(all.map(|all| (pattern, all)));
    }

    /// The latencies of messages of `pattern`.
    pub(crate) fn of(&self, pattern: Pattern) -> Latency<'_> {
        match (self.network.uniform_ns(), self.kept.get(&pattern)) {
            (Some(ns), _) => Latency::Uniform(ns),
            (None, Some(all)) => Latency::Kept(all),
            (None, None) => Latency::Asked(self.network, pattern),
        }
    }
}

impl Latency<'_> {
    /// Latency of the message that `rank` receives.
    #[inline]
    pub(crate) fn to(self, rank: u32) -> u64 {
        match self {
            Self::Uniform(ns) => ns,
            Self::Kept(all) => u64::from(all[rank as usize]),
            Self::Asked(network, pattern) => {
                pattern.from(rank).map_or(0, |from| network.latency_ns(from, rank))
            }
        }
    }
}
