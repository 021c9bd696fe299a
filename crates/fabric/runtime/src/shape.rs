// SPDX-License-Identifier: MIT OR Apache-2.0
//! The elements that an array has from the beginning, and their home PEs.

use rustc_hash::FxHasher;
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};

use crate::address::{Address, ArrayId};
use crate::index::ArrayIndex;

/// The elements that an array is created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shape {
    /// All elements of a box that begins at 0: extents by dimension, 1 beyond the array's dimensions.
    Dense([u32; 6]),
    /// No elements: they are inserted one by one.
    Sparse,
    /// One element a PE, which stays there.
    Group,
}

impl Shape {
    /// The number of elements on `pes` PEs.
    #[must_use]
    pub fn elements(self, pes: u32) -> u64 {
        match self {
            Self::Dense(extents) => extents.iter().map(|&e| u64::from(e)).product(),
            Self::Sparse => 0,
            Self::Group => u64::from(pes),
        }
    }

    /// The place of an index in row-major order, if it is inside.
    fn place<I: ArrayIndex>(extents: [u32; 6], index: I) -> Option<u64> {
        index.coordinates().iter().zip(extents).try_fold(0u64, |place, (&coordinate, extent)| {
            let coordinate = u64::try_from(coordinate).ok().filter(|&c| c < u64::from(extent))?;
            Some(place * u64::from(extent) + coordinate)
        })
    }

    /// The coordinates at a place in row-major order.
    fn coordinates(extents: [u32; 6], mut place: u64) -> [i64; 6] {
        let mut coordinates = [0; 6];
        for d in (0..6).rev() {
            let extent = u64::from(extents[d]).max(1);
            coordinates[d] = (place % extent).cast_signed();
            place /= extent;
        }
        coordinates
    }
}

/// The home PE of each element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Map {
    /// Consecutive elements of a dense array, in row-major order, share a PE. Elements outside the box and those of sparse arrays: [`Map::Hash`].
    #[default]
    Block,
    /// Consecutive elements of a dense array take turns. Others: [`Map::Hash`].
    RoundRobin,
    /// By a hash of the index.
    Hash,
}

impl Map {
    /// The home PE of an element.
    #[must_use]
    pub fn home<I: ArrayIndex>(self, shape: Shape, address: Address, index: I, pes: u32) -> u32 {
        let pes = u64::from(pes.max(1));
        let pe = match (self, shape) {
            (_, Shape::Group) => index.coordinates()[0].cast_unsigned() % pes,
            (Self::Block, Shape::Dense(extents)) => match Shape::place(extents, index) {
                Some(place) => {
                    (u128::from(place) * u128::from(pes) / u128::from(shape.elements(1).max(1))) as u64
                }
                None => hash(address) % pes,
            },
            (Self::RoundRobin, Shape::Dense(extents)) => {
                Shape::place(extents, index).unwrap_or_else(|| hash(address)) % pes
            }
            _ => hash(address) % pes,
        };
        pe as u32
    }

    /// Calls `f` with the index of each element whose home is `pe`.
    pub fn for_each_at<I: ArrayIndex>(
        self,
        shape: Shape,
        array: ArrayId,
        pe: u32,
        pes: u32,
        mut f: impl FnMut(I),
    ) {
        let (Shape::Dense(extents), all) = (shape, shape.elements(pes)) else {
            if shape == Shape::Group {
                f(I::from_coordinates([i64::from(pe), 0, 0, 0, 0, 0]));
            }
            return;
        };
        let index = |place| I::from_coordinates(Shape::coordinates(extents, place));
        let (this, pes) = (u128::from(pe), u128::from(pes.max(1)));
        let n = u128::from(all);
        match self {
            // place·pes/n = pe: from ⌈pe·n/pes⌉ on
            Self::Block => {
                let first = (this * n).div_ceil(pes);
                let past = ((this + 1) * n).div_ceil(pes);
                (first..past).for_each(|place| f(index(place as u64)));
            }
            Self::RoundRobin => (this..n).step_by(pes as usize).for_each(|place| f(index(place as u64))),
            Self::Hash => {
                for place in 0..all {
                    let at: I = index(place);
                    if self.home(shape, Address { array, index: at.pack() }, at, pes as u32) == pe {
                        f(at);
                    }
                }
            }
        }
    }
}

/// A hash that is the same in every process.
fn hash(address: Address) -> u64 {
    let mut hasher = FxHasher::default();
    address.hash(&mut hasher);
    // the low bits of this hash are its weakest
    hasher.finish().rotate_left(26) ^ (hasher.finish() >> 7)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn home(map: Map, shape: Shape, index: [i32; 3], pes: u32) -> u32 {
        map.home(shape, Address { array: ArrayId(1), index: index.pack() }, index, pes)
    }

    proptest! {
        #[test]
        fn every_element_of_a_box_is_created_once_and_at_its_home(
            extents in prop::array::uniform3(0u32..6), pes in 1u32..9, kind in 0usize..3,
        ) {
            let shape = Shape::Dense([extents[0], extents[1], extents[2], 1, 1, 1]);
            let map = [Map::Block, Map::RoundRobin, Map::Hash][kind];
            let mut seen: HashMap<[i32; 3], u32> = HashMap::new();
            let mut counts = Vec::new();
            for pe in 0..pes {
                let mut count = 0u64;
                map.for_each_at(shape, ArrayId(1), pe, pes, |index: [i32; 3]| {
                    assert_eq!(home(map, shape, index, pes), pe);
                    assert!(seen.insert(index, pe).is_none());
                    count += 1;
                });
                counts.push(count);
            }
            prop_assert_eq!(seen.len() as u64, shape.elements(pes));
            let (min, max) = (counts.iter().min().expect("one"), counts.iter().max().expect("one"));
            prop_assert!(max - min <= 1 || map == Map::Hash, "{:?}", counts);
        }

        #[test]
        fn every_index_has_a_home(index in any::<[i32; 3]>(), pes in 1u32..1000) {
            for map in [Map::Block, Map::RoundRobin, Map::Hash] {
                for shape in [Shape::Sparse, Shape::Dense([3, 3, 3, 1, 1, 1])] {
                    prop_assert!(home(map, shape, index, pes) < pes);
                }
            }
        }
    }

    #[test]
    fn elements_of_a_sparse_array_are_spread_over_the_pes() {
        let mut counts = [0; 8];
        for x in 0..40 {
            for y in 0..40 {
                counts[home(Map::Hash, Shape::Sparse, [x, y, 0], 8) as usize] += 1;
            }
        }
        assert!(counts.iter().all(|c| (100..300).contains(c)), "{counts:?}");
    }
}
