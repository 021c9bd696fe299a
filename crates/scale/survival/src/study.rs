// SPDX-License-Identifier: MIT OR Apache-2.0
//! All schemes on many job sizes, and which to choose when.

use colony_sim::stats::mean_ci95;
use serde::{Deserialize, Serialize};

use crate::SurvivalError;
use crate::costs::Costs;
use crate::formula;
use crate::optimum::{Optimum, search};
use crate::runs::{Estimate, Refusal, Runs};
use crate::scenario::Scenario;
use crate::scheme::Scheme;

/// What to study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// Machine, failures, job; its PEs are those of none of the points.
    pub scenario: Scenario,
    /// Schemes.
    pub schemes: Vec<Scheme>,
    /// PEs of the table's rows.
    pub pes: Vec<u64>,
    /// Runs of a row.
    pub runs: u32,
    /// PEs of the map's columns.
    pub map_pes: Vec<u64>,
    /// Mean times between failures of a node of the map's rows, seconds.
    pub map_mtbf_s: Vec<f64>,
    /// Runs of a scheme in a cell of the map.
    pub map_runs: u32,
    /// A scheme this close to the cheapest one, as a share of the work, is as good: the simplest of these is chosen.
    pub as_good: f64,
    /// Seed of everything random.
    pub seed: u64,
}

/// A scheme on a job size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// PEs of the job.
    pub pes: u64,
    /// Its nodes.
    pub nodes: u64,
    /// Mean time between failures of all its nodes, seconds.
    pub platform_mtbf_s: f64,
    /// The scheme.
    pub scheme: Scheme,
    /// Its costs.
    pub costs: Option<Costs>,
    /// Optimal interval by Daly's formula, seconds; `None` without checkpoints.
    pub daly_s: Option<f64>,
    /// Optimal interval by simulation; `None` without checkpoints.
    pub optimum: Option<Optimum>,
    /// Expected time over work, minus 1, by formula at Daly's interval. `None` if there is no progress.
    pub formula_time: Option<f64>,
    /// The figures at the optimal interval.
    pub estimate: Option<Estimate>,
    /// Probability that both copies of a state are lost in the job, by formula; `None` without copies in memory.
    pub both_lost: Option<f64>,
    /// Why there are no figures.
    pub refusal: Option<Refusal>,
    /// The same in words.
    pub reason: Option<String>,
}

/// A scheme in a cell of the map, at Daly's interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The scheme.
    pub scheme: Scheme,
    /// Mean time over work, minus 1; `None` if it is impossible or makes no progress.
    pub time: Option<f64>,
    /// Mean energy over that without failures, minus 1.
    pub energy: Option<f64>,
}

/// A cell of the map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// PEs.
    pub pes: u64,
    /// Mean time between failures of a node, seconds.
    pub mtbf_s: f64,
    /// The simplest scheme within [`Study::as_good`] of the least time; `None` if no scheme makes progress.
    pub choice: Option<Scheme>,
    /// The same if nothing predicts failures, so that evacuation is no choice.
    pub choice_unwarned: Option<Scheme>,
    /// The simplest scheme within [`Study::as_good`] of the least energy.
    pub choice_by_energy: Option<Scheme>,
    /// True if the runs are too few to be sure of the choice (95 %, paired).
    pub undecided: bool,
    /// All schemes.
    pub candidates: Vec<Candidate>,
}

/// The results of a study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`Results::SCHEMA`].
    pub schema: String,
    /// Version of the simulator.
    pub version: String,
    /// All that is needed to run it again.
    pub study: Study,
    /// The table: PEs, then schemes.
    pub rows: Vec<Row>,
    /// The map: PEs, then times between failures.
    pub map: Vec<Cell>,
}

impl Results {
    /// Name and version of this form of results.
    pub const SCHEMA: &'static str = "colony.study.fault-tolerance/1";
}

