// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a flow on a grid: initial and exact values, and distances from them.

use super::equations::{Primitive, State, exact_solution};
use super::grid::Grid;
use crate::nas::memory::{OutOfMemory, filled};

/// Values at each point of a grid.
pub(super) struct Field {
    pub(super) grid: Grid,
    pub(super) states: Vec<State>,
    /// Derived from `states` by [`derive_primitives`](Self::derive_primitives).
    pub(super) primitives: Vec<Primitive>,
}

impl Field {
    /// Gas at rest; all memory has been written to.
    pub(super) fn new(grid: Grid) -> Result<Self, OutOfMemory> {
        let rest = [1.0, 0.0, 0.0, 0.0, 1.0];
        Ok(Self {
            grid,
            states: filled(grid.len(), rest)?,
            primitives: filled(grid.len(), Primitive::new(&rest))?,
        })
    }

    /// Sets every point to the exact solution.
    pub(super) fn set_exact(&mut self) {
        let grid = self.grid;
        self.set_each(|point| exact_solution(grid.place(point)));
    }

    /// Sets the boundary to the exact solution, and the interior to an interpolation between the six faces (report, 3.2).
    pub(super) fn set_initial(&mut self) {
        let grid = self.grid;
        let last = grid.points - 1;
        self.set_each(|point| {
            let place = grid.place(point);
            if point.iter().any(|&i| i == 0 || i == last) {
                return exact_solution(place);
            }
            // between the two faces of each direction
            let between: [State; 3] = std::array::from_fn(|axis| {
                let face = |x| {
                    let mut on_face = place;
                    on_face[axis] = x;
                    exact_solution(on_face)
                };
                let (low, high, x) = (face(0.0), face(1.0), place[axis]);
                std::array::from_fn(|m| (1.0 - x) * low[m] + x * high[m])
            });
            let [a, b, c] = between;
            std::array::from_fn(|m| {
                a[m] + b[m] + c[m] - a[m] * b[m] - b[m] * c[m] - c[m] * a[m] + a[m] * b[m] * c[m]
            })
        });
    }

    fn set_each(&mut self, value: impl Fn([usize; 3]) -> State) {
        let points = self.grid.points;
        for z in 0..points {
            for y in 0..points {
                let row = self.grid.row(y, z);
                for (x, state) in self.states[row].iter_mut().enumerate() {
                    *state = value([x, y, z]);
                }
            }
        }
    }

    pub(super) fn derive_primitives(&mut self) {
        for (primitive, state) in self.primitives.iter_mut().zip(&self.states) {
            *primitive = Primitive::new(state);
        }
    }

    /// Adds `scale` times `change` to the interior.
    pub(super) fn add_scaled(&mut self, scale: f64, change: &[State]) {
        let interior = self.grid.interior();
        for (y, z) in self.grid.interior_rows() {
            let row = self.grid.row(y, z);
            let (states, change) = (&mut self.states[row.clone()], &change[row]);
            for (state, change) in states[interior.clone()].iter_mut().zip(&change[interior.clone()]) {
                for (value, change) in state.iter_mut().zip(change) {
                    *value += scale * change;
                }
            }
        }
    }

    /// Distance from the exact solution, by components: root of the mean square over the interior.
    pub(super) fn error_norm(&self) -> State {
        let grid = self.grid;
        interior_norm(grid, |point| {
            let (exact, state) = (exact_solution(grid.place(point)), &self.states[grid.index(point)]);
            std::array::from_fn(|m| state[m] - exact[m])
        })
    }
}

/// Root of the mean square over the interior, by components.
pub(super) fn interior_norm(grid: Grid, value: impl Fn([usize; 3]) -> State) -> State {
    let mut sums = [0.0; 5];
    for point in grid.interior_points() {
        for (sum, x) in sums.iter_mut().zip(value(point)) {
            *sum += x * x;
        }
    }
    let count = (grid.interior().len() as f64).powi(3);
    sums.map(|sum| (sum / count).sqrt())
}
