// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer: what each source costs, and what each remedy gives back.

use serde::{Deserialize, Serialize};

use crate::spare::SpareLoad;
use crate::spec::SchedulerSpec;

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// CPUs of the node measured.
    pub cpus: u32,
    /// One for each node count.
    pub scales: Vec<Scale>,
    /// The time that each source takes, and its cost; the dearest at the largest scale first.
    pub sources: Vec<SourceCost>,
    /// The remedies that give time back.
    pub remedies: Vec<Remedy>,
    /// The load of a spare core of the node measured; `None` if the core could not bear it.
    pub spare: Option<SpareLoad>,
    /// Warnings about the validity of the figures.
    pub warnings: Vec<String>,
}

/// A node count, and the program's iteration there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// Nodes.
    pub nodes: u32,
    /// Ranks.
    pub ranks: u32,
    /// The runs with all noise; as many for each source and for a spare core.
    pub runs: Runs,
    /// The runs with windows.
    pub windowed: Option<Runs>,
    /// Time of an iteration without noise.
    pub quiet_ns: f64,
    /// Mean time with all of it.
    pub noisy: Time,
}

/// Number and length of the runs simulated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Runs {
    /// Runs, each with random numbers of its own.
    pub runs: u32,
    /// Time of each.
    pub span_ns: u64,
    /// Iterations in all of them.
    pub iterations: f64,
}

/// A mean time, or a difference of two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// Nanoseconds an iteration.
    pub ns: f64,
    /// Half of its 95 % confidence interval, from the runs; of a source's cost from what the same run loses
    /// without it.
    pub ci95_ns: Option<f64>,
}

impl Time {
    /// True if it cannot be told from 0.
    #[must_use]
    pub fn is_about_nothing(&self) -> bool {
        self.ns.abs() <= self.ci95_ns.unwrap_or(0.0)
    }
}

/// A source, or the smallest ones together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceCost {
    /// Its name.
    pub name: String,
    /// Share of the CPUs' time it takes.
    pub stolen_share: f64,
    /// For each node count: by how much an iteration is shorter without this source alone; `None` where it was not
    /// seen: in all that was simulated it made no difference.
    pub cost: Vec<Option<Time>>,
}

/// A way to be rid of noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remedy {
    /// Name of the scheduler.
    pub scheduler: SchedulerSpec,
    /// Mean time of an iteration with it, for each node count.
    pub time: Vec<Time>,
    /// The part of the time with all noise that it gives back.
    pub gives_back: Vec<Time>,
}
