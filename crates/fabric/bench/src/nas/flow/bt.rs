// SPDX-License-Identifier: MIT OR Apache-2.0
//! BT (RNR-94-007, 3.4.4): the implicit operator is factored into one for each direction. Along a line there remains a
//! tridiagonal system of blocks of 5 by 5 numbers.

use super::equations::{DIFFUSION, State};
use super::field::Field;
use super::grid::Grid;
use super::jacobian::{Block, Jacobian};
use super::lines::{Lines, PackedState};
use super::pack::Pack;
use super::problem::Problem;
use super::residual::Residual;
use crate::nas::class::Class;
use crate::nas::memory::{OutOfMemory, filled};
use crate::nas::outcome::Outcome;
use crate::nas::timer::Timer;

const fn problem(class: Class) -> Problem {
    match class {
        Class::S => Problem {
            points: 12,
            iterations: 60,
            step: 0.01,
            residual: [
                0.170_342_837_095_413_12,
                1.297_525_207_003_409_6e-2,
                3.252_792_698_948_605_4e-2,
                2.643_642_127_516_68e-2,
                0.192_117_841_317_444_3,
            ],
            error: [
                4.997_691_334_581_158e-4,
                4.519_566_678_296_193e-5,
                7.397_376_517_292_135e-5,
                7.382_123_863_243_973e-5,
                8.926_963_098_749_145e-4,
            ],
        },
        Class::W => Problem {
            points: 24,
            iterations: 200,
            step: 8e-4,
            residual: [
                112.559_040_934_4,
                11.800_075_957_31,
                27.103_297_678_46,
                24.691_749_376_69,
                263.842_787_431_7,
            ],
            error: [
                4.419_655_736_008,
                0.463_853_126_000_2,
                1.011_551_749_967,
                0.923_587_872_994_4,
                10.180_458_377_18,
            ],
        },
        Class::A => Problem {
            points: 64,
            iterations: 200,
            step: 8e-4,
            residual: [
                108.063_467_146_372_64,
                11.319_730_901_220_813,
                25.974_354_511_582_465,
                23.665_622_544_678_91,
                252.789_632_117_483_45,
            ],
            error: [
                4.234_841_604_052_502_5,
                0.443_902_824_969_957,
                0.966_924_801_363_456_5,
                0.883_020_630_397_654_8,
                9.737_990_177_082_928,
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
    f64::from(problem.iterations) * (3478.8 * n.powi(3) - 17655.7 * n.powi(2) + 28023.7 * n)
}

/// Lines under way, and the factors of a time step.
struct Solver {
    grid: Grid,
    step: f64,
    /// Time step over twice the distance of neighbors.
    convection: f64,
    /// Time step over the area between neighbors.
    per_area: f64,
    /// Eliminated rows of a line.
    rows: Vec<Row>,
}

/// An eliminated row of the system of a line: `x + next x' = values`, with the next unknown of the line.
#[derive(Clone, Copy)]
struct Row {
    next: Block,
    values: PackedState,
}

impl Row {
    const EMPTY: Self = Self { next: [[Pack::ZERO; 5]; 5], values: [Pack::ZERO; 5] };
}

impl Solver {
    fn new(grid: Grid, step: f64) -> Result<Self, OutOfMemory> {
        let h = grid.spacing();
        Ok(Self {
            grid,
            step,
            convection: step / (2.0 * h),
            per_area: step / (h * h),
            rows: filled(grid.points, Row::EMPTY)?,
        })
    }

    /// One time step.
    fn advance(&mut self, field: &mut Field, residual: &mut Residual) {
        residual.evaluate(field);
        for axis in 0..3 {
            for lines in Lines::along(self.grid, axis) {
                self.eliminate(axis, &lines, field, &residual.values);
                self.substitute(&lines, &mut residual.values);
            }
        }
        field.add_scaled(self.step, &residual.values);
    }

    /// Eliminates the unknowns before each point.
    #[inline(never)]
    fn eliminate(&mut self, axis: usize, lines: &Lines, field: &Field, values: &[State]) {
        let n = self.grid.points;
        let primitives = &field.primitives;
        let jacobian = |point| Jacobian::new(&lines.load_primitive(primitives, point));
        let diffusion = self.per_area * DIFFUSION[axis];
        // a point and its neighbors, each in its place: they are large
        let mut near = [jacobian(0), jacobian(1), Jacobian::ZERO];
        for point in 1..n - 1 {
            near[(point + 1) % 3] = jacobian(point + 1);
            let [low, own, high] = [point - 1, point, point + 1].map(|point| &near[point % 3]);
            let mut values = lines.load(values, point);
            let mut diagonal = combine(own, 0.0, 2.0 * self.per_area, 1.0 + 2.0 * diffusion);
            if point > 1 {
                // on the boundary nothing changes
                let lower = combine(low, -self.convection, -self.per_area, -diffusion);
                let before = &self.rows[point - 1];
                subtract_product(&lower, before, &mut diagonal, &mut values);
            }
            let upper = combine(high, self.convection, -self.per_area, -diffusion);
            self.rows[point] = Row { next: upper, values };
            divide_by(&mut diagonal, &mut self.rows[point]);
        }
    }

    /// Solves for the unknowns, from the last point to the first.
    #[inline(never)]
    fn substitute(&self, lines: &Lines, values: &mut [State]) {
        let n = self.grid.points;
        let mut next = [Pack::ZERO; 5];
        for point in (1..n - 1).rev() {
            let row = &self.rows[point];
            let mut x = row.values;
            for (x, factors) in x.iter_mut().zip(&row.next) {
                for (factor, next) in factors.iter().zip(next) {
                    *x -= *factor * next;
                }
            }
            lines.store(values, point, &x);
            next = x;
        }
    }
}

/// The sum of both derivatives with factors, and `diagonal` times the unit matrix.
#[inline(always)]
fn combine(jacobian: &Jacobian, convection: f64, viscosity: f64, diagonal: f64) -> Block {
    let mut block = [[Pack::ZERO; 5]; 5];
    for (r, row) in block.iter_mut().enumerate() {
        for (c, element) in row.iter_mut().enumerate() {
            *element = convection * jacobian.convective[r][c] + viscosity * jacobian.viscous[r][c];
        }
        row[r] = diagonal + row[r];
    }
    block
}

/// Subtracts from a row of the system `lower` times the eliminated row before it.
#[inline(always)]
fn subtract_product(lower: &Block, before: &Row, diagonal: &mut Block, values: &mut PackedState) {
    for r in 0..5 {
        for (i, factor) in lower[r].into_iter().enumerate() {
            subtract_scaled(&mut diagonal[r], factor, &before.next[i]);
            values[r] -= factor * before.values[i];
        }
    }
}

/// Multiplies `row` by the inverse of `diagonal`: elimination without a search for pivots, as in NPB.
#[inline(always)]
fn divide_by(diagonal: &mut Block, row: &mut Row) {
    for pivot in 0..5 {
        let scale = 1.0 / diagonal[pivot][pivot];
        let right = pivot + 1..5;
        for value in diagonal[pivot][right.clone()].iter_mut().chain(&mut row.next[pivot]) {
            *value = scale * *value;
        }
        row.values[pivot] = scale * row.values[pivot];
        let (own, next, value) = (diagonal[pivot], row.next[pivot], row.values[pivot]);
        for r in (0..5).filter(|&r| r != pivot) {
            let factor = diagonal[r][pivot];
            subtract_scaled(&mut diagonal[r][right.clone()], factor, &own[right.clone()]);
            subtract_scaled(&mut row.next[r], factor, &next);
            row.values[r] -= factor * value;
        }
    }
}

#[inline(always)]
fn subtract_scaled(from: &mut [Pack], factor: Pack, row: &[Pack]) {
    for (from, value) in from.iter_mut().zip(row) {
        *from -= factor * *value;
    }
}
