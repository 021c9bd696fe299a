// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mesh: sides and neighbours of objects, and what goes over their edges.

use serde::{Deserialize, Serialize};

/// Mixes two numbers: loads, values, checksums.
pub(super) fn mix(value: u64, with: u64) -> u64 {
    let mixed = (value ^ with).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb) ^ mixed >> 32
}

/// A side of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Side {
    Up,
    Down,
    Left,
    Right,
}

impl Side {
    pub(super) const ALL: [Self; 4] = [Self::Up, Self::Down, Self::Left, Self::Right];

    /// The neighbour on this side of the mesh, which has no border.
    pub(super) fn neighbour(self, [row, column]: [i32; 2], mesh: u32) -> [i32; 2] {
        let (down, right) = match self {
            Self::Up => (-1, 0),
            Self::Down => (1, 0),
            Self::Left => (0, -1),
            Self::Right => (0, 1),
        };
        let mesh = mesh.cast_signed();
        [(row + down).rem_euclid(mesh), (column + right).rem_euclid(mesh)]
    }

    /// The side of the neighbour that touches this one.
    pub(super) const fn opposite(self) -> Self {
        match self {
            Self::Up => Self::Down,
            Self::Down => Self::Up,
            Self::Left => Self::Right,
            Self::Right => Self::Left,
        }
    }
}

/// Values of the four neighbours, by side.
pub(super) type Edges = [Vec<f64>; 4];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_of_a_neighbour_on_the_other_side_is_the_object_itself() {
        for mesh in [1, 2, 5] {
            for side in Side::ALL {
                let there = side.neighbour([0, 0], mesh);
                assert_eq!(side.opposite().neighbour(there, mesh), [0, 0]);
            }
        }
        assert_eq!(Side::Up.neighbour([0, 3], 5), [4, 3]);
    }
}
