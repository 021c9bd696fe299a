// SPDX-License-Identifier: MIT OR Apache-2.0
//! Undoing transactions that were interrupted.

use crate::error::TuneError;
use crate::node::Node;
use crate::revert::{Reverted, undo};
use crate::transaction::{Phase, list};

/// A transaction that had been interrupted, and is undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The transaction.
    pub name: String,
    /// The phase in which its process died.
    pub phase: Phase,
    /// The settings restored.
    pub reverted: Reverted,
}

/// Undoes every transaction that was interrupted while it was applied or reverted, the last one first.
///
/// Call it while no other process applies or reverts: [`Linux::lock`](crate::Linux::lock).
///
/// # Errors
/// As [`revert`](crate::revert()).
pub fn recover(node: &impl Node) -> Result<Vec<Recovered>, TuneError> {
    let mut recovered = Vec::new();
    for mut t in list(node)?.into_iter().rev().filter(|t| t.phase != Phase::Applied) {
        let phase = t.phase;
        let reverted = undo(node, &mut t, true)?;
        recovered.push(Recovered { name: t.name, phase, reverted });
    }
    Ok(recovered)
}
