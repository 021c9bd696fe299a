// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running a program.

use std::sync::Arc;

use colony_balance::config::Config;
use colony_runtime::transport::memory::Memory;
use colony_runtime::transport::{Transport, TransportError};
use colony_runtime::{BalanceOptions, CheckpointOptions, Options, RunError, run_on};
use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::array::Form;
use crate::call::{Args, Init};
use crate::class::Class;
use crate::session::Starter;
use crate::transport::{Attached, from_environment};
use crate::{object, session};

create_exception!(
    colony_runtime,
    ProgramError,
    PyRuntimeError,
    "The program failed in a way that is no exception of its code, such as a program that hangs."
);
create_exception!(
    colony_runtime,
    RankLost,
    PyRuntimeError,
    "Another process of the job failed or ended, and has said why."
);

/// What to run on a rank.
struct Job {
    /// The class whose object runs `main`, and `main` itself.
    starter: Arc<Class>,
    main: Py<PyAny>,
    options: Options,
    copy: bool,
}

impl Job {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        let Self { starter, main, options, copy } = self;
        Self { starter: Arc::clone(starter), main: main.clone_ref(py), options: options.clone(), copy: *copy }
    }

    /// Runs the program on one rank. Returns its exit code.
    fn run(self, py: Python<'_>, transport: Attached) -> PyResult<u8> {
        let Self { starter, main, options, copy } = self;
        let form = Form::dense(&[1])?;
        let none = Args::none(py);
        let init = Init { class: starter.key.clone(), form, args: none };
        let keeps_journal = CheckpointOptions::with_environment(None).is_ok_and(|options| options.is_some());
        let main_again = main.clone_ref(py);
        session::begin(copy, Starter { class: starter.key.clone(), main: main_again, keeps_journal });
        let main = Args::Objects(PyTuple::new(py, [main])?.unbind(), None);
        let outcome =
            run_on(object::program(), &options, Box::new(transport), move |cx| object::begin(cx, init, main));
        match (outcome, session::take_failure()) {
            (Ok(outcome), None) => Ok(outcome.code),
            (_, Some(failure)) => Err(failure),
            (Err(RunError::Program(text)), None) => {
                Err(session::take_unpickled().unwrap_or_else(|| ProgramError::new_err(text)))
            }
            // whatever the program would do after its run is for the process that takes the place of this one
            (Err(RunError::Again(code)), None) => std::process::exit(i32::from(code)),
            (Err(RunError::Lost(text)), None) => Err(RankLost::new_err(text)),
        }
    }
}

fn options(balance: Option<&str>) -> PyResult<Options> {
    let balance = balance.map(Config::parse).transpose().map_err(|e| PyValueError::new_err(e.to_string()))?;
    let balance = balance.map(BalanceOptions::new);
    Ok(Options { threads: 1, balance, ..Options::default() })
}

/// Runs a program on the ranks that the environment describes, or on ranks that are threads. Returns the exit code.
#[pyfunction]
pub(crate) fn run(
    py: Python<'_>,
    starter: &Bound<'_, PyAny>,
    main: Py<PyAny>,
    balance: Option<&str>,
    copy: bool,
    ranks: Option<u32>,
) -> PyResult<u8> {
    if crate::scope::is_entered() {
        return Err(PyRuntimeError::new_err("run is called by an entry method: a program runs in one run"));
    }
    let job = Job { starter: Class::of(starter)?, main, options: options(balance)?, copy };
    match ranks {
        Some(0) => Err(PyValueError::new_err("a job has at least 1 rank, and ranks is 0")),
        Some(ranks) => run_threads(py, &job, ranks),
        None => {
            let transport = from_environment().map_err(|error| match error {
                // another process has ended before this one joined the job, which the launcher reports
                TransportError::Lost(text) => RankLost::new_err(text),
                error => PyRuntimeError::new_err(error.to_string()),
            })?;
            job.run(py, Attached::new(transport, false))
        }
    }
}

fn run_threads(py: Python<'_>, job: &Job, ranks: u32) -> PyResult<u8> {
    let jobs: Vec<(Job, Memory)> =
        Memory::ranks(ranks).into_iter().map(|memory| (job.clone_ref(py), memory)).collect();
    let results: Vec<PyResult<u8>> = py.detach(|| {
        std::thread::scope(|scope| {
            let threads: Vec<_> = jobs
                .into_iter()
                .map(|(job, memory)| {
                    let run = move || {
                        let transport: Box<dyn Transport> = Box::new(memory);
                        Python::attach(|py| job.run(py, Attached::new(transport, true)))
                    };
                    scope.spawn(run)
                })
                .collect();
            let lost = |_| Err(PyRuntimeError::new_err("a rank panicked; standard error has its message"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
        })
    });
    // ranks that were lost say less than the one that failed
    let mut lost = None;
    let mut code = 0;
    for result in results {
        match result {
            Ok(of_rank) => code = code.max(of_rank),
            Err(error) if error.is_instance_of::<RankLost>(py) => lost = Some(error),
            Err(error) => return Err(error),
        }
    }
    lost.map_or(Ok(code), Err)
}
