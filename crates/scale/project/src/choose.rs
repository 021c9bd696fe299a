// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many cores of a node should be spare, and would coordinated windows be better?
//!
//! A choice gives the job some of a node's cores, for some of the time. Its *throughput* is
//!
//! ```text
//! (cores of the job / all cores) × (favored share of the windows) × (time of an iteration without noise / with the noise left)
//! ```
//!
//! Spare cores take threads and device interrupts, as many as they can bear, those with the longest detours first. Windows
//! hold threads back. Noise that is bound to its core stays whatever is chosen ([`Class`]). The time in regular windows is
//! not counted as the job's, so the throughput of windows is a lower bound.

use std::collections::BTreeMap;
use std::fmt;

use colony_sim::source::{Class, MeasuredSource};
use colony_sim::spec::{Measured, Scenario, SchedulerSpec, SpecError};
use colony_sim::what_if::{Excess, Part, Parts, WhatIf, doubts, ranks_per_node};
use serde::{Deserialize, Serialize};

use crate::Budget;

/// Favored shares of a period that are tried unless one is asked for. The last leaves everything else 5 ms of 100 ms.
pub const FAVORED: [f64; 3] = [0.8, 0.9, 0.95];
/// Numbers of spare cores that are tried, as far as they are at most half of the node.
pub const SPARE: [u32; 5] = [0, 1, 2, 4, 8];
/// Share of its time that a spare core may work for others: a core without reserve is behind for ever.
const MOST_LOAD: f64 = 0.9;

/// The question: this program, on nodes like the one measured.
#[derive(Clone, Debug)]
pub struct Question {
    /// Machine, program, node counts, runs and seed; its noise, its schedulers and the place of its ranks are not looked at.
    pub scenario: Scenario,
    /// The node's noise.
    pub measured: Measured,
    /// Cores of a node. If there are more than CPUs were measured, they have the noise of these CPUs in turn.
    pub cores: u32,
    /// Favored shares of a period to try, each above 0 and below 1.
    pub favored: Vec<f64>,
    /// `true` if the scenario gives the number of iterations.
    pub iterations_given: bool,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Cores of a node.
    pub cores: u32,
    /// CPUs measured.
    pub measured: u32,
    /// The choices.
    pub choices: Vec<Choice>,
    /// The node counts, rising.
    pub scales: Vec<Scale>,
    /// Sources that spare cores can take: threads and device interrupts.
    pub movable: Vec<String>,
    /// Sources that no choice moves: bound to their core.
    pub bound: Vec<String>,
    /// `true` if the budget ended before every node count was simulated.
    pub stopped: bool,
    /// What the trace itself says against the figures.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Spare cores, windows, both or nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Spare cores of a node.
    pub spare: u32,
    /// Favored share of the windows' period; `None` without windows.
    pub favored: Option<f64>,
    /// Share of the node's cores and time that the job gets.
    pub given: f64,
    /// Sources that the spare cores take.
    pub taken: Vec<String>,
    /// Sources that wait for the regular windows.
    pub held: Vec<String>,
    /// Reason why the choice is none on this node; it has no throughput then.
    pub impossible: Option<String>,
}

/// The choices on one node count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// Nodes.
    pub nodes: u32,
    /// Ranks simulated on each node without a spare core: fewer than cores if they would be too many.
    pub ranks_per_node: u32,
    /// Throughput of each choice; `None` if the choice is impossible.
    pub throughput: Vec<Option<Throughput>>,
    /// Place of the best choice.
    pub best: Option<usize>,
    /// Choices that cannot be told from the best one.
    pub alike: Vec<usize>,
}

/// Work that a node does for the job, as a share of what all of its cores would do without noise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// The share.
    pub share: f64,
    /// Half of its 95 % interval (its longer side): the largest distance between `share` and the throughput of the node
    /// itself. It allows for detours that the trace does not show and for the error of the simulation. `None` if it is not known, or without a lower end: a trace of detours whose lengths have
    /// infinite variance does not bound them.
    pub ci95: Option<f64>,
    /// Lower end of the 95 % interval; `None` if it is not known, or if the trace does not bound the time lost.
    #[serde(default)]
    pub low: Option<f64>,
    /// Upper end of the 95 % interval; `None` if it is not known.
    #[serde(default)]
    pub high: Option<f64>,
    /// Half of the 95 % interval of the simulation alone; `None` if too little was simulated to know.
    pub simulation_ci95: Option<f64>,
}

