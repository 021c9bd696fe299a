//! What each source of a measured node's noise costs a program at scale, and what would give it back.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::cpus::Node;
use crate::simulate::{Simulation, simulate};
use crate::spec::{Measured, Scenario, SchedulerSpec, SpecError};

/// The question: this program, on nodes like the one measured.
#[derive(Clone, Debug)]
pub struct WhatIf {
    /// Machine, program, node counts, repetitions and seed; its noise and its schedulers are not looked at.
    pub scenario: Scenario,
    /// The node's noise.
    pub measured: Measured,
    /// The windows to try.
    pub windows: SchedulerSpec,
    /// Whether the scenario's iterations stand; else each node count has enough of them to see the windows
    /// come round.
    pub iterations_given: bool,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// One for each node count.
    pub scales: Vec<Scale>,
    /// What each source takes and costs; the dearest at the largest scale first.
    pub sources: Vec<SourceCost>,
    /// What would give time back.
    pub remedies: Vec<Remedy>,
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
    /// Iterations of each run.
    pub iterations: u64,
    /// Time of an iteration without noise.
    pub quiet_ns: f64,
    /// Mean time with all of it.
    pub noisy: Time,
}

/// A mean time, or a difference of two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Time {
    /// Nanoseconds an iteration.
    pub ns: f64,
    /// Half of its 95 % confidence interval.
    pub ci95_ns: Option<f64>,
}

impl Time {
    fn minus(self, other: Self) -> Self {
        // the runs share their random numbers: the true interval is no wider
        let ci = |(a, b): (f64, f64)| a.hypot(b);
        Self { ns: self.ns - other.ns, ci95_ns: self.ci95_ns.zip(other.ci95_ns).map(ci) }
    }

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

/// Sources that are looked at one by one; the others are one.
const SHOWN: usize = 10;
/// Iterations that are enough to know a quiet program's time.
const FEW: u64 = 5;
/// Fewest iterations, and most, where the question does not say how many.
const ITERATIONS: std::ops::RangeInclusive<u64> = 20..=10_000;
/// Periods of the windows that a run should see.
const PERIODS: f64 = 2.0;

/// One simulation of the question.
#[derive(Clone)]
enum Case {
    Everything,
    Without(Vec<String>),
    Under(SchedulerSpec),
}

impl WhatIf {
    /// Simulates what is asked; `step` is called after each of [`WhatIf::steps`] simulations.
    ///
    /// # Errors
    /// [`SpecError`] where the question makes no sense.
    pub fn answer(&self, step: impl Fn() + Sync) -> Result<Answer, SpecError> {
        let groups = self.groups();
        let (cases, impossible) = self.cases(&groups);
        let scales = (self.scenario.nodes.par_iter())
            .map(|&nodes| self.scale(nodes))
            .collect::<Result<Vec<_>, SpecError>>()?;
        // the largest first: they take longest
        let mut tasks: Vec<(usize, usize)> =
            (0..scales.len()).flat_map(|n| (0..cases.len()).map(move |c| (n, c))).collect();
        tasks.sort_by_key(|&(n, _)| std::cmp::Reverse(scales[n].ranks));
        let mut times = (tasks.par_iter().with_max_len(1))
            .map(|&(n, c)| {
                let (time, warnings) = self.time(&scales[n], &cases[c])?;
                step();
                Ok(((n, c), time, warnings))
            })
            .collect::<Result<Vec<_>, SpecError>>()?;
        times.sort_by_key(|&(at, ..)| at);
        let at = |n: usize, c: usize| times[n * cases.len() + c].1;
        let mut warnings: Vec<String> = times.iter().flat_map(|(_, _, w)| w).cloned().collect();
        warnings.extend(impossible);
        warnings.sort();
        warnings.dedup();
        Ok(self.put_together(scales, &groups, &cases, at, warnings))
    }

    /// Simulations that [`WhatIf::answer`] makes.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.cases(&self.groups()).0.len() * self.scenario.nodes.len()
    }

