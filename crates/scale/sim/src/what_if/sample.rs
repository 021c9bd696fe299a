// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples: the part of a program that is simulated, and the conclusion from it to the whole program.
//!
//! Few ranks meet a rare detour rarely, so they are followed for long, in runs whose nodes are at other places of
//! the trace each time. Many ranks meet in every iteration all that there is: some iterations of one run are
//! enough. Either way the beginning is left out: ranks that begin together first have to come apart as a running
//! job's ranks are, and a first iteration is half as long again as a later one.
//!
//! All cases share one plan and its random numbers, so that what the plan errs by is not taken for the cost of a
//! source.

use crate::node::Node;
use crate::rng::Key;
use crate::simulate::{Run, Simulation, passes, run_for};
use crate::stats::{in_order, mean_ci95, mean_ci95_in_order, variance};
use crate::{Layout, SimError};

use super::answer::{Runs, Time};

/// Nanoseconds of a core that one case may take in one round, about: on few ranks, and on many. They are reckoned,
/// not measured, so that the answer does not depend on the machine that it is asked on.
const FEW_COST: f64 = 0.15e9;
const MANY_COST: f64 = 0.4e9;
/// The same for coordinated windows, which are simulated once.
const WINDOWED_COST: f64 = 1e9;
/// Fewest runs of windows, if each takes no longer than twice that cost.
const FEWEST_WINDOWED: f64 = 3.0;
/// The most that a further round may cost.
const ROUND_COST: f64 = 0.8e9;
/// Cost of a pass over a rank, and of its noise in an iteration, nanoseconds of a core, about.
const PASS_COST: f64 = 3.0;
const NOISE_COST: f64 = 180.0;
/// Runs of a round on few ranks: more of them, each shorter, show better how far the places of the trace differ.
const RUNS: u32 = 8;
/// Runs of a round on many ranks, and of iterations that the question counts. Iterations of one run that are a period of
/// the noise apart meet the same detours, so only runs whose nodes begin elsewhere tell how sure the mean is.
const MANY_RUNS: u32 = 4;
/// Ranks that are many: in each iteration some of them meet what is rare. (Fewer in tests, which are to be quick.)
const MANY: u32 = if cfg!(test) { 1 << 11 } else { 1 << 14 };
/// Most rounds on many ranks.
const MANY_ROUNDS: u32 = 4;
/// Iterations that a job on many ranks needs to find its rhythm.
const SETTLING: u64 = 2;
/// Fewest iterations that are measured of a run on many ranks, and the most of a round.
const FEWEST_MEASURED: f64 = 4.0;
const MOST_MEASURED: f64 = 48.0;
/// Most iterations of a shortened run on many ranks.
const SHORT: u64 = 16;
/// Iterations that are gone through to know how long they are.
const FIRST: u64 = 8;
/// Fewest and most iterations of a run on few ranks; more meet nothing that they did not.
const LONG: std::ops::RangeInclusive<f64> = 8.0..=200_000.0;
/// Before a regular window: iterations without noise that a job on many ranks settles in, and those measured.
const BEFORE: u64 = 3;
/// Part of the seed that says when runs begin.
const BEGIN: u64 = 1 << 41;

/// A program on so many nodes.
pub(super) struct Sampled {
    /// All but the noise.
    pub(super) simulation: Simulation,
    /// Time of an iteration without noise.
    pub(super) quiet_ns: f64,
    /// Iterations of each run, if the question says so.
    pub(super) iterations: Option<u64>,
    /// Earliest begin of a run; the same for all cases, so that their noise is the same.
    pub(super) begin_ns: u64,
}

/// The part of the program that is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plan {
    /// Runs of a round.
    pub(super) runs: u32,
    /// Most rounds.
    pub(super) rounds: u32,
    part: Part,
}

/// The part of a run that counts.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    /// From a time on, and for how long: that which iterations did not choose, so that time over iterations is
    /// their mean, however unequal they are.
    Time { from_ns: u64, span_ns: u64 },
    /// After how many iterations, and how many, one by one.
    Iterations { from: u64, count: u64 },
}

/// The part of the windows' period that is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WindowedPlan {
    pub(super) runs: u32,
    period_ns: u64,
    favored_ns: u64,
    /// Time before and after the regular window; `None`: whole periods.
    pub(super) around_ns: Option<u64>,
}

impl Sampled {
    pub(super) fn layout(&self) -> Result<Layout, SimError> {
        self.simulation.machine.layout(self.simulation.nodes)
    }

    /// The cost of an iteration.
    fn cost(&self) -> Result<f64, SimError> {
        let passes = passes(&self.simulation)? as f64;
        Ok(f64::from(self.layout()?.ranks()) * (passes * PASS_COST + NOISE_COST))
    }

