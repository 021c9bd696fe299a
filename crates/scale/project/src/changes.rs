// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time that changes of a node would give back at scale: each alone, and one after the other.
//!
//! A change takes some sources of noise away. Its cost is the time that these sources alone would add to a program on many
//! nodes like this one. Costs do not add up: as long as one source delays some node in each iteration, removing a smaller
//! one changes little. So the changes are also put into a sequence, the cheapest first: of the changes that take the least
//! effort, the one that leaves the shortest time, if it is worth a step; if none is, one of those that take the next larger
//! effort, and so on, given the changes before.

use std::collections::BTreeMap;

use colony_sim::spec::{MachineSpec, Measured, ProgramSpec, Scenario, SchedulerSpec, SpecError};
use colony_sim::what_if::{Part, Parts, Time, WhatIf, ranks_per_node};
use serde::{Deserialize, Serialize};

use crate::Budget;

/// Most changes of a sequence.
pub const STEPS: usize = 5;
/// Changes that a sequence chooses from: those whose sources cost most alone.
const CHOICE: usize = 6;
/// Share of the time that noise still adds which a step must give back.
const WORTH_A_STEP: f64 = 0.05;
/// Work before each allreduce, as in `colony sim --what-if`.
const WORK_NS: u64 = 1_000_000;
const REPETITIONS: u32 = 8;

/// A change of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The sources it takes away; those that were not measured count for nothing.
    pub sources: Vec<String>,
    /// Rank of what it takes to make the change, the cheapest 0; `None` if the sequence must not contain it.
    pub effort: Option<u8>,
}

/// Time that noise adds to an iteration, as a share of the iteration without noise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Added {
    /// The share; 1 doubles the time.
    pub share: f64,
    /// Half of its 95 % interval, which allows for the trace and the simulation; `None` if it is not known, or without an
    /// upper end ([`Time`]).
    pub ci95: Option<f64>,
    /// Lower end of the interval; `None` if it is not known.
    #[serde(default)]
    pub low: Option<f64>,
    /// Upper end of the interval; `None` if it is not known, or if the trace gives none.
    #[serde(default)]
    pub high: Option<f64>,
}

/// A step of the sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Place of the change among those given.
    pub change: usize,
    /// Time that the noise adds which is left after this change and those before it.
    pub left: Added,
}

/// Time that some sources add without the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Alone {
    /// This much.
    Added(Added),
    /// The trace has none of the sources, or they made no difference in any run.
    NotSeen,
    /// The budget ended before.
    NotSimulated,
}

impl Alone {
    /// To the nanosecond the quiet time: no run met a detour that mattered.
    fn of(added: Added) -> Self {
        if added.share > 1e-9 { Self::Added(added) } else { Self::NotSeen }
    }

    /// The time; `None` if it is not known, or was not seen.
    #[must_use]
    pub const fn added(&self) -> Option<Added> {
        match self {
            Self::Added(added) => Some(*added),
            Self::NotSeen | Self::NotSimulated => None,
        }
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// Nodes simulated.
    pub nodes: u32,
    /// Ranks on them.
    pub ranks: u32,
    /// Time of an iteration without noise, nanoseconds: 1 ms of work and an allreduce.
    pub quiet_ns: f64,
    /// Time that all noise adds.
    pub all: Added,
    /// Time that the sources of each change add alone.
    pub alone: Vec<Alone>,
    /// The changes, the best first.
    pub sequence: Vec<Step>,
    /// `true` if the budget ended before the sequence was known.
    pub stopped: bool,
}

/// Time that noise adds on one node count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtScale {
    /// Nodes simulated.
    pub nodes: u32,
    /// All noise.
    pub all: Added,
    /// All noise without the sources that the changes take away; `None` if the budget ended before.
    pub changed: Option<Added>,
    /// Each of the sources asked for.
    pub alone: Vec<Alone>,
}

/// Simulations that [`costs`] makes at most for so many changes.
#[must_use]
pub fn most_steps(changes: usize) -> u64 {
    let choice = changes.min(CHOICE);
    let tried: usize = (0..choice.min(STEPS)).map(|done| choice - done).sum();
    // each change that is tried may be refined, and the noise left before it
    (1 + changes + 2 * tried + choice.min(STEPS)) as u64
}

/// Simulates an allreduce after each millisecond of work on `nodes` nodes like the one measured. `step` is called after
/// each simulation. Simulations are refined only if the order of the changes is not known yet.
///
/// # Errors
/// [`SpecError`] if the node count is impossible, or the noise leaves a CPU no time.
pub fn costs(
    measured: &Measured,
    changes: &[Change],
    nodes: u32,
    budget: Budget,
    step: impl Fn(),
) -> Result<Costs, SpecError> {
    let (parts, all) = Parts::new(&question(measured, nodes)?, nodes)?;
    step();
    let mut costing = Costing { parts, names: names(measured), budget, stopped: false, step };
    let alone = costing.alone(measured, changes)?;
    let sequence = costing.sequence(all, changes, &alone)?;
    let Costing { parts, stopped, .. } = costing;
    Ok(Costs {
        nodes,
        ranks: parts.ranks()?,
        quiet_ns: parts.quiet_ns(),
        all: Added::of(parts.time(all), parts.quiet_ns()),
        alone,
        sequence,
        stopped,
    })
}

