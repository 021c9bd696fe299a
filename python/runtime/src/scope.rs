// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PE that runs Python code, for the functions that this code calls.
//!
//! The runtime hands a PE to an entry method as a reference. Python code cannot carry that reference, so it waits here
//! while the code runs, and each function of this package borrows it.

use std::cell::Cell;
use std::ptr::NonNull;

use colony_runtime::{Address, Index, Map, Op, Values};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::array::{Array, Destination, Form, Place};
use crate::call::{Call, Init};
use crate::session;

/// The elements that a new array has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Dense(Map),
    Sparse,
    Group,
    One,
}

/// What Python code of an object can ask its PE for.
pub(crate) trait Pe {
    fn pe(&self) -> u32;
    fn pes(&self) -> u32;
    /// The object that runs, its array and its address.
    fn object(&self) -> &Py<PyAny>;
    fn array(&self) -> &Array;
    fn address(&self) -> Address;
    fn send(&mut self, place: Place, dimensions: u8, call: Call);
    fn send_later(&mut self, seconds: f64, to: Address, dimensions: u8, call: Call);
    fn multicast(&mut self, array: &Array, indices: &[Index], call: Call);
    fn create(&mut self, kind: Kind, form: Form, init: Init) -> colony_runtime::ArrayId;
    fn insert(&mut self, to: Address, dimensions: u8, init: Init);
    fn contribute(&mut self, values: Values, op: Op, to: Destination);
    fn when_quiet(&mut self, to: Destination);
    fn migrate(&mut self, pe: u32);
    fn at_sync(&mut self);
    fn remove(&mut self);
    fn exit(&mut self, code: u8);
    /// The object runs again up to the await at which a checkpoint was made.
    fn is_repeating(&self) -> bool;
    /// Keeps a future of this object until it has its value. Returns its number.
    fn open_future(&mut self, future: Py<PyAny>) -> u64;
}

thread_local! {
    static RUNNING: Cell<Option<NonNull<dyn Pe>>> = const { Cell::new(None) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Puts back what was there when it is dropped.
struct Restore(Option<NonNull<dyn Pe>>);

impl Drop for Restore {
    fn drop(&mut self) {
        RUNNING.set(self.0);
    }
}

struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Runs `code`, in which [`with`] finds `pe`.
pub(crate) fn enter<'a, R>(pe: &'a mut (dyn Pe + 'a), code: impl FnOnce() -> R) -> R {
    let pe: NonNull<dyn Pe + 'a> = NonNull::from(pe);
    // SAFETY: this changes the lifetime only. `Restore` removes the pointer before `enter` returns or unwinds, so nothing
    // finds it after `'a`.
    let pe = unsafe { std::mem::transmute::<NonNull<dyn Pe + 'a>, NonNull<dyn Pe + 'static>>(pe) };
    DEPTH.set(DEPTH.get() + 1);
    let _leave = Leave;
    let _restore = Restore(RUNNING.replace(Some(pe)));
    code()
}

/// Returns `true` if Python code of an object runs on this thread.
pub(crate) fn is_entered() -> bool {
    DEPTH.get() > 0
}

/// Runs a function of the PE that runs this Python code, and raises the exceptions that were kept meanwhile.
pub(crate) fn with<R>(function: impl FnOnce(&mut dyn Pe) -> R) -> PyResult<R> {
    let Some(mut pe) = RUNNING.take() else {
        return Err(PyRuntimeError::new_err(
            "no entry method runs on this thread: objects can be created and called only from main and entry methods, \
             while colony_runtime.run runs",
        ));
    };
    let result = {
        let _restore = Restore(Some(pe));
        // SAFETY: the pointer comes from the exclusive reference that `enter` holds until it returns. It was taken out of
        // `RUNNING`, so no second reference can be made of it until `Restore` puts it back.
        function(unsafe { pe.as_mut() })
    };
    session::raise_kept()?;
    Ok(result)
}
