// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of each source of a measured node's noise to a program at scale, and the remedies.

mod answer;
mod bootstrap;
#[cfg(test)]
mod coverage_tests;
mod doubts;
mod excess;
mod losses;
mod parts;
mod remade;
mod sample;
mod tail;
#[cfg(test)]
mod tests;

use colony_time::Windows;
use rayon::prelude::*;

pub use self::answer::{Answer, Remedy, Runs, Scale, SourceCost, Time};
use self::bootstrap::{Bootstrap, Sides};
pub use self::doubts::doubts;
use self::excess::{affordable_nodes, excess};
pub use self::parts::{Excess, Part, Parts};
pub use self::remade::resampled;
use self::sample::{Estimate, Plan, Sampled, WindowedPlan};
use crate::level::MANY_RANKS;
use crate::node::Node;
use crate::simulate::{Simulation, simulate};
use crate::source::Class;
use crate::spare::{self, SpareLoad};
use crate::spec::{Measured, Scenario, SchedulerSpec, SpecError};
use crate::{Layout, SimError};

/// The question: this program, on nodes like the one measured.
#[derive(Clone, Debug)]
pub struct WhatIf {
    /// Machine, program, node counts, runs (its repetitions) and seed; its noise and its schedulers are not
    /// looked at. Where it has fewer ranks on a node than CPUs were measured, each node has the noise of
    /// some of them.
    pub scenario: Scenario,
    /// The node's noise.
    pub measured: Measured,
    /// The windows to try.
    pub windows: SchedulerSpec,
    /// True if the scenario gives the number of iterations; otherwise each node count has as many as can be afforded.
    pub iterations_given: bool,
}

/// Sources that are looked at one by one, and how many of them for the time they take: the others have the
/// longest detours. The rest are one.
const SHOWN: usize = 7;
const SHOWN_FOR_SHARE: usize = 5;
/// Iterations that are enough to know a quiet program's time.
const FEW: u64 = 5;
/// Share of an iteration that a source has to cost for its place among the others to matter.
const MATTERS: f64 = 0.02;
/// Share of an iteration to which the simulation knows every time and every cost, if it may run long enough.
const PRECISE: f64 = 0.02;

/// Most ranks, unless they are placed: memory for more is not on every machine, nor the time.
const MOST_RANKS: u32 = 1 << 21;

/// Ranks on each node of a question about `nodes` that does not place them: one for each of the `cpus` measured, or as
/// many as are not too many.
#[must_use]
pub fn ranks_per_node(cpus: usize, nodes: &[u32]) -> u32 {
    let most = MOST_RANKS / nodes.iter().copied().max().unwrap_or(1).max(1);
    u32::try_from(cpus).unwrap_or(u32::MAX).min(most).max(1)
}

/// An excess, and the nodes it was simulated on.
#[derive(Clone, Copy)]
struct OfNodes {
    nodes: u32,
    excess: f64,
}

/// Node counts that differ by no more than this factor are near enough to have the same excess.
const NEAR: u32 = 8;

/// Some sources and what they are called.
struct Group {
    name: String,
    sources: Vec<String>,
    stolen_share: f64,
}

/// One simulation of the question, at all node counts.
struct Case {
    kind: Kind,
    node: Node,
    /// The noise that comes to the job, with windows in the favored ones, and which sources it does not have.
    left: Node,
    gone: Vec<String>,
}

enum Kind {
    Everything,
    Without(Group),
    Under(SchedulerSpec),
}

/// The results so far of one node count.
struct Known {
    sampled: Sampled,
    ranks: u32,
    plan: Plan,
    rounds: u32,
    /// Of each case all runs, but for windows.
    found: Vec<Vec<Vec<f64>>>,
    windows: Option<(WindowedPlan, Vec<f64>)>,
    /// Of each case, how far the trace may be from the node. Empty before the first round.
    trace: Vec<Option<CaseSides>>,
}

/// Sides of the intervals of one case that the trace adds.
#[derive(Clone, Copy)]
struct CaseSides {
    /// Of the case's time.
    time: Sides,
    /// Of the time that all noise adds to it.
    gain: Sides,
    /// The same for the cost of a source, which other detours may hide.
    cost: Sides,
}

