// SPDX-License-Identifier: MIT OR Apache-2.0
//! Input and output of a simulation: program, machine, noise and scheduler in; the program's times out.

use serde::{Deserialize, Serialize};

use crate::SimError;
use crate::machine::Machine;
use crate::node::Node;
use crate::program::Program;

/// Longest program, noise not counted: an eighth of what fits, so that noise has room.
pub(crate) const MOST_NS: u64 = u64::MAX / 8;

/// The input of a simulation.
#[derive(Clone, Debug)]
pub struct Simulation {
    /// The program.
    pub program: Program,
    /// The machine.
    pub machine: Machine,
    /// The noise of each node, and its scheduler.
    pub node: Node,
    /// Nodes.
    pub nodes: u32,
    /// Begin of the job, nanoseconds after the nodes booted; `None`: late enough for every daemon to have found its
    /// rhythm.
    pub begin_ns: Option<u64>,
    /// Independent repetitions, each with its own random numbers; confidence intervals need two.
    pub repetitions: u32,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// One run of the program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// From the job's beginning to the end of its last rank.
    pub total_ns: u64,
    /// Time of each iteration, in order: equal neighbours are one entry with a count.
    pub iterations: Vec<(u64, u64)>,
}

impl Run {
    /// Iterations in it.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.iterations.iter().map(|t| t.1).sum()
    }

    /// Iterations from one time after its beginning to another: of those that go on then, their share. Between
    /// times that were not chosen by the iterations, time over this is their mean, whatever long ones are among
    /// them.
    #[must_use]
    pub fn iterations_between(&self, from_ns: u64, to_ns: u64) -> f64 {
        self.iterations_until(to_ns) - self.iterations_until(from_ns.min(to_ns))
    }

    fn iterations_until(&self, to_ns: u64) -> f64 {
        let (mut done, mut left_ns) = (0.0, to_ns);
        for &(ns, count) in &self.iterations {
            let whole = left_ns.checked_div(ns).unwrap_or(count).min(count);
            (done, left_ns) = (done + whole as f64, left_ns - whole * ns);
            if whole < count {
                return done + left_ns as f64 / ns as f64;
            }
        }
        done
    }
}

impl Simulation {
    /// Longest cycles of noise before a job begins, unless told.
    const CYCLES_BEFORE: u64 = 4;

    /// Begin of the job: `begin_ns`, or late enough for every daemon to have found its rhythm.
    ///
    /// # Errors
    /// [`SimError::TooLong`] where that is later than is counted.
    pub fn begins_ns(&self) -> Result<u64, SimError> {
        let node = &self.node;
        let late = || node.longest_cycle_ns().saturating_mul(Self::CYCLES_BEFORE).max(node.settle_ns());
        match self.begin_ns.unwrap_or_else(late) {
            ns if ns > MOST_NS => Err(SimError::TooLong { program: self.program.name.clone() }),
            ns => Ok(ns),
        }
    }
}

/// The output of a simulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Nodes.
    pub nodes: u32,
    /// Ranks.
    pub ranks: u32,
    /// Iterations of each run; of the one with most, where they were simulated for a time.
    pub iterations: u64,
    /// Time of an iteration without noise, nanoseconds.
    pub quiet_ns: f64,
    /// Mean time of an iteration over all runs.
    pub mean_ns: f64,
    /// Half the width of the 95 % confidence interval of the mean, from the runs' means (Student's t);
    /// `None` for one run, and where few long detours decide the mean (then `warnings` says so).
    pub ci95_ns: Option<f64>,
    /// Median iteration.
    pub p50_ns: u64,
    /// 99 of 100 are no longer.
    pub p99_ns: u64,
    /// 999 of 1000 are no longer.
    pub p99_9_ns: u64,
    /// Shortest.
    pub min_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// Mean over the time without noise.
    pub slowdown: f64,
    /// Total time of each run.
    pub totals_ns: Vec<u64>,
    /// Warnings about the validity of the figures.
    pub warnings: Vec<String>,
}
