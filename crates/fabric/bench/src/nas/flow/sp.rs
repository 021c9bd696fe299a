// SPDX-License-Identifier: MIT OR Apache-2.0
//! SP (RNR-94-007, 3.4.3): the implicit operator is factored into one for each direction, and each of these is made diagonal by
//! the eigenvectors of the fluxes. Along a line there remain five pentadiagonal systems of numbers, three of them with the
//! same matrix.

use super::equations::{CONDUCTION, DIFFUSION, DISSIPATION, GAMMA_MINUS_1, State, VISCOSITY};
use super::field::Field;
use super::grid::Grid;
use super::lines::{Lines, PackedPrimitive, PackedState};
use super::pack::Pack;
use super::problem::Problem;
use super::residual::Residual;
use super::stencil::{Weights, smoothing};
use crate::nas::class::Class;
use crate::nas::memory::{OutOfMemory, filled};
use crate::nas::outcome::Outcome;
use crate::nas::timer::Timer;

const fn problem(class: Class) -> Problem {
    match class {
        Class::S => Problem {
            points: 12,
            iterations: 100,
            step: 0.015,
            residual: [
                2.747_031_545_133_948e-2,
                1.036_074_670_528_541_7e-2,
                1.623_574_506_509_553_2e-2,
                1.584_055_722_445_561_5e-2,
                3.484_904_060_936_246e-2,
            ],
            error: [
                2.728_925_855_737_722_5e-5,
                1.036_444_664_083_728_5e-5,
                1.615_479_828_716_647e-5,
                1.575_070_499_448_01e-5,
                3.417_766_618_339_053e-5,
            ],
        },
        Class::W => Problem {
            points: 36,
            iterations: 400,
            step: 1.5e-3,
            residual: [
                1.893_253_733_584e-3,
                1.717_075_447_775e-4,
                2.778_153_350_936e-4,
                2.887_475_409_984e-4,
                3.143_611_161_242e-3,
            ],
            error: [
                7.542_088_599_534e-5,
                6.512_852_253_086e-6,
                1.049_092_285_688e-5,
                1.128_838_671_535e-5,
                1.212_845_639_773e-4,
            ],
        },
        Class::A => Problem {
            points: 64,
            iterations: 400,
            step: 1.5e-3,
            residual: [
                2.479_982_239_930_019_5,
                1.127_633_796_436_883_2,
                1.502_897_788_877_049_2,
                1.421_781_621_169_518,
                2.129_211_303_513_828,
            ],
            error: [
                1.090_014_029_782_055e-4,
                3.734_395_176_928_209e-5,
                5.009_278_540_654_163e-5,
                4.767_109_393_952_825e-5,
                1.362_161_339_921_3e-4,
            ],
        },
    }
}

pub(in crate::nas) fn run(class: Class, most: Option<u32>) -> Result<Outcome, OutOfMemory> {
    let mut problem = problem(class);
    let is_whole = problem.limit_iterations(most);
    let mut field = Field::new(Grid::new(problem.points))?;
    let mut residual = Residual::new(&mut field)?;
    let mut solver = Solver::new(field.grid, problem.step)?;
    // one time step touches all memory
    field.set_initial();
    solver.advance(&mut field, &mut residual);
    field.set_initial();
    let timer = Timer::start();
    for _ in 0..problem.iterations {
        solver.advance(&mut field, &mut residual);
    }
    let timed = timer.stop();
    residual.evaluate(&mut field);
    let checks =
        if is_whole { problem.checks(residual.norm(field.grid), field.error_norm()) } else { Vec::new() };
    Ok(Outcome { iterations: problem.iterations, operations: operations(&problem), timed, checks })
}

/// Floating-point operations as NPB 3 counts them.
fn operations(problem: &Problem) -> f64 {
    let n = problem.points as f64;
    f64::from(problem.iterations) * (881.174 * n.powi(3) - 4683.91 * n.powi(2) + 11484.5 * n - 19272.4)
}