impl WhatIf {
    /// Simulates what is asked. `step` is called with how many of [`WhatIf::steps`] were done, `report` with the
    /// answer so far: first of the smaller node counts, later of all, then better.
    ///
    /// # Errors
    /// [`SpecError`] where the question makes no sense.
    pub fn answer(
        &self,
        step: impl Fn(u64) + Sync,
        mut report: impl FnMut(&Answer),
    ) -> Result<Answer, SpecError> {
        let (cases, impossible) = self.cases()?;
        let warnings: Vec<String> = doubts(&self.measured).into_iter().chain(impossible).collect();
        // late enough for whatever waits for windows to have come
        let settled_ns = cases.iter().map(|c| c.node.settle_ns()).max().unwrap_or(0);
        let begin_ns = settled_ns.max(self.scenario.begin_ns.unwrap_or(0));
        let spare = self.spare()?.ok();
        let mut nodes = self.scenario.nodes.clone();
        nodes.sort_unstable();
        let (mut known, mut of_fewer): (Vec<Known>, _) = (Vec::new(), None);
        for &n in &nodes {
            known.push(Known::new(self.sampled(n, begin_ns)?, &cases)?);
            if let Some((k, everything)) = known.last_mut().zip(cases.first()) {
                k.round(&cases, &step)?;
                let parts = self.parts()?;
                let of = self.excess(&k.sampled, &parts, &everything.left, of_fewer)?;
                of_fewer = Some(of);
                k.bootstrap(&cases, &parts, of.excess);
            }
            report(&self.put_together(&nodes[..known.len()], &known, &cases, (spare, &warnings)));
        }
        // the largest decides what comes first
        for n in (0..known.len()).rev() {
            while known[n].rounds < known[n].plan.rounds && !known[n].is_sure(&cases) {
                known[n].round(&cases, &step)?;
                report(&self.put_together(&nodes, &known, &cases, (spare, &warnings)));
            }
            step(u64::from(known[n].plan.rounds - known[n].rounds) * cases.len() as u64);
        }
        Ok(self.put_together(&self.scenario.nodes, &known, &cases, (spare, &warnings)))
    }

    /// Simulations that [`WhatIf::answer`] makes at most.
    #[must_use]
    pub fn steps(&self) -> u64 {
        let cases = self.cases().map_or(0, |(cases, _)| cases.len() as u64);
        let rounds = |&nodes: &u32| {
            let sampled = self.unmeasured(nodes, 0);
            sampled.ok().and_then(|s| s.rounds().ok()).map_or(0, |(_, rounds)| u64::from(rounds))
        };
        cases * self.scenario.nodes.iter().map(rounds).sum::<u64>()
    }

    /// The answer for `nodes`, in their order.
    fn put_together(
        &self,
        nodes: &[u32],
        known: &[Known],
        cases: &[Case],
        (spare, warnings): (Option<SpareLoad>, &[String]),
    ) -> Answer {
        let at = |n: &u32| known.iter().find(|k| k.sampled.simulation.nodes == *n);
        let known: Vec<&Known> = nodes.iter().filter_map(at).collect();
        let (mut sources, mut remedies) = (Vec::new(), Vec::new());
        for (c, case) in cases.iter().enumerate() {
            match &case.kind {
                Kind::Everything => {}
                Kind::Without(group) => sources.push(SourceCost {
                    name: group.name.clone(),
                    stolen_share: group.stolen_share,
                    cost: known.iter().map(|k| k.cost(c)).collect(),
                }),
                Kind::Under(scheduler) => {
                    let (time, gives_back) = known.iter().map(|k| k.remedy(c)).unzip();
                    remedies.push(Remedy { scheduler: scheduler.clone(), time, gives_back });
                }
            }
        }
        let largest = (0..known.len()).max_by_key(|&n| known[n].ranks).unwrap_or(0);
        let cost = |s: &SourceCost| s.cost.get(largest).copied().flatten().map_or(0.0, |t| t.ns);
        sources.sort_by(|a, b| cost(b).total_cmp(&cost(a)));
        let scales = known.iter().map(|k| k.scale()).collect();
        let cpus = self.measured.cpus() as u32;
        Answer { cpus, scales, sources, remedies, spare, warnings: warnings.to_vec() }
    }

