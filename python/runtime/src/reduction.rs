// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contributions to reductions, and their results.
//!
//! A reduction of the runtime combines vectors of numbers and says nothing of what they mean. So each contribution ends
//! with a trailer: the shape of the value, the receiver, and a 1. All elements give the same trailer. After a sum over
//! `n` elements the 1 has become `n`, and dividing the rest of the trailer by it gives back what each of them wrote.

use colony_runtime::{Op, Values};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyFloat, PyInt, PyList};

use crate::array::Receiver;
use crate::call::Args;

/// Shapes in the trailer, where an array has its number of dimensions.
const SCALAR: i64 = 100;
const NOTHING: i64 = 101;
/// Receivers in the trailer.
const METHOD: i64 = 1;
const FUTURE: i64 = 2;

/// The operation of a name.
pub(crate) fn op(name: &str) -> PyResult<Op> {
    match name {
        "sum" => Ok(Op::Sum),
        "min" => Ok(Op::Min),
        "max" => Ok(Op::Max),
        "gather" => Ok(Op::Gather),
        _ => Err(PyValueError::new_err(format!(
            "the operation {name:?} is unknown: give \"sum\", \"min\", \"max\" or \"gather\""
        ))),
    }
}

/// A contribution as the runtime combines it.
pub(crate) fn encode(value: &Bound<'_, PyAny>, op: Op, receiver: Receiver) -> PyResult<Values> {
    if op == Op::Gather {
        return gathered(value, receiver);
    }
    if value.is_none() {
        return Ok(with_trailer(Numbers::I64(Vec::new()), &[NOTHING], receiver));
    }
    if value.is_exact_instance_of::<PyFloat>() {
        return Ok(with_trailer(Numbers::F64(vec![value.extract()?]), &[SCALAR], receiver));
    }
    if value.is_exact_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() {
        return Ok(with_trailer(Numbers::I64(vec![value.extract()?]), &[SCALAR], receiver));
    }
    static FLATTEN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let flat = FLATTEN.import(value.py(), "colony_runtime._object", "flatten")?.call1((value,))?;
    let (is_float, bytes, shape): (bool, Bound<'_, PyBytes>, Option<Vec<i64>>) = flat.extract()?;
    let words = bytes.as_bytes().as_chunks::<8>().0.iter();
    let numbers = if is_float {
        Numbers::F64(words.map(|w| f64::from_ne_bytes(*w)).collect())
    } else {
        Numbers::I64(words.map(|w| i64::from_ne_bytes(*w)).collect())
    };
    let mut form = shape.clone().unwrap_or_default();
    form.push(shape.map_or(SCALAR, |s| s.len() as i64));
    Ok(with_trailer(numbers, &form, receiver))
}

enum Numbers {
    F64(Vec<f64>),
    I64(Vec<i64>),
}

fn with_trailer(numbers: Numbers, form: &[i64], receiver: Receiver) -> Values {
    let (kind, number) = match receiver {
        Receiver::Method(number) => (METHOD, i64::from(number)),
        Receiver::Future(number) => (FUTURE, number as i64),
    };
    let trailer = form.iter().copied().chain([kind, number, 1]);
    match numbers {
        Numbers::F64(mut all) => {
            all.extend(trailer.map(|t| t as f64));
            Values::F64(all)
        }
        Numbers::I64(mut all) => {
            all.extend(trailer);
            Values::I64(all)
        }
    }
}

/// Any value, pickled into words. Contributions are not combined.
fn gathered(value: &Bound<'_, PyAny>, receiver: Receiver) -> PyResult<Values> {
    static DUMPS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let pickled = DUMPS.import(value.py(), "colony_runtime._pickle", "dumps")?.call1((value,))?;
    let bytes = pickled.cast::<PyBytes>()?.as_bytes();
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        i64::from_le_bytes(word)
    });
    Ok(with_trailer(Numbers::I64(words.collect()), &[bytes.len() as i64], receiver))
}

/// Trailers that differ.
fn mismatch() -> PyErr {
    PyValueError::new_err(
        "the elements of one reduction contribute differently: all have to give values of one shape and type, one \
         operation and one target",
    )
}

