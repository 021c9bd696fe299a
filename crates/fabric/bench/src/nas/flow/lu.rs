// SPDX-License-Identifier: MIT OR Apache-2.0
//! LU (RNR-94-007, 3.4.2): symmetric successive over-relaxation, one sweep through the grid forwards and one backwards in
//! each time step.
//!
//! Despite its name there is no LU decomposition. The blocks of the lower and upper triangular systems are not stored: each
//! is the Jacobian of the fluxes at a neighbor, whose product with a vector takes fewer operations than its elements.

use super::equations::{
    CONDUCTION, DIFFUSION, GAMMA, GAMMA_MINUS_1, NORMAL_VISCOSITY, Primitive, State, VISCOSITY,
};
use super::field::Field;
use super::grid::Grid;
use super::integral::pressure_integral;
use super::problem::Problem;
use super::residual::Residual;
use crate::nas::class::Class;
use crate::nas::memory::OutOfMemory;
use crate::nas::outcome::Outcome;
use crate::nas::timer::Timer;

/// Relaxation factor.
const OMEGA: f64 = 1.2;

/// The class, and the surface integral that NPB 3 expects.
const fn problem(class: Class) -> (Problem, f64) {
    match class {
        Class::S => (
            Problem {
                points: 12,
                iterations: 50,
                step: 0.5,
                residual: [
                    1.619_634_321_097_670_3e-2,
                    2.197_674_516_482_132e-3,
                    1.517_992_765_339_918_5e-3,
                    1.502_958_443_599_432_3e-3,
                    3.426_407_315_589_646e-2,
                ],
                error: [
                    6.422_331_995_796_092e-4,
                    8.414_434_204_734_792e-5,
                    5.858_826_961_648_518_7e-5,
                    5.847_422_259_515_735e-5,
                    1.310_334_791_411_129_4e-3,
                ],
            },
            7.841_892_886_593_708,
        ),
        Class::W => (
            Problem {
                points: 33,
                iterations: 300,
                step: 1.5e-3,
                residual: [
                    12.365_116_381_92,
                    1.317_228_477_799,
                    2.550_120_713_095,
                    2.326_187_750_252,
                    28.267_994_441_89,
                ],
                error: [
                    0.486_787_714_421_6,
                    5.064_652_880_982e-2,
                    9.281_818_101_96e-2,
                    8.570_126_542_733e-2,
                    1.084_277_417_792,
                ],
            },
            11.613_993_110_23,
        ),
        Class::A => (
            Problem {
                points: 64,
                iterations: 250,
                step: 2.0,
                residual: [
                    779.021_076_066_893_7,
                    63.402_765_259_692_87,
                    194.992_497_272_924_8,
                    178.453_011_604_185_38,
                    1_838.476_034_946_424_8,
                ],
                error: [
                    29.964_085_685_471_943,
                    2.819_457_636_500_335,
                    7.347_341_269_877_474,
                    6.713_922_568_777_705,
                    70.715_315_688_392_58,
                ],
            },
            26.030_925_604_886_278,
        ),
    }
}

pub(in crate::nas) fn run(class: Class, most: Option<u32>) -> Result<Outcome, OutOfMemory> {
    let (mut problem, integral) = problem(class);
    let is_whole = problem.limit_iterations(most);
    let mut field = Field::new(Grid::new(problem.points))?;
    let mut residual = Residual::new(&mut field)?;
    let relaxation = Relaxation::new(&field.grid, problem.step);
    // one iteration touches all memory
    field.set_initial();
    residual.evaluate(&mut field);
    relaxation.iterate(&mut field, &mut residual);
    field.set_initial();
    residual.evaluate(&mut field);
    let timer = Timer::start();
    for _ in 0..problem.iterations {
        relaxation.iterate(&mut field, &mut residual);
    }
    let norm = residual.norm(field.grid);
    let timed = timer.stop();
    let mut checks = Vec::new();
    if is_whole {
        checks = problem.checks(norm, field.error_norm());
        checks.push(Problem::check_integral(pressure_integral(&field), integral));
    }
    Ok(Outcome { iterations: problem.iterations, operations: operations(&problem), timed, checks })
}

/// Floating-point operations as NPB 3 counts them.
fn operations(problem: &Problem) -> f64 {
    let n = problem.points as f64;
    f64::from(problem.iterations) * (1984.77 * n.powi(3) - 10923.3 * n.powi(2) + 27770.9 * n - 144_010.0)
}

/// Factors of an iteration.
struct Relaxation {
    step: f64,
    /// Factor of the convective fluxes of a neighbor.
    convection: f64,
    /// Factor of the second differences of a neighbor: relaxation factor and time step over an area.
    per_area: f64,
    /// Diagonal of the diagonal blocks, without viscosity.
    diagonal: f64,
    /// Factor of the second differences at the point itself.
    own_per_area: f64,
}

impl Relaxation {
    fn new(grid: &Grid, step: f64) -> Self {
        let h = grid.spacing();
        let own_per_area = 2.0 * step / (h * h);
        Self {
            step,
            convection: OMEGA * step / (2.0 * h),
            per_area: OMEGA * step / (h * h),
            diagonal: 1.0 + own_per_area * DIFFUSION.iter().sum::<f64>(),
            own_per_area,
        }
    }

    /// Replaces the residual by the change of the state, adds this, and evaluates the new residual.
    fn iterate(&self, field: &mut Field, residual: &mut Residual) {
        self.sweep_forwards(field, &mut residual.values);
        self.sweep_backwards(field, &mut residual.values);
        field.add_scaled(1.0 / (OMEGA * (2.0 - OMEGA)), &residual.values);
        residual.evaluate(field);
    }

