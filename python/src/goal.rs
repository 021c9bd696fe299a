// SPDX-License-Identifier: MIT OR Apache-2.0
//! Schedules in GOAL.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use colony_sim::event::{EventError, Progress, Runs};
use colony_sim::goal;
use colony_sim::simulate::Simulation;
use colony_sim::spec::{Scenario, Traces};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::{interruptible, numbers, read, spec, value_error, what_if};

/// A schedule: what each rank sends, receives and computes.
#[pyclass(frozen, module = "colony_sim._engine")]
pub(crate) struct Schedule(Arc<goal::Schedule>);

#[pymethods]
impl Schedule {
    /// The schedule in a file, text or binary.
    #[staticmethod]
    fn read(py: Python<'_>, file: &str) -> PyResult<Self> {
        let read = py.detach(|| goal::read(Path::new(file)));
        Ok(Self(Arc::new(read.map_err(value_error)?)))
    }

    /// The schedule in a text.
    #[staticmethod]
    fn parse(text: &str) -> PyResult<Self> {
        Ok(Self(Arc::new(goal::read_text(text.as_bytes(), "schedule").map_err(value_error)?)))
    }

    /// Ranks.
    #[getter]
    fn ranks(&self) -> u32 {
        self.0.ranks()
    }

    /// Assumptions about calls of which a trace does not say enough.
    #[getter]
    fn notes(&self) -> Vec<String> {
        self.0.notes().to_vec()
    }

    /// Operations of all ranks.
    #[getter]
    fn operations(&self) -> u64 {
        self.0.operations()
    }

    /// Messages of all ranks.
    #[getter]
    fn messages(&self) -> u64 {
        self.0.messages()
    }

    /// As text that LogGOPSim's `txt2bin` reads.
    fn text(&self) -> PyResult<String> {
        let mut text = Vec::new();
        goal::write_text(&self.0, &mut text).map_err(value_error)?;
        String::from_utf8(text).map_err(value_error)
    }
}

/// Times of a schedule: without noise, and of each repetition, by rank.
struct Times {
    quiet: Vec<u64>,
    runs: Vec<Vec<u64>>,
    events: u64,
}

/// Runs `schedule` under the first scheduler of `scenario`: when the ranks end without noise and in each repetition,
/// as the bytes of `uint64` arrays, and how many events there were.
#[pyfunction]
pub(crate) fn run_goal<'py>(
    py: Python<'py>,
    schedule: PyRef<'py, Schedule>,
    machine: &Bound<'py, PyAny>,
    scenario: &Bound<'py, PyAny>,
    traces: BTreeMap<String, Vec<what_if::Source<'py>>>,
    progress: &Bound<'py, PyAny>,
) -> PyResult<(Bound<'py, PyBytes>, Vec<Bound<'py, PyBytes>>, u64)> {
    let progress: Progress = read(progress)?;
    let machine: spec::MachineSpec = read(machine)?;
    let mut scenario: Scenario = read(scenario)?;
    // a rank a node, as the command has it
    (scenario.nodes, scenario.ranks_per_node) = (vec![schedule.0.ranks()], Some(1));
    let scenario = spec::on(machine, scenario).map_err(value_error)?;
    let traces: Traces =
        what_if::of_files(&traces)?.into_iter().map(|(file, m)| (file, Arc::new(m))).collect();
    let points = scenario.points().map_err(value_error)?;
    let point = points.first().ok_or_else(|| value_error("the scenario has no point"))?;
    let simulation = point.simulation(&traces).map_err(value_error)?;
    let schedule = Arc::clone(&schedule.0);
    let times = interruptible(py, move || run(&schedule, &simulation, progress))?.map_err(value_error)?;
    let runs = times.runs.iter().map(|r| numbers(py, r.iter().copied())).collect();
    Ok((numbers(py, times.quiet.into_iter()), runs, times.events))
}

fn run(schedule: &goal::Schedule, simulation: &Simulation, progress: Progress) -> Result<Times, String> {
    let all = Runs::new(schedule, simulation, progress).map_err(|e| e.to_string())?;
    let quiet = all.quiet().map_err(|e| e.to_string())?;
    let noisy = all.noisy().map(|run| Ok(run?.ends_ns)).collect::<Result<Vec<_>, EventError>>();
    let mut runs = noisy.map_err(|e| e.to_string())?;
    if runs.is_empty() {
        runs.resize(simulation.repetitions as usize, quiet.ends_ns.clone());
    }
    Ok(Times { quiet: quiet.ends_ns, runs, events: quiet.events })
}
