// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program's time under parts of a node's noise, all simulated under one plan.

use std::ops::Range;

use rayon::prelude::*;

use super::WhatIf;
use super::answer::Time;
use super::bootstrap::{Bootstrap, Taken};
use super::sample::{Estimate, Plan, Sampled};
use crate::SimError;
use crate::level::MANY_RANKS;
use crate::node::Node;
use crate::spec::{Measured, SchedulerSpec, SpecError};

/// Most rounds of runs of one part.
const ROUNDS: u32 = 2;

/// Times under parts of the noise of a question, on one node count. All have the same plan and random numbers, so two
/// of them can be compared run by run.
pub struct Parts {
    measured: Vec<Measured>,
    sampled: Sampled,
    plan: Plan,
    many: bool,
    found: Vec<Found>,
    bootstrap: Bootstrap,
    excess: Excess,
}

/// How much more another trace changes a simulated time than a time that is only computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Excess(f64);

/// A part that was simulated, of the [`Parts`] that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part(usize);

/// A part's noise, and its runs so far.
struct Found {
    node: Node,
    runs: Vec<Vec<f64>>,
    /// `None` if the trace is too short to say how far it is from the node.
    taken: Option<Taken>,
}

impl Parts {
    /// The parts of `question` on `nodes` nodes; the first is all of its noise.
    ///
    /// # Errors
    /// [`SpecError`] where the question makes no sense.
    pub fn new(question: &WhatIf, nodes: u32) -> Result<(Self, Part), SpecError> {
        Self::with_excess(question, nodes, None)
    }

    /// The same with the excess of a similar question, which takes as long to simulate as a part.
    ///
    /// # Errors
    /// As [`Parts::new`].
    pub fn with_excess(
        question: &WhatIf,
        nodes: u32,
        excess: Option<Excess>,
    ) -> Result<(Self, Part), SpecError> {
        let cores = question.scenario.machine()?.ranks_per_node;
        let measured = question.measured.in_parts(cores as usize)?;
        let everything = node(&measured, &[])?;
        let begin_ns = everything.settle_ns().max(question.scenario.begin_ns.unwrap_or(0));
        let sampled = question.sampled(nodes, begin_ns)?;
        let plan = sampled.plan(&everything)?;
        let many = sampled.layout()?.ranks() >= MANY_RANKS;
        let ranks = sampled.layout()?.ranks();
        let excess = match excess {
            Some(known) => known,
            None => Excess(question.excess(&sampled, &measured, &everything, None)?.excess),
        };
        let mut bootstrap = Bootstrap::new(&measured, sampled.quiet_ns, ranks, question.scenario.seed);
        bootstrap.set_excess(excess.0);
        let mut parts = Self { measured, sampled, plan, many, found: Vec::new(), bootstrap, excess };
        let all = parts.without(&[])?;
        let lost_ns = parts.estimate(all).time().ns - parts.quiet_ns();
        if let Some(taken) = &parts.found[all.0].taken {
            parts.bootstrap.calibrate(taken, lost_ns);
        }
        Ok((parts, all))
    }

    /// Simulates the noise without these sources: on many ranks one round of runs, on few ranks all rounds, since few runs
    /// do not cover noise whose period locks in to that of the iterations.
    ///
    /// # Errors
    /// [`SpecError`] if the simulation refuses the noise.
    pub fn without(&mut self, leave_out: &[String]) -> Result<Part, SpecError> {
        let node = node(&self.measured, leave_out)?;
        let runs = if self.plan.is_of_few_ranks() { self.most_runs() } else { self.plan.runs };
        let runs = self.runs(&node, 0..runs)?;
        let taken = self.bootstrap.taken(&node, |name| !leave_out.iter().any(|gone| gone == name));
        self.found.push(Found { node, runs, taken });
        Ok(Part(self.found.len() - 1))
    }

