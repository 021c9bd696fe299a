// SPDX-License-Identifier: MIT OR Apache-2.0
//! Proxies: arrays, elements and sections, as Python code holds them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use colony_runtime::{Address, Index, Map};
use pyo3::exceptions::{PyAttributeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyString, PyTuple};

use crate::array::{self, Form, Place};
use crate::call::{Args, Init};
use crate::class::Class;
use crate::method::{Method, Target};
use crate::reduce::{Packed, pack, restore, unpack};
use crate::scope::{self, Kind};

/// `object.__getattribute__`, for attributes that are not entry methods.
fn own_attribute<'py>(this: &Bound<'py, PyAny>, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    static OWN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = this.py();
    let own = OWN.get_or_try_init(py, || {
        py.import("builtins")?.getattr("object")?.getattr("__getattribute__").map(Bound::unbind)
    })?;
    own.bind(py).call1((this, name))
}

/// The exception for an attribute that a proxy does not have.
fn unknown(class: &Class, name: &Bound<'_, PyString>) -> PyErr {
    PyAttributeError::new_err(format!(
        "{} has no entry method {:?}; it has: {}",
        class.name,
        name.to_string(),
        class.list(name.py())
    ))
}

/// An array of objects. Its attributes are the entry methods of the class; a call of one is sent to every element.
#[pyclass(frozen, eq, hash, skip_from_py_object, name = "Array", module = "colony_runtime")]
#[derive(Clone)]
pub(crate) struct Array(pub(crate) array::Array);

impl PartialEq for Array {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Hash for Array {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}

/// The proxy of an array.
pub(crate) fn of_array<'py>(py: Python<'py>, array: &array::Array) -> PyResult<Bound<'py, PyAny>> {
    Ok(Array(array.clone()).into_pyobject(py)?.into_any())
}

fn map_of(name: &str) -> PyResult<Map> {
    match name {
        "block" => Ok(Map::Block),
        "round-robin" => Ok(Map::RoundRobin),
        "hash" => Ok(Map::Hash),
        _ => Err(PyValueError::new_err(format!(
            "the map {name:?} is unknown: give \"block\", \"round-robin\" or \"hash\""
        ))),
    }
}

/// Arguments for a constructor, from `args=`.
fn constructor_args(args: &Bound<'_, PyAny>) -> PyResult<Args> {
    let py = args.py();
    if args.is_instance_of::<PyString>() {
        return Err(PyTypeError::new_err(
            "args is a sequence of arguments, and a string is given: write args=(…,)",
        ));
    }
    let args: Bound<'_, PyTuple> = py.get_type::<PyTuple>().call1((args,))?.cast_into()?;
    Ok(Args::Objects(args.unbind(), None))
}

fn create(class: Arc<Class>, kind: Kind, form: Form, args: &Bound<'_, PyAny>) -> PyResult<Array> {
    let init = Init { class: class.key.clone(), form, args: constructor_args(args)? };
    let id = scope::with(|pe| pe.create(kind, form, init))?;
    Ok(Array(array::Array { id, form, class }))
}

#[pymethods]
impl Array {
    #[new]
    #[pyo3(signature = (cls, shape=None, *, args=None, ndim=None, map="block"))]
    fn new(
        cls: &Bound<'_, PyAny>,
        shape: Option<&Bound<'_, PyAny>>,
        args: Option<&Bound<'_, PyAny>>,
        ndim: Option<usize>,
        map: &str,
    ) -> PyResult<Self> {
        let (class, map) = (Class::of(cls)?, map_of(map)?);
        let none = PyTuple::empty(cls.py()).into_any();
        let args = args.unwrap_or(&none);
        let Some(shape) = shape.filter(|shape| !shape.is_none()) else {
            return create(class, Kind::Sparse, Form::sparse(ndim.unwrap_or(1))?, args);
        };
        let extents: Vec<u32> = match shape.extract::<u32>() {
            Ok(extent) => vec![extent],
            Err(_) => shape.extract().map_err(|_| {
                let shown = shape.repr().map_or_else(|_| "the argument".to_owned(), |r| r.to_string());
                PyValueError::new_err(format!(
                    "{shown} is not a shape: give an integer, or a tuple of integers from 0 to {}",
                    u32::MAX
                ))
            })?,
        };
        if ndim.is_some_and(|ndim| ndim != extents.len()) {
            return Err(PyValueError::new_err(format!(
                "ndim is for sparse arrays; the shape is {extents:?}"
            )));
        }
        create(class, Kind::Dense(map), Form::dense(&extents)?, args)
    }

    #[inline]
    fn __getitem__(&self, index: &Bound<'_, PyAny>) -> PyResult<Element> {
        let index = self.0.form.index(&self.0.class, index)?;
        Ok(Element { array: self.0.clone(), index })
    }

    #[inline]
    fn __getattribute__<'py>(
        this: &Bound<'py, Self>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = &this.get().0;
        match array.class.number(name)? {
            Some(method) => {
                let target = Target::Place(Place::Array(array.id));
                Ok(Method { array: array.clone(), target, method }.into_pyobject(this.py())?.into_any())
            }
            None => own_attribute(this.as_any(), name),
        }
    }

    fn __getattr__(&self, name: &Bound<'_, PyString>) -> PyResult<()> {
        Err(unknown(&self.0.class, name))
    }

    fn __len__(&self) -> PyResult<usize> {
        let extents = self.0.form.extents.ok_or_else(|| {
            PyTypeError::new_err(format!("a sparse array of {} has no length", self.0.class.name))
        })?;
        Ok(extents.iter().map(|&e| e as usize).product())
    }

    fn __iter__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err(format!(
            "an array of {} is not iterable: index it, or call an entry method of all elements",
            self.0.class.name
        )))
    }

    fn __repr__(&self) -> String {
        match self.0.form.extents {
            Some(extents) => {
                format!(
                    "<Array of {} {:?}>",
                    self.0.class.name,
                    &extents[..usize::from(self.0.form.dimensions)]
                )
            }
            None => format!("<sparse Array of {}>", self.0.class.name),
        }
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, (Packed,))> {
        Ok((restore(py, "restore_array")?, (pack(&self.0),)))
    }
}