/// A throughput, and the same in resamples of the trace.
struct Resampled {
    throughput: Throughput,
    /// Empty if the trace is too short for resamples, or if no noise is left.
    shares: Vec<f64>,
}

impl Resampled {
    /// Returns `true` if this one, which is the larger, cannot be told from `other`. What the trace errs by is in both, unless no noise is
    /// left in one of them: then the interval of the other one decides.
    fn is_like(&self, other: &Self) -> bool {
        if (self.shares.is_empty() || other.shares.is_empty()) && self.meets(other) {
            return true;
        }
        let apart = self.throughput.share - other.throughput.share;
        let simulated = self.throughput.simulation_ci95.zip(other.throughput.simulation_ci95);
        simulated.is_none_or(|(a, b)| apart <= a.hypot(b).hypot(self.trace_half(other, apart)))
    }

    /// Returns `true` if the intervals of the two have a value in common. An end that is not known has no bound.
    fn meets(&self, other: &Self) -> bool {
        let ends = self.throughput.low.zip(other.throughput.high);
        ends.is_none_or(|(low, high)| low <= high)
    }

    /// Half of the 95 % interval of the difference `apart` by the trace.
    fn trace_half(&self, other: &Self, apart: f64) -> f64 {
        let resamples = self.shares.len().max(other.shares.len());
        let share = |of: &Self, n: usize| of.shares.get(n).copied().unwrap_or(of.throughput.share);
        let mut off: Vec<f64> =
            (0..resamples).map(|n| (share(self, n) - share(other, n) - apart).abs()).collect();
        off.sort_by(f64::total_cmp);
        off.get(resamples * 95 / 100).copied().unwrap_or(0.0)
    }
}

impl Choice {
    /// Returns `true` if nothing is changed.
    #[must_use]
    pub const fn is_nothing(&self) -> bool {
        self.spare == 0 && self.favored.is_none()
    }
}

/// `nothing changed`, `1 spare core`, `windows 90 %`, `2 spare cores, windows 90 %`.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.spare {
            0 if self.favored.is_none() => return f.write_str("nothing changed"),
            0 => {}
            1 => f.write_str("1 spare core")?,
            n => write!(f, "{n} spare cores")?,
        }
        match self.favored {
            Some(favored) if self.spare > 0 => write!(f, ", windows {}", percent(favored)),
            Some(favored) => write!(f, "windows {}", percent(favored)),
            None => Ok(()),
        }
    }
}