    /// Each source by itself, those first that take most and those with the longest detours; the others
    /// together.
    fn groups(&self) -> Vec<Group> {
        let longest = |name: &str| {
            let noise = self.measured.sources.iter().find(|s| s.name == name).map(|s| &s.noise);
            let detours = noise.into_iter().flat_map(|n| n.cpus()).flat_map(|c| c.detours());
            detours.map(|d| d.duration_ns).max()
        };
        let mut groups: Vec<Group> = (self.measured.sources.iter())
            .map(|s| Group {
                name: s.name.clone(),
                sources: vec![s.name.clone()],
                stolen_share: s.noise.stolen_share(),
            })
            .collect();
        groups.sort_by(|a, b| b.stolen_share.total_cmp(&a.stolen_share).then_with(|| a.name.cmp(&b.name)));
        if groups.len() > SHOWN + 1 {
            groups[SHOWN_FOR_SHARE..].sort_by_cached_key(|g| std::cmp::Reverse(longest(&g.name)));
            let rest = groups.split_off(SHOWN);
            groups.push(Group {
                name: format!("{} others", rest.len()),
                stolen_share: rest.iter().map(|g| g.stolen_share).sum(),
                sources: rest.into_iter().flat_map(|g| g.sources).collect(),
            });
        }
        groups
    }

    /// The cases to simulate for each node count; and the reasons for remedies that are left out.
    fn cases(&self) -> Result<(Vec<Case>, Vec<String>), SpecError> {
        let parts = self.parts()?;
        let node_of = |leave_out: &[String], scheduler: &SchedulerSpec| -> Result<Node, SpecError> {
            let kept: Vec<Measured> = parts.iter().map(|p| p.without(leave_out)).collect();
            let kept: Vec<&Measured> = kept.iter().collect();
            let sources = match scheduler {
                SchedulerSpec::Preempt => Measured::one_source(&kept, 0)?,
                _ => Measured::sources_of(&kept, 0)?,
            };
            Ok(Node { sources, scheduler: scheduler.scheduler()? })
        };
        let without = |kind: Kind, gone: Vec<String>| -> Result<Case, SpecError> {
            let node = node_of(&gone, &SchedulerSpec::Preempt)?;
            Ok(Case { kind, left: node.clone(), node, gone })
        };
        let mut cases = vec![without(Kind::Everything, Vec::new())?];
        for group in self.groups() {
            let gone = group.sources.clone();
            cases.push(without(Kind::Without(group), gone)?);
        }
        let mut impossible = Vec::new();
        let layout = Layout::one_a_node(1)?;
        for remedy in [self.windows.clone(), SchedulerSpec::SpareCore] {
            let node = node_of(&[], &remedy)?;
            let is_spare = matches!(remedy, SchedulerSpec::SpareCore);
            let possible = if is_spare { self.spare()?.map(drop) } else { node.check(layout) };
            match possible {
                Ok(()) => {
                    let goes = |class| class == Class::Task || is_spare && class == Class::Irq;
                    let gone = self.measured.sources.iter().filter(|s| goes(s.class));
                    let gone: Vec<String> = gone.map(|s| s.name.clone()).collect();
                    let left = node_of(&gone, &SchedulerSpec::Preempt)?;
                    cases.push(Case { kind: Kind::Under(remedy), node, left, gone });
                }
                Err(e) => impossible.push(format!("{} would not help: {e}", remedy.name())),
            }
        }
        Ok((cases, impossible))
    }

    /// The node measured, as nodes of as many CPUs as have ranks.
    fn parts(&self) -> Result<Vec<Measured>, SpecError> {
        let cores = self.scenario.machine()?.ranks_per_node;
        Ok(self.measured.in_parts(cores as usize)?)
    }

    /// The load of a spare core; or the reason for its failure.
    fn spare(&self) -> Result<Result<SpareLoad, SimError>, SpecError> {
        let scheduler = SchedulerSpec::SpareCore.scheduler()?;
        let node = Node { sources: self.measured.sources(0)?, scheduler };
        Ok(spare::load(&node, self.measured.cpus() as u32, self.scenario.seed))
    }

    /// The program on `nodes` nodes, and its time without noise.
    fn sampled(&self, nodes: u32, begin_ns: u64) -> Result<Sampled, SpecError> {
        let mut sampled = self.unmeasured(nodes, begin_ns)?;
        sampled.quiet_ns = simulate(&Simulation { repetitions: 1, ..sampled.simulation.clone() })?.quiet_ns;
        Ok(sampled)
    }

    /// By how much more than modelled another trace changes the time; that of fewer nodes if it would take too long, which
    /// may be the last known one.
    fn excess(
        &self,
        sampled: &Sampled,
        parts: &[Measured],
        everything: &Node,
        last: Option<OfNodes>,
    ) -> Result<OfNodes, SpecError> {
        let nodes = affordable_nodes(sampled)?;
        if nodes == sampled.simulation.nodes {
            return Ok(OfNodes { nodes, excess: excess(sampled, parts, everything)? });
        }
        match last {
            Some(last) if last.nodes.saturating_mul(NEAR) >= nodes => Ok(last),
            _ => {
                let sampled = self.sampled(nodes, sampled.begin_ns)?;
                Ok(OfNodes { nodes, excess: excess(&sampled, parts, everything)? })
            }
        }
    }

