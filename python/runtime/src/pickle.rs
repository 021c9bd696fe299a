// SPDX-License-Identifier: MIT OR Apache-2.0
//! Python values as bytes: pickle, protocol 5, with the buffers of NumPy arrays beside the pickled text.

use std::fmt;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyBytes, PyList};
use serde::de::{SeqAccess, Visitor};
use serde::ser::{Error as _, SerializeTuple};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::session;

/// A pickled value.
#[derive(Debug)]
pub(crate) struct Packed {
    text: Py<PyBytes>,
    /// The memory that unpickled arrays use from then on.
    buffers: Vec<Py<PyByteArray>>,
}

type Dumped<'py> = (Bound<'py, PyBytes>, Vec<Bound<'py, PyBytes>>);

/// Pickles a value into its text and its buffers.
fn dump<'py>(value: &Bound<'py, PyAny>) -> PyResult<Dumped<'py>> {
    static DUMP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    DUMP.import(value.py(), "colony_runtime._pickle", "dump")?.call1((value,))?.extract()
}

/// A value as bytes in one piece.
pub(crate) fn dumps(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    static DUMPS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let pickled = DUMPS.import(value.py(), "colony_runtime._pickle", "dumps")?.call1((value,))?;
    Ok(pickled.cast::<PyBytes>()?.as_bytes().to_vec())
}

/// The value of such bytes.
pub(crate) fn loads<'py>(py: Python<'py>, pickled: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    LOADS.import(py, "colony_runtime._pickle", "loads")?.call1((PyBytes::new(py, pickled),))
}

impl Packed {
    /// Pickles a value.
    pub(crate) fn of(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = value.py();
        let (text, buffers) = dump(value)?;
        let buffers = buffers.iter().map(|b| PyByteArray::new(py, b.as_bytes()).unbind()).collect();
        Ok(Self { text: text.unbind(), buffers })
    }

    /// The value. Its arrays lie in the buffers, so it can be made once.
    pub(crate) fn load<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static LOAD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let buffers = PyList::new(py, self.buffers)?;
        LOAD.import(py, "colony_runtime._pickle", "load")?.call1((self.text, buffers))
    }
}

/// Bytes without a length for each.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// Writes a value that is pickled on the way. An exception is kept, since errors of `serde` carry none.
pub(crate) fn serialize<S: Serializer>(value: &Bound<'_, PyAny>, serializer: S) -> Result<S::Ok, S::Error> {
    let (text, buffers) = dump(value).map_err(|error| {
        let reason = error.to_string();
        session::keep_unpickled(value.py(), error);
        S::Error::custom(reason)
    })?;
    write(serializer, text.as_bytes(), buffers.iter().map(|b| Bytes(b.as_bytes())))
}

fn write<S: Serializer, B: Serialize>(
    serializer: S,
    text: &[u8],
    buffers: impl Iterator<Item = B>,
) -> Result<S::Ok, S::Error> {
    let buffers: Vec<B> = buffers.collect();
    let mut tuple = serializer.serialize_tuple(2)?;
    tuple.serialize_element(&Bytes(text))?;
    tuple.serialize_element(&buffers)?;
    tuple.end()
}

/// A buffer that is read and written again, in a message that is passed on.
struct Owned(Vec<u8>);

impl Serialize for Owned {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl Serialize for Packed {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Python::attach(|py| {
            let buffers = self.buffers.iter().map(|b| Owned(b.bind(py).to_vec()));
            write(serializer, self.text.as_bytes(py), buffers)
        })
    }
}

/// Makes something of bytes.
struct Of<T>(fn(Python<'_>, &[u8]) -> T);

impl<T> Visitor<'_> for Of<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<T, E> {
        Ok(Python::attach(|py| (self.0)(py, bytes)))
    }
}

struct Text(Py<PyBytes>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Of(|py, bytes| Self(PyBytes::new(py, bytes).unbind())))
    }
}

struct Buffer(Py<PyByteArray>);

impl<'de> Deserialize<'de> for Buffer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Of(|py, bytes| Self(PyByteArray::new(py, bytes).unbind())))
    }
}

struct Both;

impl<'de> Visitor<'de> for Both {
    type Value = Packed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pickled value and its buffers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Packed, A::Error> {
        let short = || serde::de::Error::invalid_length(2, &self);
        let Text(text) = sequence.next_element()?.ok_or_else(short)?;
        let buffers: Vec<Buffer> = sequence.next_element()?.ok_or_else(short)?;
        Ok(Packed { text, buffers: buffers.into_iter().map(|b| b.0).collect() })
    }
}

impl<'de> Deserialize<'de> for Packed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_tuple(2, Both)
    }
}