impl Study {
    /// Checks everything before anything runs.
    ///
    /// # Errors
    /// [`SurvivalError`] names the first wrong parameter.
    pub fn check(&self) -> Result<(), SurvivalError> {
        for (list, what) in [
            (self.schemes.is_empty(), "scheme"),
            (self.pes.is_empty() || self.map_pes.is_empty(), "number of PEs"),
            (self.map_mtbf_s.is_empty(), "mean time between failures"),
        ] {
            if list {
                return Err(SurvivalError::Nothing(what));
            }
        }
        for (parameter, runs) in [("--runs", self.runs), ("--map-runs", self.map_runs)] {
            if !(2..=100_000).contains(&runs) {
                let must = "a whole number from 2 to 100000: an interval needs two runs";
                return Err(SurvivalError::Parameter { parameter, found: runs.into(), must });
            }
        }
        if !(0.0..=1.0).contains(&self.as_good) {
            let (parameter, must) = ("--as-good", "a share from 0 to 1");
            return Err(SurvivalError::Parameter { parameter, found: self.as_good, must });
        }
        self.scenario.check()?;
        for &pes in self.pes.iter().chain(&self.map_pes) {
            let point = self.scenario.on(pes);
            point.check()?;
            if point.nodes() < 2 && self.schemes.iter().any(|s| s.in_memory()) {
                let pes_per_node = self.scenario.machine.pes_per_node;
                return Err(SurvivalError::Buddy { pes, pes_per_node });
            }
        }
        self.map_mtbf_s.iter().try_for_each(|&mtbf_s| self.scenario.with_mtbf(mtbf_s).check())
    }

    /// Number of steps that `done` is called for.
    #[must_use]
    pub fn steps(&self) -> u64 {
        (self.pes.len() * self.schemes.len() + self.map_pes.len() * self.map_mtbf_s.len()) as u64
    }

    /// Runs all of it and calls `done` after each step.
    ///
    /// # Errors
    /// As [`Study::check`].
    pub fn run(&self, done: impl Fn()) -> Result<Results, SurvivalError> {
        self.check()?;
        let mut rows = Vec::new();
        for &pes in &self.pes {
            let mut runs = Runs::new(&self.scenario.on(pes), self.runs, self.seed);
            for &scheme in &self.schemes {
                rows.push(row(&mut runs, scheme));
                done();
            }
        }
        let mut map = Vec::new();
        for &pes in &self.map_pes {
            for &mtbf_s in &self.map_mtbf_s {
                let scenario = self.scenario.on(pes).with_mtbf(mtbf_s);
                map.push(self.cell(&mut Runs::new(&scenario, self.map_runs, self.seed)));
                done();
            }
        }
        Ok(Results {
            schema: Results::SCHEMA.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            study: self.clone(),
            rows,
            map,
        })
    }
}

fn row(runs: &mut Runs, scheme: Scheme) -> Row {
    let s = runs.scenario().clone();
    let mut row = Row {
        pes: s.job.pes,
        nodes: s.nodes(),
        platform_mtbf_s: s.platform_mtbf_s(),
        scheme,
        costs: None,
        daly_s: None,
        optimum: None,
        formula_time: None,
        estimate: None,
        both_lost: None,
        refusal: None,
        reason: None,
    };
    if let Err(refusal) = fill(&mut row, runs, &s) {
        row.reason = Some(refusal.to_string());
        row.refusal = Some(refusal);
    }
    row
}

