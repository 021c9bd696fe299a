// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a node's report card: examines the node, and simulates its noise for a bounded time.

use std::path::Path;
use std::time::Duration;

use colony_doctor::Touches;
use colony_project::Budget;
use colony_project::changes::{self, Alone};
use colony_project::choose::{Answer, FAVORED, Question};
use colony_sim::source::MeasuredSource;
use colony_sim::spec::{MachineSpec, Measured, ProgramSpec, Scenario};
use colony_trace::Trace;

use crate::advice::{self, Advice, Costed, Step};
use crate::card::{Card, SourceShare};
use crate::error::step;
use crate::node::OwnNoise;
use crate::params::SHOWN_NODES;
use crate::{Node, Params, Progress, StudyError, own};

/// Seconds that each of the three simulations may take, and no less than the last.
const COSTS_S: f64 = 10.0;
const SCALING_S: f64 = 10.0;
const CHOICE_S: f64 = 10.0;
const LEAST_S: f64 = 1.0;
/// Node counts of the costs by source, the most important first.
const SCALES: [u32; 5] = [SHOWN_NODES as u32, 1024, 1 << 16, 1 << 20, 4096];
/// Node counts of the choice.
const CHOICE_SCALES: [u32; 4] = [64, 1024, SHOWN_NODES as u32, 1 << 20];
/// Sources that are costed one by one: those that steal most, and those with the longest detours.
const BY_SHARE: usize = 3;
const BY_LENGTH: usize = 3;

/// Makes the card of a node from its own noise, as measured.
///
/// # Errors
/// [`StudyError::Step`] if the node cannot be examined, or its noise not simulated.
pub(crate) fn card(
    node: &dyn Node,
    noise: &OwnNoise,
    params: &Params,
    progress: &dyn Progress,
) -> Result<Card, StudyError> {
    let (trace, own) = own::left_out(&noise.trace, &noise.started);
    let job = node.job()?;
    let examination = node.examine(&job, advice::threads(&trace, &job))?;
    let limit = |seconds: f64| (seconds / params.faster).max(LEAST_S);
    let budget = |seconds: f64| Budget::of(Duration::from_secs_f64(limit(seconds)));
    let file = Path::new("trace.parquet");
    let doctor = progress.during("costing what to change", limit(COSTS_S), || {
        Advice::with_trace(examination, (file, &trace), SHOWN_NODES as u32, budget(COSTS_S), |_| {})
            .map_err(|e| step("costing what to change", &e))
    })?;
    let mut card = Card {
        attributed: noise.summary.explained.is_some(),
        own: own.into_iter().map(|(source, share)| SourceShare { source, share }).collect(),
        stopped: doctor.noise.as_ref().is_some_and(|n| n.stopped),
        sources: Vec::new(),
        scaling: Vec::new(),
        choice: None,
        commands: commands(&noise.summary.command, &job),
        doctor,
    };
    let on_job = colony_project::measured(&advice::of_job(&trace, &job))?;
    progress.during("costing sources by node count", limit(SCALING_S), || {
        add_scaling(&mut card, &on_job, budget(SCALING_S))
    })?;
    card.choice = Some(progress.during("choosing spare cores and windows", limit(CHOICE_S), || {
        choice(&trace, node.record().online.len(), params, budget(CHOICE_S))
    })?);
    card.stopped |= card.choice.as_ref().is_some_and(|c| c.stopped);
    Ok(card)
}

fn add_scaling(card: &mut Card, measured: &Measured, budget: Budget) -> Result<(), StudyError> {
    let mut sources = telling(measured);
    let names: Vec<String> = sources.iter().map(|s| s.source.clone()).collect();
    let gone = gone(card, measured);
    card.scaling = changes::at_scale(measured, &gone, &names, &SCALES, budget)
        .map_err(|e| step("costing sources by node count", &e))?;
    card.stopped |= budget.is_over();
    // the dearest on the most important node count first
    let first = card.scaling.first().map(|s| s.alone.clone()).unwrap_or_default();
    let cost = |place: usize| first.get(place).and_then(Alone::added).map_or(0.0, |a| a.share);
    let mut order: Vec<usize> = (0..sources.len()).collect();
    order.sort_by(|&a, &b| cost(b).total_cmp(&cost(a)));
    for scale in &mut card.scaling {
        scale.alone = order.iter().filter_map(|&place| scale.alone.get(place).copied()).collect();
    }
    sources = order.into_iter().filter_map(|place| sources.get(place).cloned()).collect();
    card.sources = sources;
    card.scaling.sort_by_key(|s| s.nodes);
    Ok(())
}

/// Sources that all changes of the sequence together take away.
fn gone(card: &Card, measured: &Measured) -> Vec<String> {
    let moves = |(finding, step): (&Costed, &Step)| {
        let remedy = finding.finding.remedies.get(step.remedy);
        remedy.and_then(|r| r.moves.clone()).unwrap_or_else(|| finding.finding.touches.clone())
    };
    let all: Vec<Touches> = card.steps().map(moves).collect();
    let names = measured.sources.iter().map(|s| &s.name);
    names.filter(|name| all.iter().any(|t| t.has(name))).cloned().collect()
}

/// Sources that steal most, and those of the others with the longest detours.
fn telling(measured: &Measured) -> Vec<SourceShare> {
    let longest = |name: &str| measured.sources.iter().find(|s| s.name == name)?.noise.longest_ns();
    let share = |s: &MeasuredSource| SourceShare { source: s.name.clone(), share: s.noise.stolen_share() };
    let mut sources: Vec<SourceShare> = measured.sources.iter().map(share).collect();
    sources.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.source.cmp(&b.source)));
    if let Some(others) = sources.get_mut(BY_SHARE..) {
        others.sort_by_cached_key(|s| std::cmp::Reverse(longest(&s.source)));
    }
    sources.truncate(BY_SHARE + BY_LENGTH);
    sources
}

fn choice(trace: &Trace, cores: usize, params: &Params, budget: Budget) -> Result<Answer, StudyError> {
    let what = "choosing spare cores and windows";
    let question = Question {
        scenario: Scenario {
            program: ProgramSpec { work_ns: Some(1_000_000), ..ProgramSpec::named("allreduce") },
            machine: MachineSpec::Named("loggopsim".into()),
            nodes: CHOICE_SCALES.into(),
            seed: params.seed,
            repetitions: 8,
            ..Scenario::default()
        },
        measured: colony_project::measured(trace)?,
        cores: u32::try_from(cores).unwrap_or(u32::MAX).max(1),
        favored: FAVORED.into(),
        iterations_given: false,
    };
    question.answer(budget, || {}).map_err(|e| step(what, &e))
}

fn commands(measure: &str, job: &colony_node::cpu::CpuSet) -> Vec<String> {
    vec![
        measure.into(),
        format!("colony doctor --trace trace.parquet --cpus {job} --nodes {SHOWN_NODES}"),
        "colony sim --what-if trace.parquet --choose".into(),
    ]
}
