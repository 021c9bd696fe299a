// SPDX-License-Identifier: MIT OR Apache-2.0
use serde::Deserialize;

use super::options::Checked;
use super::{Effort, Outcome, Strategy};
use crate::database::Database;
use crate::error::BalanceError;
use crate::random::Key;
use crate::topology::Topology;

/// Puts every object on a random PE, with equal probability: the yardstick of a strategy that knows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Random {
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Random {
    fn default() -> Self {
        Self { seed: 1 }
    }
}

impl Checked for Random {}

impl Strategy for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    fn assign(&self, database: &Database, _: &Topology) -> Result<Outcome, BalanceError> {
        // a stream of its own: a generated database of the same seed draws its loads from the key itself
        let (key, pes) = (Key::new(self.seed).part(u64::MAX), database.pes().len() as u32);
        // by id, so that an object's PE does not depend on the order of the objects
        let moved = |(i, &pe): (usize, &u32)| match database.is_migratable(i) {
            true => key.below(database.ids()[i], pes),
            false => pe,
        };
        let placement = database.placement().iter().enumerate().map(moved).collect();
        Ok(Outcome { placement, effort: Effort::default() })
    }
}