/// The time that all noise, all but the sources `gone`, and each of `sources` alone add on each of `nodes` nodes. Node counts
/// that the budget does not reach are left out.
///
/// # Errors
/// As [`costs`].
pub fn at_scale(
    measured: &Measured,
    gone: &[String],
    sources: &[String],
    nodes: &[u32],
    budget: Budget,
) -> Result<Vec<AtScale>, SpecError> {
    let names = names(measured);
    let mut found = Vec::new();
    for &nodes in nodes {
        if budget.is_over() {
            break;
        }
        let (mut parts, all) = Parts::new(&question(measured, nodes)?, nodes)?;
        let quiet_ns = parts.quiet_ns();
        let mut added = |leave_out: &[String]| -> Result<Option<Added>, SpecError> {
            if budget.is_over() {
                return Ok(None);
            }
            let part = parts.without(leave_out)?;
            Ok(Some(Added::of(parts.time(part), quiet_ns)))
        };
        let changed = added(gone)?;
        let mut alone = Vec::new();
        for source in sources {
            let others: Vec<String> = names.iter().filter(|n| *n != source).cloned().collect();
            alone.push(added(&others)?.map_or(Alone::NotSimulated, Alone::of));
        }
        found.push(AtScale { nodes, all: Added::of(parts.time(all), quiet_ns), changed, alone });
    }
    Ok(found)
}

fn names(measured: &Measured) -> Vec<String> {
    measured.sources.iter().map(|s| s.name.clone()).collect()
}

/// An allreduce after each millisecond of work, on nodes that let all noise through.
fn question(measured: &Measured, nodes: u32) -> Result<WhatIf, SpecError> {
    let scenario = Scenario {
        program: ProgramSpec { work_ns: Some(WORK_NS), ..ProgramSpec::named("allreduce") },
        machine: MachineSpec::Named("loggopsim".into()),
        nodes: vec![nodes],
        ranks_per_node: Some(ranks_per_node(measured.cpus().max(1), &[nodes])),
        repetitions: REPETITIONS,
        ..Scenario::default()
    };
    scenario.check()?;
    let measured = measured.clone();
    Ok(WhatIf { scenario, measured, windows: SchedulerSpec::Preempt, iterations_given: false })
}

impl Added {
    fn of(time: Time, quiet_ns: f64) -> Self {
        let quiet_ns = quiet_ns.max(1.0);
        let share = |ns: f64| ns / quiet_ns - 1.0;
        Self {
            share: share(time.ns),
            ci95: time.ci95_ns.map(|half| half / quiet_ns),
            low: time.low_ns.map(|ns| share(ns).max(0.0)),
            high: time.high_ns.map(share),
        }
    }
}

/// A change that a sequence may contain.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    change: usize,
    effort: u8,
    /// Time that its sources add alone, as a share of an iteration.
    share: f64,
}

/// The changes to try, the cheapest first: those whose sources cost most alone, without those that take no source away
/// which a cheaper one leaves.
fn choice(changes: &[Change], alone: &[Alone]) -> Vec<Candidate> {
    let candidate = |(change, c): (usize, &Change)| {
        Some(Candidate { change, effort: c.effort?, share: alone[change].added()?.share })
    };
    let mut all: Vec<Candidate> = changes.iter().enumerate().filter_map(candidate).collect();
    all.sort_by(|a, b| {
        a.effort.cmp(&b.effort).then(b.share.total_cmp(&a.share)).then(a.change.cmp(&b.change))
    });
    let mut kept: Vec<Candidate> = Vec::new();
    for candidate in all {
        let sources = &changes[candidate.change].sources;
        let has_all = |cheaper: &Candidate| {
            let of_cheaper = &changes[cheaper.change].sources;
            cheaper.effort < candidate.effort && sources.iter().all(|s| of_cheaper.contains(s))
        };
        if !kept.iter().any(has_all) {
            kept.push(candidate);
        }
    }
    while kept.len() > CHOICE {
        let least = kept.iter().enumerate().min_by(|a, b| a.1.share.total_cmp(&b.1.share));
        let Some((place, _)) = least else { break };
        kept.remove(place);
    }
    kept
}

/// Simulations of the parts of a node's noise, as long as there is time.
struct Costing<F> {
    parts: Parts,
    names: Vec<String>,
    budget: Budget,
    stopped: bool,
    step: F,
}

impl<F: Fn()> Costing<F> {
    /// Returns `true` if the budget is over, and records that it was.
    fn stops(&mut self) -> bool {
        let is_over = self.budget.is_over();
        self.stopped |= is_over;
        is_over
    }