    /// The cost of a shortened run.
    pub(super) fn shortened_cost(&self) -> Result<f64, SimError> {
        if self.iterations.is_none() && self.layout()?.ranks() < MANY {
            return Ok(FEW_COST / f64::from(RUNS));
        }
        Ok(self.cost()? * (SETTLING + SHORT) as f64)
    }

    /// Runs of a round, and most rounds.
    pub(super) fn rounds(&self) -> Result<(u32, u32), SimError> {
        let most = self.simulation.repetitions.max(1);
        if self.iterations.is_some() {
            return Ok((MANY_RUNS.min(most), most.div_ceil(MANY_RUNS)));
        }
        if self.layout()?.ranks() < MANY {
            return Ok((RUNS.min(most), most.div_ceil(RUNS)));
        }
        let (runs, measured) = self.measured(most)?;
        let each = self.cost()? * (measured + SETTLING) as f64;
        let affordable = ROUND_COST / (each * f64::from(runs));
        Ok((runs, (affordable as u32 + 1).min(MANY_ROUNDS).min(most.div_ceil(runs))))
    }

    /// Runs of a round on many ranks, `most` at most, and the iterations that are measured of each.
    fn measured(&self, most: u32) -> Result<(u32, u64), SimError> {
        let iterations = MANY_COST / self.cost()?;
        let runs = f64::from(MANY_RUNS.min(most));
        let of_each = |runs: f64| (iterations / runs - SETTLING as f64).min(MOST_MEASURED / runs);
        let (runs, each) =
            if of_each(runs) < FEWEST_MEASURED { (1.0, of_each(1.0)) } else { (runs, of_each(runs)) };
        Ok((runs as u32, each.max(FEWEST_MEASURED) as u64))
    }

    /// The plan of every case, `everything` among them.
    pub(super) fn plan(&self, everything: &Node) -> Result<Plan, SimError> {
        let (runs, rounds) = self.rounds()?;
        let most = self.simulation.repetitions.max(1);
        if let Some(count) = self.iterations {
            return Ok(Plan { runs, rounds, part: Part::Iterations { from: SETTLING, count } });
        }
        let cost = self.cost()?;
        if self.layout()?.ranks() >= MANY {
            let part = Part::Iterations { from: SETTLING, count: self.measured(most)?.1 };
            return Ok(Plan { runs, rounds, part });
        }
        let mut first = self.under(everything, self.begin_ns, FIRST);
        // numbers of no run
        first.seed = Key::new(self.simulation.seed).bits(BEGIN);
        let first = run_for(&first, 0, u64::MAX)?;
        let each_ns = (first.total_ns as f64 / FIRST as f64).max(1.0);
        // some iterations may be as short as without noise
        let ns_cost = cost / (each_ns * self.quiet_ns.max(1.0)).sqrt();
        let span_ns = FEW_COST / f64::from(runs) / ns_cost;
        let span_ns = span_ns.clamp(LONG.start() * each_ns, LONG.end() * each_ns);
        let from_ns = first.total_ns.max((span_ns / 20.0) as u64);
        let part = Part::Time { from_ns, span_ns: span_ns as u64 };
        Ok(Plan { runs, rounds, part })
    }

    /// Runs for windows of `period_ns` that begin favored.
    pub(super) fn windowed_plan(&self, period_ns: u64, favored_ns: u64) -> Result<WindowedPlan, SimError> {
        let most = self.simulation.repetitions.max(1);
        let affordable =
            |ns: f64| Ok::<f64, SimError>(WINDOWED_COST / (ns / self.quiet_ns.max(1.0) * self.cost()?));
        let around_ns = 2 * BEFORE * self.quiet_ns.ceil() as u64;
        let of_whole = affordable(2.0 * period_ns as f64)?;
        let whole = of_whole >= FEWEST_WINDOWED || self.iterations.is_some() || 2 * around_ns > favored_ns;
        let around =
            (period_ns - favored_ns + 2 * around_ns) as f64 + self.measured(1)?.1 as f64 * self.quiet_ns;
        let runs = match if whole { of_whole } else { affordable(around)? } {
            // an interval needs some runs, and may cost more for them
            runs if runs > 0.5 => runs.max(FEWEST_WINDOWED),
            _ => 1.0,
        };
        let runs = (runs as u32).clamp(1, most);
        Ok(WindowedPlan { runs, period_ns, favored_ns, around_ns: (!whole).then_some(around_ns) })
    }

    fn under(&self, node: &Node, begin_ns: u64, iterations: u64) -> Simulation {
        let mut simulation =
            Simulation { node: node.clone(), begin_ns: Some(begin_ns), ..self.simulation.clone() };
        simulation.program.iterations = iterations;
        simulation
    }