/// A share as per cent, to a hundredth: `99.5 %`.
fn percent(share: f64) -> String {
    let text = format!("{:.2}", 100.0 * share);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

impl Answer {
    /// The choice to make from each node count on: the first one, and those where the choice before is certainly not the
    /// best any more.
    #[must_use]
    pub fn turns(&self) -> Vec<(u32, usize)> {
        let mut turns: Vec<(u32, usize)> = Vec::new();
        for scale in &self.scales {
            let Some(best) = scale.best else { continue };
            let stays = |&(_, last): &(u32, usize)| last == best || scale.alike.contains(&last);
            if !turns.last().is_some_and(stays) {
                turns.push((scale.nodes, best));
            }
        }
        turns
    }
}

impl Question {
    /// Node counts and choices to simulate, for a bar of progress.
    #[must_use]
    pub fn steps(&self) -> u64 {
        (self.scenario.nodes.len() * self.choices().len()) as u64
    }

    /// Simulates every choice on every node count, the smallest first. `step` is called after each.
    ///
    /// # Errors
    /// [`SpecError`] if the program or the noise cannot be simulated.
    pub fn answer(&self, budget: Budget, step: impl Fn()) -> Result<Answer, SpecError> {
        let choices = self.choices();
        let mut nodes = self.scenario.nodes.clone();
        nodes.sort_unstable();
        nodes.dedup();
        let mut scales = Vec::new();
        let mut stopped = false;
        for nodes in nodes {
            stopped |= budget.is_over();
            if stopped {
                break;
            }
            let mut scale = Simulated { question: self, nodes, found: BTreeMap::new(), excess: None };
            for choice in choices.iter().filter(|c| c.impossible.is_none()) {
                scale.simulate(choice)?;
                step();
            }
            while !budget.is_over() && scale.refine(&choices)? {}
            scales.push(scale.scale(&choices));
        }
        let names = |of: fn(Class) -> bool| self.of_class(of).map(|s| s.name.clone()).collect();
        let (movable, bound) = (names(|c| c != Class::Local), names(|c| c == Class::Local));
        let measured = self.measured.cpus() as u32;
        let warnings = doubts(&self.measured).into_iter().collect();
        Ok(Answer { cores: self.cores, measured, choices, scales, movable, bound, stopped, warnings })
    }

    /// Nothing, spare cores, windows, and windows for the threads that spare cores leave.
    fn choices(&self) -> Vec<Choice> {
        let most = self.cores / 2;
        let spare = || SPARE.into_iter().filter(|&s| s <= most);
        let mut choices: Vec<Choice> = spare().map(|s| self.choice(s, None)).collect();
        for spare in spare() {
            for &favored in &self.favored {
                let both = self.choice(spare, Some(favored));
                // windows that have nothing to hold only take time
                if spare == 0 || !both.held.is_empty() {
                    choices.push(both);
                }
            }
        }
        choices
    }

    fn choice(&self, spare: u32, favored: Option<f64>) -> Choice {
        let taken = self.taken(spare, favored.is_some());
        let is_held = |s: &&MeasuredSource| favored.is_some() && !taken.contains(&s.name);
        let threads: Vec<&MeasuredSource> = self.of_class(|c| c == Class::Task).filter(is_held).collect();
        let cores = f64::from(self.cores.saturating_sub(spare)) / f64::from(self.cores.max(1));
        let asked = busiest(&threads);
        let impossible = favored.filter(|f| asked >= 1.0 - f).map(|_| {
            format!("threads ask for {} of a core, more than the regular windows have", percent(asked))
        });
        Choice {
            spare,
            favored,
            given: cores * favored.unwrap_or(1.0),
            held: threads.iter().map(|s| s.name.clone()).collect(),
            taken,
            impossible,
        }
    }

    fn of_class(&self, of: impl Fn(Class) -> bool) -> impl Iterator<Item = &MeasuredSource> {
        self.measured.sources.iter().filter(move |s| of(s.class))
    }

    /// Sources of all cores that so many spare cores can bear, those with the longest detours first; with windows, device
    /// interrupts before threads, which the windows can hold.
    fn taken(&self, spare: u32, windows: bool) -> Vec<String> {
        let mut movable: Vec<&MeasuredSource> = self.of_class(|c| c != Class::Local).collect();
        movable.sort_by_cached_key(|s| {
            let later = windows && s.class == Class::Task;
            (later, std::cmp::Reverse(s.noise.longest_ns()), s.name.clone())
        });
        let bound: f64 = self.of_class(|c| c == Class::Local).map(|s| s.noise.stolen_share()).sum();
        let mut room = f64::from(spare) * (MOST_LOAD - bound);
        let mut taken = Vec::new();
        for source in movable {
            let load = source.noise.stolen_share() * f64::from(self.cores);
            if load < room {
                room -= load;
                taken.push(source.name.clone());
            }
        }
        taken
    }
}

/// The largest share of a CPU that some sources take together.
fn busiest(sources: &[&MeasuredSource]) -> f64 {
    let cpus = sources.iter().map(|s| s.noise.cpus().len()).max().unwrap_or(0);
    let of_cpu = |cpu: usize| -> f64 {
        let noise = sources.iter().filter_map(|s| s.noise.cpus().get(cpu));
        noise.map(|c| c.stolen_ns() as f64 / c.span_ns().max(1) as f64).sum()
    };
    (0..cpus).map(of_cpu).fold(0.0, f64::max)
}

/// Ranks on a node, and the sources that do not reach them.
type Key = (u32, Vec<String>);

/// The simulations of one node count.
struct Simulated<'a> {
    question: &'a Question,
    nodes: u32,
    /// `None` if no noise is left.
    found: BTreeMap<Key, Option<(Parts, Part)>>,
    /// That of the first choice, which has all noise.
    excess: Option<Excess>,
}

