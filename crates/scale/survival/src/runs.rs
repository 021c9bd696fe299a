// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many lives of one job, with the same failures for every scheme and interval.

use colony_sim::rng::Key;
use colony_sim::stats::mean_ci95;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::costs::{Costs, Unfit};
use crate::failures::Trace;
use crate::life::{End, Life, Limit, Run};
use crate::scenario::Scenario;
use crate::schedule::Schedule;

/// A job that takes this many times its work makes no progress worth the name.
pub const HOPELESS: f64 = 100.0;
/// Most failures of one life.
const MOST_FAILURES: usize = 500_000;
/// Failures of all lives together, which memory is kept for.
const ALL_FAILURES: f64 = 2e6;
/// Fewest lives.
const FEWEST_RUNS: u32 = 4;

/// Why a scheme has no figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// The machine cannot run it.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// Failures come faster than work is saved.
    #[error("no progress: the job would take over {HOPELESS} times its work")]
    NoProgress,
    /// There are too many failures to simulate.
    #[error("a run has over {MOST_FAILURES} failures, too many to simulate: give a shorter --work")]
    TooMany,
}

/// A mean and half the width of its 95 % confidence interval (Student's t over independent runs); `None` for one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval.
    pub ci95: Option<f64>,
}

impl Mean {
    fn of(values: &[f64]) -> Self {
        let (mean, ci95) = mean_ci95(values);
        Self { mean, ci95 }
    }
}

/// The figures of a scheme at an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Work between two checkpoints, seconds; `None` for no checkpoint within the job.
    pub interval_s: Option<f64>,
    /// Runs.
    pub runs: u32,
    /// Time over the job's work, minus 1.
    pub time: Mean,
    /// Energy over that of the job without failures and without a scheme, minus 1.
    pub energy: Mean,
    /// Failures of a run, those averted included.
    pub failures: f64,
    /// Failures of a run that found an empty node.
    pub averted: f64,
    /// Runs in which both copies of a state were lost. 0 is "not seen".
    pub runs_both_lost: u32,
}

/// Many lives of one job.
pub struct Runs {
    scenario: Scenario,
    key: Key,
    traces: Vec<Trace>,
}

impl Runs {
    /// At most `runs` lives of the job of `scenario`; fewer, but at least 4, if they have millions of failures together.
    #[must_use]
    pub fn new(scenario: &Scenario, runs: u32, seed: u64) -> Self {
        let each = scenario.job.work_s / scenario.platform_mtbf_s();
        let runs = runs.min((ALL_FAILURES / each.max(1.0)) as u32).max(FEWEST_RUNS.min(runs)).max(1);
        let key = Key::new(seed);
        let traces = (0..runs).map(|r| Trace::new(scenario, key.part(r.into()))).collect();
        Self { scenario: scenario.clone(), key, traces }
    }

    /// The scenario.
    #[must_use]
    pub const fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// All lives under a scheme with these costs and this interval.
    ///
    /// # Errors
    /// [`Refusal`] if a life does not end.
    pub fn lives(&mut self, costs: &Costs, interval_s: f64) -> Result<Vec<Life>, Refusal> {
        let (s, key) = (&self.scenario, self.key);
        // a time that the formula calls hopeless is not simulated
        let expected = costs.expected(s, interval_s);
        if expected.is_nan() || expected > HOPELESS {
            return Err(Refusal::NoProgress);
        }
        let every = costs.every(s, interval_s);
        let schedule = Schedule::new(costs, s.job.work_s * costs.stretch, interval_s, every);
        let limit = Limit { wall_s: HOPELESS * s.job.work_s, failures: MOST_FAILURES };
        let lives: Vec<Life> = self
            .traces
            .par_iter_mut()
            .enumerate()
            .map(|(run, trace)| {
                let alarms = key.part(run as u64).part(1);
                Run::new(s, costs, &schedule, trace, alarms, limit).live()
            })
            .collect();
        // a mean over those that ended would be too good
        match lives.iter().map(|l| l.end).find(|end| *end != End::Done) {
            None => Ok(lives),
            Some(End::Failures) => Err(Refusal::TooMany),
            Some(_) => Err(Refusal::NoProgress),
        }
    }

    /// Time over work, minus 1, of each life.
    #[must_use]
    pub fn overheads(&self, lives: &[Life]) -> Vec<f64> {
        lives.iter().map(|l| l.wall_s / self.scenario.job.work_s - 1.0).collect()
    }

    /// The figures of lives at an interval.
    #[must_use]
    pub fn estimate(&self, lives: &[Life], interval_s: Option<f64>) -> Estimate {
        let (m, work_s) = (&self.scenario.machine, self.scenario.job.work_s);
        let energy = |l: &Life| (l.busy_s * m.busy_w + l.idle_s * m.idle_w) / (work_s * m.busy_w) - 1.0;
        let runs = lives.len();
        let mean = |of: fn(&Life) -> u64| lives.iter().map(|l| of(l) as f64).sum::<f64>() / runs as f64;
        Estimate {
            interval_s,
            runs: runs as u32,
            time: Mean::of(&self.overheads(lives)),
            energy: Mean::of(&lives.iter().map(energy).collect::<Vec<_>>()),
            failures: mean(|l| l.failures),
            averted: mean(|l| l.averted),
            runs_both_lost: lives.iter().filter(|l| l.both_lost > 0).count() as u32,
        }
    }
}
