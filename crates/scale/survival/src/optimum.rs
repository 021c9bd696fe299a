// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interval that costs the least time, found by simulation.
//!
//! Intervals around Daly's are tried with the same failures (common random numbers), so that their differences are
//! known better than their means. Near the optimum the cost of an interval τ is a + b τ + c / τ, which is fitted to the
//! means by least squares; its lowest point is the optimum.

use serde::{Deserialize, Serialize};

use crate::costs::Costs;
use crate::life::Life;
use crate::runs::{Refusal, Runs};

/// Intervals tried on each side, each 2^(1/3) from the next.
const SIDE: i32 = 5;
/// Times that the search may move if the best interval is the last on a side.
const MOVES: usize = 6;
/// The fit takes intervals of at most this factor from the best one tried.
const FIT: f64 = 2.0;

/// An interval that was tried.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// Work between two checkpoints, seconds.
    pub interval_s: f64,
    /// Mean time over work, minus 1.
    pub time: f64,
}

/// The optimum of a scheme.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Optimum {
    /// Work between two checkpoints that costs the least time, seconds. The job's length: no checkpoint at all is best.
    pub interval_s: f64,
    /// Shortest and longest interval tried that the runs cannot tell from the best one (95 %, paired). The cost is flat
    /// between them.
    pub flat_s: (f64, f64),
    /// All intervals tried, rising.
    pub tried: Vec<Tried>,
}

/// An interval and the overhead of every run.
struct Point {
    interval_s: f64,
    overheads: Vec<f64>,
    mean: f64,
}

/// Finds the optimum, beginning at `around_s`.
///
/// # Errors
/// [`Refusal`] if no interval lets the job end.
pub fn search(runs: &mut Runs, costs: &Costs, around_s: f64) -> Result<Optimum, Refusal> {
    let work_s = runs.scenario().job.work_s;
    let mut points: Vec<Point> = Vec::new();
    let mut refused = Refusal::NoProgress;
    let mut centre = around_s.min(work_s);
    for _ in 0..MOVES {
        for step in -SIDE..=SIDE {
            let interval_s = (centre * 2f64.powf(f64::from(step) / 3.0)).min(work_s);
            if points.iter().any(|p| (p.interval_s / interval_s).ln().abs() < 0.05) {
                continue;
            }
            match point(runs, costs, interval_s) {
                Ok(point) => points.push(point),
                Err(refusal) => refused = refusal,
            }
        }
        points.sort_by(|a, b| a.interval_s.total_cmp(&b.interval_s));
        let Some(best) = best(&points) else { break };
        let at = points[best].interval_s;
        let inside = best > 0 && (best + 1 < points.len() || at >= work_s);
        if inside || centre == at {
            break;
        }
        centre = at;
    }
    let Some(best) = best(&points) else { return Err(refused) };
    Ok(Optimum {
        interval_s: lowest(&points, best).min(work_s),
        flat_s: flat(&points, best),
        tried: points.iter().map(|p| Tried { interval_s: p.interval_s, time: p.mean }).collect(),
    })
}

fn point(runs: &mut Runs, costs: &Costs, interval_s: f64) -> Result<Point, Refusal> {
    let lives: Vec<Life> = runs.lives(costs, interval_s)?;
    let overheads = runs.overheads(&lives);
    let mean = overheads.iter().sum::<f64>() / overheads.len() as f64;
    Ok(Point { interval_s, overheads, mean })
}

fn best(points: &[Point]) -> Option<usize> {
    (0..points.len()).min_by(|&a, &b| points[a].mean.total_cmp(&points[b].mean))
}

/// The lowest point of a + b τ + c / τ fitted around the best interval; that one if the fit has none near it.
fn lowest(points: &[Point], best: usize) -> f64 {
    let at = points[best].interval_s;
    let near: Vec<(f64, f64)> = points
        .iter()
        .map(|p| (p.interval_s / at, p.mean))
        .filter(|(x, _)| (1.0 / FIT * 0.99..=FIT * 1.01).contains(x))
        .collect();
    let fitted = fit(&near).filter(|&[_, b, c]| b > 0.0 && c > 0.0).map(|[_, b, c]| (c / b).sqrt());
    at * fitted.filter(|x| (1.0 / FIT..=FIT).contains(x)).unwrap_or(1.0)
}

/// Least squares of y = a + b x + c / x: the normal equations, by Cramer's rule. `None` for fewer than four points.
fn fit(points: &[(f64, f64)]) -> Option<[f64; 3]> {
    if points.len() < 4 {
        return None;
    }
    let (mut m, mut v) = ([[0.0; 3]; 3], [0.0; 3]);
    for &(x, y) in points {
        let basis = [1.0, x, 1.0 / x];
        for i in 0..3 {
            for j in 0..3 {
                m[i][j] += basis[i] * basis[j];
            }
            v[i] += basis[i] * y;
        }
    }
    let det = |m: &[[f64; 3]; 3]| {
        m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0])
            + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0])
    };
    let whole = det(&m);
    let with = |column: usize| {
        let mut other = m;
        (0..3).for_each(|row| other[row][column] = v[row]);
        det(&other) / whole
    };
    (whole.abs() > 1e-12).then(|| [with(0), with(1), with(2)])
}

/// The intervals beside the best one that cannot be told from it.
fn flat(points: &[Point], best: usize) -> (f64, f64) {
    let same = |p: &&Point| {
        let differences: Vec<f64> =
            p.overheads.iter().zip(&points[best].overheads).map(|(a, b)| a - b).collect();
        let (mean, half) = colony_sim::stats::mean_ci95(&differences);
        mean - half.unwrap_or(f64::INFINITY) <= 0.0
    };
    let below = points[..=best].iter().rev().take_while(same).last();
    let above = points[best..].iter().take_while(same).last();
    let at = points[best].interval_s;
    (below.map_or(at, |p| p.interval_s), above.map_or(at, |p| p.interval_s))
}
