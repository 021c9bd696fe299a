// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a PE runs again, from the histories that the survivors have.

use serde::{Deserialize, Serialize};

use super::determinants::Determinant;
use crate::message::Malformed;
use crate::parcel::split;

/// What one PE has from another, so that the other knows what to send again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Received {
    /// Parcels of the epoch.
    pub(crate) parcels: u64,
    /// The checksum of the messages among them.
    pub(crate) checksum: u32,
    /// Determinants of the other PE.
    pub(crate) determinants: u64,
}

/// All that the survivors know of a PE that runs again, by their ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct History {
    /// Its determinants.
    pub(crate) determinants: Vec<Determinant>,
    /// All parcels for it, encoded.
    pub(crate) parcels: Vec<u8>,
    /// What the survivor has from it.
    pub(crate) received: Received,
    /// Determinants of the survivor, which the PE held for it.
    pub(crate) held: Vec<Determinant>,
}

/// The progress of a PE that runs again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Repeat {
    /// The determinant whose turn it is, and parcels of it that have been taken.
    pub(super) next: usize,
    pub(super) taken: u64,
    pub(super) histories: Vec<History>,
    /// Bytes of the parcels of each that have been taken.
    pub(super) at: Vec<usize>,
}

/// A run that differs from the one before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("does not run again as it ran before: {0}")]
pub(crate) struct Diverged(pub(crate) String);

/// What is left when a PE has run again.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Left {
    /// The parcels that it has not taken, encoded, by their PEs.
    pub(crate) parcels: Vec<(u32, Vec<u8>)>,
    /// What each PE has from it.
    pub(crate) received: Vec<Received>,
}

/// The next thing that a PE takes in a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A parcel of another PE, encoded.
    Parcel(u32, Vec<u8>),
    /// A signal that PE 0 obeys after a checkpoint.
    Deferred(u32, bool),
}

impl Repeat {
    /// The next parcel of a PE, encoded.
    pub(super) fn next_parcel(&mut self, from: u32) -> Result<Vec<u8>, Diverged> {
        let missing = || Diverged(format!("a parcel of PE {from} is missing"));
        let place = from as usize;
        let history = self.histories.get(place).ok_or_else(missing)?;
        let at = self.at.get_mut(place).ok_or_else(missing)?;
        let bytes = history.parcels.get(*at..).unwrap_or_default();
        let (.., rest) = split(bytes).map_err(|_: Malformed| missing())?;
        let parcel = &bytes[..bytes.len() - rest.len()];
        *at += parcel.len();
        Ok(parcel.to_vec())
    }
}
