// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony sim`: noise at scale.

mod args;
pub(crate) mod fit;
mod flags;
mod goal;
mod keep;
mod machine;
mod modes;
mod parquet;
mod report;
mod traces;
mod what_if;

use std::process::ExitCode;
use std::sync::Mutex;

use colony_sim::spec::{Scenario, Traces};
use colony_sim::sweep::{self, Finished, Results};
use colony_view::progress::Progress;
use colony_view::sim as view;

pub(crate) use args::Args;
use keep::Keeper;

use crate::exit::wrong;

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mode = args.given.mode()?;
    if let Some(trace) = &args.what_if {
        return what_if::run(&args, mode, trace);
    }
    if let Some(file) = &args.goal {
        return goal::run(&args, mode, file);
    }
    if let Some(files) = &args.fit_machine {
        return machine::run(&args, files);
    }
    if args.resume && args.out.is_none() {
        return Err(wrong(
            "--resume goes on with the results of an earlier run; name their file: --out FILE",
        ));
    }
    let mut scenario = match &args.scenario {
        Some(path) => mode.read(path)?.0,
        None => flags::example(),
    };
    args.apply(&mut scenario)?;
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
        super::can_write_page(report)?;
    }
    let traces = traces::read_all(&scenario.trace_files()?)?;
    let results = simulate(scenario, &traces, &args)?;
    if let Some(report) = &args.report {
        report::write(report, &results, &traces)?;
    }
    super::print(args.json, &results, view::results)?;
    for written in args.out.iter().chain(&args.report) {
        note!("written: {}", written.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the points that are not kept from an earlier run.
fn simulate(scenario: Scenario, traces: &Traces, args: &Args) -> anyhow::Result<Results> {
    let points = scenario.points()?;
    let mut results = Results::none_yet(scenario, traces);
    // whatever is wrong with a later point is told before the first is run
    points.iter().try_for_each(|p| p.simulation(traces).map(drop))?;
    let ranks = points.iter().map(|p| Ok(p.simulation(traces)?.machine.ranks_per_node));
    traces::note_drawn_cpus(traces, ranks.collect::<anyhow::Result<Vec<_>>>()?.into_iter().min());
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
    sweep::run(&to_run, traces, |i, outcome| -> anyhow::Result<()> {
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

/// Returns `true` if `a` and `b` are the same point of a scenario.
fn same(a: &colony_sim::spec::Point, b: &colony_sim::spec::Point) -> bool {
    (a.nodes, &a.scheduler, &a.set) == (b.nodes, &b.scheduler, &b.set)
}
