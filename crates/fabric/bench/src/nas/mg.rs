// SPDX-License-Identifier: MIT OR Apache-2.0
//! MG, multigrid (RNR-94-007, 2.2.2): V-cycles for a Poisson equation on a cube with periodic borders.

use super::check::Check;
use super::class::Class;
use super::memory::{OutOfMemory, filled};
use super::outcome::Outcome;
use super::random::Random;
use super::timer::Timer;

const SEED: u64 = 314_159_265;
const TOLERANCE: f64 = 1e-8;
/// Operator of the equation, by distance: center, face, edge, corner. The face's weight is 0.
const OPERATOR: [f64; 4] = [-8.0 / 3.0, 0.0, 1.0 / 6.0, 1.0 / 12.0];
/// Smoother, by distance. The corner's weight is 0.
const SMOOTHER: [f64; 4] = [-3.0 / 8.0, 1.0 / 32.0, -1.0 / 64.0, 0.0];
/// Iterations of these classes.
const ITERATIONS: u32 = 4;

/// The finest level, a cube of `2^level` points a side, and the residual that NPB 3 expects.
const fn problem(class: Class) -> (u32, f64) {
    match class {
        Class::S => (5, 0.530_770_700_573_4e-4),
        Class::W => (7, 0.646_732_937_533_9e-5),
        Class::A => (8, 0.243_336_530_906_9e-5),
    }
}

pub(super) fn run(class: Class) -> Result<Outcome, OutOfMemory> {
    let (level, expected) = problem(class);
    let mut cycle = Cycle::new(level)?;
    // one turn touches all memory
    cycle.once();
    cycle.finest_solution().zero();
    let timer = Timer::start();
    cycle.residual();
    for _ in 0..ITERATIONS {
        cycle.once();
    }
    let norm = cycle.norm();
    let timed = timer.stop();
    let points = f64::from(1u32 << level).powi(3);
    Ok(Outcome {
        iterations: ITERATIONS,
        operations: 58.0 * f64::from(ITERATIONS) * points,
        timed,
        checks: vec![Check::new("L2 norm of the residual", norm, expected, TOLERANCE)],
    })
}

/// A cube of points with a border of one.
struct Grid {
    /// Points of a side, border included.
    side: usize,
    points: Vec<f64>,
}

impl Grid {
    fn new(level: u32) -> Result<Self, OutOfMemory> {
        let side = (1 << level) + 2;
        Ok(Self { side, points: filled(side * side * side, 0.0)? })
    }

    fn zero(&mut self) {
        self.points.fill(0.0);
    }

    #[inline(always)]
    fn at(&self, plane: usize, row: usize) -> usize {
        (plane * self.side + row) * self.side
    }

    #[inline(always)]
    fn row(&self, plane: usize, row: usize) -> &[f64] {
        let at = self.at(plane, row);
        &self.points[at..at + self.side]
    }

    #[inline(always)]
    fn row_mut(&mut self, plane: usize, row: usize) -> &mut [f64] {
        let at = self.at(plane, row);
        &mut self.points[at..at + self.side]
    }

    /// The nine rows around (and with) one; all of one length, which the compiler sees.
    #[inline(always)]
    fn around(&self, plane: usize, row: usize) -> Around<'_> {
        let line = |p, r| self.row(p, r);
        let (p, r) = (plane, row);
        Around {
            center: line(p, r),
            faces: [line(p, r - 1), line(p, r + 1), line(p - 1, r), line(p + 1, r)],
            edges: [line(p - 1, r - 1), line(p - 1, r + 1), line(p + 1, r - 1), line(p + 1, r + 1)],
        }
    }

    /// Copies the inside's sides to the opposite borders (`comm3` of the original).
    fn wrap(&mut self) {
        let n = self.side;
        for plane in 1..n - 1 {
            for row in 1..n - 1 {
                let line = self.row_mut(plane, row);
                line[0] = line[n - 2];
                line[n - 1] = line[1];
            }
            self.copy_opposite([0, 1, n - 2, n - 1].map(|row| self.at(plane, row)), n);
        }
        self.copy_opposite([0, 1, n - 2, n - 1].map(|plane| self.at(plane, 0)), n * n);
    }

    /// Copies `length` points from the last but one of four places to the first, and from the second to
    /// the last.
    fn copy_opposite(&mut self, [border, first, last, end]: [usize; 4], length: usize) {
        self.points.copy_within(last..last + length, border);
        self.points.copy_within(first..first + length, end);
    }
}

