// SPDX-License-Identifier: MIT OR Apache-2.0
//! CG, conjugate gradient (RNR-94-007, 2.2.3): inverse power iteration for the smallest eigenvalue of a
//! sparse symmetric positive definite matrix of random pattern.

use super::check::Check;
use super::class::Class;
use super::memory::{OutOfMemory, filled};
use super::outcome::Outcome;
use super::random::Random;
use super::timer::Timer;

const SEED: u64 = 314_159_265;
/// Conjugate gradient steps of an outer iteration.
const STEPS: u32 = 25;
/// Reciprocal of the condition number.
const RCOND: f64 = 0.1;
const TOLERANCE: f64 = 1e-10;

struct Problem {
    /// Order of the matrix.
    order: usize,
    /// Random nonzeros of a generating vector.
    nonzeros: usize,
    shift: f64,
    iterations: u32,
    /// The eigenvalue estimate that NPB 3 expects.
    zeta: f64,
}

const fn problem(class: Class) -> Problem {
    match class {
        Class::S => {
            Problem { order: 1400, nonzeros: 7, shift: 10.0, iterations: 15, zeta: 8.597_177_507_864_8 }
        }
        Class::W => {
            Problem { order: 7000, nonzeros: 8, shift: 12.0, iterations: 15, zeta: 10.362_595_087_124 }
        }
        Class::A => {
            Problem { order: 14_000, nonzeros: 11, shift: 20.0, iterations: 15, zeta: 17.130_235_054_029 }
        }
    }
}

pub(super) fn run(class: Class) -> Result<Outcome, OutOfMemory> {
    let problem = problem(class);
    let matrix = Matrix::make(&problem)?;
    let mut solver = Solver::new(matrix)?;
    // one iteration touches all memory
    solver.iterate();
    solver.x.fill(1.0);
    let timer = Timer::start();
    let mut zeta = 0.0;
    for _ in 0..problem.iterations {
        zeta = problem.shift + 1.0 / solver.iterate();
    }
    let timed = timer.stop();
    Ok(Outcome {
        iterations: problem.iterations,
        operations: operations(&problem),
        timed,
        checks: vec![Check::new("zeta", zeta, problem.zeta, TOLERANCE)],
    })
}

/// Floating-point operations as NPB 3 counts them.
fn operations(p: &Problem) -> f64 {
    let vector = (p.nonzeros * (p.nonzeros + 1)) as f64;
    let steps = f64::from(STEPS);
    2.0 * f64::from(p.iterations) * p.order as f64 * (3.0 + vector + steps * (5.0 + vector) + 3.0)
}

/// A sparse matrix, row by row.
struct Matrix {
    /// Row `i` is at `starts[i]..starts[i + 1]`.
    starts: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f64>,
}

/// A sparse vector: places and values.
type Sparse = Vec<(u32, f64)>;

impl Matrix {
    /// The sum of outer products of random sparse vectors with weights from 1 down to [`RCOND`], and the
    /// diagonal `RCOND - shift`.
    fn make(problem: &Problem) -> Result<Self, OutOfMemory> {
        let n = problem.order;
        let vectors = vectors(problem);
        let mut rows = Rows::new(n, &vectors)?;
        let ratio = RCOND.powf(1.0 / n as f64);
        let mut weight = 1.0;
        for (i, vector) in vectors.iter().enumerate() {
            for &(row, a) in vector {
                let scale = weight * a;
                for &(column, b) in vector {
                    let mut value = b * scale;
                    if column == row && row as usize == i {
                        value += RCOND - problem.shift;
                    }
                    rows.add(row as usize, column, value);
                }
            }
            weight *= ratio;
        }
        Ok(rows.packed())
    }

    /// `y = A x`.
    #[inline(never)]
    fn times(&self, x: &[f64], y: &mut [f64]) {
        for (y, bounds) in y.iter_mut().zip(self.starts.windows(2)) {
            let row = bounds[0]..bounds[1];
            let (columns, values) = (&self.columns[row.clone()], &self.values[row]);
            let mut sum = 0.0;
            for (&column, &a) in columns.iter().zip(values) {
                sum += a * x[column as usize];
            }
            *y = sum;
        }
    }
}

