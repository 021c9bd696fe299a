// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of a comparison, as JSON has it.

use serde::Serialize;

use super::params::{Params, Program};

/// Programs and strategies, compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// [`Comparison::SCHEMA`].
    pub schema: &'static str,
    /// What was compared.
    pub params: Params,
    /// The name of this node.
    pub host: String,
    /// CPUs that the processes may use; none if the system does not say.
    pub cpus: Option<u32>,
    /// The runs, program by program, in the order of the strategies.
    pub runs: Vec<Run>,
}

impl Comparison {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.bench.lb/1";
}

/// One program with one strategy: the repetition that took the least time, with the shortest time of all repetitions for
/// each stretch and each balancing. Other programs on the node can only make times longer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// The program.
    pub program: Program,
    /// The strategy, with its options.
    pub strategy: String,
    /// Depends on every byte of state and on every message of the whole run; in hexadecimal.
    pub checksum: String,
    /// Objects that arrived on another PE, counted there.
    pub moved: u64,
    /// Bytes of their states.
    pub bytes_moved: u64,
    /// Seconds from the first iteration's begin to the last one's end, in each repetition.
    pub elapsed_s: Vec<f64>,
    /// Stretches of iterations between two balancings.
    pub stretches: Vec<Stretch>,
    /// What happened between them.
    pub balancings: Vec<Balancing>,
    /// Figures of the whole run.
    pub summary: Summary,
}

/// Iterations between two balancings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Stretch {
    /// The first iteration, from 0.
    pub first: u32,
    /// The number of iterations.
    pub iterations: u32,
    /// Seconds of an iteration: the median of the stretch, in the repetition in which that is least.
    pub iteration_s: f64,
    /// CPU seconds of the objects on the PE that has most of it, of an iteration: the median of the stretch. An iteration
    /// takes as long at least; what it takes beyond that goes to messages, waits and other programs.
    pub cpu_s: f64,
    /// That CPU time over the mean of all PEs, of an iteration: the median of the stretch. None if the clock is too coarse
    /// for the work.
    pub imbalance: Option<f64>,
}

/// The time between two stretches, in which objects may migrate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Balancing {
    /// Objects that the strategy moved.
    pub moved: u64,
    /// The imbalance before and after, as the strategy expects it from the loads until then; none without strategy.
    pub expected: Option<[f64; 2]>,
    /// Seconds that the decision took, without strategy 0.
    pub decision_s: f64,
    /// Seconds for everything else: to agree that all objects are ready, to collect their loads, to migrate.
    pub migration_s: f64,
}

/// Figures of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Before the first balancing.
    pub before: Averages,
    /// After it; none if there was none.
    pub after: Option<Averages>,
    /// Seconds of all decisions.
    pub decision_s: f64,
    /// Seconds of all migrations.
    pub migration_s: f64,
    /// Seconds from the first balancing to the end: iterations at their stretch's median, and all balancings.
    pub balanced_s: Option<f64>,
    /// The share of that time that is saved compared with the first run of the program without strategy. None if there
    /// was no such run, or no balancing.
    pub gain: Option<f64>,
}

/// Averages over stretches, by their iterations.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Averages {
    /// Seconds of an iteration.
    pub iteration_s: f64,
    /// The largest CPU time of a PE's objects over the mean of all PEs. None if that was not measured in a stretch.
    pub imbalance: Option<f64>,
}
