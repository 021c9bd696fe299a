// SPDX-License-Identifier: MIT OR Apache-2.0
//! Points of a cube and where they are in memory.

use std::ops::Range;

/// A cube of points, the boundary included: `[z][y][x]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    /// Points of a side.
    pub(super) points: usize,
    /// Distance in memory of neighbors in x, y and z. Odd numbers of points in rows and planes: with a power of two, the
    /// points of a line along z would all fall into the same few sets of the caches.
    pub(super) strides: [usize; 3],
}

impl Grid {
    pub(super) const fn new(points: usize) -> Self {
        let side = points | 1;
        Self { points, strides: [1, side, side * side] }
    }

    /// Length of an array with a value for each point.
    pub(super) const fn len(&self) -> usize {
        self.strides[2] * self.points
    }

    /// Index of a point, given by its coordinates x, y and z.
    #[inline(always)]
    pub(super) const fn index(&self, [x, y, z]: [usize; 3]) -> usize {
        x + y * self.strides[1] + z * self.strides[2]
    }

    /// The row of points along x at `y` and `z`.
    #[inline(always)]
    pub(super) const fn row(&self, y: usize, z: usize) -> Range<usize> {
        let start = self.index([0, y, z]);
        start..start + self.points
    }

    /// Coordinates, in each direction, of points that are not on the boundary.
    pub(super) const fn interior(&self) -> Range<usize> {
        1..self.points - 1
    }

    /// Every point that is not on the boundary, in the order of memory.
    pub(super) fn interior_points(self) -> impl Iterator<Item = [usize; 3]> {
        let range = self.interior();
        let rows = self.interior_rows();
        rows.flat_map(move |(y, z)| range.clone().map(move |x| [x, y, z]))
    }

    /// Coordinates y and z of every row that is not on the boundary, in the order of memory.
    pub(super) fn interior_rows(self) -> impl DoubleEndedIterator<Item = (usize, usize)> {
        let range = self.interior();
        self.interior().flat_map(move |z| range.clone().map(move |y| (y, z)))
    }

    /// Distance of neighbors; the cube's side is 1.
    pub(super) fn spacing(&self) -> f64 {
        1.0 / (self.points - 1) as f64
    }

    /// The place of a point in the unit cube.
    pub(super) fn place(&self, point: [usize; 3]) -> [f64; 3] {
        point.map(|i| i as f64 / (self.points - 1) as f64)
    }
}
