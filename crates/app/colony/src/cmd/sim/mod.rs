// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony sim`: noise at scale.

pub(crate) mod fit;
mod flags;
mod goal;
mod keep;
mod machine;
mod parquet;
mod report;
mod traces;
mod what_if;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;

use colony_sim::spec::Scenario;
use colony_sim::sweep::{self, Finished, Results};
use colony_view::progress::Progress;
use colony_view::sim as view;

use crate::exit::WrongUse;
use flags::Flags;
use keep::Keeper;

/// Simulate what noise costs a program on up to a million nodes and more
///
/// Takes a node's noise (measured or modelled), a scheduler, a machine and a program, and says what the
/// program loses at each node count. A scenario file has all of it; flags change parts of it, or do without.
/// Alone, it runs an example: the noise daemon of the Colony report on Blue Gene/L.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony sim                                     an example, in seconds
  colony sim --print-scenario > mine.toml        the same as a file to change
  colony sim mine.toml
  colony sim --trace node.parquet --nodes 1024,16384 --op allreduce --schedulers preempt,coordinated
  colony sim --noise '16us every 1ms' --op barrier --schedulers none,preempt --machine bgl
  colony sim mine.toml --sweep program.bytes=8,1024 --out results.parquet --resume
  colony sim mine.toml --report mine.html        plots, numbers, and how to make them again
  colony sim --goal app.goal --noise 'leibniz 2%'
  colony sim --fit-machine --out here.toml       this machine's network, from its own benchmarks
  colony sim --what-if node.parquet              which source costs how much, and what would help")]
pub(crate) struct Args {
    /// The scenario, TOML
    #[arg(value_name = "SCENARIO")]
    scenario: Option<PathBuf>,
    /// Say what each source of this trace costs at scale, and what windows or a spare core give back
    #[arg(long, value_name = "TRACE", conflicts_with_all = ["trace", "noise", "schedulers", "sweep", "out"])]
    what_if: Option<PathBuf>,
    /// Run this schedule in GOAL, text or binary, instead of a program; its ranks are one a node
    #[arg(long, value_name = "FILE", conflicts_with_all = ["what_if", "op", "bytes", "work", "algorithm",
        "iterations", "nodes", "ranks_per_node", "sweep", "out", "print_scenario"])]
    goal: Option<PathBuf>,
    /// Fit a machine profile to results of `colony bench --json`; without any, run the benchmarks here on two
    /// ranks, half a minute
    #[arg(long, value_name = "RESULT", num_args = 0.., conflicts_with_all = ["scenario", "what_if", "goal", "Flags",
        "print_scenario", "resume", "report"])]
    fit_machine: Option<Vec<PathBuf>>,
    /// When a rank's CPU takes the overhead of a receive [default: program-order]
    #[arg(long, value_enum, requires = "goal")]
    progress: Option<goal::Progress>,
    /// Which operation or message of a rank is served next
    #[arg(long, value_enum, default_value_t, requires = "goal")]
    queue: goal::Queue,
    #[command(flatten)]
    flags: Flags,
    /// Write the scenario that these words mean, and run nothing
    #[arg(long)]
    print_scenario: bool,
    /// Keep the results, point by point: .json or .parquet (of --fit-machine: the profile, .toml)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write a page with plots and all numbers, which opens offline
    #[arg(long, value_name = "FILE", conflicts_with_all = ["what_if", "goal", "print_scenario"])]
    report: Option<PathBuf>,
    /// Go on where a run that was ended left off
    #[arg(long, requires = "out")]
    resume: bool,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(trace) = &args.what_if {
        return what_if::run(&args, trace);
    }
    if let Some(file) = &args.goal {
        return goal::run(&args, file);
    }
    if let Some(files) = &args.fit_machine {
        return machine::run(&args, files);
    }
    let mut scenario = match &args.scenario {
        Some(path) => Scenario::read(path)?,
        None => flags::example(),
    };
    args.flags.apply(&mut scenario)?;
    if args.print_scenario {
        super::print_text(&scenario.to_toml()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.scenario.is_none() && args.flags.say_no_noise() && !args.json {
        note!(
            "no noise was named: this is the noise daemon of the Colony report (--print-scenario shows all)"
        );
    }
    if let Some(report) = &args.report {
        super::can_write(report)?;
    }
    let results = simulate(scenario, &args)?;
    if let Some(report) = &args.report {
        report::write(report, &results)?;
    }
    super::print(args.json, &results, view::results)?;
    for written in args.out.iter().chain(&args.report) {
        note!("written: {}", written.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the points that are not kept from an earlier run.
fn simulate(scenario: Scenario, args: &Args) -> anyhow::Result<Results> {
    let points = scenario.points()?;
    let traces = traces::read_all(&scenario.trace_files()?)?;
    let mut results = Results::none_yet(scenario, &traces);
    // whatever is wrong with a later point is told before the first is run
    points.iter().try_for_each(|p| p.simulation(&traces).map(drop))?;
    let (keeper, kept) = match &args.out {
        Some(out) => Keeper::open(out, &results, args.resume).map(|(k, kept)| (Some(k), kept))?,
        None => (None, Vec::new()),
    };
    let mut all: Vec<Option<Finished>> =
        points.iter().map(|p| kept.iter().find(|f| same(&f.point, p)).cloned()).collect();
    let missing: Vec<usize> = (0..points.len()).filter(|&i| all[i].is_none()).collect();
    let to_run: Vec<_> = missing.iter().map(|&i| points[i].clone()).collect();
    let bar = Progress::steps_of_work("points", to_run.len() as u64);
    let done = Mutex::new(&mut all);
    sweep::run(&to_run, &traces, |i, outcome| -> anyhow::Result<()> {
        let finished = Finished { point: to_run[i].clone(), outcome };
        if let Some(keeper) = &keeper {
            keeper.add(&finished)?;
        }
        done.lock().map_err(|_| anyhow::anyhow!("a thread of the simulation failed"))?[missing[i]] =
            Some(finished);
        bar.step();
        Ok(())
    })?;
    results.points = all.into_iter().flatten().collect();
    if let Some(keeper) = keeper {
        keeper.finish(&results)?;
    }
    Ok(results)
}

/// Whether two points are the same one of a scenario.
fn same(a: &colony_sim::spec::Point, b: &colony_sim::spec::Point) -> bool {
    (a.nodes, &a.scheduler, &a.set) == (b.nodes, &b.scheduler, &b.set)
}

/// Words that others would cure.
fn wrong(what: impl Into<String>) -> anyhow::Error {
    WrongUse(what.into()).into()
}