/// The rows next to a row: itself, four at distance one, four at the diagonals.
struct Around<'a> {
    center: &'a [f64],
    faces: [&'a [f64]; 4],
    edges: [&'a [f64]; 4],
}

impl Around<'_> {
    /// Sums over the four faces, and over the four edges, point by point.
    #[inline(always)]
    fn sums(&self, faces: &mut [f64], edges: &mut [f64]) {
        sum_of_four(&self.faces, faces);
        sum_of_four(&self.edges, edges);
    }
}

#[inline(always)]
fn sum_of_four(rows: &[&[f64]; 4], sum: &mut [f64]) {
    let n = sum.len();
    let [a, b, c, d] = rows.map(|row| &row[..n]);
    for i in 0..n {
        sum[i] = a[i] + b[i] + c[i] + d[i];
    }
}

/// Room for the sums of a row.
struct Lines {
    faces: Vec<f64>,
    edges: Vec<f64>,
    own: Vec<f64>,
}

/// All levels and what they share.
struct Cycle {
    /// Solutions and residuals, coarsest first; levels 1 and up.
    u: Vec<Grid>,
    r: Vec<Grid>,
    /// The right-hand side of the finest level.
    v: Grid,
    lines: Lines,
}

impl Cycle {
    fn new(level: u32) -> Result<Self, OutOfMemory> {
        let grids = || (1..=level).map(Grid::new).collect::<Result<Vec<_>, _>>();
        let mut v = Grid::new(level)?;
        charges(&mut v)?;
        let line = || filled(v.side, 0.0);
        let lines = Lines { faces: line()?, edges: line()?, own: line()? };
        let mut cycle = Self { u: grids()?, r: grids()?, v, lines };
        cycle.residual();
        Ok(cycle)
    }

    fn finest_solution(&mut self) -> &mut Grid {
        let finest = self.u.len() - 1;
        &mut self.u[finest]
    }

    /// The residual of the finest level, `r = v - A u`.
    fn residual(&mut self) {
        let finest = self.u.len() - 1;
        residual(&self.u[finest], Some(&self.v), &mut self.r[finest], &mut self.lines);
    }

    /// One V-cycle and the residual after it.
    fn once(&mut self) {
        let finest = self.u.len() - 1;
        for level in (1..=finest).rev() {
            let (coarse, fine) = self.r.split_at_mut(level);
            project(&fine[0], &mut coarse[level - 1], &mut self.lines);
        }
        self.u[0].zero();
        smooth(&self.r[0], &mut self.u[0], &mut self.lines);
        for level in 1..=finest {
            let (coarse, fine) = self.u.split_at_mut(level);
            if level < finest {
                fine[0].zero();
            }
            interpolate(&coarse[level - 1], &mut fine[0], &mut self.lines);
            let v = (level == finest).then_some(&self.v);
            residual(&fine[0], v, &mut self.r[level], &mut self.lines);
            smooth(&self.r[level], &mut fine[0], &mut self.lines);
        }
        self.residual();
    }

    /// Root of the mean square of the finest residual.
    fn norm(&self) -> f64 {
        let r = &self.r[self.r.len() - 1];
        let inside = r.side - 2;
        let mut sum = 0.0;
        for plane in 1..=inside {
            for row in 1..=inside {
                sum = r.row(plane, row)[1..=inside].iter().fold(sum, |sum, x| sum + x * x);
            }
        }
        (sum / (inside as f64).powi(3)).sqrt()
    }
}

/// `r = v - A u`; without `v`, `r = r - A u`.
#[inline(never)]
fn residual(u: &Grid, v: Option<&Grid>, r: &mut Grid, lines: &mut Lines) {
    let n = u.side;
    let (faces, edges) = (&mut lines.faces[..n], &mut lines.edges[..n]);
    for plane in 1..n - 1 {
        for row in 1..n - 1 {
            let around = u.around(plane, row);
            around.sums(faces, edges);
            let own = &mut lines.own[..n];
            own.copy_from_slice(v.unwrap_or(r).row(plane, row));
            let (u, r) = (&around.center[..n], &mut r.row_mut(plane, row)[..n]);
            for i in 1..n - 1 {
                r[i] = own[i]
                    - OPERATOR[0] * u[i]
                    - OPERATOR[2] * (edges[i] + faces[i - 1] + faces[i + 1])
                    - OPERATOR[3] * (edges[i - 1] + edges[i + 1]);
            }
        }
    }
    r.wrap();
}