    /// Simulates one more round of a part. Returns `false` if it has as many as may be.
    ///
    /// # Errors
    /// As [`Parts::without`].
    pub fn refine(&mut self, part: Part) -> Result<bool, SpecError> {
        let Found { node, runs, .. } = &self.found[part.0];
        if !self.has_more(part) {
            return Ok(false);
        }
        let from = runs.len() as u32;
        let more = self.runs(node, from..from + self.plan.runs)?;
        self.found[part.0].runs.extend(more);
        Ok(true)
    }

    /// Returns `true` if a further round of a part can be simulated.
    #[must_use]
    pub fn has_more(&self, part: Part) -> bool {
        (self.found[part.0].runs.len() as u32) < self.most_runs()
    }

    fn most_runs(&self) -> u32 {
        self.plan.runs * self.plan.rounds.min(ROUNDS)
    }

    /// The runs of these numbers.
    fn runs(&self, node: &Node, numbers: Range<u32>) -> Result<Vec<Vec<f64>>, SimError> {
        let run = |number: u32| self.sampled.run(&self.plan, node, number);
        // the ranks of a large one are on all cores: one at a time, for they take much memory
        match self.many {
            true => numbers.map(run).collect(),
            false => numbers.into_par_iter().map(run).collect(),
        }
    }

    fn estimate(&self, part: Part) -> Estimate {
        self.plan.estimate(&self.found[part.0].runs)
    }

    /// Mean time of an iteration under a part.
    #[must_use]
    pub fn time(&self, part: Part) -> Time {
        let sides = self.found[part.0].taken.as_ref().map(|taken| self.bootstrap.sides(taken, None));
        self.estimate(part).time().with_trace(sides).no_less_than(self.quiet_ns())
    }

    /// Time by which an iteration is longer under `more` than under `less`, from the runs that both have; `None` if no run
    /// differs.
    #[must_use]
    pub fn difference(&self, more: Part, less: Part) -> Option<Time> {
        let (more, less) = (&self.found[more.0], &self.found[less.0]);
        let both = more.runs.len().min(less.runs.len());
        let simulated =
            self.plan.estimate(&more.runs[..both]).paired_minus(&self.plan.estimate(&less.runs[..both]))?;
        let taken = more.taken.as_ref().zip(less.taken.as_ref());
        Some(simulated.with_trace(taken.map(|(more, less)| self.bootstrap.sides(more, Some(less)))))
    }

    /// Mean times of an iteration under a part in resamples of the trace, the same resamples in all questions about a trace
    /// with one seed: so the times of two of them can be compared one by one. Empty if the trace is too short.
    #[must_use]
    pub fn resampled_ns(&self, part: Part) -> Vec<f64> {
        let Some(taken) = &self.found[part.0].taken else { return Vec::new() };
        let mean_ns = self.estimate(part).time().ns;
        self.bootstrap.deviations_ns(taken).into_iter().map(|ns| mean_ns + ns).collect()
    }

    /// Time of an iteration without noise, nanoseconds.
    #[must_use]
    pub fn quiet_ns(&self) -> f64 {
        self.sampled.quiet_ns
    }

    /// By how much more than computed another trace changes the times.
    #[must_use]
    pub const fn excess(&self) -> Excess {
        self.excess
    }

    /// Ranks that were simulated.
    ///
    /// # Errors
    /// [`SpecError`] if there are too many.
    pub fn ranks(&self) -> Result<u32, SpecError> {
        Ok(self.sampled.layout()?.ranks())
    }
}

/// A node with the noise measured but for some sources, under a scheduler that lets all of it through.
fn node(measured: &[Measured], leave_out: &[String]) -> Result<Node, SpecError> {
    let kept: Vec<Measured> = measured.iter().map(|m| m.without(leave_out)).collect();
    let kept: Vec<&Measured> = kept.iter().collect();
    Ok(Node { sources: Measured::one_source(&kept, 0)?, scheduler: SchedulerSpec::Preempt.scheduler()? })
}
