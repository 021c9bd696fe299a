// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Python object as an element of an array: itself, or its pickled state after a migration.

use std::collections::{HashMap, VecDeque};

use colony_runtime::Index;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use serde::ser::{Error as _, SerializeTuple};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::array::{Array, Destination, PackedArray};
use crate::journal::Journal;
use crate::pickle::{self, Packed};
use crate::session;

/// An object in an array of `N` dimensions.
#[derive(Debug)]
pub(crate) struct Held<const N: usize> {
    pub(crate) body: Body,
    pub(crate) state: State,
}

/// The Python object.
#[derive(Debug)]
pub(crate) enum Body {
    /// It is here.
    Live { object: Py<PyAny>, array: Array, index: Index },
    /// It has arrived and is not yet made.
    Packed(PackedArray, Packed),
    /// Its constructor failed, which ends the job.
    Dead,
}

/// What belongs to an object beside its Python state.
#[derive(Debug, Default)]
pub(crate) struct State {
    futures: u64,
    /// Futures that wait for their values, by number.
    pending: HashMap<u64, Py<PyAny>>,
    /// Receivers of the quiescences that this object has asked for.
    pub(crate) quiet: VecDeque<Destination>,
    /// Of the object that runs `main`, while `main` is not over: what `main` has done.
    pub(crate) journal: Option<Journal>,
}

impl State {
    /// Keeps a future until it has its value. Returns its number.
    pub(crate) fn open(&mut self, future: Py<PyAny>) -> u64 {
        self.futures += 1;
        self.pending.insert(self.futures, future);
        self.futures
    }

    /// Forgets the futures, before the object makes them again.
    pub(crate) fn forget_futures(&mut self) {
        (self.futures, self.pending) = (0, HashMap::new());
    }

    pub(crate) fn is_pending(&self, future: u64) -> bool {
        self.pending.contains_key(&future)
    }

    /// Gives a value to a future. A future that is not known has had its values.
    pub(crate) fn give(&mut self, py: Python<'_>, number: u64, value: Bound<'_, PyAny>) -> PyResult<()> {
        let Some(future) = self.pending.get(&number) else { return Ok(()) };
        if let Some(journal) = self.journal.as_mut().filter(|journal| !journal.is_repeating()) {
            match pickle::dumps(&value) {
                Ok(pickled) => journal.given(number, pickled),
                Err(error) => {
                    journal.give_up(&format!("a value that it has awaited cannot be pickled: {error}"))
                }
            }
        }
        if future.bind(py).call_method1(pyo3::intern!(py, "_take"), (value,))?.extract()? {
            self.pending.remove(&number);
        }
        Ok(())
    }
}

fn helper<'py>(
    cell: &'static PyOnceLock<Py<PyAny>>,
    py: Python<'py>,
    name: &str,
) -> PyResult<&'py Bound<'py, PyAny>> {
    cell.import(py, "colony_runtime._object", name)
}

/// Makes an object of a class without calling its constructor.
pub(crate) fn blank<'py>(
    array: &Array,
    index: Bound<'py, PyAny>,
    proxy: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    static BLANK: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = index.py();
    helper(&BLANK, py, "blank")?.call1((&array.class.class, index, proxy))
}

/// Restores an object's state.
pub(crate) fn set_state(object: &Bound<'_, PyAny>, state: Bound<'_, PyAny>) -> PyResult<()> {
    static SET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    helper(&SET, object.py(), "set_state")?.call1((object, state)).map(drop)
}

fn get_state<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    helper(&GET, object.py(), "get_state")?.call1((object,))
}

/// Bytes of the buffers in an object's attributes, about.
pub(crate) fn state_bytes(object: &Bound<'_, PyAny>) -> PyResult<u64> {
    static BYTES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    helper(&BYTES, object.py(), "state_bytes")?.call1((object,))?.extract()
}

impl<const N: usize> Serialize for Held<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tuple = serializer.serialize_tuple(5)?;
        match &self.body {
            Body::Dead => return Err(S::Error::custom("its constructor failed")),
            Body::Packed(array, packed) => {
                tuple.serialize_element(array)?;
                tuple.serialize_element(packed)?;
            }
            Body::Live { object, array, index } => {
                tuple.serialize_element(&array.pack())?;
                // those of `main` are made again when it runs again
                let waiting = if self.state.journal.is_some() { 0 } else { self.state.pending.len() };
                tuple.serialize_element(&Live { object, array, index: *index, waiting })?;
            }
        }
        tuple.serialize_element(&self.state.futures)?;
        tuple.serialize_element(&self.state.quiet)?;
        tuple.serialize_element(&self.state.journal)?;
        tuple.end()
    }
}

/// The state of an object, which is pickled on the way.
struct Live<'a> {
    object: &'a Py<PyAny>,
    array: &'a Array,
    index: Index,
    /// Futures without a value.
    waiting: usize,
}

impl Live<'_> {
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if self.waiting > 0 {
            return Err(PyRuntimeError::new_err(format!(
                "{} migrates while {} of its futures have no value: await them first",
                self.array.show(self.index),
                self.waiting
            )));
        }
        get_state(self.object.bind(py))
    }
}

impl Serialize for Live<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Python::attach(|py| match self.state(py) {
            Ok(state) => {
                let written = pickle::serialize(&state, serializer);
                if written.is_err() {
                    session::note_kept(
                        py,
                        &format!("the state of {}, which migrates", self.array.show(self.index)),
                    );
                }
                written
            }
            Err(error) => {
                let reason = error.to_string();
                session::note(
                    py,
                    &error,
                    &format!("the state of {}, which migrates", self.array.show(self.index)),
                );
                session::keep(error);
                Err(S::Error::custom(reason))
            }
        })
    }
}

/// The packed form of an object: its array, the pickled state and its buffers, the number of its last future, receivers of
/// quiescences, and the journal of `main`.
pub(crate) type Wire = (PackedArray, (Vec<u8>, Vec<Vec<u8>>), u64, VecDeque<Destination>, Option<Journal>);

impl<'de, const N: usize> Deserialize<'de> for Held<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (array, packed, futures, quiet, journal) = Deserialize::deserialize(deserializer)?;
        Ok(Self {
            body: Body::Packed(array, packed),
            state: State { futures, pending: HashMap::new(), quiet, journal },
        })
    }
}
