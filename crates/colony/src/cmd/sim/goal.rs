//! `colony sim --goal`: a schedule of an application, run event by event.

use std::path::Path;
use std::process::ExitCode;

use colony_sim::event::{self, Progress as Rule};
use colony_sim::rng::Key;
use colony_sim::spec::{Scenario, SchedulerSpec};
use colony_sim::stats::mean_ci95;
use colony_sim::{cpus::Node, goal};
use colony_view::progress::Progress as Bar;
use colony_view::sim::{self as view, GoalRow};
use serde::Serialize;

use super::{Args, traces};

/// The rules of progress, as words.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(crate) enum Progress {
    /// When the program has reached the receive: a library that works in calls only
    #[default]
    ProgramOrder,
    /// When the message arrives: a progress thread, as LogGOPSim has it
    Asynchronous,
}

/// What `colony sim --goal --json` prints.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: &'static str,
    goal: String,
    progress: Rule,
    ranks: u32,
    events: u64,
    scenario: &'a Scenario,
    results: &'a [GoalRow],
}

pub(super) fn run(args: &Args, file: &Path) -> anyhow::Result<ExitCode> {
    let mut scenario = match &args.scenario {
        Some(path) => Scenario::read(path)?,
        // a schedule alone runs without noise
        None => Scenario { schedulers: vec![SchedulerSpec::Preempt], ..Scenario::default() },
    };
    args.flags.apply(&mut scenario)?;
    let schedule = goal::read(file)?;
    (scenario.nodes, scenario.ranks_per_node) = (vec![schedule.ranks()], Some(1));
    let progress = match args.progress {
        Progress::ProgramOrder => Rule::ProgramOrder,
        Progress::Asynchronous => Rule::Asynchronous,
    };
    let traces = traces::read_all(&scenario.trace_files()?)?;
    let (mut rows, mut events) = (Vec::new(), 0);
    let points = scenario.points()?;
    let bar = Bar::steps_of_work("runs", points.len() as u64 * u64::from(scenario.repetitions) + 1);
    let mut quiet_ns = None;
    for point in points {
        let simulation = point.simulation(&traces)?;
        let network = simulation.machine.network(simulation.nodes)?;
        let begin_ns = simulation.begins_ns()?;
        let time = |node: &Node, repetition: u32| -> anyhow::Result<(u64, u64)> {
            let seed = Key::new(simulation.seed).part(repetition.into());
            let outcome = event::run(&schedule, &network, node, progress, seed, begin_ns)?;
            bar.step();
            Ok((outcome.total_ns(), outcome.events))
        };
        let quiet = match quiet_ns {
            Some(ns) => ns,
            None => {
                let (ns, counted) = time(&Node::quiet(), 0)?;
                events = counted;
                *quiet_ns.insert(ns)
            }
        };
        // without noise all repetitions are the same
        let noisy = simulation.node.sources.iter().any(|s| simulation.node.scheduler.admits(s.class));
        let repetitions = if noisy { simulation.repetitions } else { 0 };
        let totals =
            (0..repetitions).map(|r| Ok(time(&simulation.node, r)?.0)).collect::<anyhow::Result<Vec<_>>>()?;
        let totals_ns = if noisy { totals } else { vec![quiet] };
        let means: Vec<f64> = totals_ns.iter().map(|&t| t as f64).collect();
        let (mean_ns, ci95_ns) = mean_ci95(&means);
        rows.push(GoalRow { scheduler: point.scheduler, quiet_ns: quiet, mean_ns, ci95_ns, totals_ns });
    }
    drop(bar);
    let document = Document {
        schema: "colony.sim.goal/1",
        version: env!("CARGO_PKG_VERSION"),
        goal: file.display().to_string(),
        progress,
        ranks: schedule.ranks(),
        events,
        scenario: &scenario,
        results: &rows,
    };
    crate::cmd::print(args.json, &document, |d| {
        view::goal(&d.goal, d.ranks, d.events, d.scenario, d.results)
    })?;
    Ok(ExitCode::SUCCESS)
}
