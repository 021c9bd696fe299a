// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extents in compute nodes: `8x8x8`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ModelError;

/// The most compute nodes of a machine: 512 midplanes in the racks `R00` to `RFF`, for example 64x64x64.
pub const MAX_NODES: u32 = 1 << 18;

/// Compute nodes along x, y and z. Node `x + X (y + Y z)` is at (x, y, z).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Shape([u32; 3]);

impl Shape {
    /// A midplane.
    pub const MIDPLANE: Self = Self([8, 8, 8]);
    /// A node card.
    pub const NODE_CARD: Self = Self([4, 4, 2]);

    /// A shape of these sides.
    ///
    /// # Errors
    /// [`ModelError::Shape`] if a side is 0, or if there are more than [`MAX_NODES`].
    pub fn new(sides: [u32; 3]) -> Result<Self, ModelError> {
        let nodes = sides.iter().try_fold(1u32, |n, &side| n.checked_mul(side).filter(|&n| n <= MAX_NODES));
        match nodes {
            Some(1..) => Ok(Self(sides)),
            _ => Err(ModelError::Shape { found: text(sides) }),
        }
    }

    /// Nodes along x, y and z.
    #[must_use]
    pub const fn sides(self) -> [u32; 3] {
        self.0
    }

    /// The number of nodes: 1 to [`MAX_NODES`].
    #[must_use]
    pub const fn nodes(self) -> u32 {
        self.0[0] * self.0[1] * self.0[2]
    }

    /// Coordinates of node `number`, taken modulo the number of nodes.
    #[must_use]
    pub const fn coords(self, number: u32) -> [u32; 3] {
        let [x, y, z] = self.0;
        [number % x, number / x % y, number / (x * y) % z]
    }

    /// The number of the node at `coords`; each coordinate is taken modulo its side.
    #[must_use]
    pub const fn number(self, coords: [u32; 3]) -> u32 {
        let [dx, dy, dz] = self.0;
        coords[0] % dx + dx * (coords[1] % dy + dy * (coords[2] % dz))
    }

    /// Links on the shortest way between two nodes of a torus of this shape.
    #[must_use]
    pub fn hops(self, from: [u32; 3], to: [u32; 3]) -> u32 {
        let along = |axis: usize| {
            let side = self.0[axis];
            let apart = (from[axis] % side).abs_diff(to[axis] % side);
            apart.min(side - apart)
        };
        (0..3).map(along).sum()
    }

    /// Returns `true` if all sides are multiples of 8.
    #[must_use]
    pub fn is_midplanes(self) -> bool {
        self.0.iter().all(|side| side.is_multiple_of(8))
    }

    /// Returns `true` if all sides are 2, 4 or 8: a block of one midplane.
    #[must_use]
    pub fn is_within_midplane(self) -> bool {
        self.0.iter().all(|side| matches!(side, 2 | 4 | 8))
    }

    /// This shape, then its other orientations, each once.
    #[must_use]
    pub fn orientations(self) -> Vec<Self> {
        let mut all = Vec::with_capacity(6);
        for [x, y, z] in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let turned = Self([self.0[x], self.0[y], self.0[z]]);
            if !all.contains(&turned) {
                all.push(turned);
            }
        }
        all
    }

    /// Sides from the longest to the shortest.
    #[must_use]
    pub fn sorted(self) -> [u32; 3] {
        let mut sides = self.0;
        sides.sort_unstable_by(|a, b| b.cmp(a));
        sides
    }
}

/// `8x8x8`.
pub(crate) fn text([x, y, z]: [u32; 3]) -> String {
    format!("{x}x{y}x{z}")
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&text(self.0))
    }
}

impl From<Shape> for String {
    fn from(shape: Shape) -> Self {
        shape.to_string()
    }
}

impl TryFrom<String> for Shape {
    type Error = ModelError;

    fn try_from(text: String) -> Result<Self, ModelError> {
        text.parse()
    }
}

impl FromStr for Shape {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        let wrong = || ModelError::Shape { found: text.chars().take(40).collect() };
        let mut sides = [0; 3];
        let mut words = text.split('x');
        for side in &mut sides {
            // `parse` alone would take a sign
            let word = words.next().filter(|w| w.bytes().all(|b| b.is_ascii_digit())).ok_or_else(wrong)?;
            *side = word.parse().map_err(|_| wrong())?;
        }
        if words.next().is_some() { Err(wrong()) } else { Self::new(sides).map_err(|_| wrong()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_limits_hold_and_nonsense_is_refused() {
        for text in ["64x32x32", "64x64x64", "262144x1x1", "1x1x1"] {
            assert_eq!(text.parse::<Shape>().expect("a shape").to_string(), text);
        }
        let wrong =
            ["", "8", "8x8", "8x8x8x8", "0x8x8", "-8x8x8", "+8x8x8", " 8x8x8", "8x8x", "8X8X8", "64x64x65"];
        let huge = ["4294967296x1x1", "65536x65536x1", "4294967295x4294967295x4294967295"];
        for text in wrong.into_iter().chain(huge) {
            assert!(text.parse::<Shape>().is_err(), "{text}");
        }
    }

    #[test]
    fn orientations_are_distinct_and_begin_with_the_shape_itself() {
        let count = |text: &str| {
            let shape: Shape = text.parse().expect("a shape");
            let all = shape.orientations();
            assert_eq!(all[0], shape);
            all.len()
        };
        assert_eq!((count("8x8x8"), count("16x8x8"), count("16x8x24")), (1, 3, 6));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,20}") {
            let _ = text.parse::<Shape>();
        }

        #[test]
        fn numbers_and_coordinates_are_inverse(sides in [1u32..40, 1..40, 1..40], pick in any::<u32>()) {
            let shape = Shape::new(sides).expect("a shape");
            prop_assert_eq!(shape.to_string().parse::<Shape>(), Ok(shape));
            let number = pick % shape.nodes();
            prop_assert_eq!(shape.number(shape.coords(number)), number);
        }
    }
}
