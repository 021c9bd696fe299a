// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony sim --what-if`: what each source of a node's noise costs at scale.

use std::path::Path;
use std::process::ExitCode;

use colony_sim::spec::{MachineSpec, ProgramSpec, Scenario, SchedulerSpec};
use colony_sim::sweep::TraceFile;
use colony_sim::what_if::{Answer, WhatIf, ranks_per_node};
use colony_view::progress::Progress;
use colony_view::sim as view;
use serde::Serialize;

use super::args::Args;
use super::traces;
use crate::exit::wrong;

/// What `colony sim --what-if --json` prints.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: &'static str,
    trace: TraceFile,
    scenario: &'a Scenario,
    windows: &'a SchedulerSpec,
    answer: &'a Answer,
}

pub(super) fn run(args: &Args, trace: &Path) -> anyhow::Result<ExitCode> {
    let mut scenario = match &args.scenario {
        Some(path) => Scenario::read(path)?,
        None => Scenario {
            nodes: vec![1024, 16_384, 65_536, 1 << 20],
            machine: MachineSpec::Named("loggopsim".into()),
            program: program(args),
            repetitions: RUNS,
            ..Scenario::default()
        },
    };
    // its noise is the trace's; of its schedulers only the windows are looked at
    let is_windows = |s: &SchedulerSpec| matches!(s, SchedulerSpec::Coordinated(_));
    scenario.noise.clear();
    scenario.schedulers.retain(is_windows);
    if scenario.schedulers.is_empty() {
        scenario.schedulers = SchedulerSpec::named("coordinated").into_iter().collect();
    }
    args.flags.apply(&mut scenario)?;
    let windows = scenario.schedulers[0].clone();
    let measured = traces::read(trace)?;
    let Some((_, first)) = measured.sources.first() else {
        return Err(anyhow::anyhow!("{} holds no noise: there is nothing to leave out", trace.display()));
    };
    if args.scenario.is_none() && !args.flags.places_ranks() {
        scenario.ranks_per_node = Some(ranks_per_node(first.cpus().len(), &scenario.nodes));
    }
    scenario.check()?;
    if args.print_scenario {
        return Err(wrong("--what-if makes its scenarios itself: leave out --print-scenario"));
    }
    let file = TraceFile { file: trace.display().to_string(), digest: format!("{:016x}", measured.digest()) };
    let question = WhatIf {
        iterations_given: args.scenario.is_some() || args.flags.iterations.is_some(),
        windows,
        measured,
        scenario,
    };
    let bar = Progress::steps_of_work("simulations", question.steps());
    let answer =
        question.answer(|steps| bar.steps_more(steps), |known| bar.show(&view::costs(known).to_string()))?;
    drop(bar);
    let document = Document {
        schema: "colony.sim.what_if/1",
        version: env!("CARGO_PKG_VERSION"),
        trace: file,
        scenario: &question.scenario,
        windows: &question.windows,
        answer: &answer,
    };
    crate::cmd::print(args.json, &document, |d| view::what_if(d.scenario, d.windows, d.answer))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs of each simulation, where they can be afforded.
const RUNS: u32 = 8;
/// Without other words: an allreduce after each millisecond of work.
fn program(args: &Args) -> ProgramSpec {
    let work_ns = (!args.flags.names_program()).then_some(1_000_000);
    ProgramSpec { work_ns, ..ProgramSpec::named("allreduce") }
}
