// SPDX-License-Identifier: MIT OR Apache-2.0
//! The level engine: regular programs as max-plus updates of the ranks' times, step by step.
//!
//! There is no queue of events: all ranks do the same step, so a step is a pass over the arrays of their
//! times, and schedules of collectives are made as they are needed.

mod block;
mod collective;
#[cfg(test)]
mod coverage_tests;
mod fused;
pub(crate) mod job;
mod latency;
#[cfg(test)]
mod noise_tests;
pub(crate) mod op;
pub(crate) mod pattern;
pub(crate) mod plan;
mod run;
#[cfg(test)]
pub(crate) mod tests;

use std::num::NonZeroU64;

use colony_time::text::rounded_ns;
use rayon::prelude::*;

use self::job::Job;
use self::plan::Plan;
use self::run::Limits;
use crate::SimError;
use crate::node::Node;
use crate::rng::Key;
use crate::simulation::{Outcome, Run, Simulation};
use crate::stats::{Weighted, mean_ci95};

/// From this many ranks on the cores share a run's ranks; below, its repetitions.
pub(crate) const MANY_RANKS: u32 = 1 << 17;
/// Most iterations of the run without noise that are gone through.
const QUIET_ITERATIONS: u64 = 16;

/// Simulates all repetitions; each ends with its last iteration, or with that which goes on at `span_ns`.
///
/// # Errors
/// [`SimError`] where the simulation makes no sense, or noise leaves a rank no time.
pub(crate) fn simulate(simulation: &Simulation, span_ns: u64) -> Result<(Outcome, Vec<Run>), SimError> {
    let plan = Plan::new(&simulation.program, &simulation.machine, simulation.nodes)?;
    if simulation.repetitions == 0 {
        return Err(SimError::Repetitions);
    }
    simulation.node.check(simulation.machine.layout(simulation.nodes)?)?;
    let limits = Limits { iterations: plan.iterations, most: u64::MAX, span_ns, skip: true };
    let run = |number| one(simulation, &plan, limits, number);
    let runs: Vec<Run> = if simulation.machine.layout(simulation.nodes)?.ranks() < MANY_RANKS {
        (0..simulation.repetitions).into_par_iter().map(run).collect::<Result<_, _>>()?
    } else {
        (0..simulation.repetitions).map(run).collect::<Result<_, _>>()?
    };
    Ok((outcome(simulation, quiet_ns(simulation, &plan, &runs[0])?, &runs), runs))
}

/// Mean iteration without noise: once all are alike the rest is known, or a few are enough.
fn quiet_ns(simulation: &Simulation, plan: &Plan, first: &Run) -> Result<f64, SimError> {
    if !simulation.node.is_disturbed() {
        return Ok(first.total_ns as f64 / first.count() as f64);
    }
    let quiet = Simulation { node: Node::quiet(), begin_ns: Some(0), ..simulation.clone() };
    let few = Limits { iterations: plan.iterations, most: QUIET_ITERATIONS, span_ns: u64::MAX, skip: true };
    let run = one(&quiet, plan, few, 0)?;
    Ok(run.total_ns as f64 / run.count() as f64)
}

/// Repetition `number`, until the iteration that goes on at `span_ns` has ended.
///
/// # Errors
/// As [`simulate`].
pub(crate) fn run_for(simulation: &Simulation, number: u32, span_ns: u64) -> Result<Run, SimError> {
    let plan = Plan::new(&simulation.program, &simulation.machine, simulation.nodes)?;
    simulation.node.check(simulation.machine.layout(simulation.nodes)?)?;
    let limits = Limits { iterations: plan.iterations, most: u64::MAX, span_ns, skip: true };
    one(simulation, &plan, limits, number)
}

