//! The level engine: regular programs as max-plus updates of the ranks' times, step by step.

use crate::SimError;
use crate::simulate::{Outcome, Simulation};

/// Simulates all repetitions.
///
/// # Errors
/// [`SimError`] where the simulation makes no sense, or noise leaves a rank no time.
pub(crate) fn simulate(simulation: &Simulation) -> Result<Outcome, SimError> {
    simulation.program.check()?;
    Err(SimError::BadProgram { program: simulation.program.name.clone(), what: "cannot be run yet".into() })
}
