// SPDX-License-Identifier: MIT OR Apache-2.0
use serde::Deserialize;

use super::options::Checked;
use super::{Effort, Outcome, Strategy};
use crate::database::Database;
use crate::error::BalanceError;
use crate::topology::Topology;

/// Moves every object some PEs on. It balances nothing: it moves everything, which tests migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rotate {
    /// PEs to move on.
    pub by: u32,
}

impl Default for Rotate {
    fn default() -> Self {
        Self { by: 1 }
    }
}

impl Checked for Rotate {}

impl Strategy for Rotate {
    fn name(&self) -> &'static str {
        "rotate"
    }

    fn assign(&self, database: &Database, _: &Topology) -> Result<Outcome, BalanceError> {
        let pes = database.pes().len() as u64;
        let moved = |(i, &pe): (usize, &u32)| match database.is_migratable(i) {
            true => ((u64::from(pe) + u64::from(self.by)) % pes) as u32,
            false => pe,
        };
        let placement = database.placement().iter().enumerate().map(moved).collect();
        Ok(Outcome { placement, effort: Effort::default() })
    }
}
