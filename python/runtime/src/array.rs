// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arrays of Python objects, and places in them that messages go to.

use std::sync::Arc;

use colony_runtime::{Address, ArrayId, ArrayIndex, Index};
use pyo3::exceptions::{PyIndexError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};
use serde::{Deserialize, Serialize};

use crate::class::Class;

/// The most dimensions of an array.
pub(crate) const MOST_DIMENSIONS: usize = 6;

/// An index, with 0 beyond the array's dimensions.
pub(crate) type Coordinates = [i32; MOST_DIMENSIONS];

/// Runs an expression with the constant `D` as the number of dimensions.
macro_rules! by_dimensions {
    ($dimensions:expr, $D:ident => $body:expr) => {
        match $dimensions {
            1 => {
                const $D: usize = 1;
                $body
            }
            2 => {
                const $D: usize = 2;
                $body
            }
            3 => {
                const $D: usize = 3;
                $body
            }
            4 => {
                const $D: usize = 4;
                $body
            }
            5 => {
                const $D: usize = 5;
                $body
            }
            _ => {
                const $D: usize = 6;
                $body
            }
        }
    };
}
pub(crate) use by_dimensions;

/// What all processes know of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Form {
    pub(crate) dimensions: u8,
    /// Extents of a dense array or a group, 1 beyond its dimensions; none of a sparse array.
    pub(crate) extents: Option<[u32; MOST_DIMENSIONS]>,
}

impl Form {
    /// The form of a dense array.
    pub(crate) fn dense(extents: &[u32]) -> PyResult<Self> {
        if extents.is_empty() || extents.len() > MOST_DIMENSIONS {
            return Err(PyValueError::new_err(format!(
                "an array has 1 to {MOST_DIMENSIONS} dimensions, and {} extents are given",
                extents.len()
            )));
        }
        let mut all = [1; MOST_DIMENSIONS];
        all[..extents.len()].copy_from_slice(extents);
        let form = Self { dimensions: extents.len() as u8, extents: Some(all) };
        let last = all.map(|extent| i64::from(extent) - 1);
        form.check_range(&last[..extents.len()])?;
        Ok(form)
    }

    /// The form of a sparse array.
    pub(crate) fn sparse(dimensions: usize) -> PyResult<Self> {
        if (1..=MOST_DIMENSIONS).contains(&dimensions) {
            return Ok(Self { dimensions: dimensions as u8, extents: None });
        }
        Err(PyValueError::new_err(format!(
            "an array has 1 to {MOST_DIMENSIONS} dimensions, and ndim is {dimensions}"
        )))
    }

    /// Coordinates are packed into 128 bits.
    fn check_range(&self, coordinates: &[i64]) -> PyResult<()> {
        let bits = match self.dimensions {
            0..=4 => 32,
            5 => 25,
            _ => 21,
        };
        let bound = 1i64 << (bits - 1);
        match coordinates.iter().find(|c| !(-bound..bound).contains(*c)) {
            None => Ok(()),
            Some(coordinate) => Err(PyOverflowError::new_err(format!(
                "the coordinate {coordinate} is outside of {}..{}, the range of indices of {} dimensions",
                -bound,
                bound - 1,
                self.dimensions
            ))),
        }
    }