    /// The same without that time.
    fn unmeasured(&self, nodes: u32, begin_ns: u64) -> Result<Sampled, SpecError> {
        let scenario = &self.scenario;
        let machine = scenario.machine()?;
        let mut program = scenario.program.program(machine.layout(nodes)?.ranks())?;
        let iterations = self.iterations_given.then_some(program.iterations);
        program.iterations = FEW;
        let simulation = Simulation {
            program,
            machine,
            node: Node::quiet(),
            nodes,
            begin_ns: Some(0),
            repetitions: scenario.repetitions,
            seed: scenario.seed,
        };
        Ok(Sampled { simulation, quiet_ns: 0.0, iterations, begin_ns })
    }
}

impl Known {
    fn new(sampled: Sampled, cases: &[Case]) -> Result<Self, SpecError> {
        let plan = match cases.first() {
            Some(everything) => sampled.plan(&everything.node)?,
            None => sampled.plan(&Node::quiet())?,
        };
        let ranks = sampled.layout()?.ranks();
        let mut windows = None;
        for case in cases {
            if let Kind::Under(SchedulerSpec::Coordinated(w)) = &case.kind {
                let favored_ns =
                    Windows::new(w.period_ns, w.duty_cycle, 0).map_or(w.period_ns, |w| w.favored_ns());
                windows = Some((sampled.windowed_plan(w.period_ns, favored_ns)?, Vec::new()));
            }
        }
        Ok(Self {
            sampled,
            ranks,
            plan,
            rounds: 0,
            found: vec![Vec::new(); cases.len()],
            windows,
            trace: Vec::new(),
        })
    }

    /// More runs of all cases; windows are simulated in the first round.
    fn round(&mut self, cases: &[Case], step: &(impl Fn(u64) + Sync)) -> Result<(), SpecError> {
        let numbers = self.rounds * self.plan.runs..(self.rounds + 1) * self.plan.runs;
        let (sampled, plan) = (&self.sampled, &self.plan);
        let windowed = self.windows.as_ref().filter(|_| self.rounds == 0).map_or(0, |(p, _)| p.runs);
        let planned = |c: usize| match cases[c].kind {
            Kind::Under(SchedulerSpec::Coordinated(_)) => 0..windowed,
            _ => numbers.clone(),
        };
        let all: Vec<(usize, u32)> =
            (0..cases.len()).flat_map(|c| planned(c).map(move |number| (c, number))).collect();
        let found = |&(c, number): &(usize, u32)| {
            let node = &cases[c].node;
            let values = match (&cases[c].kind, &self.windows) {
                (Kind::Under(SchedulerSpec::Coordinated(_)), Some((plan, _))) => {
                    vec![sampled.windowed_run(plan, (node, &cases[c].left), number)?]
                }
                _ => sampled.run(plan, node, number)?,
            };
            if number == numbers.start {
                step(1);
            }
            Ok(values)
        };
        // the ranks of a large one are on all cores: one at a time, for they take much memory
        let values: Vec<Vec<f64>> = if self.ranks >= MANY_RANKS {
            all.iter().map(found).collect::<Result<_, SpecError>>()?
        } else {
            all.par_iter().with_max_len(1).map(found).collect::<Result<_, SpecError>>()?
        };
        for ((c, _), values) in all.into_iter().zip(values) {
            match (&cases[c].kind, &mut self.windows) {
                (Kind::Under(SchedulerSpec::Coordinated(_)), Some((_, found))) => found.extend(values),
                _ => self.found[c].push(values),
            }
        }
        if self.rounds > 0 && self.windows.is_some() {
            step(1);
        }
        self.rounds += 1;
        Ok(())
    }

    fn estimate(&self, case: usize) -> Estimate {
        self.plan.estimate(&self.found[case])
    }

