// SPDX-License-Identifier: MIT OR Apache-2.0
//! What entry methods can ask for beside calls.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::future::{check_running, target};
use crate::reduction;
use crate::scope;

/// This PE.
#[pyfunction]
pub(crate) fn my_pe() -> PyResult<u32> {
    scope::with(|pe| pe.pe())
}

/// The number of PEs.
#[pyfunction]
pub(crate) fn pes() -> PyResult<u32> {
    scope::with(|pe| pe.pes())
}

/// Ends the job.
#[pyfunction]
#[pyo3(signature = (code=0))]
pub(crate) fn exit(code: i64) -> PyResult<()> {
    let code = u8::try_from(code)
        .map_err(|_| PyValueError::new_err(format!("the exit code {code} is outside of 0..255")))?;
    scope::with(|pe| pe.exit(code))
}

/// Calls a target once no message is under way.
#[pyfunction]
pub(crate) fn when_quiet(to: &Bound<'_, PyAny>) -> PyResult<()> {
    let to = target(to)?;
    scope::with(|pe| pe.when_quiet(to))
}

/// Contributes to the next reduction of the object's array.
#[pyfunction]
pub(crate) fn contribute(
    this: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
    op: &str,
    to: &Bound<'_, PyAny>,
) -> PyResult<()> {
    check_running(this, "contribute")?;
    let (op, to) = (reduction::op(op)?, target(to)?);
    let values = reduction::encode(value, op, to.receiver)?;
    scope::with(|pe| pe.contribute(values, op, to))
}

/// True while `main` runs again up to the await at which a checkpoint was made.
#[pyfunction]
pub(crate) fn is_repeating() -> PyResult<bool> {
    scope::with(|pe| pe.is_repeating())
}

/// Moves the object once its entry method has ended.
#[pyfunction]
pub(crate) fn migrate(this: &Bound<'_, PyAny>, to: i64) -> PyResult<()> {
    check_running(this, "migrate")?;
    let pes = pes()?;
    match u32::try_from(to).ok().filter(|&to| to < pes) {
        Some(to) => scope::with(|pe| pe.migrate(to)),
        None => Err(PyValueError::new_err(format!("PE {to} does not exist: the job has {pes}, from 0"))),
    }
}

/// The object is ready for load balancing.
#[pyfunction]
pub(crate) fn at_sync(this: &Bound<'_, PyAny>) -> PyResult<()> {
    check_running(this, "at_sync")?;
    scope::with(|pe| pe.at_sync())
}

/// Removes the object once its entry method has ended.
#[pyfunction]
pub(crate) fn remove(this: &Bound<'_, PyAny>) -> PyResult<()> {
    check_running(this, "remove")?;
    scope::with(|pe| pe.remove())
}
