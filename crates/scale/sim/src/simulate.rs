// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs simulations.

use std::num::NonZeroU64;

pub use crate::simulation::{Outcome, Run, Simulation};
use crate::{SimError, level};

/// Simulates `simulation`. The same simulation gives the same outcome on any number of threads.
///
/// # Errors
/// [`SimError`] where it makes no sense, or noise leaves a rank no time.
pub fn simulate(simulation: &Simulation) -> Result<Outcome, SimError> {
    Ok(simulate_with_runs(simulation)?.0)
}

/// The same, and every repetition, iteration by iteration.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_with_runs(simulation: &Simulation) -> Result<(Outcome, Vec<Run>), SimError> {
    simulate_for(simulation, u64::MAX)
}

/// The same for a time: each repetition ends with the iteration that goes on `span_ns` after its beginning,
/// or with the program's last.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_for(simulation: &Simulation, span_ns: u64) -> Result<(Outcome, Vec<Run>), SimError> {
    level::simulate(simulation, span_ns)
}

/// Repetition `number` alone, until the iteration that goes on `span_ns` after its beginning has ended.
///
/// # Errors
/// As [`simulate`].
pub fn run_for(simulation: &Simulation, number: u32, span_ns: u64) -> Result<Run, SimError> {
    level::run_for(simulation, number, span_ns)
}

/// The first repetition alone. After each `part` iterations, `is_enough` is asked about the run so far; the run ends
/// where it returns `true`, or with the program's last iteration.
///
/// # Errors
/// As [`simulate`].
pub fn run_until(
    simulation: &Simulation,
    part: NonZeroU64,
    is_enough: impl Fn(&Run) -> bool,
) -> Result<Run, SimError> {
    level::run_until(simulation, part, is_enough)
}

/// Number of times that an iteration deals with each rank. Times the ranks, it is the cost of the simulation.
///
/// # Errors
/// As [`simulate`].
pub fn passes(simulation: &Simulation) -> Result<u64, SimError> {
    level::passes(simulation)
}
