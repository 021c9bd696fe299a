//! Which times of a program are simulated, and what they say of all of it.
//!
//! Iterations at a million ranks are dear, and what is rare on a node is in nearly all of them; on a few
//! ranks they are cheap, and must be many. So several short runs, each at an instant and with random numbers
//! of its own, take the place of one long one. A run has a time, not a number of iterations: over a time
//! that the iterations did not choose, time over iterations is the mean, however unequal they are.

use crate::cpus::Node;
use crate::rng::Key;
use crate::simulate::{Simulation, iterations_within, passes, simulate};
use crate::stats::mean_ci95;
use crate::{Layout, SimError};

use super::Time;

/// Nanoseconds of a core that the runs of one case may take at one node count, about, so that the answer
/// does not depend on the machine that it is asked on.
const COST: f64 = 1e9;
/// The same for coordinated windows, of which a whole period is to be seen.
const WINDOWED_COST: f64 = 4e9;
/// What a pass over a rank costs, and a detour of it, nanoseconds of a core, about.
const PASS_COST: f64 = 1.0;
const DETOUR_COST: f64 = 60.0;
/// Fewest runs for an interval that says something, where the question allows as many.
const RUNS: u32 = 3;
/// Fewest and most iterations of a run.
const ITERATIONS: std::ops::RangeInclusive<f64> = 2.0..=100.0;
/// Iterations that are gone through to know how long they are.
const FIRST: u64 = 1;
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
    /// When runs begin at the earliest; all cases alike, for their noise to be the same.
    pub(super) begin_ns: u64,
}

/// What is simulated of it under one noise and scheduler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plan {
    /// Runs, each with its own random numbers.
    pub(super) runs: u32,
    /// Time of each.
    pub(super) span_ns: u64,
    /// They begin where windows of this period do, each at another point of an iteration; `None`: noise is
    /// the same at any time.
    pub(super) period_ns: Option<u64>,
}

impl Sampled {
    pub(super) fn layout(&self) -> Result<Layout, SimError> {
        self.simulation.machine.layout(self.simulation.nodes)
    }

    /// Runs for noise that is the same at any time.
    pub(super) fn plan(&self, node: &Node) -> Result<Plan, SimError> {
        let mut first = self.under(node, self.begin_ns);
        (first.repetitions, first.program.iterations) = (1, FIRST);
        // numbers of no run
        first.seed = Key::new(self.simulation.seed).bits(BEGIN);
        let each_ns = simulate(&first)?.mean_ns.max(1.0);
        let affordable = COST / (each_ns * self.cost(node)?);
        let (runs, iterations) = match self.iterations {
            Some(given) => (self.simulation.repetitions, given as f64),
            None => {
                let runs = self.runs(affordable / (2.0 * ITERATIONS.start()));
                (runs, (affordable / f64::from(runs)).clamp(*ITERATIONS.start(), *ITERATIONS.end()))
            }
        };
        let span_ns = (each_ns * iterations).ceil() as u64;
        Ok(Plan { runs, span_ns, period_ns: None })
    }

    /// Runs for windows of `period_ns`: whole periods from their beginning, when no noise is left over from
    /// before. So each part of the period counts as long as it lasts.
    pub(super) fn windowed_plan(&self, node: &Node, period_ns: u64) -> Result<Plan, SimError> {
        let affordable = WINDOWED_COST / (period_ns as f64 * self.cost(node)?);
        let (runs, periods) = match self.iterations {
            Some(given) => {
                (self.simulation.repetitions, (given as f64 * self.quiet_ns / period_ns as f64) as u64)
            }
            None => ((affordable as u32).clamp(1, self.simulation.repetitions), 1),
        };
        Ok(Plan { runs, span_ns: period_ns * periods.max(1), period_ns: Some(period_ns) })
    }

    /// As many runs as can be afforded, within what is asked for and what makes sense.
    fn runs(&self, affordable: f64) -> u32 {
        let most = self.simulation.repetitions;
        (affordable as u32).clamp(RUNS.min(most), most)
    }

    /// What a nanosecond of the program's time costs.
    fn cost(&self, node: &Node) -> Result<f64, SimError> {
        let passes = passes(&self.simulation)? as f64 / self.quiet_ns.max(1.0);
        let admitted = node.sources.iter().filter(|s| node.scheduler.admits(s.class));
        let detours: f64 = admitted.map(|s| 1.0 / s.noise.cycle_ns().max(1.0)).sum();
        let ranks = f64::from(self.layout()?.ranks());
        Ok(ranks * (passes * PASS_COST + detours * DETOUR_COST))
    }

    fn under(&self, node: &Node, begin_ns: u64) -> Simulation {
        Simulation { node: node.clone(), begin_ns: Some(begin_ns), ..self.simulation.clone() }
    }

    /// Iterations of run `run` of `plan` under `node`. Runs of one number meet the same noise, as far as
    /// nodes have the same.
    pub(super) fn run(&self, plan: &Plan, node: &Node, run: u32) -> Result<f64, SimError> {
        let begin_ns = match plan.period_ns {
            Some(period_ns) => {
                let late = Key::new(self.simulation.seed).part(BEGIN).uniform(run.into());
                // with the boot: no noise before has to be gone through
                (late * self.quiet_ns.min(period_ns as f64)) as u64
            }
            None => self.begin_ns,
        };
        let mut simulation = self.under(node, begin_ns);
        simulation.program.iterations = (16.0 + 4.0 * plan.span_ns as f64 / self.quiet_ns.max(1.0)) as u64;
        iterations_within(&simulation, run, plan.span_ns)
    }
}

/// Mean time of an iteration as each run has it.
///
/// It is all time over all iterations. That of a single run is not what has to be averaged: the mean of
/// quotients is not the quotient of means. So a run's value is the quotient of all, corrected to first order
/// by what the run's iterations differ from their mean (Taylor linearisation of a ratio: Cochran, "Sampling
/// techniques", 1977, section 6.4), and values of two cases may be subtracted run by run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Estimate(Vec<f64>);

impl Estimate {
    /// From the iterations that each run of `plan` did.
    pub(super) fn new(plan: &Plan, iterations: &[f64]) -> Self {
        let mean = iterations.iter().sum::<f64>() / iterations.len().max(1) as f64;
        let time_ns = plan.span_ns as f64 / mean.max(f64::MIN_POSITIVE);
        Self(iterations.iter().map(|n| time_ns * (2.0 - n / mean.max(f64::MIN_POSITIVE))).collect())
    }

    /// The mean, and how sure it is.
    pub(super) fn time(&self) -> Time {
        let (ns, ci95_ns) = mean_ci95(&self.0);
        Time { ns, ci95_ns }
    }

    /// The difference, run by run: what both met alike is in neither's interval.
    pub(super) fn paired_minus(&self, other: &Self) -> Time {
        Self(self.0.iter().zip(&other.0).map(|(a, b)| a - b).collect()).time()
    }

    /// The difference of what was not simulated together.
    pub(super) fn minus(&self, other: &Self) -> Time {
        let (a, b) = (self.time(), other.time());
        let ci95_ns = a.ci95_ns.zip(b.ci95_ns).map(|(a, b)| a.hypot(b));
        Time { ns: a.ns - b.ns, ci95_ns }
    }
}