/// The generating vectors: random places and values, and one half in the vector's own place.
fn vectors(problem: &Problem) -> Vec<Sparse> {
    let mut random = Random::new(SEED);
    // the original draws one number before it makes the matrix
    random.next();
    let n = problem.order as u32;
    let places = f64::from(n.next_power_of_two());
    let one = |i: u32| {
        let mut vector = Sparse::with_capacity(problem.nonzeros + 1);
        while vector.len() < problem.nonzeros {
            let (value, place) = (random.next(), (random.next() * places) as u32);
            if place < n && vector.iter().all(|v| v.0 != place) {
                vector.push((place, value));
            }
        }
        match vector.iter_mut().find(|v| v.0 == i) {
            Some(own) => own.1 = 0.5,
            None => vector.push((i, 0.5)),
        }
        vector
    };
    (0..n).map(one).collect()
}

/// A matrix in the making: rows with room for what will come, each in the order of its columns.
struct Rows {
    /// The room for row `i`: `rooms[i]..rooms[i + 1]`.
    rooms: Vec<usize>,
    lengths: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f64>,
}

impl Rows {
    fn new(n: usize, vectors: &[Sparse]) -> Result<Self, OutOfMemory> {
        let mut rooms = filled(n + 1, 0)?;
        for vector in vectors {
            for &(row, _) in vector {
                rooms[row as usize + 1] += vector.len();
            }
        }
        for i in 0..n {
            rooms[i + 1] += rooms[i];
        }
        let all = rooms[n];
        Ok(Self { rooms, lengths: filled(n, 0)?, columns: filled(all, 0)?, values: filled(all, 0.0)? })
    }

    /// Adds to one element; in the order of the calls, so that sums are rounded as in the original.
    fn add(&mut self, row: usize, column: u32, value: f64) {
        let start = self.rooms[row];
        let end = start + self.lengths[row];
        match self.columns[start..end].binary_search(&column) {
            Ok(at) => self.values[start + at] += value,
            Err(at) => {
                self.columns.copy_within(start + at..end, start + at + 1);
                self.values.copy_within(start + at..end, start + at + 1);
                self.columns[start + at] = column;
                self.values[start + at] = value;
                self.lengths[row] += 1;
            }
        }
    }

    /// Without the room left over.
    fn packed(mut self) -> Matrix {
        let mut end = 0;
        let mut starts = Vec::with_capacity(self.rooms.len());
        for (&room, &length) in self.rooms.iter().zip(&self.lengths) {
            starts.push(end);
            self.columns.copy_within(room..room + length, end);
            self.values.copy_within(room..room + length, end);
            end += length;
        }
        starts.push(end);
        self.columns.truncate(end);
        self.values.truncate(end);
        Matrix { starts, columns: self.columns, values: self.values }
    }
}

struct Solver {
    matrix: Matrix,
    x: Vec<f64>,
    z: Vec<f64>,
    p: Vec<f64>,
    q: Vec<f64>,
    r: Vec<f64>,
}

impl Solver {
    fn new(matrix: Matrix) -> Result<Self, OutOfMemory> {
        let n = matrix.starts.len() - 1;
        let zero = || filled(n, 0.0);
        Ok(Self { matrix, x: filled(n, 1.0)?, z: zero()?, p: zero()?, q: zero()?, r: zero()? })
    }

    /// Solves `A z = x`, makes `z` of length one the next `x`, and gives `x · z`.
    fn iterate(&mut self) -> f64 {
        self.conjugate_gradient();
        let product = dot(&self.x, &self.z);
        let scale = 1.0 / dot(&self.z, &self.z).sqrt();
        for (x, z) in self.x.iter_mut().zip(&self.z) {
            *x = scale * z;
        }
        product
    }

    #[inline(never)]
    fn conjugate_gradient(&mut self) {
        let Self { matrix, x, z, p, q, r } = self;
        z.fill(0.0);
        r.copy_from_slice(x);
        p.copy_from_slice(x);
        let mut rho = dot(r, r);
        for _ in 0..STEPS {
            matrix.times(p, q);
            let alpha = rho / dot(p, q);
            for ((z, r), (p, q)) in z.iter_mut().zip(r.iter_mut()).zip(p.iter().zip(q.iter())) {
                *z += alpha * p;
                *r -= alpha * q;
            }
            let before = rho;
            rho = dot(r, r);
            let beta = rho / before;
            for (p, r) in p.iter_mut().zip(r.iter()) {
                *p = r + beta * *p;
            }
        }
        // the residual |x - A z|, which NPB computes (and counts) but does not verify
        matrix.times(z, r);
        let distance: f64 = x.iter().zip(r.iter()).map(|(x, r)| (x - r) * (x - r)).sum();
        std::hint::black_box(distance.sqrt());
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
