// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sections: some elements of an array.

use std::fmt;
use std::marker::PhantomData;

use serde::{Deserialize, Serialize};

use crate::address::{ArrayId, mixed};
use crate::index::Index;

/// Some elements of an array, each once. Two sections with the same elements of an array are one.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Section<T> {
    array: ArrayId,
    /// In ascending order.
    indices: Vec<Index>,
    class: PhantomData<fn() -> T>,
}

impl<T> Clone for Section<T> {
    fn clone(&self) -> Self {
        Self { array: self.array, indices: self.indices.clone(), class: PhantomData }
    }
}

impl<T> fmt::Debug for Section<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements of {}", self.indices.len(), std::any::type_name::<T>())
    }
}

impl<T> Section<T> {
    pub(crate) fn new(array: ArrayId, mut indices: Vec<Index>) -> Self {
        indices.sort_unstable();
        indices.dedup();
        Self { array, indices, class: PhantomData }
    }

    pub(crate) fn array(&self) -> ArrayId {
        self.array
    }

    pub(crate) fn indices(&self) -> &[Index] {
        &self.indices
    }

    /// The key by which its elements contribute to its reductions: a few bytes, to be sent to them in a message. Takes time
    /// in proportion to the elements.
    #[must_use]
    pub fn key(&self) -> SectionKey<T> {
        // 64 bits of a hash of the content: two sections of a program are the same with a probability of 1e-19
        let parts = self.indices.iter().flat_map(|index| index.halves());
        let id = mixed(std::iter::once(u64::from(self.array.0)).chain(parts));
        let name = SectionName { array: self.array, id, elements: self.indices.len() as u64 };
        SectionKey { name, class: PhantomData }
    }
}

/// A section without its type and its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct SectionName {
    pub(crate) array: ArrayId,
    pub(crate) id: u64,
    pub(crate) elements: u64,
}

/// The key of a section, for [`Context::contribute_to`](crate::Context::contribute_to).
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct SectionKey<T> {
    pub(crate) name: SectionName,
    class: PhantomData<fn() -> T>,
}

impl<T> Clone for SectionKey<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for SectionKey<T> {}
impl<T> PartialEq for SectionKey<T> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
impl<T> Eq for SectionKey<T> {}
impl<T> fmt::Debug for SectionKey<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a section of {} elements of {}", self.name.elements, std::any::type_name::<T>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::ArrayIndex;

    #[test]
    fn a_section_has_each_element_once_whatever_the_order() {
        let section = |array: u32, indices: &[[i32; 2]]| {
            Section::<()>::new(ArrayId(array), indices.iter().map(|index| index.pack()).collect())
        };
        let key = section(3, &[[0, 1], [1, 0], [0, 1]]).key();
        assert_eq!(key.name.elements, 2);
        assert_eq!(key, section(3, &[[1, 0], [0, 1]]).key());
        for other in [section(3, &[[1, 0], [0, 2]]), section(3, &[[1, 0]]), section(4, &[[1, 0], [0, 1]])] {
            assert_ne!(key, other.key());
        }
    }
}