    /// An index of Python: an integer for one dimension, a tuple of integers for several.
    #[inline]
    pub(crate) fn index(&self, class: &Class, index: &Bound<'_, PyAny>) -> PyResult<Index> {
        let mut wide = [0i64; MOST_DIMENSIONS];
        let given = if index.is_instance_of::<PyInt>() {
            wide[0] = index.extract()?;
            1
        } else if let Ok(tuple) = index.cast::<PyTuple>() {
            for (to, from) in wide.iter_mut().zip(tuple) {
                *to = integer(class, &from)?;
            }
            tuple.len()
        } else {
            wide[0] = integer(class, index)?;
            1
        };
        let dimensions = usize::from(self.dimensions);
        if given != dimensions {
            return Err(PyIndexError::new_err(format!(
                "{}[{index}] has an index of {given} dimensions, and the array has {dimensions}",
                class.name
            )));
        }
        if let Some(extents) = self.extents {
            if wide.iter().zip(extents).any(|(&c, extent)| c < 0 || c >= i64::from(extent)) {
                return Err(PyIndexError::new_err(format!(
                    "{}[{index}] does not exist: the extents are {:?}",
                    class.name,
                    &extents[..dimensions]
                )));
            }
        } else {
            self.check_range(&wide[..dimensions])?;
        }
        let coordinates = wide.map(|c| c as i32);
        Ok(by_dimensions!(self.dimensions, D => <[i32; D]>::pack_first(coordinates)))
    }

    /// The coordinates of an index.
    pub(crate) fn coordinates(&self, index: Index) -> Coordinates {
        by_dimensions!(self.dimensions, D => <[i32; D] as ArrayIndex>::unpack(index).coordinates().map(|c| c as i32))
    }

    /// The index as Python's objects have it.
    pub(crate) fn to_python<'py>(self, py: Python<'py>, index: Index) -> PyResult<Bound<'py, PyAny>> {
        let coordinates = self.coordinates(index);
        if self.dimensions == 1 {
            return Ok(coordinates[0].into_pyobject(py)?.into_any());
        }
        Ok(PyTuple::new(py, &coordinates[..usize::from(self.dimensions)])?.into_any())
    }

    /// The index for people, such as `3, 4`.
    pub(crate) fn show(&self, index: Index) -> String {
        let coordinates = self.coordinates(index);
        let all: Vec<String> =
            coordinates[..usize::from(self.dimensions)].iter().map(ToString::to_string).collect();
        all.join(", ")
    }
}

/// Packs the first coordinates.
trait PackFirst: ArrayIndex {
    fn pack_first(coordinates: Coordinates) -> Index {
        Self::from_coordinates(coordinates.map(i64::from)).pack()
    }
}
impl<T: ArrayIndex> PackFirst for T {}

fn integer(class: &Class, coordinate: &Bound<'_, PyAny>) -> PyResult<i64> {
    coordinate.extract().map_err(|_| {
        let shown = coordinate.repr().map_or_else(|_| "a coordinate".to_owned(), |r| r.to_string());
        PyTypeError::new_err(format!("{}[…]: {shown} is not an integer", class.name))
    })
}

/// An array.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    pub(crate) id: ArrayId,
    pub(crate) form: Form,
    pub(crate) class: Arc<Class>,
}

/// An array as other processes can read it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PackedArray {
    id: ArrayId,
    form: Form,
    class: String,
}

impl Array {
    pub(crate) fn pack(&self) -> PackedArray {
        PackedArray { id: self.id, form: self.form, class: self.class.key.clone() }
    }

    /// An element for people, such as `Cell[3, 4]`.
    pub(crate) fn show(&self, index: Index) -> String {
        format!("{}[{}]", self.class.name, self.form.show(index))
    }
}

impl PackedArray {
    pub(crate) fn unpack(&self) -> PyResult<Array> {
        Ok(Array { id: self.id, form: self.form, class: Class::by_key(&self.class)? })
    }
}

/// One object, or all objects of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Place {
    Element(Address),
    Array(ArrayId),
}

/// What an object does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Receiver {
    /// It runs the entry method of this number.
    Method(u16),
    /// It gives the value to its future of this number.
    Future(u64),
}

/// The receiver of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Destination {
    pub(crate) place: Place,
    pub(crate) dimensions: u8,
    pub(crate) receiver: Receiver,
}

impl Destination {
    /// The future of this number of an object.
    pub(crate) fn future(owner: Address, dimensions: u8, number: u64) -> Self {
        Self { place: Place::Element(owner), dimensions, receiver: Receiver::Future(number) }
    }
}
