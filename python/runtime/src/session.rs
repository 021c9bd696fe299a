// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a rank remembers of its run: options, and the exception that ends the job.

use std::cell::{Cell, RefCell};

use pyo3::PyTypeInfo;
use pyo3::exceptions::{PyKeyboardInterrupt, PySystemExit};
use pyo3::prelude::*;

thread_local! {
    static STARTER: RefCell<Option<Starter>> = const { RefCell::new(None) };
    /// Messages are pickled also if their receiver is in this process.
    static COPY: Cell<bool> = const { Cell::new(false) };
    /// An exception that the caller of the runtime raises next.
    static PENDING: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// The first exception of a value that could not be pickled: the runtime ends the job also if it was caught.
    static UNPICKLED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// The exception that ends the job.
    static FAILURE: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// The function that is run on PE 0, and the class whose object runs it.
pub(crate) struct Starter {
    pub(crate) class: String,
    pub(crate) main: Py<PyAny>,
    /// Checkpoints are made.
    pub(crate) keeps_journal: bool,
}

pub(crate) fn begin(copy: bool, starter: Starter) {
    COPY.set(copy);
    STARTER.set(Some(starter));
    PENDING.take();
    FAILURE.take();
    UNPICKLED.take();
}

/// Returns `true` if the object of this class runs `main`, and `main` may have to run again.
pub(crate) fn keeps_journal(class: &str) -> bool {
    STARTER.with_borrow(|starter| starter.as_ref().is_some_and(|one| one.keeps_journal && one.class == class))
}

/// `main` of the program that this rank runs.
pub(crate) fn main(py: Python<'_>) -> Option<Py<PyAny>> {
    STARTER.with_borrow(|starter| starter.as_ref().map(|one| one.main.clone_ref(py)))
}

#[inline]
pub(crate) fn copies() -> bool {
    COPY.get()
}

/// Keeps an exception that was raised below the runtime, which carries no exceptions.
pub(crate) fn keep(error: PyErr) {
    PENDING.with_borrow_mut(|pending| {
        pending.get_or_insert(error);
    });
}

/// Keeps the exception of a value that cannot be pickled.
pub(crate) fn keep_unpickled(py: Python<'_>, error: PyErr) {
    UNPICKLED.with_borrow_mut(|unpickled| {
        unpickled.get_or_insert_with(|| error.clone_ref(py));
    });
    keep(error);
}

pub(crate) fn has_kept() -> bool {
    PENDING.with_borrow(Option::is_some)
}

/// Raises the exception that was kept during a call of the runtime.
#[inline]
pub(crate) fn raise_kept() -> PyResult<()> {
    PENDING.take().map_or(Ok(()), Err)
}

pub(crate) fn set_failure(error: PyErr) {
    FAILURE.with_borrow_mut(|failure| {
        failure.get_or_insert(error);
    });
}

/// The exception that ended the job, if one did.
pub(crate) fn take_failure() -> Option<PyErr> {
    FAILURE.take().or_else(|| PENDING.take())
}

/// The exception of a value that could not be pickled, if there is one.
pub(crate) fn take_unpickled() -> Option<PyErr> {
    UNPICKLED.take()
}

/// Prints the exception that ends the job: after `abort`, the process may not get to it any more.
pub(crate) fn print_failure(py: Python<'_>) {
    if let Some(failure) = take_failure() {
        failure.display(py);
        set_failure(PySystemExit::new_err(1));
    }
}

/// Says where an exception was raised.
pub(crate) fn note(py: Python<'_>, error: &PyErr, place: &str) {
    if !error.is_instance_of::<PyKeyboardInterrupt>(py) {
        // Python 3.10 has no notes
        let _ = error.value(py).call_method1("add_note", (format!("in {place}"),));
    }
}

/// Says where the exception that was kept was raised.
pub(crate) fn note_kept(py: Python<'_>, place: &str) {
    PENDING.with_borrow(|pending| {
        if let Some(error) = pending {
            note(py, error, place);
        }
    });
}

/// Prints which entry method has called `sys.exit`, with its code or its text.
pub(crate) fn print_exit(py: Python<'_>, error: &PyErr, place: &str) {
    let code = error.value(py).getattr("code").and_then(|code| code.str().map(|code| code.to_string()));
    let line = format!("error: {place} called sys.exit({})\n", code.unwrap_or_default());
    let stream = py.import("sys").and_then(|sys| sys.getattr("stderr"));
    // there is nobody else to tell
    let _ = stream.and_then(|stream| stream.call_method1("write", (line,)));
}

/// The exit code of `sys.exit`, if the exception is one.
pub(crate) fn exit_code(py: Python<'_>, error: &PyErr) -> Option<u8> {
    if !error.get_type(py).is_subclass(&PySystemExit::type_object(py)).unwrap_or(false) {
        return None;
    }
    let code = error.value(py).getattr("code").ok()?;
    if code.is_none() { Some(0) } else { Some(code.extract().unwrap_or(1)) }
}
