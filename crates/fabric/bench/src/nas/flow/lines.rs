// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines of the grid along one direction, several at a time: how SP and BT reach the values of a line.
//!
//! Momentum and velocity are rotated so that the direction of the line comes first. The solvers are therefore written for x
//! alone.

use std::array::from_fn;

use super::equations::{Primitive, State};
use super::grid::Grid;
use super::pack::{LANES, Pack};

/// A state of each line.
pub(super) type PackedState = [Pack; 5];

/// Derived quantities at a point of each line (see [`Primitive`]).
#[derive(Clone, Copy)]
pub(super) struct PackedPrimitive {
    /// Along the line, and across it.
    pub(super) velocity: [Pack; 3],
    pub(super) kinetic: Pack,
    pub(super) energy: Pack,
    pub(super) volume: Pack,
    pub(super) sound: Pack,
}

/// Neighboring lines along one direction.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    /// Index of the first point of each line, which is on the boundary.
    starts: [usize; LANES],
    /// Distance in memory of the points of a line.
    stride: usize,
    /// Components of a state in the order along, across, across.
    momentum: [usize; 3],
}

impl Lines {
    /// All lines along `axis` (0 to 2) that are not on the boundary. If their number is no multiple of [`LANES`], the last
    /// line of a plane occurs more than once.
    pub(super) fn along(grid: Grid, axis: usize) -> impl Iterator<Item = Self> {
        // side by side are those that are nearest in memory
        let (side, outer) = match axis {
            0 => (1, 2),
            1 => (0, 2),
            _ => (0, 1),
        };
        let last = grid.interior().end - 1;
        grid.interior().flat_map(move |plane| {
            grid.interior().step_by(LANES).map(move |first| {
                let start = |lane: usize| {
                    let mut point = [0; 3];
                    point[side] = (first + lane).min(last);
                    point[outer] = plane;
                    grid.index(point)
                };
                Self {
                    starts: from_fn(start),
                    stride: grid.strides[axis],
                    momentum: from_fn(|m| 1 + (axis + m) % 3),
                }
            })
        })
    }

    #[inline(always)]
    fn indices(&self, point: usize) -> [usize; LANES] {
        self.starts.map(|start| start + point * self.stride)
    }

    /// The values at a point of each line.
    #[inline(always)]
    pub(super) fn load(&self, values: &[State], point: usize) -> PackedState {
        let states = self.indices(point).map(|index| &values[index]);
        let [a, b, c] = self.momentum;
        [0, a, b, c, 4].map(|m| Pack(states.map(|state| state[m])))
    }

    /// Writes the values at a point of each line.
    #[inline(always)]
    pub(super) fn store(&self, values: &mut [State], point: usize, packed: &PackedState) {
        let [a, b, c] = self.momentum;
        for (lane, index) in self.indices(point).into_iter().enumerate() {
            let state = &mut values[index];
            for (m, pack) in [0, a, b, c, 4].into_iter().zip(packed) {
                state[m] = pack.0[lane];
            }
        }
    }

    /// The derived quantities at a point of each line.
    #[inline(always)]
    pub(super) fn load_primitive(&self, primitives: &[Primitive], point: usize) -> PackedPrimitive {
        let p = self.indices(point).map(|index| &primitives[index]);
        PackedPrimitive {
            velocity: self.momentum.map(|m| Pack(p.map(|p| p.velocity[m - 1]))),
            kinetic: Pack(p.map(|p| p.kinetic)),
            energy: Pack(p.map(|p| p.energy)),
            volume: Pack(p.map(|p| p.volume)),
            sound: Pack(p.map(|p| p.sound)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_reach_each_interior_point_and_leave_values_as_they_were() {
        let grid = Grid::new(9);
        let values: Vec<State> = (0..grid.len()).map(|i| from_fn(|m| (5 * i + m) as f64)).collect();
        for axis in 0..3 {
            let mut seen = vec![[0.0; 5]; grid.len()];
            for lines in Lines::along(grid, axis) {
                for point in grid.interior() {
                    let loaded = lines.load(&values, point);
                    assert_eq!(
                        loaded[1].0[0] - loaded[0].0[0],
                        (1 + axis) as f64,
                        "the line's direction is first"
                    );
                    lines.store(&mut seen, point, &loaded);
                }
            }
            for point in grid.interior_points() {
                assert_eq!(seen[grid.index(point)], values[grid.index(point)]);
            }
            let written = seen.iter().filter(|state| **state != [0.0; 5]).count();
            assert_eq!(written, grid.interior().len().pow(3));
        }
    }
}