/// Takes the last number of the trailer, and divides it by the number of contributions in it.
fn pop(values: &mut Values, count: i64) -> PyResult<i64> {
    let last = match values {
        Values::F64(all) => all.pop().map(|last| last as i64),
        Values::I64(all) => all.pop(),
        Values::Gathered(_) => None,
    };
    let last = last.ok_or_else(mismatch)?;
    if count <= 0 || last % count != 0 { Err(mismatch()) } else { Ok(last / count) }
}

fn pop_receiver(values: &mut Values) -> PyResult<(i64, Receiver)> {
    let count = pop(values, 1)?;
    let (number, kind) = (pop(values, count)?, pop(values, count)?);
    let receiver = match kind {
        METHOD => u16::try_from(number).ok().map(Receiver::Method),
        FUTURE => u64::try_from(number).ok().map(Receiver::Future),
        _ => None,
    };
    Ok((count, receiver.ok_or_else(mismatch)?))
}

/// The receiver of a result, and the result as its arguments.
pub(crate) fn decode(py: Python<'_>, values: Values) -> PyResult<(Receiver, Args)> {
    let mut values = match values {
        Values::Gathered(all) => return decode_gathered(py, all.into_iter().map(|(_, v)| v)),
        numbers => numbers,
    };
    let (count, receiver) = pop_receiver(&mut values)?;
    let form = pop(&mut values, count)?;
    let shape = match form {
        NOTHING | SCALAR => None,
        dimensions => {
            let mut shape = (0..dimensions).map(|_| pop(&mut values, count)).collect::<PyResult<Vec<_>>>()?;
            shape.reverse();
            Some(shape)
        }
    };
    let value = match (&values, form, shape) {
        (_, NOTHING, _) => None,
        (Values::F64(all), _, None) => Some(all.first().into_pyobject(py)?.into_any()),
        (Values::I64(all), _, None) => Some(all.first().into_pyobject(py)?.into_any()),
        (values, _, Some(shape)) => Some(array(py, values, shape)?),
        (Values::Gathered(_), _, None) => None,
    };
    Ok((receiver, arguments(py, receiver, value)?))
}

/// A method gets no argument instead of nothing; a future gets `None`.
fn arguments(py: Python<'_>, receiver: Receiver, value: Option<Bound<'_, PyAny>>) -> PyResult<Args> {
    match (receiver, value) {
        (_, Some(value)) => Args::one(value),
        (Receiver::Method(_), None) => Ok(Args::none(py)),
        (Receiver::Future(_), None) => Args::one(py.None().into_bound(py)),
    }
}

fn array<'py>(py: Python<'py>, values: &Values, shape: Vec<i64>) -> PyResult<Bound<'py, PyAny>> {
    static UNFLATTEN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let (is_float, bytes): (bool, Vec<u8>) = match values {
        Values::F64(all) => (true, all.iter().flat_map(|v| v.to_ne_bytes()).collect()),
        Values::I64(all) => (false, all.iter().flat_map(|v| v.to_ne_bytes()).collect()),
        Values::Gathered(_) => return Err(mismatch()),
    };
    let bytes = PyByteArray::new(py, &bytes);
    UNFLATTEN.import(py, "colony_runtime._object", "unflatten")?.call1((is_float, bytes, shape))
}

fn decode_gathered(py: Python<'_>, all: impl Iterator<Item = Values>) -> PyResult<(Receiver, Args)> {
    static LOADS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let loads = LOADS.import(py, "colony_runtime._pickle", "loads")?;
    let list = PyList::empty(py);
    let mut first = None;
    for mut values in all {
        let (count, receiver) = pop_receiver(&mut values)?;
        if *first.get_or_insert(receiver) != receiver {
            return Err(mismatch());
        }
        let length = usize::try_from(pop(&mut values, count)?).map_err(|_| mismatch())?;
        let Values::I64(words) = values else { return Err(mismatch()) };
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).take(length).collect();
        list.append(loads.call1((PyBytes::new(py, &bytes),))?)?;
    }
    let receiver = first.ok_or_else(|| PyTypeError::new_err("nothing was gathered"))?;
    Ok((receiver, Args::one(list.into_any())?))
}
