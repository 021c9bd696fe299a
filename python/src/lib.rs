// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine of the Python package `colony-sim`: Python's objects in, [`simulate`],
//! Python's objects out. What users see, and its documentation, is in `colony_sim/*.py`.

mod fit;
mod goal;
mod spec;
mod trace;
mod what_if;

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use colony_sim::simulate::{self, Outcome, Run};
use colony_sim::spec::{ProgramSpec, Scenario, SpecError, Traces};
use colony_sim::sweep::{self, Finished, Results};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use trace::Trace;

/// Everything wrong with an input is a `ValueError` with the simulator's own words.
fn value_error(e: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(e.to_string())
}

/// A Python object as what the simulator takes; wrong ones are told in its own words.
fn read<T: serde::de::DeserializeOwned>(object: &Bound<'_, PyAny>) -> PyResult<T> {
    pythonize::depythonize(object).map_err(|e| value_error(colony_sim::spec::plain(&e.to_string(), None)))
}

/// Simulates `scenario` on `machine` at each of its node counts; `traces` are those its sources name. For each:
/// the outcome as a dict, and for each repetition the times of iterations and how often each comes in a row.
#[pyfunction]
fn simulate_all<'py>(
    py: Python<'py>,
    machine: &Bound<'py, PyAny>,
    scenario: &Bound<'py, PyAny>,
    traces: BTreeMap<String, Vec<what_if::Source<'py>>>,
) -> PyResult<Bound<'py, PyList>> {
    let machine: spec::MachineSpec = read(machine)?;
    let scenario: Scenario = read(scenario)?;
    let scenario = spec::on(machine, scenario).map_err(value_error)?;
    let traces: Traces =
        what_if::of_files(&traces)?.into_iter().map(|(file, m)| (file, Arc::new(m))).collect();
    let points = PyList::empty(py);
    for point in scenario.points().map_err(value_error)? {
        let simulation = point.simulation(&traces).map_err(value_error)?;
        let simulated = interruptible(py, move || simulate::simulate_with_runs(&simulation))?;
        let (outcome, runs) = simulated.map_err(value_error)?;
        let runs: Vec<_> = runs.iter().map(|r| (bytes(py, r, |i| i.0), bytes(py, r, |i| i.1))).collect();
        points.append((pythonize::pythonize(py, &outcome)?, runs))?;
    }
    Ok(points)
}

/// Simulates all points of a scenario, of a text or a file, on all cores: what `colony sim` writes, as a dict.
#[pyfunction]
fn run_scenario<'py>(
    py: Python<'py>,
    scenario: &Bound<'py, PyAny>,
    traces: BTreeMap<String, Vec<what_if::Source<'py>>>,
) -> PyResult<Bound<'py, PyAny>> {
    let scenario: spec::ScenarioSpec = read(scenario)?;
    let (scenario, traces) = scenario.read(what_if::of_files(&traces)?).map_err(value_error)?;
    let points = scenario.points().map_err(value_error)?;
    let mut results = Results::none_yet(scenario, &traces);
    let asked = points.clone();
    let outcomes = interruptible(py, move || {
        let outcomes = Mutex::new(Vec::with_capacity(asked.len()));
        sweep::run(&asked, &traces, |i, outcome| {
            outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((i, outcome));
            Ok::<_, SpecError>(())
        })?;
        let mut outcomes: Vec<(usize, Outcome)> =
            outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcomes.sort_by_key(|o| o.0);
        Ok::<_, SpecError>(outcomes)
    })?;
    let outcomes = outcomes.map_err(value_error)?.into_iter().map(|o| o.1);
    results.points =
        points.into_iter().zip(outcomes).map(|(point, outcome)| Finished { point, outcome }).collect();
    Ok(pythonize::pythonize(py, &results)?)
}

/// Interval at which Ctrl-C is looked for.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);

/// Does `work` while the interpreter runs other threads and takes signals. After Ctrl-C nobody waits for
/// the engine's thread any more; it ends when it is done, or with the process.
fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (send, mut receive) = mpsc::channel();
    std::thread::spawn(move || {
        // nobody listens after Ctrl-C
        let _ = send.send(work());
    });
    loop {
        let (got, back) = py.detach(move || (receive.recv_timeout(SIGNAL_CHECK), receive));
        receive = back;
        match got {
            Ok(done) => return Ok(done),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the engine failed; what it said is on standard error"));
            }
        }
    }
}

/// One number of each entry of a run's iterations, as the bytes of a `uint64` array.
fn bytes<'py>(py: Python<'py>, run: &Run, number: fn(&(u64, u64)) -> u64) -> Bound<'py, PyBytes> {
    numbers(py, run.iterations.iter().map(number))
}

/// Numbers as the bytes of a `uint64` array.
fn numbers<'py>(py: Python<'py>, all: impl Iterator<Item = u64>) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &all.flat_map(u64::to_ne_bytes).collect::<Vec<u8>>())
}

/// The machine of a name, a file, or a dict of its figures, as a dict.
#[pyfunction]
fn machine<'py>(py: Python<'py>, machine: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let machine: spec::MachineSpec = read(machine)?;
    Ok(pythonize::pythonize(py, &machine.machine().map_err(value_error)?)?)
}

/// The engine.
#[pymodule]
mod _engine {
    #[pymodule_export]
    use super::Trace;
    #[pymodule_export]
    use super::fit::{default_kind, fit_trace};
    #[pymodule_export]
    use super::goal::{Schedule, run_goal};
    #[pymodule_export]
    use super::what_if::what_if;
    #[pymodule_export]
    use super::{machine, run_scenario, simulate_all};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
        m.add("__version__", env!("CARGO_PKG_VERSION"))?;
        m.add("PROGRAMS", super::ProgramSpec::NAMES.to_vec())?;
        m.add("MACHINES", colony_sim::machine::Machine::NAMES.to_vec())
    }
}