impl Simulated<'_> {
    fn key(&self, choice: &Choice) -> Key {
        let cores = self.question.cores.saturating_sub(choice.spare).max(1);
        let mut gone: Vec<String> = choice.taken.iter().chain(&choice.held).cloned().collect();
        gone.sort_unstable();
        (ranks_per_node(cores as usize, &[self.nodes]), gone)
    }

    fn simulate(&mut self, choice: &Choice) -> Result<(), SpecError> {
        let key = self.key(choice);
        if self.found.contains_key(&key) {
            return Ok(());
        }
        let measured = self.question.measured.without(&key.1);
        let is_quiet = measured.sources.iter().all(|s| s.noise.stolen_share() == 0.0);
        let found = if is_quiet {
            None
        } else {
            let question = self.what_if(measured, key.0);
            let (parts, part) = Parts::with_excess(&question, self.nodes, self.excess)?;
            self.excess = Some(parts.excess());
            Some((parts, part))
        };
        self.found.insert(key, found);
        Ok(())
    }

    fn what_if(&self, measured: Measured, ranks_per_node: u32) -> WhatIf {
        let scenario = Scenario {
            nodes: vec![self.nodes],
            ranks_per_node: Some(ranks_per_node),
            ..self.question.scenario.clone()
        };
        let iterations_given = self.question.iterations_given;
        WhatIf { scenario, measured, windows: SchedulerSpec::Preempt, iterations_given }
    }

    fn throughput(&self, choice: &Choice) -> Option<Resampled> {
        if choice.impossible.is_some() {
            return None;
        }
        let given = choice.given;
        let Some((parts, part)) = self.found.get(&self.key(choice))? else {
            let throughput = Throughput {
                share: given,
                ci95: Some(0.0),
                low: Some(given),
                high: Some(given),
                simulation_ci95: Some(0.0),
            };
            return Some(Resampled { throughput, shares: Vec::new() });
        };
        let (time, quiet_ns) = (parts.time(*part), parts.quiet_ns());
        let ns = time.ns.max(f64::MIN_POSITIVE);
        let share = |ns: f64| given * quiet_ns / ns.max(quiet_ns);
        // to first order, a quotient is as uncertain as what it is divided by
        let half = |half: Option<f64>| half.map(|half| given * quiet_ns * half / (ns * ns));
        // the longest time is the lowest throughput
        let (low, high) = (time.high_ns.map(share), time.low_ns.map(share));
        let throughput = Throughput {
            share: share(ns),
            ci95: low.zip(high).map(|(low, high)| (high - share(ns)).max(share(ns) - low)),
            low,
            high,
            simulation_ci95: half(time.simulation_ci95_ns),
        };
        Some(Resampled { throughput, shares: parts.resampled_ns(*part).into_iter().map(share).collect() })
    }

    fn scale(&self, choices: &[Choice]) -> Scale {
        let found: Vec<Option<Resampled>> = choices.iter().map(|c| self.throughput(c)).collect();
        let known = || found.iter().enumerate().filter_map(|(c, t)| Some((c, t.as_ref()?)));
        // of equal ones the first, which changes least
        let better = |a: &Resampled, b: &Resampled| a.throughput.share > b.throughput.share;
        let best = known().reduce(|best, next| if better(next.1, best.1) { next } else { best });
        let alike = best.map_or_else(Vec::new, |(place, best)| {
            known().filter(|(c, t)| *c != place && best.is_like(t)).map(|(c, _)| c).collect()
        });
        let ranks_per_node = ranks_per_node(self.question.cores.max(1) as usize, &[self.nodes]);
        let best = best.map(|(c, _)| c);
        let throughput = found.into_iter().map(|t| t.map(|t| t.throughput)).collect();
        Scale { nodes: self.nodes, ranks_per_node, best, alike, throughput }
    }

    /// Simulates the best choices further if they cannot be told apart. Returns `false` if nothing can be done.
    fn refine(&mut self, choices: &[Choice]) -> Result<bool, SpecError> {
        let scale = self.scale(choices);
        let Some(best) = scale.best.filter(|_| !scale.alike.is_empty()) else { return Ok(false) };
        let keys: Vec<Key> =
            scale.alike.iter().chain([&best]).filter_map(|&c| choices.get(c)).map(|c| self.key(c)).collect();
        let mut refined = false;
        for key in keys {
            if let Some(Some((parts, part))) = self.found.get_mut(&key) {
                refined |= parts.refine(*part)?;
            }
        }
        Ok(refined)
    }
}
