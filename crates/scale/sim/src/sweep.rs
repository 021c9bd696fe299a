// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many points of a scenario, on all cores.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::simulate::{Outcome, simulate};
use crate::spec::{Measured, Point, Scenario, SpecError, Traces};

/// A scenario with what came of it: all that is needed to run it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`Results::SCHEMA`].
    pub schema: String,
    /// Version of the simulator.
    pub version: String,
    /// The scenario.
    pub scenario: Scenario,
    /// The traces it replays.
    pub traces: Vec<TraceFile>,
    /// Its points, in the order of [`Scenario::points`].
    pub points: Vec<Finished>,
}

/// A trace, as results name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceFile {
    /// The file.
    pub file: String,
    /// Digest that tells it from other traces: [`Measured::digest`], in hexadecimal.
    pub digest: String,
}

/// A point that was simulated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// The point.
    #[serde(flatten)]
    pub point: Point,
    /// The outcome.
    pub outcome: Outcome,
}

impl Results {
    /// Name and version of this form of results.
    pub const SCHEMA: &'static str = "colony.sim/1";

    /// `scenario` before anything of it was run.
    #[must_use]
    pub fn none_yet(scenario: Scenario, traces: &Traces) -> Self {
        let file = |(file, t): (&String, &std::sync::Arc<Measured>)| TraceFile {
            file: file.clone(),
            digest: format!("{:016x}", t.digest()),
        };
        Self {
            schema: Self::SCHEMA.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            scenario,
            traces: traces.iter().map(file).collect(),
            points: Vec::new(),
        }
    }

    /// True if points of `other` are this scenario's too: the scenarios differ at most in node counts, schedulers and
    /// values swept, which each point names.
    #[must_use]
    pub fn shares_points_with(&self, other: &Self) -> bool {
        let base = |r: &Self| {
            let usual = Scenario::default();
            let scenario = Scenario {
                nodes: usual.nodes,
                schedulers: usual.schedulers,
                sweep: usual.sweep,
                ..r.scenario.clone()
            };
            (r.schema.clone(), r.version.clone(), scenario, r.traces.clone())
        };
        base(self) == base(other)
    }
}

/// Simulates `points` and hands each outcome to `done` with the point's place in the list, as soon as it is
/// there, from any thread. The outcomes are the same on any number of threads.
///
/// # Errors
/// The first that a point or `done` meets; points not begun by then are not run.
pub fn run<E: From<SpecError> + Send>(
    points: &[Point],
    traces: &Traces,
    done: impl Fn(usize, Outcome) -> Result<(), E> + Sync,
) -> Result<(), E> {
    // one by one from the front, not halves: the first to end are the first of the list
    points.iter().enumerate().par_bridge().try_for_each(|(i, point)| {
        let outcome = simulate(&point.simulation(traces)?).map_err(SpecError::from)?;
        done(i, outcome)
    })
}
