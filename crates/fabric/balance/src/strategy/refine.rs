// SPDX-License-Identifier: MIT OR Apache-2.0
use serde::Deserialize;

use super::options::{Checked, tolerance_problem};
use super::shed::{Pick, Refinement};
use super::{Effort, Outcome, Strategy};
use crate::database::Database;
use crate::error::BalanceError;
use crate::quality::step_times_s;
use crate::topology::Topology;

/// Moves objects of overloaded PEs into the gaps of the others, and as few as it can. The slowest PE never becomes slower.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Refine {
    /// Step time allowed, over the ideal one.
    pub tolerance: f64,
}

impl Default for Refine {
    fn default() -> Self {
        Self { tolerance: 1.005 }
    }
}

impl Checked for Refine {
    fn problem(&self) -> Option<String> {
        tolerance_problem(self.tolerance)
    }
}

impl Strategy for Refine {
    fn name(&self) -> &'static str {
        "refine"
    }

    fn assign(&self, database: &Database, _: &Topology) -> Result<Outcome, BalanceError> {
        let mut refinement = Refinement::new(database, self.tolerance);
        let _ = refinement.shed(Pick::Heaviest) || refinement.shed(Pick::Lightest);
        Ok(Outcome { placement: refinement.placement, effort: Effort::central(database) })
    }
}

/// [`Refine`] to a closer tolerance, that exchanges objects where no single one fits: the quality of [`Greedy`](super::Greedy)
/// with few migrations.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct GreedyRefine {
    /// Step time aimed at, over the ideal one.
    pub tolerance: f64,
}

impl Default for GreedyRefine {
    fn default() -> Self {
        Self { tolerance: 1.0005 }
    }
}

impl Checked for GreedyRefine {
    fn problem(&self) -> Option<String> {
        tolerance_problem(self.tolerance)
    }
}

impl Strategy for GreedyRefine {
    fn name(&self) -> &'static str {
        "greedy-refine"
    }

    fn assign(&self, database: &Database, topology: &Topology) -> Result<Outcome, BalanceError> {
        let effort = Effort::central(database);
        let slowest = |placement: &[u32]| step_times_s(database, placement).into_iter().fold(0.0, f64::max);
        let (refined, least_s) = self.refined(database, database.placement().to_vec());
        let reached = slowest(&refined);
        if reached <= least_s * Self::NEW_BEGINNING {
            return Ok(Outcome { placement: refined, effort });
        }
        // a few heavy objects a PE fit into no gaps: then only a new beginning helps
        let anew = super::Greedy::default().assign(database, topology)?.placement;
        let (anew, _) = self.refined(database, anew);
        let better = slowest(&anew) * Self::NEW_BEGINNING < reached;
        Ok(Outcome { placement: if better { anew } else { refined }, effort })
    }
}

impl GreedyRefine {
    /// A placement from greedy is looked at if refinement ends above this imbalance, and taken if it is better by that.
    const NEW_BEGINNING: f64 = 1.02;
    /// Partners tried for an exchange.
    const PARTNERS: usize = 12;
    /// Rounds of gifts and exchanges.
    const ROUNDS: usize = 4;

    /// Refines a placement. Returns it, and the step time that it aimed at.
    fn refined(&self, database: &Database, placement: Vec<u32>) -> (Vec<u32>, f64) {
        let mut refinement = Refinement::from(database, placement, self.tolerance);
        let limit_s = refinement.limit_s();
        let mut done = refinement.shed(Pick::Heaviest);
        for _ in 0..Self::ROUNDS {
            let before = refinement.max_s();
            done = done || refinement.shed(Pick::Lightest) || refinement.exchange(Self::PARTNERS);
            if done || refinement.max_s() >= before {
                break;
            }
        }
        (refinement.placement, limit_s)
    }
}
