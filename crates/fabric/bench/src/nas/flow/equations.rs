// SPDX-License-Identifier: MIT OR Apache-2.0
//! The equations at one point: constants, the exact solution, and the quantities that the fluxes are made of.

/// Density, momentum in x, y and z, and total energy, each per volume.
pub(super) type State = [f64; 5];

/// Ratio of specific heats (`c1` of the report).
pub(super) const GAMMA: f64 = 1.4;
/// Pressure per internal energy (`c2`).
pub(super) const GAMMA_MINUS_1: f64 = GAMMA - 1.0;
/// Viscosity (`c3 c4`).
pub(super) const VISCOSITY: f64 = 0.1;
/// Heat conduction per viscosity (`c1 c5`).
pub(super) const CONDUCTION: f64 = 1.4 * 1.4;
/// Viscosity of a velocity in its own direction, per viscosity.
pub(super) const NORMAL_VISCOSITY: f64 = 4.0 / 3.0;
/// Second-order diffusion that is added in x, y and z (`dx1`, `dy1`, `dz1`).
pub(super) const DIFFUSION: [f64; 3] = [0.75, 0.75, 1.0];
/// Fourth-order dissipation that is added (`dssp`): a quarter of the largest diffusion.
pub(super) const DISSIPATION: f64 = 0.25;

/// Coefficients of the exact solution (report, Table 3.1), one row for each component of a state: the constant, then the
/// coefficients of x, y, z, of their squares, cubes and fourth powers.
const EXACT: [[f64; 13]; 5] = [
    [2.0, 0.0, 0.0, 4.0, 5.0, 3.0, 0.5, 0.02, 0.01, 0.03, 0.5, 0.4, 0.3],
    [1.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 0.01, 0.03, 0.02, 0.4, 0.3, 0.5],
    [2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.04, 0.03, 0.05, 0.3, 0.5, 0.4],
    [2.0, 2.0, 0.0, 0.0, 0.0, 2.0, 3.0, 0.03, 0.05, 0.04, 0.2, 0.1, 0.3],
    [5.0, 4.0, 3.0, 2.0, 0.1, 0.4, 0.3, 0.05, 0.04, 0.03, 0.1, 0.3, 0.2],
];

/// The exact solution at a place in the unit cube.
pub(super) fn exact_solution(place: [f64; 3]) -> State {
    EXACT.map(|c| {
        let mut value = c[0];
        for (axis, x) in place.into_iter().enumerate() {
            value += x * (c[1 + axis] + x * (c[4 + axis] + x * (c[7 + axis] + x * c[10 + axis])));
        }
        value
    })
}

/// Quantities derived from a state. One cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Primitive {
    pub(super) velocity: [f64; 3],
    pub(super) pressure: f64,
    /// Kinetic energy per mass.
    pub(super) kinetic: f64,
    /// Total energy per mass.
    pub(super) energy: f64,
    /// Volume per mass.
    pub(super) volume: f64,
    /// Speed of sound.
    pub(super) sound: f64,
}

impl Primitive {
    #[inline(always)]
    pub(super) fn new(u: &State) -> Self {
        let volume = 1.0 / u[0];
        let velocity = [u[1] * volume, u[2] * volume, u[3] * volume];
        let kinetic =
            0.5 * (velocity[0] * velocity[0] + velocity[1] * velocity[1] + velocity[2] * velocity[2]);
        let energy = u[4] * volume;
        let internal = energy - kinetic;
        Self {
            velocity,
            pressure: GAMMA_MINUS_1 * (u[0] * internal),
            kinetic,
            energy,
            volume,
            sound: (GAMMA * GAMMA_MINUS_1 * internal).sqrt(),
        }
    }

    /// Flux of mass, momentum and energy in a direction, without viscosity.
    #[inline(always)]
    pub(super) fn flux<const AXIS: usize>(&self, u: &State) -> State {
        let speed = self.velocity[AXIS];
        let mut flux = u.map(|u| u * speed);
        flux[1 + AXIS] += self.pressure;
        flux[4] += self.pressure * speed;
        flux
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exact_solution_at_the_corners_is_the_sum_of_its_coefficients() {
        assert_eq!(exact_solution([0.0; 3]), [2.0, 1.0, 2.0, 2.0, 5.0]);
        let sums = EXACT.map(|c| c.iter().sum::<f64>());
        for (value, sum) in exact_solution([1.0; 3]).into_iter().zip(sums) {
            assert!((value - sum).abs() < 1e-12, "{value} {sum}");
        }
    }
}