/// Lines under way, and the factors of a time step.
struct Solver {
    grid: Grid,
    step: f64,
    /// Time step over twice the distance of neighbors.
    convection: f64,
    /// Time step over the area between neighbors.
    per_area: f64,
    /// Dissipation in a time step, for each point of a line.
    dissipation: Vec<Weights>,
    /// Of a line: the derived quantities,
    primitives: Vec<PackedPrimitive>,
    /// and the eliminated rows.
    rows: Vec<Row>,
}

/// An eliminated row of the pentadiagonal systems of a line: `x + near x' + far x'' = value`, with the next two unknowns of the
/// line.
#[derive(Clone, Copy)]
struct Row {
    /// One for each speed: of the gas, and of sound forwards and backwards in it.
    near: [Pack; 3],
    far: [Pack; 3],
    values: PackedState,
}

/// The system that each component belongs to.
const SYSTEM: [usize; 5] = [0, 0, 0, 1, 2];

impl Row {
    const EMPTY: Self = Self { near: [Pack::ZERO; 3], far: [Pack::ZERO; 3], values: [Pack::ZERO; 5] };
}

impl Solver {
    fn new(grid: Grid, step: f64) -> Result<Self, OutOfMemory> {
        let h = grid.spacing();
        let zero = PackedPrimitive {
            velocity: [Pack::ZERO; 3],
            kinetic: Pack::ZERO,
            energy: Pack::ZERO,
            volume: Pack::ZERO,
            sound: Pack::ZERO,
        };
        Ok(Self {
            grid,
            step,
            convection: step / (2.0 * h),
            per_area: step / (h * h),
            dissipation: smoothing(grid.points, 0.0, -step * DISSIPATION),
            primitives: filled(grid.points, zero)?,
            rows: filled(grid.points, Row::EMPTY)?,
        })
    }

    /// One time step.
    fn advance(&mut self, field: &mut Field, residual: &mut Residual) {
        residual.evaluate(field);
        for axis in 0..3 {
            self.solve_along(axis, field, &mut residual.values);
        }
        field.add_scaled(self.step, &residual.values);
    }

    /// Applies the inverse of the operator of one direction.
    #[inline(never)]
    fn solve_along(&mut self, axis: usize, field: &Field, values: &mut [State]) {
        for lines in Lines::along(self.grid, axis) {
            for (point, primitive) in self.primitives.iter_mut().enumerate() {
                *primitive = lines.load_primitive(&field.primitives, point);
            }
            self.eliminate(DIFFUSION[axis], &lines, values);
            self.substitute(&lines, values);
        }
    }

    /// Eliminates the two unknowns before each point.
    #[inline(always)]
    fn eliminate(&mut self, diffusion: f64, lines: &Lines, values: &[State]) {
        let n = self.grid.points;
        let (primitives, rows) = (&self.primitives[..n], &mut self.rows[..n]);
        let dissipation = &self.dissipation[..n];
        // what lies beyond the line is 0
        let (mut before, mut last) = (Row::EMPTY, Row::EMPTY);
        let damping = |p: &PackedPrimitive| self.per_area * (diffusion + (CONDUCTION * VISCOSITY) * p.volume);
        for point in 1..n - 1 {
            let weights = &dissipation[point];
            let [low, own, high] = [&primitives[point - 1], &primitives[point], &primitives[point + 1]];
            let lower = (weights[1] + -damping(low)) - self.convection * low.velocity[0];
            let upper = (weights[3] + -damping(high)) + self.convection * high.velocity[0];
            let diagonal = (1.0 + weights[2]) + 2.0 * damping(own);
            let (sound_low, sound_high) = (self.convection * low.sound, self.convection * high.sound);
            let lowers = [lower, lower - sound_low, lower + sound_low];
            let uppers = [upper, upper + sound_high, upper - sound_high];
            let mut row = Row { values: to_waves(own, &lines.load(values, point)), ..Row::EMPTY };
            let mut factors = [(Pack::ZERO, Pack::ZERO); 3];
            for s in 0..3 {
                let lower = lowers[s] - weights[0] * before.near[s];
                let scale = 1.0 / (diagonal - weights[0] * before.far[s] - lower * last.near[s]);
                row.near[s] = scale * (uppers[s] - lower * last.far[s]);
                row.far[s] = weights[4] * scale;
                factors[s] = (lower, scale);
            }
            for (m, s) in SYSTEM.into_iter().enumerate() {
                let (lower, scale) = factors[s];
                let value = row.values[m] - weights[0] * before.values[m] - lower * last.values[m];
                row.values[m] = scale * value;
            }
            rows[point] = row;
            (before, last) = (last, row);
        }
    }

