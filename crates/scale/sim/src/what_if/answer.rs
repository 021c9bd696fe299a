// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer: what each source costs, and what each remedy gives back.

use serde::{Deserialize, Serialize};

use super::bootstrap::Sides;
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

/// A mean time on nodes like the one measured, or a difference of two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// Nanoseconds an iteration, if the trace is all that the node's noise does.
    pub ns: f64,
    /// Half of the 95 % interval (its longer side): the largest distance between `ns` and the figure of the node itself. It
    /// allows for detours that the trace does not show and for the error of the simulation. `None` if it is not known, or
    /// without an upper end.
    pub ci95_ns: Option<f64>,
    /// Lower end of the 95 % interval; `None` if it is not known.
    pub low_ns: Option<f64>,
    /// Upper end of the 95 % interval. `None` if it is not known, or if the trace gives none: the longest detours decide,
    /// and the lengths of detours have infinite variance.
    pub high_ns: Option<f64>,
    /// Half of the 95 % interval of the simulation alone; of a source's cost from the runs' differences.
    pub simulation_ci95_ns: Option<f64>,
}

impl Time {
    /// A time that only the simulation makes uncertain.
    pub(super) fn simulated(ns: f64, ci95_ns: Option<f64>) -> Self {
        let (low_ns, high_ns) = (ci95_ns.map(|half| ns - half), ci95_ns.map(|half| ns + half));
        Self { ns, ci95_ns, low_ns, high_ns, simulation_ci95_ns: ci95_ns }
    }

    /// The same where the trace adds its own uncertainty; `None`: the trace is too short to tell.
    pub(super) fn with_trace(self, sides: Option<Sides>) -> Self {
        let half = self.simulation_ci95_ns;
        let below = half.zip(sides).map(|(half, sides)| half.hypot(sides.below_ns));
        let above = half.zip(sides.and_then(|s| s.above_ns)).map(|(half, above)| half.hypot(above));
        Self {
            ci95_ns: below.zip(above).map(|(below, above)| below.max(above)),
            low_ns: below.map(|below| self.ns - below),
            high_ns: above.map(|above| self.ns + above),
            ..self
        }
    }

    /// The same whose interval does not begin below the time without noise.
    pub(super) fn no_less_than(self, quiet_ns: f64) -> Self {
        Self { low_ns: self.low_ns.map(|low| low.max(quiet_ns.min(self.ns))), ..self }
    }

    /// True if it cannot be told from 0.
    #[must_use]
    pub fn is_about_nothing(&self) -> bool {
        self.low_ns.is_none_or(|low| low <= 0.0)
    }

    /// Longer side of the part of the interval that is the trace's.
    fn trace_side_ns(&self) -> f64 {
        let half = self.simulation_ci95_ns.unwrap_or(0.0);
        let side = |side: f64| (side.powi(2) - half.powi(2)).max(0.0).sqrt();
        let below = self.low_ns.map_or(0.0, |low| side(self.ns - low));
        self.high_ns.map_or(f64::INFINITY, |high| side(high - self.ns)).max(below)
    }

    /// True if more runs would make it surer: half of the simulation's interval is longer than `enough_ns`, and not small
    /// beside that of the trace.
    #[must_use]
    pub fn is_worth_more_runs(&self, enough_ns: f64) -> bool {
        let half = self.simulation_ci95_ns.unwrap_or(f64::INFINITY);
        half > enough_ns && half > SMALL_BESIDE * self.trace_side_ns()
    }
}

/// Share of the trace's interval from which on that of the simulation matters: together they are 5 % longer.
const SMALL_BESIDE: f64 = 0.33;

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
