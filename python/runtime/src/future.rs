// SPDX-License-Identifier: MIT OR Apache-2.0
//! The side of `colony_runtime.Future` that the runtime keeps.

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;

use crate::array::{Array, Destination};
use crate::call::{Args, Call};
use crate::method::Method;
use crate::proxy::Element;
use crate::scope;

/// Keeps a future in the object that runs. Returns that object and the future's number.
#[pyfunction]
pub(crate) fn open_future(future: Py<PyAny>) -> PyResult<(Element, u64)> {
    scope::with(|pe| {
        let number = pe.open_future(future);
        (Element { array: pe.array().clone(), index: pe.address().index }, number)
    })
}

fn to(owner: &Element, number: u64) -> Destination {
    Destination::future(owner.address(), owner.array.form.dimensions, number)
}

/// Sends a value to a future, wherever its object is.
#[pyfunction]
pub(crate) fn send_future(owner: &Element, number: u64, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let to = to(owner, number);
    let call = Call { receiver: to.receiver, reply: None, args: Args::one(value.clone())? };
    scope::with(|pe| pe.send(to.place, to.dimensions, call))
}

/// Raises unless the object that runs has made the future.
#[pyfunction]
pub(crate) fn check_owner(owner: &Element) -> PyResult<()> {
    if scope::with(|pe| pe.address())? == owner.address() {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(format!(
        "only {} can await this future, which it made; others can send to it",
        owner.array.show(owner.index)
    )))
}

/// The receiver that a future is.
fn destination(future: &Bound<'_, PyAny>) -> PyResult<Destination> {
    let py = future.py();
    let owner = future.getattr(intern!(py, "_owner"))?;
    Ok(to(owner.cast::<Element>()?.get(), future.getattr(intern!(py, "_number"))?.extract()?))
}

/// The receiver of a result: an entry method or a future.
pub(crate) fn target(target: &Bound<'_, PyAny>) -> PyResult<Destination> {
    if let Ok(method) = target.cast::<Method>() {
        return method.get().destination();
    }
    destination(target).map_err(|_| {
        let shown = target.repr().map_or_else(|_| "the argument".to_owned(), |r| r.to_string());
        PyTypeError::new_err(format!(
            "{shown} cannot be a target: give an entry method of a proxy, such as cells[0].done, or a Future"
        ))
    })
}

/// The array of the object that runs: for checks that an object speaks of itself.
pub(crate) fn check_running(object: &Bound<'_, PyAny>, what: &str) -> PyResult<()> {
    let py = object.py();
    let (running, array, address): (Py<PyAny>, Array, _) =
        scope::with(|pe| (pe.object().clone_ref(py), pe.array().clone(), pe.address()))?;
    if running.is(object) {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(format!(
        "{what} is for the object whose entry method runs, which is {}",
        array.show(address.index)
    )))
}
