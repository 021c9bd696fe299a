// SPDX-License-Identifier: MIT OR Apache-2.0
//! A torus of three dimensions.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// Ranks along x, y and z. Rank `x + X (y + Y z)` is at (x, y, z).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dims([usize; 3]);

/// One of the six links of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Direction {
    /// 0, 1, 2: x, y, z.
    pub axis: usize,
    /// Towards larger coordinates.
    pub up: bool,
}

impl Direction {
    /// All six: x+, x-, y+, y-, z+, z-.
    pub const ALL: [Self; 6] = {
        const fn link(axis: usize, up: bool) -> Direction {
            Direction { axis, up }
        }
        [link(0, true), link(0, false), link(1, true), link(1, false), link(2, true), link(2, false)]
    };
}

impl Dims {
    /// A torus of this many ranks along each axis.
    ///
    /// # Errors
    /// [`Error::Dims`] where an axis has none, or there are too many ranks to count.
    pub fn new(dims: [usize; 3]) -> Result<Self, Error> {
        let ranks = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d).filter(|&n| n < 1 << 24));
        if ranks.is_none_or(|n| n == 0) {
            return Err(Error::Dims { found: format!("{},{},{}", dims[0], dims[1], dims[2]) });
        }
        Ok(Self(dims))
    }

    /// The torus of `ranks` ranks whose sides differ least.
    ///
    /// # Errors
    /// [`Error::Dims`] where there is no rank, or too many.
    pub fn of(ranks: usize) -> Result<Self, Error> {
        let divides = |n: usize, d: usize| n.is_multiple_of(d);
        let below = |n: usize, bound: usize| (1..=bound.min(n)).rev().find(|&d| divides(n, d)).unwrap_or(1);
        let cube = (ranks as f64).cbrt().round() as usize;
        let z = below(ranks, cube);
        let rest = ranks / z;
        let y = below(rest, rest.isqrt());
        Self::new([rest / y, y, z])
    }

    /// The number of ranks.
    #[must_use]
    pub const fn ranks(self) -> usize {
        self.0[0] * self.0[1] * self.0[2]
    }

    /// Ranks along x, y and z.
    #[must_use]
    pub const fn sides(self) -> [usize; 3] {
        self.0
    }

    /// The coordinates of a rank; the rank is taken modulo the number of ranks.
    #[must_use]
    pub const fn coordinates(self, rank: usize) -> [usize; 3] {
        let [x, y, z] = self.0;
        [rank % x, rank / x % y, rank / (x * y) % z]
    }

    /// The rank at a place; each coordinate is taken modulo its side.
    #[must_use]
    pub const fn rank(self, [x, y, z]: [usize; 3]) -> usize {
        let [dx, dy, dz] = self.0;
        x % dx + dx * (y % dy + dy * (z % dz))
    }

    /// The rank one link away; on a side of one, the rank itself.
    #[must_use]
    pub fn neighbor(self, rank: usize, direction: Direction) -> usize {
        let mut at = self.coordinates(rank);
        let side = self.0[direction.axis];
        at[direction.axis] += if direction.up { 1 } else { side - 1 };
        self.rank(at)
    }

    /// Links on the shortest way between two ranks.
    #[must_use]
    pub fn hops(self, a: usize, b: usize) -> usize {
        let (a, b) = (self.coordinates(a), self.coordinates(b));
        let along = |axis: usize| {
            let apart = a[axis].abs_diff(b[axis]);
            apart.min(self.0[axis] - apart)
        };
        (0..3).map(along).sum()
    }
}

impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.0;
        write!(f, "{x},{y},{z}")
    }
}

impl FromStr for Dims {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Dims { found: text.chars().take(40).collect() };
        let sides: Vec<usize> =
            text.split(',').map(|side| side.trim().parse()).collect::<Result<_, _>>().map_err(|_| wrong())?;
        Self::new(sides.try_into().map_err(|_| wrong())?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_way_there_has_a_way_back(
            x in 1usize..6, y in 1usize..6, z in 1usize..6, rank in 0usize..216, link in 0usize..6,
        ) {
            let dims = Dims::new([x, y, z]).expect("a torus");
            let rank = rank % dims.ranks();
            prop_assert_eq!(dims.rank(dims.coordinates(rank)), rank);
            let way = Direction::ALL[link];
            let there = dims.neighbor(rank, way);
            prop_assert!(there < dims.ranks());
            prop_assert_eq!(dims.neighbor(there, Direction { up: !way.up, ..way }), rank);
            prop_assert_eq!(dims.hops(rank, there), usize::from(dims.sides()[way.axis] > 1));
            prop_assert_eq!(dims.to_string().parse::<Dims>().expect("own words"), dims);
        }

        #[test]
        fn any_number_of_ranks_makes_a_torus(ranks in 1usize..5000) {
            prop_assert_eq!(Dims::of(ranks).expect("a torus").ranks(), ranks);
        }
    }

    #[test]
    fn cubes_are_cubes_and_nonsense_is_refused() {
        assert_eq!(Dims::of(64).expect("a torus").sides(), [4, 4, 4]);
        assert_eq!(Dims::of(12).expect("a torus").sides(), [3, 2, 2]);
        for text in ["", "1,2", "0,1,1", "1,2,3,4", "a,b,c", "4294967296,4294967296,2"] {
            assert!(text.parse::<Dims>().is_err(), "{text}");
        }
    }
}