    /// Time that each change's sources add alone, in half of the time; those that stole most are simulated first.
    fn alone(&mut self, measured: &Measured, changes: &[Change]) -> Result<Vec<Alone>, SpecError> {
        let stolen = |c: usize| -> f64 {
            let of_change = measured.sources.iter().filter(|s| changes[c].sources.contains(&s.name));
            of_change.map(|s| s.noise.stolen_share()).sum()
        };
        let mut order: Vec<usize> = (0..changes.len()).collect();
        order.sort_by(|&a, &b| stolen(b).total_cmp(&stolen(a)).then(a.cmp(&b)));
        let budget = self.budget.half();
        let mut alone = vec![Alone::NotSeen; changes.len()];
        // several changes may take the same sources away
        let mut known: BTreeMap<Vec<String>, Alone> = BTreeMap::new();
        for change in order {
            let sources = &changes[change].sources;
            let others: Vec<String> = self.names.iter().filter(|n| !sources.contains(n)).cloned().collect();
            alone[change] = match known.get(&others) {
                _ if others.len() == self.names.len() => Alone::NotSeen,
                Some(known) => *known,
                None if budget.is_over() => {
                    self.stopped = true;
                    Alone::NotSimulated
                }
                None => {
                    let part = self.parts.without(&others)?;
                    let added = Added::of(self.parts.time(part), self.parts.quiet_ns());
                    let found = Alone::of(added);
                    known.insert(others, found);
                    found
                }
            };
            (self.step)();
        }
        Ok(alone)
    }

    /// The changes one after the other, each the best of the cheapest ones that are worth a step given those before it.
    fn sequence(&mut self, all: Part, changes: &[Change], alone: &[Alone]) -> Result<Vec<Step>, SpecError> {
        let mut choice = choice(changes, alone);
        let (mut gone, mut left): (Vec<String>, Part) = (Vec::new(), all);
        let mut steps = Vec::new();
        while steps.len() < STEPS {
            choice.retain(|c| changes[c.change].sources.iter().any(|s| !gone.contains(s)));
            let Some((change, part)) = self.next_step(&choice, changes, &gone, left)? else { break };
            gone.extend(changes[change].sources.iter().cloned());
            left = part;
            choice.retain(|c| c.change != change);
            steps.push(Step { change, left: Added::of(self.parts.time(part), self.parts.quiet_ns()) });
        }
        Ok(steps)
    }

    /// The best change of the least effort that is worth a step; `None` if none is, or if the time is over.
    fn next_step(
        &mut self,
        choice: &[Candidate],
        changes: &[Change],
        gone: &[String],
        left: Part,
    ) -> Result<Option<(usize, Part)>, SpecError> {
        let mut at = 0;
        while let Some(first) = choice.get(at) {
            let of_effort = choice[at..].iter().take_while(|c| c.effort == first.effort);
            let mut tried = Vec::new();
            for candidate in of_effort {
                at += 1;
                // one change is tried whatever time it takes
                let is_first = gone.is_empty() && tried.is_empty() && at == 1;
                if self.stops() && !is_first {
                    break;
                }
                let without: Vec<String> =
                    gone.iter().chain(&changes[candidate.change].sources).cloned().collect();
                tried.push((candidate.change, self.parts.without(&without)?));
                (self.step)();
            }
            if let Some((change, part)) = self.best(tried)?
                && self.helps(left, part)?
                && self.is_worth_a_step(left, part)
            {
                return Ok(Some((change, part)));
            }
            if self.stops() {
                break;
            }
        }
        Ok(None)
    }

    /// Returns `true` if a change gives back enough of the time that noise adds before it.
    fn is_worth_a_step(&self, before: Part, after: Part) -> bool {
        let added_ns = |part: Part| (self.parts.time(part).ns - self.parts.quiet_ns()).max(0.0);
        added_ns(before) - added_ns(after) >= WORTH_A_STEP * added_ns(before)
    }

    /// The change that leaves the shortest time; the first two are refined until they can be told apart.
    fn best(&mut self, mut tried: Vec<(usize, Part)>) -> Result<Option<(usize, Part)>, SpecError> {
        loop {
            let ns = |part: Part| self.parts.time(part).ns;
            tried.sort_by(|a, b| ns(a.1).total_cmp(&ns(b.1)));
            let (Some(&first), Some(&second)) = (tried.first(), tried.get(1)) else {
                return Ok(tried.first().copied());
            };
            if !self.refined(second.1, first.1)? {
                return Ok(Some(first));
            }
        }
    }

    /// Returns `true` if an iteration is shorter under `less` than under `more`.
    fn helps(&mut self, more: Part, less: Part) -> Result<bool, SpecError> {
        while self.refined(more, less)? {}
        let gain = self.parts.difference(more, less);
        Ok(gain.is_some_and(|gain| gain.ns > 0.0 && !gain.is_about_nothing()))
    }

    /// Simulates two parts further if that may tell them apart. Returns `false` if they are told apart, or if nothing more
    /// can be done.
    fn refined(&mut self, a: Part, b: Part) -> Result<bool, SpecError> {
        let unclear = self
            .parts
            .difference(a, b)
            .is_some_and(|gain| gain.is_about_nothing() && gain.is_worth_more_runs(0.0));
        if !unclear || !(self.parts.has_more(a) || self.parts.has_more(b)) || self.stops() {
            return Ok(false);
        }
        for part in [a, b] {
            if self.parts.refine(part)? {
                (self.step)();
            }
        }
        Ok(true)
    }
}
