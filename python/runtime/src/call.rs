// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages: calls of entry methods, and what elements are made from.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::array::{Destination, Form, Receiver};
use crate::pickle::{self, Packed};
use crate::session;

/// Arguments of a call.
#[derive(Debug)]
pub(crate) enum Args {
    /// Python's objects, by reference: inside a process.
    Objects(Py<PyTuple>, Option<Py<PyDict>>),
    /// Pickled.
    Packed(Packed),
}

/// Arguments as Python calls take them.
pub(crate) type Unpacked<'py> = (Bound<'py, PyTuple>, Option<Bound<'py, PyDict>>);

impl Args {
    /// The arguments of a message, pickled already if the run wants copies.
    #[inline]
    pub(crate) fn of(args: Bound<'_, PyTuple>, named: Option<Bound<'_, PyDict>>) -> PyResult<Self> {
        if session::copies() {
            let py = args.py();
            return Packed::of((args, named).into_pyobject(py)?.as_any()).map(Self::Packed);
        }
        Ok(Self::Objects(args.unbind(), named.map(Bound::unbind)))
    }

    /// One argument.
    pub(crate) fn one(value: Bound<'_, PyAny>) -> PyResult<Self> {
        let py = value.py();
        Self::of(PyTuple::new(py, [value])?, None)
    }

    /// No arguments.
    pub(crate) fn none(py: Python<'_>) -> Self {
        Self::Objects(PyTuple::empty(py).unbind(), None)
    }

    #[inline]
    pub(crate) fn load<'py>(self, py: Python<'py>) -> PyResult<Unpacked<'py>> {
        match self {
            Self::Objects(args, named) => Ok((args.into_bound(py), named.map(|n| n.into_bound(py)))),
            Self::Packed(packed) => packed.load(py)?.extract(),
        }
    }

    /// The value of a call with one argument.
    pub(crate) fn value<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.load(py)?.0.get_item(0)
    }
}

impl Serialize for Args {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Packed(packed) => packed.serialize(serializer),
            Self::Objects(args, named) => Python::attach(|py| {
                let both = (args.bind(py), named.as_ref().map(|n| n.bind(py))).into_pyobject(py);
                match both {
                    Ok(both) => pickle::serialize(both.as_any(), serializer),
                    Err(error) => Err(serde::ser::Error::custom(error)),
                }
            }),
        }
    }
}

impl<'de> Deserialize<'de> for Args {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Packed::deserialize(deserializer).map(Self::Packed)
    }
}

/// A message to an object.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) receiver: Receiver,
    /// The future that gets what the entry method returns.
    pub(crate) reply: Option<Destination>,
    pub(crate) args: Args,
}

/// What an element is made from.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Init {
    /// The name of the class.
    pub(crate) class: String,
    pub(crate) form: Form,
    pub(crate) args: Args,
}