    fn put_together(
        &self,
        mut scales: Vec<Scale>,
        groups: &[(String, Vec<String>, f64)],
        cases: &[Case],
        at: impl Fn(usize, usize) -> Time,
        warnings: Vec<String>,
    ) -> Answer {
        let counts = 0..scales.len();
        let (mut sources, mut remedies) = (Vec::new(), Vec::new());
        let mut names = groups.iter();
        for (c, case) in cases.iter().enumerate() {
            let less = || counts.clone().map(|n| at(n, 0).minus(at(n, c))).collect::<Vec<_>>();
            match case {
                Case::Everything => {}
                Case::Without(_) => {
                    if let Some((name, _, share)) = names.next() {
                        sources.push(SourceCost { name: name.clone(), stolen_share: *share, cost: less() });
                    }
                }
                Case::Under(scheduler) => remedies.push(Remedy {
                    scheduler: scheduler.clone(),
                    time: counts.clone().map(|n| at(n, c)).collect(),
                    gives_back: less(),
                }),
            }
        }
        for (n, scale) in scales.iter_mut().enumerate() {
            scale.noisy = at(n, 0);
        }
        let largest = (counts.clone()).max_by_key(|&n| scales[n].ranks).unwrap_or(0);
        sources.sort_by(|a, b| b.cost[largest].ns.total_cmp(&a.cost[largest].ns));
        Answer { scales, sources, remedies, warnings }
    }

    /// Each source by itself, the largest thieves first; the smallest together. Name, sources, stolen share.
    fn groups(&self) -> Vec<(String, Vec<String>, f64)> {
        let mut one: Vec<_> = (self.measured.sources.iter())
            .map(|(name, noise)| (name.clone(), vec![name.clone()], noise.stolen_share()))
            .collect();
        one.sort_by(|a, b| b.2.total_cmp(&a.2).then_with(|| a.0.cmp(&b.0)));
        if one.len() > SHOWN + 1 {
            let rest = one.split_off(SHOWN);
            let share = rest.iter().map(|r| r.2).sum();
            let name = format!("{} others", rest.len());
            one.push((name, rest.into_iter().map(|r| r.0).collect(), share));
        }
        one
    }

    /// What is simulated for each node count; and why a remedy is not.
    fn cases(&self, groups: &[(String, Vec<String>, f64)]) -> (Vec<Case>, Vec<String>) {
        let mut cases = vec![Case::Everything];
        cases.extend(groups.iter().map(|(_, names, _)| Case::Without(names.clone())));
        let mut impossible = Vec::new();
        for remedy in [self.windows.clone(), SchedulerSpec::SpareCore] {
            let nodes = self.scenario.nodes.first().copied().unwrap_or(1);
            match self.simulation(nodes, FEW, &remedy, &[]) {
                Err(SpecError::Sim(e)) => impossible.push(format!("{} would not help: {e}", remedy.name())),
                _ => cases.push(Case::Under(remedy)),
            }
        }
        (cases, impossible)
    }

    /// The program without noise on `nodes` nodes, and how often it is to be done.
    fn scale(&self, nodes: u32) -> Result<Scale, SpecError> {
        let mut simulation = self.simulation(nodes, FEW, &SchedulerSpec::None, &[])?;
        simulation.repetitions = 1;
        let quiet = simulate(&simulation)?;
        let enough = match &self.windows {
            SchedulerSpec::Coordinated(w) => PERIODS * w.period_ns as f64 / quiet.quiet_ns.max(1.0),
            _ => 0.0,
        };
        let iterations = match self.iterations_given {
            true => self.scenario.program.iterations,
            false => (enough.ceil() as u64).clamp(*ITERATIONS.start(), *ITERATIONS.end()),
        };
        let noisy = Time { ns: quiet.quiet_ns, ci95_ns: None };
        Ok(Scale { nodes, ranks: quiet.ranks, iterations, quiet_ns: quiet.quiet_ns, noisy })
    }

    fn time(&self, scale: &Scale, case: &Case) -> Result<(Time, Vec<String>), SpecError> {
        let (scheduler, leave_out) = match case {
            Case::Everything => (&SchedulerSpec::Preempt, &[][..]),
            Case::Without(names) => (&SchedulerSpec::Preempt, &names[..]),
            Case::Under(scheduler) => (scheduler, &[][..]),
        };
        let outcome = simulate(&self.simulation(scale.nodes, scale.iterations, scheduler, leave_out)?)?;
        Ok((Time { ns: outcome.mean_ns, ci95_ns: outcome.ci95_ns }, outcome.warnings))
    }

