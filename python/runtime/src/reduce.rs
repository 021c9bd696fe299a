// SPDX-License-Identifier: MIT OR Apache-2.0
//! Proxies as pickle keeps them: a function of `colony_runtime._core`, and its arguments.

use colony_runtime::ArrayId;
use pyo3::prelude::*;

use crate::array::{Array, Form, MOST_DIMENSIONS};
use crate::class::Class;

/// An array as a tuple for pickle.
pub(crate) type Packed = (u32, u8, Option<[u32; MOST_DIMENSIONS]>, String);

pub(crate) fn pack(array: &Array) -> Packed {
    (array.id.0, array.form.dimensions, array.form.extents, array.class.key.clone())
}

pub(crate) fn unpack((id, dimensions, extents, class): Packed) -> PyResult<Array> {
    Ok(Array { id: ArrayId(id), form: Form { dimensions, extents }, class: Class::by_key(&class)? })
}

pub(crate) fn restore(py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
    py.import("colony_runtime._core")?.getattr(name).map(Bound::unbind)
}
