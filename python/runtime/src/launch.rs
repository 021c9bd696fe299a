// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting the processes of a job.

use std::ffi::OsString;
use std::time::Duration;

use colony_runtime::launch::{Launch, LaunchError};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

/// The silence after which a rank counts as dead: a test of the package may start many interpreters at once.
const SILENCE: Duration = Duration::from_secs(10);

/// Starts a program on processes of this host, of which up to `restarts` are replaced, and waits for their end. Returns the exit code of the job. The processes
/// end with the thread that calls this.
#[pyfunction]
pub(crate) fn launch(
    py: Python<'_>,
    ranks: u32,
    restarts: u32,
    program: OsString,
    arguments: Vec<OsString>,
) -> PyResult<u8> {
    let timeout = Some(SILENCE);
    let launch = Launch { restarts, timeout, ..Launch::new(ranks, program, arguments) };
    py.detach(|| launch.run()).map_err(|error| match error {
        LaunchError::Wrong(text) => PyValueError::new_err(text),
        LaunchError::System { .. } => PyOSError::new_err(error.to_string()),
    })
}
