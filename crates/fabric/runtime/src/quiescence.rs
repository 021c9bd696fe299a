// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quiescence: no message is under way, and no PE has anything to do.
//!
//! Every PE counts the parcels that it sent and received. PE 0 asks all PEs in waves. If in two waves in turn all PEs
//! were idle, and the sums of both counts were equal and the same in both waves, no parcel was under way between them
//! (Mattern 1987, four counters).

use serde::{Deserialize, Serialize};

use crate::reduction::Callback;

/// One wave of counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Wave {
    pub(crate) answers: u32,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) idle: bool,
    /// Timers are set somewhere: messages will come.
    pub(crate) open: bool,
    /// Messages for elements that do not exist.
    pub(crate) kept: u64,
    /// Futures that wait.
    pub(crate) tasks: u64,
    /// Those of them that no object can make again from a checkpoint.
    pub(crate) unsaved: u64,
    /// Objects that wait for load balancing.
    pub(crate) synced: u64,
    /// Insertions that wait for a removal.
    pub(crate) insertions: u64,
}

/// The result of a wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Answers are missing.
    Waiting,
    /// Something is under way, or will be.
    Active,
    /// Quiescence.
    Quiet,
}

/// The search for quiescence: counts on every PE, waves on PE 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Quiescence {
    pes: u32,
    /// Parcels that this PE sent to others.
    pub(crate) sent: u64,
    /// Parcels that it received from others.
    pub(crate) received: u64,
    /// The wave under way, and the last complete one.
    pub(crate) number: u64,
    wave: Wave,
    last: Option<Wave>,
    pub(crate) is_asking: bool,
    /// Callbacks at quiescence.
    pub(crate) callbacks: Vec<Callback>,
}

impl Quiescence {
    pub(crate) fn new(pes: u32) -> Self {
        Self {
            pes,
            sent: 0,
            received: 0,
            number: 0,
            wave: Wave::default(),
            last: None,
            is_asking: false,
            callbacks: Vec::new(),
        }
    }

    /// Begins anew, when all other PEs do. Callbacks stay.
    pub(crate) fn restart(&mut self) {
        let callbacks = std::mem::take(&mut self.callbacks);
        *self = Self { callbacks, ..Self::new(self.pes) };
    }

    /// Begins a wave; returns its number.
    pub(crate) fn begin(&mut self) -> u64 {
        self.number += 1;
        self.wave = Wave { idle: true, ..Wave::default() };
        self.is_asking = true;
        self.number
    }

    /// The counts of the wave under way, or of the last one.
    pub(crate) fn last_wave(&self) -> Wave {
        self.wave
    }

    /// Takes a PE's answer to a wave.
    pub(crate) fn answer(&mut self, number: u64, one: Wave) -> Verdict {
        if number != self.number || !self.is_asking {
            return Verdict::Waiting;
        }
        self.wave.answers += 1;
        self.wave.sent += one.sent;
        self.wave.received += one.received;
        self.wave.idle &= one.idle;
        self.wave.open |= one.open;
        self.wave.kept += one.kept;
        self.wave.tasks += one.tasks;
        self.wave.unsaved += one.unsaved;
        self.wave.synced += one.synced;
        self.wave.insertions += one.insertions;
        if self.wave.answers < self.pes {
            return Verdict::Waiting;
        }
        self.is_asking = false;
        let wave = self.wave;
        let is_same = self.last == Some(wave);
        self.last = Some(wave);
        if is_same && wave.idle && !wave.open && wave.sent == wave.received {
            self.last = None;
            return Verdict::Quiet;
        }
        Verdict::Active
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(sent: u64, received: u64, idle: bool) -> Wave {
        Wave { answers: 1, sent, received, idle, ..Wave::default() }
    }

    #[test]
    fn two_equal_idle_waves_without_parcels_under_way_are_quiescence() {
        let mut search = Quiescence::new(2);
        for expected in [Verdict::Active, Verdict::Quiet] {
            let wave = search.begin();
            assert_eq!(search.answer(wave, one(3, 1, true)), Verdict::Waiting);
            assert_eq!(search.answer(wave, one(0, 2, true)), expected);
        }
    }

    #[test]
    fn a_parcel_under_way_a_busy_pe_or_a_change_between_the_waves_is_not() {
        for (first, second) in [
            ((one(3, 1, true), one(0, 1, true)), (one(3, 1, true), one(0, 1, true))),
            ((one(3, 1, false), one(0, 2, true)), (one(3, 1, false), one(0, 2, true))),
            ((one(3, 1, true), one(0, 2, true)), (one(4, 1, true), one(0, 3, true))),
        ] {
            let mut search = Quiescence::new(2);
            for (a, b) in [first, second] {
                let wave = search.begin();
                search.answer(wave, a);
                assert_eq!(search.answer(wave, b), Verdict::Active);
            }
        }
        let mut search = Quiescence::new(1);
        for _ in 0..3 {
            let wave = search.begin();
            assert_eq!(
                search.answer(wave, Wave { open: true, ..one(1, 1, true) }),
                Verdict::Active,
                "a timer is set"
            );
        }
    }
}
