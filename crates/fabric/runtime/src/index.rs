// SPDX-License-Identifier: MIT OR Apache-2.0
//! Indices of elements in arrays of one to six dimensions.

use serde::{Deserialize, Serialize};

/// An element's index, packed. Two indices of one array are equal exactly if their packed forms are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Index {
    high: u64,
    low: u64,
}

impl Index {
    /// The two halves, for a hash or a message.
    #[inline]
    #[must_use]
    pub const fn halves(self) -> [u64; 2] {
        [self.high, self.low]
    }

    /// The index with these halves.
    #[inline]
    #[must_use]
    pub const fn from_halves([high, low]: [u64; 2]) -> Self {
        Self { high, low }
    }

    #[inline]
    const fn from_bits(bits: u128) -> Self {
        Self { high: (bits >> 64) as u64, low: bits as u64 }
    }

    #[inline]
    const fn bits(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }
}

/// Types that index an array.
///
/// | type | dimensions | range of each coordinate |
/// |---|---|---|
/// | `i64` | 1 | all |
/// | `[i32; 1]` … `[i32; 4]` | 1 to 4 | all |
/// | `[i32; 5]` | 5 | −16,777,216 … 16,777,215 |
/// | `[i32; 6]` | 6 | −1,048,576 … 1,048,575 |
pub trait ArrayIndex: Copy + std::fmt::Debug + Eq + Send + 'static {
    /// The number of dimensions.
    const DIMENSIONS: usize;

    /// Packs the index.
    ///
    /// # Panics
    /// If a coordinate is out of the range of the type (five and six dimensions only).
    fn pack(self) -> Index;

    /// Unpacks an index that [`pack`](Self::pack) has made.
    fn unpack(index: Index) -> Self;

    /// The coordinates as one array of up to six; the rest are 0.
    fn coordinates(self) -> [i64; 6];

    /// The index with these coordinates; those beyond [`DIMENSIONS`](Self::DIMENSIONS) are ignored.
    fn from_coordinates(coordinates: [i64; 6]) -> Self;
}

impl ArrayIndex for i64 {
    const DIMENSIONS: usize = 1;

    #[inline]
    fn pack(self) -> Index {
        Index { high: 0, low: self.cast_unsigned() }
    }

    #[inline]
    fn unpack(index: Index) -> Self {
        index.low.cast_signed()
    }

    fn coordinates(self) -> [i64; 6] {
        [self, 0, 0, 0, 0, 0]
    }

    fn from_coordinates(coordinates: [i64; 6]) -> Self {
        coordinates[0]
    }
}

/// Bits of one coordinate.
const fn bits_of(dimensions: usize) -> u32 {
    match dimensions {
        0..=4 => 32,
        5 => 25,
        _ => 21,
    }
}

impl<const N: usize> ArrayIndex for [i32; N]
where
    [i32; N]: Supported,
{
    const DIMENSIONS: usize = N;

    #[inline]
    fn pack(self) -> Index {
        let width = bits_of(N);
        let mask = (1u128 << width) - 1;
        let mut bits = 0;
        for coordinate in self {
            let unused = 32 - width;
            assert!(
                coordinate << unused >> unused == coordinate,
                "the coordinate {coordinate} of an index of {N} dimensions does not fit into {width} bits"
            );
            bits = bits << width | (u128::from(coordinate.cast_unsigned()) & mask);
        }
        Index::from_bits(bits)
    }

    #[inline]
    fn unpack(index: Index) -> Self {
        let width = bits_of(N);
        let mut bits = index.bits();
        let mut coordinates = [0; N];
        for coordinate in coordinates.iter_mut().rev() {
            let unused = 32 - width;
            *coordinate = ((bits as u32) << unused).cast_signed() >> unused;
            bits >>= width;
        }
        coordinates
    }

    fn coordinates(self) -> [i64; 6] {
        let mut all = [0; 6];
        for (to, from) in all.iter_mut().zip(self) {
            *to = i64::from(from);
        }
        all
    }

    fn from_coordinates(coordinates: [i64; 6]) -> Self {
        std::array::from_fn(|d| coordinates[d] as i32)
    }
}

/// The numbers of dimensions that an index may have.
pub trait Supported {}
impl Supported for [i32; 1] {}
impl Supported for [i32; 2] {}
impl Supported for [i32; 3] {}
impl Supported for [i32; 4] {}
impl Supported for [i32; 5] {}
impl Supported for [i32; 6] {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip<I: ArrayIndex>(index: I) -> bool {
        I::unpack(index.pack()) == index && I::from_coordinates(index.coordinates()) == index
    }

    proptest! {
        #[test]
        fn every_index_is_unpacked_as_it_was_packed(
            one in any::<i64>(),
            four in any::<[i32; 4]>(),
            five in prop::array::uniform5(-(1 << 24)..1 << 24),
            six in prop::array::uniform6(-(1 << 20)..1 << 20),
        ) {
            prop_assert!(round_trip(one) && round_trip(four) && round_trip(five) && round_trip(six));
            prop_assert!(round_trip([four[0]]) && round_trip([four[0], four[1]]) && round_trip([four[0], four[1], four[2]]));
        }

        #[test]
        fn different_indices_have_different_packed_forms(a in any::<[i32; 3]>(), b in any::<[i32; 3]>()) {
            prop_assert_eq!(a == b, a.pack() == b.pack());
        }
    }

    #[test]
    #[should_panic(expected = "does not fit into 21 bits")]
    fn a_coordinate_that_does_not_fit_is_refused() {
        let _ = [0, 0, 1 << 20, 0, 0, 0].pack();
    }
}
