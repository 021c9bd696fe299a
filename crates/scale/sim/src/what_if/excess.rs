// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much more another trace changes a simulated time than that of the [`Losses`](super::losses::Losses).
//!
//! In a simulation a rank that waits may meet a detour that is not over when the message arrives, so rare detours add up
//! where the model has one of them. So some traces made of the measured one's blocks are simulated, with all noise.

use rayon::prelude::*;

use super::bootstrap::Bootstrap;
use super::remade::{order, remade};
use super::sample::Sampled;
use crate::SimError;
use crate::level::MANY_RANKS;
use crate::node::Node;
use crate::rng::Key;
use crate::spec::{Measured, SpecError};
use crate::stats::variance;

/// Traces that are simulated.
const TRACES: u32 = 12;
/// Part of the seed for their blocks.
const BLOCKS: u64 = 1 << 43;

/// Nanoseconds of a core that the simulation may take, about.
const COST: f64 = 3e9;

/// Nodes of the largest question whose excess can be computed, if `sampled` is one on more. On more nodes it is about the
/// same.
///
/// # Errors
/// [`SimError`] if the question makes no sense.
pub(super) fn affordable_nodes(sampled: &Sampled) -> Result<u32, SimError> {
    let share = COST / (f64::from(TRACES) * sampled.shortened_cost()?);
    let nodes = sampled.simulation.nodes;
    Ok(((f64::from(nodes) * share) as u32).clamp(1, nodes))
}

/// Standard deviation of the simulated lost time between traces of the node that the model does not show, as a share of that
/// time; `everything` is the node with all noise `measured`. 0 if the trace is too short to tell.
///
/// # Errors
/// [`SpecError`] if the simulation refuses the noise.
pub(super) fn excess(sampled: &Sampled, measured: &[Measured], everything: &Node) -> Result<f64, SpecError> {
    let ranks = sampled.layout()?.ranks();
    let plan = sampled.plan(everything)?.shortened();
    let mut bootstrap = Bootstrap::new(measured, sampled.quiet_ns, ranks, sampled.simulation.seed);
    let Some(taken) = bootstrap.taken(everything, |_| true) else { return Ok(0.0) };
    let runs = |number: u32| Ok(sampled.run(&plan, everything, number)?);
    let runs = (0..plan.runs).map(runs).collect::<Result<Vec<_>, SpecError>>()?;
    let found = plan.estimate(&runs);
    bootstrap.calibrate(&taken, found.time().ns - sampled.quiet_ns);
    let of = |number: u32| -> Result<Option<[f64; 3]>, SpecError> {
        let order = order(Key::new(sampled.simulation.seed).part(BLOCKS).part(number.into()));
        let remade = || -> Result<Node, SimError> {
            let other = measured.iter().map(|m| remade(m, &order)).collect::<Result<Vec<_>, _>>()?;
            let sources = Measured::one_source(&other.iter().collect::<Vec<_>>(), 0)?;
            Ok(Node { sources, ..everything.clone() })
        };
        // blocks that leave a CPU no time are no trace of a node that runs a program
        let Ok(node) = remade() else { return Ok(None) };
        let run = plan.estimate(&[sampled.run(&plan, &node, number)?]);
        let variance = run.variance().unwrap_or(found.variance_of_run());
        Ok(Some([run.time().ns, variance, bootstrap.deviation_ns(&taken, &order)]))
    };
    // the ranks of a large one are on all cores: one at a time, for they take much memory
    let found: Vec<Option<[f64; 3]>> = match ranks >= MANY_RANKS {
        true => (0..TRACES).map(of).collect::<Result<_, _>>()?,
        false => (0..TRACES).into_par_iter().map(of).collect::<Result<_, _>>()?,
    };
    let found: Vec<[f64; 3]> = found.into_iter().flatten().collect();
    if found.len() < 2 {
        return Ok(0.0);
    }
    let of = |i: usize| found.iter().map(|f| f[i]).collect::<Vec<f64>>();
    let by_runs = of(1).iter().sum::<f64>() / found.len() as f64;
    // as large as so few traces may show either by chance
    let spread = (2.0 / (found.len() - 1) as f64).sqrt();
    let excess = variance(&of(0)) - by_runs * (1.0 + spread) - variance(&of(2));
    let lost_ns = bootstrap.lost_ns(&taken);
    Ok(if lost_ns > 0.0 { (1.0 + spread / 2.0) * excess.max(0.0).sqrt() / lost_ns } else { 0.0 })
}