    /// Computes how far the trace may be from the node, from the first round.
    fn bootstrap(&mut self, cases: &[Case], parts: &[Measured], excess: f64) {
        let quiet_ns = self.sampled.quiet_ns;
        let mut bootstrap = Bootstrap::new(parts, quiet_ns, self.ranks, self.sampled.simulation.seed);
        let favored = self.windows.as_ref().map_or(1.0, |(plan, _)| plan.favored());
        let everything = cases.first().and_then(|case| bootstrap.taken(&case.left, |_| true));
        let Some(everything) = everything else {
            self.trace = vec![None; cases.len()];
            return;
        };
        bootstrap.calibrate(&everything, self.estimate(0).time().ns - quiet_ns);
        bootstrap.set_excess(excess);
        let all = bootstrap.sides(&everything, None);
        let of = |case: &Case| {
            let left = bootstrap.taken(&case.left, |name| !case.gone.iter().any(|gone| gone == name))?;
            let (time, gain) = (bootstrap.sides(&left, None), bootstrap.sides(&everything, Some(&left)));
            match &case.kind {
                Kind::Everything => Some(CaseSides { time: all, gain: all, cost: all }),
                // in regular windows nothing is held back
                Kind::Under(SchedulerSpec::Coordinated(_)) => {
                    let gain = gain.mixed(favored, Sides::NONE);
                    Some(CaseSides { time: time.mixed(favored, all), gain, cost: gain })
                }
                Kind::Under(_) => Some(CaseSides { time, gain, cost: gain }),
                Kind::Without(_) => {
                    Some(CaseSides { time, gain, cost: bootstrap.cost_sides(&everything, &left) })
                }
            }
        };
        self.trace = cases.par_iter().map(of).collect();
    }

    /// The sides of case `case` that the trace adds.
    fn sides(&self, case: usize) -> Option<CaseSides> {
        self.trace.get(case).copied().flatten()
    }

    /// The time under remedy `case`, windows or not, and the time that it gives back.
    fn remedy(&self, case: usize) -> (Time, Time) {
        let with = match &self.windows {
            Some((plan, found)) if self.found[case].is_empty() => plan.estimate(found),
            _ => self.estimate(case),
        };
        let sides = self.sides(case);
        let gives_back = self.estimate(0).minus(&with);
        let time = with.time().with_trace(sides.map(|s| s.time)).no_less_than(self.sampled.quiet_ns);
        (time, gives_back.with_trace(sides.map(|s| s.gain)))
    }

    /// The time that the program gains without the source of case `case`, as far as runs tell it: more runs do not change
    /// what hides the source by chance.
    fn less(&self, case: usize) -> Option<Time> {
        let simulated = self.estimate(0).paired_minus(&self.estimate(case))?;
        Some(simulated.with_trace(self.sides(case).map(|s| s.gain)))
    }

    /// The cost of the source of case `case`: the same time, whose interval allows for other detours that hide the source.
    fn cost(&self, case: usize) -> Option<Time> {
        let simulated = self.estimate(0).paired_minus(&self.estimate(case))?;
        Some(simulated.with_trace(self.sides(case).map(|s| s.cost)))
    }

    /// Time with all noise.
    fn noisy(&self) -> Time {
        let simulated = self.estimate(0).time();
        simulated.with_trace(self.sides(0).map(|s| s.time)).no_less_than(self.sampled.quiet_ns)
    }

    fn scale(&self) -> Scale {
        let noisy = self.noisy();
        Scale {
            nodes: self.sampled.simulation.nodes,
            ranks: self.ranks,
            runs: self.plan.runs(&self.found[0], &noisy),
            windowed: self.windows.as_ref().map(|(plan, found)| plan.runs(found)),
            quiet_ns: self.sampled.quiet_ns,
            noisy,
        }
    }

    /// True if more runs would not make the answer surer: the order of the sources' costs is known, for those that cost
    /// enough to matter, and every time to [`PRECISE`] of an iteration, or better than the trace can tell.
    fn is_sure(&self, cases: &[Case]) -> bool {
        let noisy = self.noisy();
        let enough_ns = PRECISE * noisy.ns;
        let sources = || (0..cases.len()).filter(|&c| matches!(cases[c].kind, Kind::Without(_)));
        let costs: Vec<(usize, Time)> = sources().filter_map(|c| Some((c, self.less(c)?))).collect();
        if noisy.is_worth_more_runs(enough_ns) || costs.iter().any(|(_, t)| t.is_worth_more_runs(enough_ns)) {
            return false;
        }
        let mut by_cost = costs;
        by_cost.sort_by(|a, b| b.1.ns.total_cmp(&a.1.ns));
        let matters = |cost: f64| cost > MATTERS * noisy.ns;
        by_cost.windows(2).take_while(|w| matters(w[0].1.ns)).all(|w| {
            let apart = self.estimate(w[1].0).paired_minus(&self.estimate(w[0].0));
            apart.is_none_or(|t| !t.is_about_nothing() || !w[0].1.is_worth_more_runs(0.0))
        })
    }
}
