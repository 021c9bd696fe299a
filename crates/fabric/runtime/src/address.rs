// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of objects: an array and an index in it.

use serde::{Deserialize, Serialize};

use crate::index::Index;

/// An array of objects, unique in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ArrayId(pub u32);

impl ArrayId {
    /// Not an array: the PEs themselves, as senders.
    pub(crate) const PES: Self = Self(u32::MAX);
}

/// An element of an array, wherever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Address {
    /// The array.
    pub array: ArrayId,
    /// The element's index in it.
    pub index: Index,
}

impl Address {
    /// The PE itself, as the sender of messages that no object sends.
    pub(crate) const fn pe(pe: u32) -> Self {
        Self { array: ArrayId::PES, index: Index::from_halves([0, pe as u64]) }
    }

    /// The number of the PE, if this is one.
    pub(crate) fn pe_number(self) -> Option<u64> {
        let [_, pe] = self.index.halves();
        (self.array == ArrayId::PES).then_some(pe)
    }
}

/// Mixes numbers into an id of 64 bits.
pub(crate) fn mixed(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, |id, part| {
        let mixed = (id ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb)
    })
}
