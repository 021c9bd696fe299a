//! What each source of a measured node's noise costs a program at scale, and what would give it back.

mod sample;
#[cfg(test)]
mod tests;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use self::sample::{Estimate, Plan, Sampled};
use crate::cpus::Node;
use crate::level::MANY_RANKS;
use crate::simulate::{Simulation, simulate};
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
    /// Whether the scenario's iterations stand; else each node count has as many as can be afforded.
    pub iterations_given: bool,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// CPUs of the node measured.
    pub cpus: u32,
    /// One for each node count.
    pub scales: Vec<Scale>,
    /// What each source takes and costs; the dearest at the largest scale first.
    pub sources: Vec<SourceCost>,
    /// What would give time back.
    pub remedies: Vec<Remedy>,
    /// What a spare core of the node measured would have to do; `None` where it could not.
    pub spare: Option<SpareLoad>,
    /// What a reader should know.
    pub warnings: Vec<String>,
}

/// A node count, and the program's iteration there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// Nodes.
    pub nodes: u32,
    /// Ranks.
    pub ranks: u32,
    /// What was simulated with all noise; the same for each source, but for the time, which is as many
    /// iterations.
    pub runs: Runs,
    /// What was simulated of the windows.
    pub windowed: Option<Runs>,
    /// Time of an iteration without noise.
    pub quiet_ns: f64,
    /// Mean time with all of it.
    pub noisy: Time,
}

/// How much was simulated.
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
    /// Whether it cannot be told from nothing.
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
    /// For each node count: by how much an iteration is shorter without this source alone.
    pub cost: Vec<Time>,
}

/// A way to be rid of noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remedy {
    /// Name of the scheduler.
    pub scheduler: SchedulerSpec,
    /// Mean time of an iteration with it, for each node count.
    pub time: Vec<Time>,
    /// What it gives back of the time with all noise.
    pub gives_back: Vec<Time>,
}

/// Sources that are looked at one by one, and how many of them for the time they take: the others have the
/// longest detours. The rest are one.
const SHOWN: usize = 7;
const SHOWN_FOR_SHARE: usize = 5;
/// Iterations that are enough to know a quiet program's time.
const FEW: u64 = 5;

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
}

enum Kind {
    Everything,
    Without(Group),
    Under(SchedulerSpec),
}

/// What a case is at one node count.
struct Found {
    plan: Plan,
    iterations: f64,
    estimate: Estimate,
}

impl WhatIf {
    /// Simulates what is asked; `step` is called after each of [`WhatIf::steps`] simulations.
    ///
    /// # Errors
    /// [`SpecError`] where the question makes no sense.
    pub fn answer(&self, step: impl Fn() + Sync) -> Result<Answer, SpecError> {
        let (cases, warnings) = self.cases()?;
        // late enough for whatever waits for windows to have come
        let settled_ns = cases.iter().map(|c| c.node.settle_ns()).max().unwrap_or(0);
        let begin_ns = settled_ns.max(self.scenario.begin_ns.unwrap_or(0));
        let sampled =
            self.scenario.nodes.iter().map(|&n| self.sampled(n, begin_ns)).collect::<Result<Vec<_>, _>>()?;
        let found = |&(n, c): &(usize, usize)| {
            let found = self.find(&sampled[n], &cases[c])?;
            step();
            Ok(((n, c), found))
        };
        let all = (0..sampled.len()).flat_map(|n| (0..cases.len()).map(move |c| (n, c)));
        // the ranks of a large one are on all cores: one at a time, for they take much memory
        let (large, small): (Vec<_>, Vec<_>) =
            all.partition(|&(n, _)| sampled[n].layout().is_ok_and(|l| l.ranks() >= MANY_RANKS));
        let mut times = small.par_iter().with_max_len(1).map(found).collect::<Result<Vec<_>, SpecError>>()?;
        times.extend(large.iter().map(found).collect::<Result<Vec<_>, SpecError>>()?);
        times.sort_by_key(|&(at, _)| at);
        let at = |n: usize, c: usize| &times[n * cases.len() + c].1;
        self.put_together(&sampled, &cases, at, warnings)
    }

