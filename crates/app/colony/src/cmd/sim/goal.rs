// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony sim --goal`: a schedule of an application, run event by event.

use std::path::Path;
use std::process::ExitCode;

use colony_sim::event::{self, Outcome, Progress as Rule, Rules, Runs};
use colony_sim::goal;
use colony_sim::spec::{ProgramSpec, Scenario, SchedulerSpec};
use colony_sim::stats::mean_ci95;
use colony_view::progress::Progress as Bar;
use colony_view::sim::{self as view, GoalRow};
use serde::Serialize;

use super::args::{Args, Progress, Queue};
use super::modes::Mode;
use super::traces;
use crate::exit::wrong;

/// The rules that the options name.
fn rules(args: &Args) -> anyhow::Result<Rules> {
    let progress = match args.progress {
        Some(Progress::ProgramOrder) => Some(Rule::ProgramOrder),
        Some(Progress::Asynchronous) => Some(Rule::Asynchronous),
        None => None,
    };
    match (args.queue, progress) {
        (Queue::FirstReady, progress) => Ok(progress.unwrap_or_default().into()),
        (Queue::Loggopsim, Some(Rule::ProgramOrder)) => Err(wrong(
            "--queue loggopsim works with asynchronous progress only; leave --progress program-order out",
        )),
        (Queue::Loggopsim, _) => Ok(Rules::LOGGOPSIM),
    }
}

/// JSON document of `colony sim --goal --json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: &'static str,
    goal: String,
    progress: Rule,
    queue: event::Queue,
    ranks: u32,
    /// Assumptions about calls of which a trace does not say enough.
    notes: &'a [String],
    events: u64,
    /// End of each rank without noise, nanoseconds after the job began.
    quiet_ends_ns: &'a [u64],
    scenario: &'a Scenario,
    results: Vec<ByRank<'a>>,
}

/// A scheduler's row, and when each rank ended in each run.
#[derive(Serialize)]
struct ByRank<'a> {
    #[serde(flatten)]
    row: &'a GoalRow,
    ends_ns: &'a [Vec<u64>],
}

pub(super) fn run(args: &Args, mode: Mode, file: &Path) -> anyhow::Result<ExitCode> {
    let mut scenario = match &args.scenario {
        Some(path) => mode.read(path)?.0,
        // a schedule alone runs without noise
        None => Scenario { schedulers: vec![SchedulerSpec::Preempt], ..Scenario::default() },
    };
    // the schedule is the program
    scenario.program = ProgramSpec::default();
    scenario.sweep.clear();
    args.apply(&mut scenario)?;
    let schedule = goal::read(file)?;
    for text in schedule.notes() {
        note!("note: {text}");
    }
    (scenario.nodes, scenario.ranks_per_node) = (vec![schedule.ranks()], Some(1));
    let rules = rules(args)?;
    let traces = traces::read_all(&scenario.trace_files()?)?;
    let (mut rows, mut ends): (Vec<GoalRow>, Vec<Vec<Vec<u64>>>) = Default::default();
    let points = scenario.points()?;
    let bar = Bar::steps_of_work("runs", points.len() as u64 * u64::from(scenario.repetitions) + 1);
    let mut without_noise: Option<Outcome> = None;
    for point in points {
        let simulation = point.simulation(&traces)?;
        let of_point = Runs::new(&schedule, &simulation, rules)?;
        let quiet = match &without_noise {
            Some(outcome) => outcome,
            None => {
                let outcome = of_point.quiet()?;
                bar.step();
                without_noise.insert(outcome)
            }
        };
        let mut runs = of_point.noisy().inspect(|_| bar.step()).collect::<Result<Vec<_>, _>>()?;
        if runs.is_empty() {
            runs.push(quiet.clone());
        }
        let totals_ns: Vec<u64> = runs.iter().map(Outcome::total_ns).collect();
        let means: Vec<f64> = totals_ns.iter().map(|&t| t as f64).collect();
        let (mean_ns, ci95_ns) = mean_ci95(&means);
        let no_interval = simulation.node.no_interval(f64::from(schedule.ranks()), means.iter().sum());
        if let Some(why) = &no_interval {
            note!("note: {}: {why}", point.scheduler.name());
        }
        let ci95_ns = ci95_ns.filter(|_| no_interval.is_none());
        let quiet_ns = quiet.total_ns();
        rows.push(GoalRow { scheduler: point.scheduler, quiet_ns, mean_ns, ci95_ns, totals_ns });
        ends.push(runs.into_iter().map(|o| o.ends_ns).collect());
    }
    drop(bar);
    let document = Document {
        schema: "colony.sim.goal/1",
        version: env!("CARGO_PKG_VERSION"),
        goal: file.display().to_string(),
        progress: rules.progress,
        queue: rules.queue,
        ranks: schedule.ranks(),
        notes: schedule.notes(),
        events: without_noise.as_ref().map_or(0, |o| o.events),
        quiet_ends_ns: without_noise.as_ref().map_or(&[], |o| &o.ends_ns),
        scenario: &scenario,
        results: rows.iter().zip(&ends).map(|(row, ends_ns)| ByRank { row, ends_ns }).collect(),
    };
    crate::cmd::print(args.json, &document, |d| view::goal(&d.goal, d.ranks, d.events, d.scenario, &rows))?;
    Ok(ExitCode::SUCCESS)
}