fn fill(row: &mut Row, runs: &mut Runs, s: &Scenario) -> Result<(), Refusal> {
    let costs = row.costs.insert(Costs::of(s, row.scheme)?).clone();
    row.daly_s = costs.daly_s(s);
    let formula = costs.expected(s, row.daly_s.unwrap_or(f64::INFINITY)) - 1.0;
    row.formula_time = formula.is_finite().then_some(formula);
    let work_s = s.job.work_s;
    let interval_s = match row.daly_s {
        None => work_s,
        Some(daly_s) => row.optimum.insert(search(runs, &costs, daly_s)?).interval_s,
    };
    let lives = runs.lives(&costs, interval_s)?;
    let estimate = runs.estimate(&lives, (interval_s < work_s).then_some(interval_s));
    if row.scheme.in_memory() {
        let time_s = work_s * (1.0 + estimate.time.mean);
        // a warning takes failures out of the race of two
        let left = s.platform_mtbf_s() / costs.unaverted_mtbf_s(s);
        let mtbf_s = s.failures.mtbf_s / left;
        row.both_lost = Some(formula::both_lost(row.nodes, mtbf_s, costs.window_s, time_s));
    }
    row.estimate = Some(estimate);
    Ok(())
}

impl Study {
    fn cell(&self, runs: &mut Runs) -> Cell {
        let s = runs.scenario().clone();
        let tried: Vec<Tried> = Scheme::ALL
            .into_iter()
            .filter(|scheme| self.schemes.contains(scheme))
            .map(|scheme| Tried { scheme, figures: figures(runs, &s, scheme).ok() })
            .collect();
        let choose = |warned: bool, of: fn(&Estimate) -> f64| {
            let among = || tried.iter().filter(|t| warned || t.scheme != Scheme::Evacuation);
            let possible = || among().filter_map(|t| Some((t.scheme, of(&t.figures.as_ref()?.1))));
            let least = possible().map(|(_, cost)| cost).fold(f64::INFINITY, f64::min);
            possible().find(|(_, cost)| *cost <= least + self.as_good).map(|(s, _)| s)
        };
        let choice = choose(true, |e| e.time.mean);
        Cell {
            pes: s.job.pes,
            mtbf_s: s.failures.mtbf_s,
            choice,
            choice_unwarned: choose(false, |e| e.time.mean),
            choice_by_energy: choose(true, |e| e.energy.mean),
            undecided: choice.is_some_and(|c| self.is_undecided(&tried, c)),
            candidates: tried.iter().map(Tried::candidate).collect(),
        }
    }

    /// Returns `true` if the runs are too few to be sure of the choice: the difference of a simpler scheme, or the gain of
    /// another one, may be on the other side of the tolerance within the 95 % interval of pairs.
    fn is_undecided(&self, tried: &[Tried], choice: Scheme) -> bool {
        let place = tried.iter().position(|t| t.scheme == choice).unwrap_or(0);
        let Some((chosen, _)) = &tried[place].figures else { return false };
        tried.iter().enumerate().any(|(i, other)| {
            let Some((times, _)) = other.figures.as_ref().filter(|_| i != place) else { return false };
            let gains: Vec<f64> = chosen.iter().zip(times).map(|(c, o)| c - o).collect();
            let (gain, half) = mean_ci95(&gains);
            let half = half.unwrap_or(f64::INFINITY);
            // the chosen one is better than a simpler one, and not much worse than any other
            if i < place { gain + half > 0.0 } else { gain + half > self.as_good }
        })
    }
}

/// A scheme in a cell, with the overhead of every run.
struct Tried {
    scheme: Scheme,
    figures: Option<(Vec<f64>, Estimate)>,
}

impl Tried {
    fn candidate(&self) -> Candidate {
        let of = |f: fn(&Estimate) -> f64| self.figures.as_ref().map(|(_, e)| f(e));
        Candidate { scheme: self.scheme, time: of(|e| e.time.mean), energy: of(|e| e.energy.mean) }
    }
}

fn figures(runs: &mut Runs, s: &Scenario, scheme: Scheme) -> Result<(Vec<f64>, Estimate), Refusal> {
    let costs = Costs::of(s, scheme)?;
    let lives = runs.lives(&costs, costs.daly_s(s).unwrap_or(f64::INFINITY))?;
    Ok((runs.overheads(&lives), runs.estimate(&lives, None)))
}
