// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry methods of objects, as Python code holds and calls them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use colony_runtime::{Address, Index};
use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::array::{Array, Destination, Place, Receiver};
use crate::call::{Args, Call};
use crate::reduce::{Packed, pack, restore, unpack};
use crate::scope;

/// The objects that a call is sent to.
#[derive(Clone, PartialEq, Hash)]
pub(crate) enum Target {
    Place(Place),
    Section(Arc<[Index]>),
}

/// An entry method of one object, or of several. A call sends a message and returns at once.
#[pyclass(frozen, eq, hash, skip_from_py_object, name = "Method", module = "colony_runtime")]
#[derive(Clone)]
pub(crate) struct Method {
    pub(crate) array: Array,
    pub(crate) target: Target,
    pub(crate) method: u16,
}

impl PartialEq for Method {
    fn eq(&self, other: &Self) -> bool {
        (&self.target, self.method) == (&other.target, other.method)
    }
}

impl Hash for Method {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.target, self.method).hash(state);
    }
}

impl Method {
    /// The place and the number, for results that the runtime sends.
    pub(crate) fn destination(&self) -> PyResult<Destination> {
        match self.target {
            Target::Place(place) => Ok(Destination {
                place,
                dimensions: self.array.form.dimensions,
                receiver: Receiver::Method(self.method),
            }),
            Target::Section(_) => Err(PyTypeError::new_err(
                "an entry method of a section cannot be a target: give one of an element or of an array",
            )),
        }
    }

    fn call<'py>(&self, args: &Bound<'py, PyTuple>, named: Option<Bound<'py, PyDict>>) -> PyResult<Call> {
        Ok(Call {
            receiver: Receiver::Method(self.method),
            reply: None,
            args: Args::of(args.clone(), named)?,
        })
    }

    /// Sends a call to one object, and returns the future of its reply.
    fn ask<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        named: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        let Target::Place(place @ Place::Element(_)) = self.target else {
            return Err(PyTypeError::new_err(format!(
                "ret=True is for calls of one object, such as {}[0]: for the results of many, contribute to a Future",
                self.array.class.name
            )));
        };
        static FUTURE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let future = FUTURE.import(py, "colony_runtime._future", "Future")?.call0()?;
        let mut call = self.call(args, named)?;
        let number = future.getattr(intern!(py, "_number"))?.extract()?;
        // the object that runs has made it
        let (owner, dimensions) = scope::with(|pe| (pe.address(), pe.array().form.dimensions))?;
        call.reply = Some(Destination::future(owner, dimensions, number));
        scope::with(|pe| pe.send(place, self.array.form.dimensions, call))?;
        Ok(future)
    }
}

#[pymethods]
impl Method {
    #[pyo3(signature = (*args, **named))]
    fn __call__<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        named: Option<Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        let mut named = named;
        if let Some(dict) = &named {
            let key = intern!(py, "ret");
            if let Some(wanted) = dict.get_item(key)? {
                dict.del_item(key)?;
                if dict.is_empty() {
                    named = None;
                }
                if wanted.is_truthy()? {
                    return self.ask(args, named);
                }
            }
        }
        let call = self.call(args, named)?;
        match &self.target {
            Target::Place(place) => scope::with(|pe| pe.send(*place, self.array.form.dimensions, call))?,
            Target::Section(indices) => scope::with(|pe| pe.multicast(&self.array, indices, call))?,
        }
        Ok(py.None().into_bound(py))
    }

    /// Sends the call after some seconds.
    #[pyo3(signature = (seconds, /, *args, **named))]
    fn after<'py>(
        &self,
        seconds: f64,
        args: &Bound<'py, PyTuple>,
        named: Option<Bound<'py, PyDict>>,
    ) -> PyResult<()> {
        let Target::Place(Place::Element(address)) = self.target else {
            return Err(PyTypeError::new_err("after is for calls of one object"));
        };
        if seconds.is_nan() {
            return Err(PyValueError::new_err("the seconds of after are not a number"));
        }
        let call = self.call(args, named)?;
        scope::with(|pe| pe.send_later(seconds, address, self.array.form.dimensions, call))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let name = self.array.class.method(self.method)?.bind(py).to_string();
        Ok(match &self.target {
            Target::Place(Place::Element(address)) => format!("<{}.{name}>", self.array.show(address.index)),
            Target::Place(Place::Array(_)) => format!("<{}[all].{name}>", self.array.class.name),
            Target::Section(indices) => {
                format!("<{}[{} elements].{name}>", self.array.class.name, indices.len())
            }
        })
    }

    #[expect(clippy::type_complexity, reason = "what pickle asks for: a function and its arguments")]
    fn __reduce__(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, (Packed, Option<[u64; 2]>, Py<PyString>))> {
        let element = match &self.target {
            Target::Place(Place::Element(address)) => Some(address.index.halves()),
            Target::Place(Place::Array(_)) => None,
            Target::Section(_) => {
                return Err(PyTypeError::new_err("send the section, not its entry method"));
            }
        };
        let name = self.array.class.method(self.method)?.clone_ref(py);
        Ok((restore(py, "restore_method")?, (pack(&self.array), element, name)))
    }
}

/// An entry method that was pickled.
#[pyfunction]
pub(crate) fn restore_method(
    array: Packed,
    element: Option<[u64; 2]>,
    name: &Bound<'_, PyString>,
) -> PyResult<Method> {
    let array = unpack(array)?;
    let method = array.class.number(name)?.ok_or_else(|| {
        PyAttributeError::new_err(format!("{} has no entry method {name} in this process", array.class.name))
    })?;
    let target = match element {
        None => Target::Place(Place::Array(array.id)),
        Some(index) => {
            Target::Place(Place::Element(Address { array: array.id, index: Index::from_halves(index) }))
        }
    };
    Ok(Method { array, target, method })
}