    fn simulation(
        &self,
        nodes: u32,
        iterations: u64,
        scheduler: &SchedulerSpec,
        leave_out: &[String],
    ) -> Result<Simulation, SpecError> {
        let scenario = &self.scenario;
        let machine = scenario.machine()?;
        let layout = machine.layout(nodes)?;
        let mut program = scenario.program.program(layout.ranks())?;
        program.iterations = iterations;
        let kept = self.measured.without(leave_out).map_err(SpecError::Trace)?;
        let node = Node { sources: kept.sources(0)?, scheduler: scheduler.scheduler()? };
        node.check(layout)?;
        Ok(Simulation {
            program,
            machine,
            node,
            nodes,
            // a trace needs no time to settle, and runs see the windows from their beginning
            begin_ns: Some(scenario.begin_ns.unwrap_or(0)),
            repetitions: scenario.repetitions,
            seed: scenario.seed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Detour;
    use crate::spec::{ProgramSpec, Windowed};
    use crate::{CpuNoise, NodeNoise};

    fn periodic(every_ns: u64, length_ns: u64, from_ns: u64) -> NodeNoise {
        let starts = (0..100_000_000 / every_ns).map(|i| from_ns + i * every_ns);
        let detours = starts.map(|start_ns| Detour { start_ns, duration_ns: length_ns });
        NodeNoise::new(vec![CpuNoise::new(100_000_000, detours).expect("some time")]).expect("a CPU")
    }

    fn question() -> WhatIf {
        let sources = vec![
            ("irq:local_timer".to_owned(), periodic(4_000_000, 2_000, 100_000)),
            ("thread:kworker".to_owned(), periodic(50_000_000, 300_000, 1_000_000)),
        ];
        WhatIf {
            scenario: Scenario {
                nodes: vec![1, 256],
                repetitions: 3,
                program: ProgramSpec { work_ns: Some(1_000_000), ..ProgramSpec::named("allreduce") },
                ..Scenario::default()
            },
            measured: Measured { sources },
            windows: SchedulerSpec::Coordinated(Windowed {
                period_ns: 100_000_000,
                duty_cycle: colony_time::DutyCycle::Ppm(800_000),
                ..Windowed::default()
            }),
            iterations_given: false,
        }
    }

    #[test]
    fn the_rare_long_detour_costs_most_at_scale_and_remedies_give_it_back() {
        let steps = std::sync::atomic::AtomicUsize::new(0);
        let question = question();
        let count = || {
            steps.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        };
        let answer = question.answer(count).expect("makes sense");
        assert_eq!(steps.into_inner(), question.steps());
        let thread = &answer.sources[0];
        assert_eq!(thread.name, "thread:kworker");
        assert!(thread.cost[1].ns > 5.0 * thread.cost[0].ns.max(1.0), "{answer:#?}");
        assert!(thread.cost[1].ns > 10.0 * answer.sources[1].cost[1].ns.abs(), "{answer:#?}");
        let [windows, spare] = &answer.remedies[..] else { panic!("{answer:#?}") };
        for remedy in [windows, spare] {
            assert!(remedy.gives_back[1].ns > 0.5 * thread.cost[1].ns, "{answer:#?}");
        }
        assert!(answer.scales.iter().all(|s| s.noisy.ns > s.quiet_ns));
    }

    #[test]
    fn the_smallest_of_many_sources_are_looked_at_together() {
        let mut question = question();
        question.measured.sources = (0..40u64)
            .map(|i| (format!("thread:{i}"), periodic(50_000_000, 1_000 * (i + 1), 1_000_000 * (i + 1))))
            .collect();
        let groups = question.groups();
        assert_eq!(
            (groups.len(), groups[0].0.as_str(), groups[SHOWN].0.as_str()),
            (11, "thread:39", "30 others")
        );
        assert_eq!(groups.iter().map(|g| g.1.len()).sum::<usize>(), 40);
    }
}