    /// Solves the lower triangular system.
    #[inline(never)]
    fn sweep_forwards(&self, field: &Field, values: &mut [State]) {
        let (grid, primitives) = (&field.grid, &field.primitives[..]);
        let [_, row, plane] = grid.strides;
        for (y, z) in grid.interior_rows() {
            let own = grid.row(y, z);
            let (before, rest) = values.split_at_mut(own.start);
            let n = own.len();
            let values = &mut rest[..n];
            let below = |distance: usize| {
                (&primitives[own.start - distance..][..n], &before[own.start - distance..][..n])
            };
            let ((p_y, v_y), (p_z, v_z)) = (below(row), below(plane));
            let primitives = &primitives[own.clone()][..n];
            let mut last = values[0];
            for x in 1..n - 1 {
                let mut sum = values[x].map(|value| self.step * value);
                self.add_neighbor::<2, true>(&mut sum, &p_z[x], &v_z[x]);
                self.add_neighbor::<1, true>(&mut sum, &p_y[x], &v_y[x]);
                self.add_neighbor::<0, true>(&mut sum, &primitives[x - 1], &last);
                last = self.solve_diagonal(&primitives[x], &sum);
                values[x] = last;
            }
        }
    }

    /// Solves the upper triangular system.
    #[inline(never)]
    fn sweep_backwards(&self, field: &Field, values: &mut [State]) {
        let (grid, primitives) = (&field.grid, &field.primitives[..]);
        let [_, row, plane] = grid.strides;
        for (y, z) in grid.interior_rows().rev() {
            let own = grid.row(y, z);
            let n = own.len();
            let (rest, after) = values.split_at_mut(own.end);
            let values = &mut rest[own.start..];
            let above =
                |distance: usize| (&primitives[own.start + distance..][..n], &after[distance - n..][..n]);
            let ((p_y, v_y), (p_z, v_z)) = (above(row), above(plane));
            let primitives = &primitives[own.clone()][..n];
            let values = &mut values[..n];
            let mut last = values[n - 1];
            for x in (1..n - 1).rev() {
                let mut sum = [0.0; 5];
                self.add_neighbor::<2, false>(&mut sum, &p_z[x], &v_z[x]);
                self.add_neighbor::<1, false>(&mut sum, &p_y[x], &v_y[x]);
                self.add_neighbor::<0, false>(&mut sum, &primitives[x + 1], &last);
                let change = self.solve_diagonal(&primitives[x], &sum);
                for (value, change) in values[x].iter_mut().zip(change) {
                    *value += change;
                }
                last = values[x];
            }
        }
    }

    /// Adds the product of a neighbor's block with `v`, on the right-hand side. A neighbor `BEFORE` the point has its
    /// fluxes flow in, one after it has them flow out.
    #[inline(always)]
    fn add_neighbor<const AXIS: usize, const BEFORE: bool>(&self, sum: &mut State, p: &Primitive, v: &State) {
        let convection = if BEFORE { self.convection } else { -self.convection };
        // changes of the velocities and the pressure that belong to `v`
        let momentum: [f64; 3] = std::array::from_fn(|m| v[1 + m] - p.velocity[m] * v[0]);
        let [a, b, c] = p.velocity;
        let pressure = GAMMA_MINUS_1 * (p.kinetic * v[0] - a * v[1] - b * v[2] - c * v[3] + v[4]);
        let enthalpy = GAMMA * p.energy - GAMMA_MINUS_1 * p.kinetic;
        let (speed, flow) = (p.velocity[AXIS], momentum[AXIS]);
        let viscosity = VISCOSITY * p.volume;
        let (diffusion, per_area) = (DIFFUSION[AXIS] * self.per_area, self.per_area);
        let own = convection * speed + diffusion;
        sum[0] += own * v[0] + convection * flow;
        let mut heat = CONDUCTION * (v[4] - p.energy * v[0]);
        for m in 0..3 {
            let factor = if m == AXIS { NORMAL_VISCOSITY } else { 1.0 };
            sum[1 + m] += own * v[1 + m]
                + convection * (flow * p.velocity[m])
                + per_area * viscosity * factor * momentum[m];
            heat += (factor - CONDUCTION) * p.velocity[m] * momentum[m];
        }
        sum[1 + AXIS] += convection * pressure;
        sum[4] +=
            own * v[4] + convection * (flow * enthalpy + pressure * speed) + per_area * viscosity * heat;
    }

    /// Solves the system of a diagonal block. The block is lower triangular: convection has no part in it, and viscosity
    /// couples momentum to the density, and energy to both.
    #[inline(always)]
    fn solve_diagonal(&self, p: &Primitive, sum: &State) -> State {
        // the sum of the factors of three directions
        const VISCOUS: f64 = NORMAL_VISCOSITY + 2.0;
        const CONDUCTIVE: f64 = 3.0 * CONDUCTION;
        let viscosity = self.own_per_area * VISCOSITY * p.volume;
        let per_momentum = 1.0 / (self.diagonal + VISCOUS * viscosity);
        let per_energy = 1.0 / (self.diagonal + CONDUCTIVE * viscosity);
        let density = sum[0] / self.diagonal;
        let mut energy =
            sum[4] + viscosity * (CONDUCTIVE * p.energy + 2.0 * (VISCOUS - CONDUCTIVE) * p.kinetic) * density;
        let mut x = [density, 0.0, 0.0, 0.0, 0.0];
        for m in 0..3 {
            x[1 + m] = per_momentum * (sum[1 + m] + viscosity * VISCOUS * p.velocity[m] * density);
            energy -= viscosity * (VISCOUS - CONDUCTIVE) * p.velocity[m] * x[1 + m];
        }
        x[4] = per_energy * energy;
        x
    }
}
