// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the run of a PE depends on beside its image and the content of the parcels for it.

use serde::{Deserialize, Serialize};

/// One event of a PE, in the order of its run. A *pass* is one turn of the scheduler in which something happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Determinant {
    /// So many parcels of another PE were taken.
    Parcels { pass: u64, from: u32, count: u64 },
    /// PE 0 obeyed a signal that another PE had passed on during a checkpoint.
    Deferred { pass: u64, pe: u32, away: bool },
    /// A timer was due, by its number.
    Timer { pass: u64, number: u64 },
    /// A signal had arrived: the PE was to be evacuated, or readmitted.
    Signal { pass: u64, away: bool },
    /// PE 0 was idle and looked for quiescence.
    Probe { pass: u64 },
    /// A decision that depended on time, packed.
    Value { pass: u64, bytes: Vec<u8> },
    /// The PE has dropped its log, so nobody knows what comes after.
    Dropped,
}

impl Determinant {
    /// The pass in which the event was, if that is known.
    pub(crate) fn pass(&self) -> Option<u64> {
        match *self {
            Self::Parcels { pass, .. }
            | Self::Deferred { pass, .. }
            | Self::Timer { pass, .. }
            | Self::Signal { pass, .. }
            | Self::Probe { pass }
            | Self::Value { pass, .. } => Some(pass),
            Self::Dropped => None,
        }
    }
}

/// The determinants of a PE since its last checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Determinants {
    list: Vec<Determinant>,
    /// Those before this one have been given to another PE, and do not change any more.
    given: usize,
}

impl Determinants {
    /// Those that others have kept for this PE.
    pub(crate) fn of(list: Vec<Determinant>) -> Self {
        Self { given: list.len(), list }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn get(&self, at: usize) -> Option<&Determinant> {
        self.list.get(at)
    }

    pub(crate) fn push(&mut self, determinant: Determinant) {
        self.list.push(determinant);
    }

    /// A parcel of another PE is taken.
    pub(crate) fn push_parcel(&mut self, pass: u64, from: u32) {
        if self.list.len() > self.given
            && let Some(Determinant::Parcels { pass: p, from: f, count }) = self.list.last_mut()
            && (*p, *f) == (pass, from)
        {
            *count += 1;
            return;
        }
        self.list.push(Determinant::Parcels { pass, from, count: 1 });
    }

    /// Those from number `first` on, which are given to another PE.
    pub(crate) fn give(&mut self, first: usize) -> &[Determinant] {
        self.given = self.list.len();
        self.list.get(first..).unwrap_or_default()
    }

    /// All of them, for a PE that is to hold them.
    pub(crate) fn all(&self) -> &[Determinant] {
        &self.list
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.given = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parcels_of_one_pe_in_one_pass_are_one_determinant_until_it_is_given() {
        let mut all = Determinants::default();
        let parcels = |pass, from, count| Determinant::Parcels { pass, from, count };
        for (pass, from) in [(0, 1), (0, 1), (0, 2), (1, 2)] {
            all.push_parcel(pass, from);
        }
        assert_eq!(all.give(0), [parcels(0, 1, 2), parcels(0, 2, 1), parcels(1, 2, 1)]);
        all.push_parcel(1, 2);
        assert_eq!(all.give(2), [parcels(1, 2, 1), parcels(1, 2, 1)], "what others have does not change");
        assert_eq!(all.give(4), []);
        assert_eq!(all.give(9), []);
    }
}
