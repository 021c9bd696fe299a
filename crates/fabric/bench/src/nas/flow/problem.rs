// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes of LU, SP and BT, and what NPB 3 publishes about their results.

use super::equations::State;
use crate::nas::check::Check;

/// Relative difference that NPB 3 allows.
const TOLERANCE: f64 = 1e-8;

/// One class of one application.
pub(super) struct Problem {
    /// Points of a side of the grid.
    pub(super) points: usize,
    pub(super) iterations: u32,
    /// Time step.
    pub(super) step: f64,
    /// Norms of the residual after the last iteration.
    pub(super) residual: State,
    /// Norms of the distance from the exact solution.
    pub(super) error: State,
}

impl Problem {
    /// Does at most so many iterations. Returns false if these are fewer than those of the published results.
    pub(super) fn limit_iterations(&mut self, most: Option<u32>) -> bool {
        let published = self.iterations;
        self.iterations = most.map_or(published, |most| most.min(published));
        self.iterations == published
    }

    /// The norms beside the published ones.
    pub(super) fn checks(&self, residual: State, error: State) -> Vec<Check> {
        let named = |name: &str, values: State, expected: State| {
            let pairs = values.into_iter().zip(expected).enumerate();
            let check =
                |(m, (value, expected))| Check::new(&format!("{name} {}", m + 1), value, expected, TOLERANCE);
            pairs.map(check).collect::<Vec<_>>()
        };
        let mut checks = named("residual", residual, self.residual);
        checks.extend(named("error", error, self.error));
        checks
    }

    /// The surface integral beside the published one.
    pub(super) fn check_integral(value: f64, expected: f64) -> Check {
        Check::new("surface integral", value, expected, TOLERANCE)
    }
}
