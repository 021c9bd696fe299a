//! The engine of the Python package `colony-sim`: Python's objects in, [`simulate`](colony_sim::simulate),
//! Python's objects out. What users see, and its documentation, is in `colony_sim/*.py`.

mod spec;
mod trace;

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use colony_sim::SimError;
use colony_sim::simulate::{self, Outcome, Run, Simulation};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use spec::Spec;
use trace::Trace;

/// Everything wrong with an input is a `ValueError` with the simulator's own words.
fn value_error(e: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(e.to_string())
}

/// Simulates `spec` at each of its node counts; `traces` are those its sources name by number. For each:
/// the outcome as a dict, and for each repetition the times of iterations and how often each comes in a row.
///
#[pyfunction]
fn simulate_all<'py>(
    py: Python<'py>,
    spec: &Bound<'py, PyAny>,
    traces: Vec<PyRef<'py, Trace>>,
) -> PyResult<Bound<'py, PyList>> {
    let spec: Spec = pythonize::depythonize(spec).map_err(value_error)?;
    let traces: Vec<_> = traces.iter().map(|t| t.noise().clone()).collect();
    let points = PyList::empty(py);
    for simulation in spec.simulations(&traces).map_err(value_error)? {
        let (outcome, runs) = interruptible(py, simulation)?.map_err(value_error)?;
        let runs: Vec<_> = runs.iter().map(|r| (bytes(py, r, |i| i.0), bytes(py, r, |i| i.1))).collect();
        points.append((pythonize::pythonize(py, &outcome)?, runs))?;
    }
    Ok(points)
}

/// How often Ctrl-C is looked for.
const LOOK: Duration = Duration::from_millis(50);

type Simulated = Result<(Outcome, Vec<Run>), SimError>;

/// Simulates while the interpreter runs other threads and takes signals. After Ctrl-C nobody waits for
/// the engine's thread any more; it ends when it is done, or with the process.
fn interruptible(py: Python<'_>, simulation: Simulation) -> PyResult<Simulated> {
    let (send, mut receive) = mpsc::channel();
    std::thread::spawn(move || {
        // nobody listens after Ctrl-C
        let _ = send.send(simulate::simulate_with_runs(&simulation));
    });
    loop {
        let (got, back) = py.detach(move || (receive.recv_timeout(LOOK), receive));
        receive = back;
        match got {
            Ok(simulated) => return Ok(simulated),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the engine failed; what it said is on standard error"));
            }
        }
    }
}

/// One number of each entry of a run's iterations, as the bytes of a `uint64` array.
fn bytes<'py>(py: Python<'py>, run: &Run, number: fn(&(u64, u64)) -> u64) -> Bound<'py, PyBytes> {
    let all: Vec<u8> = run.iterations.iter().flat_map(|i| number(i).to_ne_bytes()).collect();
    PyBytes::new(py, &all)
}

/// The machine of a name, a file, or a dict of its figures, as a dict.
#[pyfunction]
fn machine<'py>(py: Python<'py>, machine: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let machine: spec::MachineSpec = pythonize::depythonize(machine).map_err(value_error)?;
    Ok(pythonize::pythonize(py, &machine.machine().map_err(value_error)?)?)
}

/// The engine.
#[pymodule]
mod _engine {
    #[pymodule_export]
    use super::Trace;
    #[pymodule_export]
    use super::{machine, simulate_all};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
        m.add("__version__", env!("CARGO_PKG_VERSION"))?;
        m.add("MACHINES", colony_sim::machine::Machine::NAMES.to_vec())
    }
}