    /// The result of run `number` of `plan` under `node`. Runs of one number meet the same noise, as far as the nodes
    /// have the same sources.
    pub(super) fn run(&self, plan: &Plan, node: &Node, number: u32) -> Result<Vec<f64>, SimError> {
        match plan.part {
            Part::Time { from_ns, span_ns } => {
                let to_ns = from_ns + span_ns;
                let run = run_for(&self.under(node, self.begin_ns, self.most(to_ns)), number, to_ns)?;
                Ok(vec![run.iterations_between(from_ns, to_ns)])
            }
            Part::Iterations { from, count } => {
                let run = run_for(&self.under(node, self.begin_ns, from + count), number, u64::MAX)?;
                let each =
                    run.iterations.iter().flat_map(|&(ns, n)| std::iter::repeat_n(ns as f64, n as usize));
                Ok(each.skip(from as usize).collect())
            }
        }
    }

    /// Iterations that run `number` of `plan` does in a period of the windows; the second node is in a favored window for
    /// ever.
    pub(super) fn windowed_run(
        &self,
        plan: &WindowedPlan,
        (node, favored_node): (&Node, &Node),
        number: u32,
    ) -> Result<f64, SimError> {
        let WindowedPlan { period_ns, favored_ns, around_ns, .. } = *plan;
        let periods_before = self.begin_ns.div_ceil(period_ns);
        let first_ns = periods_before * period_ns;
        let late = Key::new(self.simulation.seed).part(BEGIN).uniform(number.into());
        let late_ns = (late * self.quiet_ns.min(period_ns as f64)) as u64;
        let run = |begin_ns: u64, span_ns: u64| -> Result<Run, SimError> {
            run_for(&self.under(node, begin_ns, self.most(span_ns)), number, span_ns)
        };
        let Some(around_ns) = around_ns else {
            // the period after the first
            let before_ns = period_ns - late_ns;
            return Ok(run(first_ns + late_ns, before_ns + period_ns)?
                .iterations_between(before_ns, before_ns + period_ns));
        };
        // favored windows are alike from their beginning to their end: what they are like is seen without threads
        let favored = Plan {
            runs: 1,
            rounds: 1,
            part: Part::Iterations { from: SETTLING, count: self.measured(1)?.1 },
        };
        let each = self.run(&favored, favored_node, number)?;
        let favored_ns_each = each.iter().sum::<f64>() / each.len().max(1) as f64;
        let before_ns = around_ns + late_ns;
        let end_ns = before_ns + (period_ns - favored_ns) + around_ns;
        let run = run(first_ns + favored_ns - before_ns, end_ns)?;
        // half of what is before the regular window is enough to settle
        let from_ns = before_ns - around_ns / 2;
        let part = run.iterations_between(from_ns, end_ns);
        Ok(part + (period_ns - (end_ns - from_ns)) as f64 / favored_ns_each.max(1.0))
    }

    /// More iterations than fit in `span_ns`.
    fn most(&self, span_ns: u64) -> u64 {
        (16.0 + 4.0 * span_ns as f64 / self.quiet_ns.max(1.0)) as u64
    }
}

impl Plan {
    /// Returns `true` if runs are followed for a time, as those of few ranks are.
    pub(super) const fn is_of_few_ranks(&self) -> bool {
        matches!(self.part, Part::Time { .. })
    }

    /// The plan of a run that needs not be as precise: on many ranks, of fewer iterations.
    pub(super) fn shortened(&self) -> Self {
        let part = match self.part {
            Part::Iterations { from, count } => Part::Iterations { from, count: count.min(SHORT) },
            part => part,
        };
        Self { part, ..*self }
    }

    /// Number and length of the runs of this plan that found `found`.
    pub(super) fn runs(&self, found: &[Vec<f64>], time: &Time) -> Runs {
        let runs = found.len() as u32;
        match self.part {
            Part::Time { span_ns, .. } => Runs { runs, span_ns, iterations: found.iter().flatten().sum() },
            Part::Iterations { count, .. } => Runs {
                runs,
                span_ns: (time.ns * count as f64) as u64,
                iterations: count as f64 * f64::from(runs),
            },
        }
    }

    /// The mean iteration of runs of it.
    pub(super) fn estimate(&self, found: &[Vec<f64>]) -> Estimate {
        match self.part {
            Part::Time { span_ns, .. } => {
                let iterations: Vec<f64> = found.iter().flatten().copied().collect();
                Estimate { runs: vec![linear(span_ns as f64, &iterations)], in_order: false }
            }
            Part::Iterations { .. } => Estimate { runs: found.to_vec(), in_order: true },
        }
    }
}

impl WindowedPlan {
    /// Share of the period that is favored.
    pub(super) fn favored(&self) -> f64 {
        self.favored_ns as f64 / self.period_ns.max(1) as f64
    }