    /// Simulations that [`WhatIf::answer`] makes.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.cases().map_or(0, |(cases, _)| cases.len()) * self.scenario.nodes.len()
    }

    fn put_together<'a>(
        &self,
        sampled: &[Sampled],
        cases: &[Case],
        at: impl Fn(usize, usize) -> &'a Found,
        warnings: Vec<String>,
    ) -> Result<Answer, SpecError> {
        let counts = 0..sampled.len();
        let (mut sources, mut remedies, mut windows) = (Vec::new(), Vec::new(), None);
        for (c, case) in cases.iter().enumerate() {
            let less = || counts.clone().map(|n| at(n, 0).less(at(n, c))).collect::<Vec<_>>();
            match &case.kind {
                Kind::Everything => {}
                Kind::Without(group) => sources.push(SourceCost {
                    name: group.name.clone(),
                    stolen_share: group.stolen_share,
                    cost: less(),
                }),
                Kind::Under(scheduler) => {
                    if matches!(scheduler, SchedulerSpec::Coordinated(_)) {
                        windows = Some(c);
                    }
                    let time = counts.clone().map(|n| at(n, c).estimate.time()).collect();
                    remedies.push(Remedy { scheduler: scheduler.clone(), time, gives_back: less() });
                }
            }
        }
        let scale = |n: usize| {
            let Simulation { nodes, .. } = sampled[n].simulation;
            Ok(Scale {
                nodes,
                ranks: sampled[n].layout()?.ranks(),
                runs: at(n, 0).runs(),
                windowed: windows.map(|c| at(n, c).runs()),
                quiet_ns: sampled[n].quiet_ns,
                noisy: at(n, 0).estimate.time(),
            })
        };
        let scales = counts.clone().map(scale).collect::<Result<Vec<_>, SimError>>()?;
        let largest = counts.max_by_key(|&n| scales[n].ranks).unwrap_or(0);
        sources.sort_by(|a, b| b.cost[largest].ns.total_cmp(&a.cost[largest].ns));
        let (cpus, spare) = (self.measured.cpus() as u32, self.spare()?.ok());
        Ok(Answer { cpus, scales, sources, remedies, spare, warnings })
    }

    /// Each source by itself, those first that take most and those with the longest detours; the others
    /// together.
    fn groups(&self) -> Vec<Group> {
        let longest = |name: &str| {
            let noise = self.measured.sources.iter().find(|(n, _)| n == name).map(|(_, noise)| noise);
            let detours = noise.into_iter().flat_map(|n| n.cpus()).flat_map(|c| c.detours());
            detours.map(|d| d.duration_ns).max()
        };
        let mut groups: Vec<Group> = (self.measured.sources.iter())
            .map(|(name, noise)| Group {
                name: name.clone(),
                sources: vec![name.clone()],
                stolen_share: noise.stolen_share(),
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

    /// What is simulated for each node count; and why a remedy is not.
    fn cases(&self) -> Result<(Vec<Case>, Vec<String>), SpecError> {
        let cores = self.scenario.machine()?.ranks_per_node;
        let parts = self.measured.in_parts(cores as usize)?;
        let node = |leave_out: &[String], scheduler: &SchedulerSpec| -> Result<Node, SpecError> {
            let kept: Vec<Measured> = parts.iter().map(|p| p.without(leave_out)).collect();
            let kept: Vec<&Measured> = kept.iter().collect();
            let sources = match scheduler {
                SchedulerSpec::Preempt => Measured::one_source(&kept, 0)?,
                _ => Measured::sources_of(&kept, 0)?,
            };
            Ok(Node { sources, scheduler: scheduler.scheduler()? })
        };
        let everything = node(&[], &SchedulerSpec::Preempt)?;
        let mut cases = vec![Case { kind: Kind::Everything, node: everything }];
        for group in self.groups() {
            let node = node(&group.sources, &SchedulerSpec::Preempt)?;
            cases.push(Case { kind: Kind::Without(group), node });
        }
        let mut impossible = Vec::new();
        let layout = Layout::one_a_node(1)?;
        for remedy in [self.windows.clone(), SchedulerSpec::SpareCore] {
            let node = node(&[], &remedy)?;
            let possible = match remedy {
                SchedulerSpec::SpareCore => self.spare()?.map(drop),
                _ => node.check(layout),
            };
            match possible {
                Ok(()) => cases.push(Case { kind: Kind::Under(remedy), node }),
                Err(e) => impossible.push(format!("{} would not help: {e}", remedy.name())),
            }
        }
        Ok((cases, impossible))
    }

    /// What a spare core would have to do; or why it cannot.
    fn spare(&self) -> Result<Result<SpareLoad, SimError>, SpecError> {
        let scheduler = SchedulerSpec::SpareCore.scheduler()?;
        let node = Node { sources: self.measured.sources(0)?, scheduler };
        Ok(spare::load(&node, self.measured.cpus() as u32, self.scenario.seed))
    }

    /// The program on `nodes` nodes, and its time without noise.
    fn sampled(&self, nodes: u32, begin_ns: u64) -> Result<Sampled, SpecError> {
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
        let quiet_ns = simulate(&Simulation { repetitions: 1, ..simulation.clone() })?.quiet_ns;
        Ok(Sampled { simulation, quiet_ns, iterations, begin_ns })
    }

    fn find(&self, sampled: &Sampled, case: &Case) -> Result<Found, SpecError> {
        let plan = match &case.kind {
            Kind::Under(SchedulerSpec::Coordinated(w)) => sampled.windowed_plan(&case.node, w.period_ns)?,
            _ => sampled.plan(&case.node)?,
        };
        let run = |number: u32| sampled.run(&plan, &case.node, number);
        let iterations: Vec<f64> = if sampled.layout()?.ranks() >= MANY_RANKS {
            (0..plan.runs).map(run).collect::<Result<_, _>>()?
        } else {
            (0..plan.runs).into_par_iter().map(run).collect::<Result<_, _>>()?
        };
        let estimate = Estimate::new(&plan, &iterations);
        Ok(Found { plan, iterations: iterations.iter().sum(), estimate })
    }
}

impl Found {
    fn runs(&self) -> Runs {
        let Plan { runs, span_ns, .. } = self.plan;
        Runs { runs, span_ns, iterations: self.iterations }
    }

    /// How much less time `other` takes.
    fn less(&self, other: &Self) -> Time {
        if (self.plan.period_ns, other.plan.period_ns) == (None, None) {
            self.estimate.paired_minus(&other.estimate)
        } else {
            self.estimate.minus(&other.estimate)
        }
    }
}