/// `u = u + S r`.
#[inline(never)]
fn smooth(r: &Grid, u: &mut Grid, lines: &mut Lines) {
    let n = r.side;
    let (faces, edges) = (&mut lines.faces[..n], &mut lines.edges[..n]);
    for plane in 1..n - 1 {
        for row in 1..n - 1 {
            let around = r.around(plane, row);
            around.sums(faces, edges);
            let (r, u) = (&around.center[..n], &mut u.row_mut(plane, row)[..n]);
            for i in 1..n - 1 {
                u[i] = u[i]
                    + SMOOTHER[0] * r[i]
                    + SMOOTHER[1] * (r[i - 1] + r[i + 1] + faces[i])
                    + SMOOTHER[2] * (edges[i] + faces[i - 1] + faces[i + 1]);
            }
        }
    }
    u.wrap();
}

/// The fine residual on the next coarser level, with weights by distance.
#[inline(never)]
fn project(fine: &Grid, coarse: &mut Grid, lines: &mut Lines) {
    let (n, m) = (fine.side, coarse.side);
    let (faces, edges) = (&mut lines.faces[..n], &mut lines.edges[..n]);
    for plane in 1..m - 1 {
        for row in 1..m - 1 {
            let around = fine.around(2 * plane, 2 * row);
            around.sums(faces, edges);
            let (r, s) = (&around.center[..n], &mut coarse.row_mut(plane, row)[..m]);
            for (j, s) in s.iter_mut().enumerate().take(m - 1).skip(1) {
                let i = 2 * j;
                *s = 0.5 * r[i]
                    + 0.25 * (r[i - 1] + r[i + 1] + faces[i])
                    + 0.125 * (faces[i - 1] + faces[i + 1] + edges[i])
                    + 0.0625 * (edges[i - 1] + edges[i + 1]);
            }
        }
    }
    coarse.wrap();
}

/// Adds the coarse solution to the fine one, trilinearly.
#[inline(never)]
fn interpolate(coarse: &Grid, fine: &mut Grid, lines: &mut Lines) {
    let m = coarse.side;
    let [z1, z2, z3] = [&mut lines.faces[..m], &mut lines.edges[..m], &mut lines.own[..m]];
    for plane in 0..m - 1 {
        for row in 0..m - 1 {
            let (z, right) = (&coarse.row(plane, row)[..m], &coarse.row(plane, row + 1)[..m]);
            let (above, diagonal) = (&coarse.row(plane + 1, row)[..m], &coarse.row(plane + 1, row + 1)[..m]);
            for i in 0..m {
                z1[i] = right[i] + z[i];
                z2[i] = above[i] + z[i];
                z3[i] = diagonal[i] + above[i] + z1[i];
            }
            add_between(z, 1.0, fine.row_mut(2 * plane, 2 * row));
            add_between(z1, 0.5, fine.row_mut(2 * plane, 2 * row + 1));
            add_between(z2, 0.5, fine.row_mut(2 * plane + 1, 2 * row));
            add_between(z3, 0.25, fine.row_mut(2 * plane + 1, 2 * row + 1));
        }
    }
}

/// Adds `scale` of each coarse point to the fine point there, and of two to the one between them.
#[inline(always)]
fn add_between(coarse: &[f64], scale: f64, fine: &mut [f64]) {
    for (pair, fine) in coarse.windows(2).zip(fine.chunks_exact_mut(2)) {
        fine[0] += scale * pair[0];
        fine[1] += 0.5 * scale * (pair[1] + pair[0]);
    }
}

/// A number and the place it is at.
type Placed = (f64, usize);

/// The right-hand side: +1 at the ten largest of as many random numbers as there are points, -1 at the ten
/// smallest.
fn charges(v: &mut Grid) -> Result<(), OutOfMemory> {
    const EACH: usize = 10;
    let inside = v.side - 2;
    let mut random = Random::new(SEED);
    // the ten so far, in ascending order
    let (mut least, mut most): (Vec<Placed>, Vec<Placed>) = (Vec::new(), Vec::new());
    for plane in 1..=inside {
        for row in 1..=inside {
            let at = v.at(plane, row);
            for i in 1..=inside {
                let x = random.next();
                if least.len() < EACH || x < least[EACH - 1].0 {
                    least.insert(least.partition_point(|l| l.0 < x), (x, at + i));
                    least.truncate(EACH);
                }
                if most.len() < EACH || x > most[0].0 {
                    most.insert(most.partition_point(|m| m.0 < x), (x, at + i));
                    if most.len() > EACH {
                        most.remove(0);
                    }
                }
            }
        }
    }
    v.zero();
    least.iter().for_each(|l| v.points[l.1] = -1.0);
    most.iter().for_each(|m| v.points[m.1] = 1.0);
    v.wrap();
    Ok(())
}