    /// Number and length of the runs of this plan, each with its iterations in a period.
    pub(super) fn runs(&self, found: &[f64]) -> Runs {
        Runs { runs: found.len() as u32, span_ns: self.period_ns, iterations: found.iter().sum() }
    }

    /// The mean iteration of runs of it.
    pub(super) fn estimate(&self, found: &[f64]) -> Estimate {
        Estimate { runs: vec![linear(self.period_ns as f64, found)], in_order: false }
    }
}

/// Values of runs of `span_ns` with so many iterations, whose mean is the mean iteration.
///
/// It is all time over all iterations. That of a single run is not what has to be averaged: the mean of
/// quotients is not the quotient of means. So a run's value is the quotient of all, corrected to first order
/// by what the run's iterations differ from their mean (Taylor linearisation of a ratio: Cochran, "Sampling
/// techniques", 1977, section 6.4), and values of two cases may be subtracted run by run.
fn linear(span_ns: f64, iterations: &[f64]) -> Vec<f64> {
    let mean = iterations.iter().sum::<f64>() / iterations.len().max(1) as f64;
    let time_ns = span_ns / mean.max(f64::MIN_POSITIVE);
    iterations.iter().map(|n| time_ns * (2.0 - n / mean.max(f64::MIN_POSITIVE))).collect()
}

/// Values whose mean is that of an iteration, run by run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Estimate {
    runs: Vec<Vec<f64>>,
    /// True if the values of a run follow one another in time. Then all runs have as many.
    in_order: bool,
}

impl Estimate {
    /// Variance of the mean, as far as the values tell.
    pub(super) fn variance(&self) -> Option<f64> {
        let several = self.runs.concat().len() > 1;
        several.then(|| match self.means() {
            Some(means) => variance(&means) / means.len() as f64,
            None if self.in_order => in_order(&self.runs).variance,
            None => variance(&self.runs.concat()),
        })
    }

    /// The mean of each run, if there are enough runs of iterations to know the mean's error by.
    fn means(&self) -> Option<Vec<f64>> {
        let mean = |run: &Vec<f64>| run.iter().sum::<f64>() / run.len().max(1) as f64;
        let enough = self.in_order && self.runs.len() >= MANY_RUNS as usize;
        enough.then(|| self.runs.iter().map(mean).collect())
    }

    /// Variance of the values: of one run's, if each run has one.
    pub(super) fn variance_of_run(&self) -> f64 {
        variance(&self.runs.concat())
    }

    /// The mean, and how sure it is.
    pub(super) fn time(&self) -> Time {
        let (ns, ci95_ns) = match self.means() {
            Some(means) => mean_ci95(&means),
            None if self.in_order => mean_ci95_in_order(&self.runs),
            None => mean_ci95(&self.runs.concat()),
        };
        Time::simulated(ns, ci95_ns)
    }

    /// The difference, value by value: what both met alike is in neither's interval. `None` where all are the same:
    /// what was taken away was not there.
    pub(super) fn paired_minus(&self, other: &Self) -> Option<Time> {
        let pairs = self.runs.iter().zip(&other.runs);
        let runs: Vec<Vec<f64>> = pairs.map(|(a, b)| a.iter().zip(b).map(|(a, b)| a - b).collect()).collect();
        let seen = runs.iter().flatten().any(|d| *d != 0.0);
        seen.then(|| Self { runs, in_order: self.in_order }.time())
    }

    /// The difference of what was not simulated together.
    pub(super) fn minus(&self, other: &Self) -> Time {
        let (a, b) = (self.time(), other.time());
        let ci95_ns = a.simulation_ci95_ns.zip(b.simulation_ci95_ns).map(|(a, b)| a.hypot(b));
        Time::simulated(a.ns - b.ns, ci95_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_that_repeat_within_a_run_do_not_make_the_mean_surer() {
        // each run meets the detours of its own place in the trace again and again
        let run = |ns: f64| (0..12).map(|n| ns + f64::from(n % 3)).collect::<Vec<f64>>();
        let runs = vec![run(10.0), run(20.0), run(30.0), run(40.0)];
        let time = Estimate { runs: runs.clone(), in_order: true }.time();
        let (mean, half) = mean_ci95(&[11.0, 21.0, 31.0, 41.0]);
        assert_eq!(time.ns, mean);
        assert!(half.is_some_and(|half| (time.simulation_ci95_ns.unwrap_or(0.0) / half - 1.0).abs() < 1e-9));
        // too few runs to compare: the iterations themselves have to tell
        let one = Estimate { runs: runs[..1].to_vec(), in_order: true }.time();
        assert!(one.simulation_ci95_ns.is_some_and(|half| half < 2.0), "{one:?}");
    }
}