    /// Solves for the unknowns, from the last point to the first.
    #[inline(always)]
    fn substitute(&self, lines: &Lines, values: &mut [State]) {
        let n = self.grid.points;
        let (primitives, rows) = (&self.primitives[..n], &self.rows[..n]);
        let (mut next, mut after) = ([Pack::ZERO; 5], [Pack::ZERO; 5]);
        for point in (1..n - 1).rev() {
            let row = &rows[point];
            let mut x = row.values;
            for (m, s) in SYSTEM.into_iter().enumerate() {
                x[m] = x[m] - row.near[s] * next[m] - row.far[s] * after[m];
            }
            lines.store(values, point, &from_waves(&primitives[point], &x));
            (next, after) = (x, next);
        }
    }
}

const HALF_ROOT: f64 = std::f64::consts::FRAC_1_SQRT_2;

/// A change of state as a sum of eigenvectors of the flux along the line: three that move with the gas, and two with sound.
#[inline(always)]
fn to_waves(p: &PackedPrimitive, r: &PackedState) -> PackedState {
    let [u, v, w] = p.velocity;
    let pressure = GAMMA_MINUS_1 * (p.kinetic * r[0] - u * r[1] - v * r[2] - w * r[3] + r[4]);
    let compression = pressure / (p.sound * p.sound);
    let flow = HALF_ROOT * (p.volume * (u * r[0] - r[1]));
    let sound = HALF_ROOT * (p.volume * p.sound * compression);
    [
        r[0] - compression,
        p.volume * (r[3] - w * r[0]),
        p.volume * (v * r[0] - r[2]),
        sound - flow,
        sound + flow,
    ]
}

/// The inverse of [`to_waves`].
#[inline(always)]
fn from_waves(p: &PackedPrimitive, x: &PackedState) -> PackedState {
    let [u, v, w] = p.velocity;
    let density = 1.0 / p.volume;
    let compression = HALF_ROOT * (density * (x[3] + x[4]) / p.sound);
    let mass = x[0] + compression;
    let momentum = [
        u * mass + HALF_ROOT * (density * (x[3] - x[4])),
        v * mass - density * x[2],
        w * mass + density * x[1],
    ];
    let [a, b, c] = momentum;
    let energy =
        (1.0 / GAMMA_MINUS_1) * (p.sound * p.sound * compression) - p.kinetic * mass + u * a + v * b + w * c;
    [mass, a, b, c, energy]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_add_up_to_the_state() {
        let pack = Pack::splat;
        let (velocity, volume, sound) = ([pack(0.3), pack(-0.2), pack(0.7)], pack(0.8), pack(1.1));
        let p = PackedPrimitive { velocity, kinetic: pack(0.31), energy: pack(3.0), volume, sound };
        let state = [0.5, -0.25, 2.0, 1.5, -1.0].map(pack);
        for (value, expected) in from_waves(&p, &to_waves(&p, &state)).iter().zip(&state) {
            assert!((value.0[0] - expected.0[0]).abs() < 1e-12, "{value:?} {expected:?}");
        }
    }
}