/// Repetition 0, in parts of `part` iterations until `is_enough` returns `true` for the run so far.
///
/// # Errors
/// As [`simulate`].
pub(crate) fn run_until(
    simulation: &Simulation,
    part: NonZeroU64,
    is_enough: impl Fn(&Run) -> bool,
) -> Result<Run, SimError> {
    let plan = Plan::new(&simulation.program, &simulation.machine, simulation.nodes)?;
    simulation.node.check(simulation.machine.layout(simulation.nodes)?)?;
    let limits = Limits { iterations: plan.iterations, most: u64::MAX, span_ns: u64::MAX, skip: true };
    with_job(simulation, &plan, 0, |job, begin_ns| {
        run::run_in_parts(job, limits, begin_ns, &simulation.program.name, (part, is_enough))
    })
}

/// Number of times that an iteration deals with each rank.
///
/// # Errors
/// As [`simulate`].
pub(crate) fn passes(simulation: &Simulation) -> Result<u64, SimError> {
    Ok(Plan::new(&simulation.program, &simulation.machine, simulation.nodes)?.passes())
}

fn one(simulation: &Simulation, plan: &Plan, limits: Limits, number: u32) -> Result<Run, SimError> {
    with_job(simulation, plan, number, |job, begin_ns| {
        run::run(job, limits, begin_ns, &simulation.program.name)
    })
}

/// Makes the job of repetition `number` and passes it to `run`, with the time of its beginning.
fn with_job<T>(
    simulation: &Simulation,
    plan: &Plan,
    number: u32,
    run: impl FnOnce(&mut Job<'_>, u64) -> Result<T, SimError>,
) -> Result<T, SimError> {
    let Simulation { machine, node, nodes, .. } = simulation;
    let layout = machine.layout(*nodes)?;
    let network = machine.network(*nodes)?;
    let begin_ns = simulation.begins_ns()?;
    let key = Key::new(simulation.seed).part(number.into());
    let parallel = layout.ranks() >= MANY_RANKS && rayon::current_num_threads() > 1;
    run(&mut Job::new(plan, &network, node, layout, (key, begin_ns), parallel), begin_ns)
}

fn outcome(simulation: &Simulation, quiet_ns: f64, runs: &[Run]) -> Outcome {
    let totals_ns: Vec<u64> = runs.iter().map(|r| r.total_ns).collect();
    let means: Vec<f64> = runs.iter().map(|r| r.total_ns as f64 / r.count() as f64).collect();
    let (mean_ns, ci95_ns) = mean_ci95(&means);
    let ranks = simulation.nodes * simulation.machine.ranks_per_node;
    let together_ns = totals_ns.iter().map(|&ns| ns as f64).sum();
    let no_interval = simulation.node.no_interval(f64::from(ranks), together_ns);
    let all = Weighted::new(runs.iter().flat_map(|r| r.iterations.iter().copied()));
    Outcome {
        nodes: simulation.nodes,
        ranks,
        iterations: runs.iter().map(Run::count).max().unwrap_or(0),
        quiet_ns,
        mean_ns,
        ci95_ns: ci95_ns.filter(|_| no_interval.is_none()),
        p50_ns: all.quantile(0.5),
        p99_ns: all.quantile(0.99),
        p99_9_ns: all.quantile(0.999),
        min_ns: all.quantile(0.0),
        max_ns: all.quantile(1.0),
        slowdown: if quiet_ns > 0.0 { mean_ns / quiet_ns } else { 1.0 },
        warnings: warnings(simulation, &totals_ns).into_iter().chain(no_interval).collect(),
        totals_ns,
    }
}

fn warnings(simulation: &Simulation, totals_ns: &[u64]) -> Vec<String> {
    let mut warnings = Vec::new();
    let cycle_ns = simulation.node.longest_cycle_ns();
    let shortest = totals_ns.iter().copied().min().unwrap_or(0);
    if cycle_ns > shortest {
        warnings.push(format!(
            "the program runs for {}, less than the {} from one burst of the rarest source to the next: its noise \
             depends on when it begins; more iterations or repetitions help",
            rounded_ns(shortest as f64),
            rounded_ns(cycle_ns as f64)
        ));
    }
    warnings
}
