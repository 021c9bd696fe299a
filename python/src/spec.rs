// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of Python as scenarios of the simulator.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use colony_sim::SimError;
use colony_sim::machine::Machine;
use colony_sim::spec::{self, Measured, Scenario, SpecError, Traces};
use serde::Deserialize;

/// A machine.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MachineSpec {
    /// Name of a profile, or of a file.
    Named(String),
    /// Its figures.
    Given(Box<Machine>),
}

impl MachineSpec {
    /// True if it is a profile that comes with Colony.
    pub(crate) fn is_of_the_crate(&self) -> bool {
        matches!(self, Self::Named(name) if !name.ends_with(".toml"))
    }

    pub(crate) fn machine(self) -> Result<Machine, SimError> {
        match self {
            Self::Named(name) => Machine::named_or_file(&name),
            Self::Given(machine) => machine.check().map(|()| *machine),
        }
    }
}

/// `scenario` on `machine`, checked.
pub(crate) fn on(machine: MachineSpec, scenario: Scenario) -> Result<Scenario, SpecError> {
    let scenario = Scenario { machine: spec::MachineSpec::Given(Box::new(machine.machine()?)), ..scenario };
    scenario.check()?;
    Ok(scenario)
}

/// A scenario's text, or its file.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ScenarioSpec {
    /// TOML.
    Text(String),
    /// File of it.
    File(String),
}

impl ScenarioSpec {
    /// The scenario, and those of `given` it replays: they are named as in its text.
    pub(crate) fn read(
        &self,
        mut given: BTreeMap<String, Measured>,
    ) -> Result<(Scenario, Traces), ScenarioError> {
        let (scenario, folder) = match self {
            Self::Text(text) => (Scenario::parse(text)?, Path::new("")),
            Self::File(file) => {
                let file = Path::new(file);
                (Scenario::read(file)?, file.parent().unwrap_or(Path::new("")))
            }
        };
        let mut traces = Traces::new();
        for file in scenario.trace_files()? {
            let as_written =
                Path::new(&file).strip_prefix(folder).map_or(file.clone(), |f| f.display().to_string());
            let Some(measured) = given.remove(&as_written) else {
                return Err(ScenarioError::Missing(as_written));
            };
            traces.insert(file, Arc::new(measured));
        }
        match given.into_keys().next() {
            None => Ok((scenario, traces)),
            Some(file) => Err(ScenarioError::Unused(file)),
        }
    }
}

/// The faults of a scenario and of the traces given with it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScenarioError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error("the scenario replays the trace {0:?}: give it, as traces={{{0:?}: colony_sim.trace(…)}}")]
    Missing(String),
    #[error(
        "the scenario names no trace {0:?}: leave it out of traces, or write its name as the scenario does"
    )]
    Unused(String),
}
