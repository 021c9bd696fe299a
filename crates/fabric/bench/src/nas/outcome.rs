// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of a kernel, before it is judged.

use super::check::Check;
use super::timer::Timed;

/// The return value of a kernel's module.
pub(super) struct Outcome {
    pub(super) iterations: u32,
    /// Operations of the timed part, by NPB's formula.
    pub(super) operations: f64,
    pub(super) timed: Timed,
    /// Empty if the run was stopped before the iteration whose values are published.
    pub(super) checks: Vec<Check>,
}
