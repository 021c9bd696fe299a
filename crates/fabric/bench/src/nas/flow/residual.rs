// SPDX-License-Identifier: MIT OR Apache-2.0
//! The residual of the steady equations: differences in space, and the forcing term that makes the exact solution steady.

use super::equations::{CONDUCTION, DIFFUSION, DISSIPATION, NORMAL_VISCOSITY, Primitive, State, VISCOSITY};
use super::field::{Field, interior_norm};
use super::grid::Grid;
use super::stencil::{Weights, smoothing};
use crate::nas::memory::{OutOfMemory, filled};

/// The residual at each point, and the parts of it that do not change.
pub(super) struct Residual {
    pub(super) values: Vec<State>,
    forcing: Vec<State>,
    /// Added diffusion and dissipation in x, y and z, for each point of a line.
    smoothing: [Vec<Weights>; 3],
    scales: Scales,
}

/// Factors of the differences.
#[derive(Clone, Copy)]
struct Scales {
    /// Factor of a difference of fluxes at distance -1 and 1.
    convection: f64,
    /// Factor of a second difference of velocities.
    viscosity: f64,
}

impl Residual {
    /// Computes the forcing term; leaves the exact solution in `field`.
    pub(super) fn new(field: &mut Field) -> Result<Self, OutOfMemory> {
        let grid = field.grid;
        let per_area = 1.0 / (grid.spacing() * grid.spacing());
        let mut residual = Self {
            values: filled(grid.len(), [0.0; 5])?,
            forcing: filled(grid.len(), [0.0; 5])?,
            smoothing: DIFFUSION.map(|d| smoothing(grid.points, d * per_area, DISSIPATION)),
            scales: Scales { convection: 0.5 / grid.spacing(), viscosity: VISCOSITY * per_area },
        };
        field.set_exact();
        residual.evaluate(field);
        for (forcing, value) in residual.forcing.iter_mut().zip(&residual.values) {
            *forcing = value.map(|v| -v);
        }
        Ok(residual)
    }

    /// Derives the field's primitives and sets the values of the interior; those on the boundary are 0.
    #[inline(never)]
    pub(super) fn evaluate(&mut self, field: &mut Field) {
        field.derive_primitives();
        for (y, z) in field.grid.interior_rows() {
            self.add_smoothing_across(field, y, z);
            self.add_fluxes(field, y, z);
        }
    }

    /// Root of the mean square, by components.
    pub(super) fn norm(&self, grid: Grid) -> State {
        interior_norm(grid, |point| self.values[grid.index(point)])
    }

    /// Sets a row to the forcing term and the smoothing in y and z: element by element, in the order of memory.
    #[inline(always)]
    fn add_smoothing_across(&mut self, field: &Field, y: usize, z: usize) {
        let grid = &field.grid;
        let inside = |y: usize, z: usize| field.states[grid.row(y, z)][grid.interior()].as_flattened();
        let last = grid.points - 1;
        // a point outside of the grid has weight 0: its neighbor is taken
        let (along_y, along_z) = (&self.smoothing[1][y], &self.smoothing[2][z]);
        let forcing = self.forcing[grid.row(y, z)][grid.interior()].as_flattened();
        let values = self.values[grid.row(y, z)][grid.interior()].as_flattened_mut();
        let weight = along_y[2] + along_z[2];
        for ((value, forcing), own) in values.iter_mut().zip(forcing).zip(inside(y, z)) {
            *value = forcing + weight * own;
        }
        let rows = [y.saturating_sub(2), y - 1, y + 1, (y + 2).min(last)].map(|y| inside(y, z));
        add_weighted(values, along_y, rows);
        let rows = [z.saturating_sub(2), z - 1, z + 1, (z + 2).min(last)].map(|z| inside(y, z));
        add_weighted(values, along_z, rows);
    }

    /// Adds to a row the smoothing in x and the fluxes in every direction.
    #[inline(always)]
    fn add_fluxes(&mut self, field: &Field, y: usize, z: usize) {
        let grid = &field.grid;
        let n = grid.points;
        let row = |y, z| Row {
            states: &field.states[grid.row(y, z)][..n],
            primitives: &field.primitives[grid.row(y, z)][..n],
        };
        let own = row(y, z);
        let beside = [row(y - 1, z), row(y + 1, z)];
        let above = [row(y, z - 1), row(y, z + 1)];
        let values = &mut self.values[grid.row(y, z)][..n];
        let smoothing = &self.smoothing[0][..n];
        for x in 1..n - 1 {
            let mut sum = values[x];
            let (weights, states) = (&smoothing[x], own.states);
            let near = [
                &states[x.saturating_sub(2)],
                &states[x - 1],
                &states[x],
                &states[x + 1],
                &states[(x + 2).min(n - 1)],
            ];
            for (m, sum) in sum.iter_mut().enumerate() {
                for (weight, state) in weights.iter().zip(near) {
                    *sum += weight * state[m];
                }
            }
            let center = &own.primitives[x];
            self.scales.add_fluxes::<0>(&mut sum, [own.at(x - 1), own.at(x + 1)], center);
            self.scales.add_fluxes::<1>(&mut sum, beside.map(|row| row.at(x)), center);
            self.scales.add_fluxes::<2>(&mut sum, above.map(|row| row.at(x)), center);
            values[x] = sum;
        }
    }
}

/// Adds to `values` its neighbors at distance -2, -1, 1 and 2.
#[inline(always)]
fn add_weighted(values: &mut [f64], weights: &Weights, [a, b, c, d]: [&[f64]; 4]) {
    let n = values.len();
    // all of one length, which the compiler sees
    let (a, b, c, d) = (&a[..n], &b[..n], &c[..n], &d[..n]);
    for i in 0..n {
        values[i] += weights[0] * a[i] + weights[1] * b[i] + (weights[3] * c[i] + weights[4] * d[i]);
    }
}

/// A row of points along x.
#[derive(Clone, Copy)]
struct Row<'a> {
    states: &'a [State],
    primitives: &'a [Primitive],
}

impl<'a> Row<'a> {
    #[inline(always)]
    fn at(self, x: usize) -> (&'a State, &'a Primitive) {
        (&self.states[x], &self.primitives[x])
    }
}

impl Scales {
    /// Adds the differences of convective and viscous fluxes between a point's two neighbors in a direction.
    #[inline(always)]
    fn add_fluxes<const AXIS: usize>(
        self,
        sum: &mut State,
        [(below, p), (above, q)]: [(&State, &Primitive); 2],
        center: &Primitive,
    ) {
        let (low, high) = (p.flux::<AXIS>(below), q.flux::<AXIS>(above));
        for m in 0..5 {
            sum[m] -= self.convection * (high[m] - low[m]);
        }
        let second = |value: fn(&Primitive) -> f64| value(q) - 2.0 * value(center) + value(p);
        for m in 0..3 {
            let factor = if m == AXIS { NORMAL_VISCOSITY } else { 1.0 };
            let difference = q.velocity[m] - 2.0 * center.velocity[m] + p.velocity[m];
            sum[1 + m] += self.viscosity * factor * difference;
        }
        sum[4] += self.viscosity
            * ((1.0 - CONDUCTION) * second(|p| p.kinetic)
                + (NORMAL_VISCOSITY - 1.0) * 0.5 * second(|p| p.velocity[AXIS] * p.velocity[AXIS])
                + CONDUCTION * second(|p| p.energy));
    }
}