/// An array that was pickled.
#[pyfunction]
pub(crate) fn restore_array(array: Packed) -> PyResult<Array> {
    unpack(array).map(Array)
}

/// An element that was pickled.
#[pyfunction]
pub(crate) fn restore_element(array: Packed, index: [u64; 2]) -> PyResult<Element> {
    Ok(Element { array: unpack(array)?, index: Index::from_halves(index) })
}

/// One object, wherever it is. Its attributes are the entry methods of the class.
#[pyclass(frozen, eq, hash, skip_from_py_object, name = "Element", module = "colony_runtime")]
#[derive(Clone)]
pub(crate) struct Element {
    pub(crate) array: array::Array,
    pub(crate) index: Index,
}

impl Element {
    pub(crate) fn address(&self) -> Address {
        Address { array: self.array.id, index: self.index }
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}

impl Hash for Element {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

#[pymethods]
impl Element {
    #[inline]
    fn __getattribute__<'py>(
        this: &Bound<'py, Self>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let element = this.get();
        match element.array.class.number(name)? {
            Some(method) => {
                let target = Target::Place(Place::Element(element.address()));
                Ok(Method { array: element.array.clone(), target, method }
                    .into_pyobject(this.py())?
                    .into_any())
            }
            None => own_attribute(this.as_any(), name),
        }
    }

    fn __getattr__(&self, name: &Bound<'_, PyString>) -> PyResult<()> {
        Err(unknown(&self.array.class, name))
    }

    fn __repr__(&self) -> String {
        format!("<{}>", self.array.show(self.index))
    }

    #[expect(clippy::type_complexity, reason = "what pickle asks for: a function and its arguments")]
    fn __reduce__(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, (Packed, [u64; 2]))> {
        Ok((restore(py, "restore_element")?, (pack(&self.array), self.index.halves())))
    }
}

/// Some objects of an array.
#[pyclass(frozen, name = "Section", module = "colony_runtime")]
pub(crate) struct Section {
    array: array::Array,
    indices: Arc<[Index]>,
}

#[pymethods]
impl Section {
    #[new]
    fn new(array: &Array, indices: &Bound<'_, PyAny>) -> PyResult<Self> {
        let array = array.0.clone();
        let mut all = Vec::new();
        for index in indices.try_iter()? {
            all.push(array.form.index(&array.class, &index?)?);
        }
        Ok(Self { array, indices: all.into() })
    }

    fn __getattribute__<'py>(
        this: &Bound<'py, Self>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let section = this.get();
        match section.array.class.number(name)? {
            Some(method) => {
                let target = Target::Section(Arc::clone(&section.indices));
                Ok(Method { array: section.array.clone(), target, method }
                    .into_pyobject(this.py())?
                    .into_any())
            }
            None => own_attribute(this.as_any(), name),
        }
    }

    fn __getattr__(&self, name: &Bound<'_, PyString>) -> PyResult<()> {
        Err(unknown(&self.array.class, name))
    }

    fn __len__(&self) -> usize {
        self.indices.len()
    }

    fn __repr__(&self) -> String {
        format!("<Section of {} elements of {}>", self.indices.len(), self.array.class.name)
    }

    #[expect(clippy::type_complexity, reason = "what pickle asks for: a function and its arguments")]
    fn __reduce__(&self, py: Python<'_>) -> PyResult<(Py<PyAny>, (Packed, Vec<[u64; 2]>))> {
        Ok((
            restore(py, "restore_section")?,
            (pack(&self.array), self.indices.iter().map(|i| i.halves()).collect()),
        ))
    }
}

/// A section that was pickled.
#[pyfunction]
pub(crate) fn restore_section(array: Packed, indices: Vec<[u64; 2]>) -> PyResult<Section> {
    Ok(Section { array: unpack(array)?, indices: indices.into_iter().map(Index::from_halves).collect() })
}

/// Creates one object on each PE.
#[pyfunction]
pub(crate) fn create_group(class: &Bound<'_, PyAny>, args: &Bound<'_, PyAny>) -> PyResult<Array> {
    let pes = scope::with(|pe| pe.pes())?;
    create(Class::of(class)?, Kind::Group, Form::dense(&[pes])?, args)
}

/// Creates one object, which load balancing does not wait for.
#[pyfunction]
pub(crate) fn create_one(class: &Bound<'_, PyAny>, args: &Bound<'_, PyAny>) -> PyResult<Array> {
    create(Class::of(class)?, Kind::One, Form::dense(&[1])?, args)
}

/// Inserts an element into a sparse array.
#[pyfunction]
pub(crate) fn insert(element: &Element, args: &Bound<'_, PyAny>) -> PyResult<()> {
    let array = &element.array;
    if array.form.extents.is_some() {
        return Err(PyTypeError::new_err(format!(
            "{} is an element of an array with a shape: only sparse arrays take more elements",
            array.show(element.index)
        )));
    }
    let init = Init { class: array.class.key.clone(), form: array.form, args: constructor_args(args)? };
    scope::with(|pe| pe.insert(element.address(), array.form.dimensions, init))
}
