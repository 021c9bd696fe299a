// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony sim --what-if`: what each source of a node's noise costs at scale.

use std::path::Path;
use std::process::ExitCode;

use colony_project::{Budget, choose};
use colony_sim::spec::{MachineSpec, Measured, ProgramSpec, Scenario, SchedulerSpec};
use colony_sim::sweep::TraceFile;
use colony_sim::what_if::{Answer, WhatIf, ranks_per_node};
use colony_time::Windows;
use colony_view::progress::Progress;
use colony_view::sim as view;
use serde::Serialize;

use super::args::Args;
use super::modes::Mode;
use super::traces;
use crate::exit::wrong;

/// JSON document of `colony sim --what-if --json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: &'static str,
    trace: TraceFile,
    scenario: &'a Scenario,
    windows: &'a SchedulerSpec,
    answer: &'a Answer,
}

/// JSON document of `colony sim --what-if --choose --json`.
#[derive(Serialize)]
struct Choices<'a> {
    schema: &'static str,
    version: &'static str,
    trace: TraceFile,
    scenario: &'a Scenario,
    answer: &'a choose::Answer,
}

pub(super) fn run(args: &Args, mode: Mode, trace: &Path) -> anyhow::Result<ExitCode> {
    if mode == Mode::Choose { choice(args, mode, trace) } else { costs(args, mode, trace) }
}

/// Spare cores and windows compared.
fn choice(args: &Args, mode: Mode, file: &Path) -> anyhow::Result<ExitCode> {
    let (mut scenario, iterations_given) = scenario(args, mode, vec![64, 1024, 16_384, 1 << 20])?;
    scenario.schedulers = SchedulerSpec::named("coordinated").into_iter().collect();
    args.apply(&mut scenario)?;
    let trace = traces::read_trace(file)?;
    let measured = traces::measured(file, &trace)?;
    check_noise(file, &measured)?;
    let of_node = trace.meta.node.as_ref().map_or(0, |n| n.online.len());
    let cores = of_node.max(trace.meta.cpus.len()).max(1);
    let question = choose::Question {
        iterations_given,
        cores: args.cores.unwrap_or(u32::try_from(cores).unwrap_or(u32::MAX)),
        favored: match args.flags.duty {
            Some(_) => scenario.schedulers.iter().map(favored).collect::<Result<_, _>>()?,
            None => choose::FAVORED.into(),
        },
        scenario,
        measured,
    };
    let bar = Progress::steps_of_work("simulations", question.steps());
    let answer = question.answer(Budget::UNLIMITED, || bar.step())?;
    drop(bar);
    let document = Choices {
        schema: "colony.sim.choose/1",
        version: env!("CARGO_PKG_VERSION"),
        trace: trace_file(file, &question.measured),
        scenario: &question.scenario,
        answer: &answer,
    };
    crate::cmd::print(args.json, &document, |d| colony_view::choose::choices(d.scenario, d.answer))?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses a trace without detours: there is nothing to leave out, and a longer trace may have some. Refuses a trace whose CPUs
/// hardly ever run the program: a rank of it would need more iterations than can be simulated.
fn check_noise(file: &Path, measured: &Measured) -> anyhow::Result<()> {
    if measured.sources.iter().all(|s| s.noise.stolen_share() == 0.0) {
        return Err(wrong(format!(
            "{} holds no detour, so nothing can be said of their cost; measure for longer, or with a lower --threshold",
            file.display()
        )));
    }
    let cpus = measured.sources.iter().map(|s| s.noise.cpus().len()).max().unwrap_or(0);
    let stolen = |cpu: usize| -> f64 {
        let of_cpu = measured.sources.iter().filter_map(|s| s.noise.cpus().get(cpu));
        of_cpu.map(|noise| noise.stolen_ns() as f64 / noise.span_ns().max(1) as f64).sum()
    };
    match (0..cpus).map(|cpu| (cpu, stolen(cpu))).find(|(_, share)| *share > MOST_STOLEN) {
        Some((number, share)) => Err(wrong(format!(
            "the detours in {} take {:.4} % of CPU number {number} (from 0): a program there would hardly ever run, and its time cannot \
             be simulated; measure for longer, or leave the CPU out",
            file.display(),
            100.0 * share
        ))),
        None => Ok(()),
    }
}

/// Largest share of a CPU's time that noise may take, so that a program there can be simulated.
const MOST_STOLEN: f64 = 0.999;

/// The favored share of a period.
fn favored(windows: &SchedulerSpec) -> anyhow::Result<f64> {
    let SchedulerSpec::Coordinated(spec) = windows else { return Ok(1.0) };
    let windows = Windows::new(spec.period_ns, spec.duty_cycle, 0).map_err(|e| wrong(e.to_string()))?;
    Ok(windows.favored_ns() as f64 / spec.period_ns as f64)
}

/// The scenario asked for; without a file, a program on `nodes`. And `true` if its iterations replace the plan: those that an
/// option or the file states.
fn scenario(args: &Args, mode: Mode, nodes: Vec<u32>) -> anyhow::Result<(Scenario, bool)> {
    let mut iterations_given = args.flags.iterations.is_some();
    let mut scenario = match &args.scenario {
        Some(path) => {
            let (scenario, keys) = mode.read(path)?;
            if !iterations_given && keys.get("program").is_some_and(|p| p.get("iterations").is_some()) {
                iterations_given = true;
                note!(
                    "note: each run has the {} iterations that {} states, instead of the number that {mode} plans for each \
                     node count; remove `iterations` from the file for the plan",
                    scenario.program.iterations,
                    path.display()
                );
            }
            scenario
        }
        None => Scenario {
            nodes,
            machine: MachineSpec::Named("loggopsim".into()),
            program: program(args),
            repetitions: RUNS,
            ..Scenario::default()
        },
    };
    scenario.noise.clear();
    scenario.sweep.clear();
    Ok((scenario, iterations_given))
}

fn trace_file(file: &Path, measured: &Measured) -> TraceFile {
    TraceFile { file: file.display().to_string(), digest: format!("{:016x}", measured.digest()) }
}

/// Prints the cost of each source, and the gain by windows and by a spare core.
fn costs(args: &Args, mode: Mode, trace: &Path) -> anyhow::Result<ExitCode> {
    let (mut scenario, iterations_given) = scenario(args, mode, vec![1024, 16_384, 65_536, 1 << 20])?;
    // its noise is the trace's; of its schedulers only the windows are looked at
    let is_windows = |s: &SchedulerSpec| matches!(s, SchedulerSpec::Coordinated(_));
    scenario.schedulers.retain(is_windows);
    if scenario.schedulers.is_empty() {
        scenario.schedulers = SchedulerSpec::named("coordinated").into_iter().collect();
    }
    args.apply(&mut scenario)?;
    let windows = scenario.schedulers[0].clone();
    let measured = traces::read(trace)?;
    check_noise(trace, &measured)?;
    if args.scenario.is_none() && !args.flags.places_ranks() {
        scenario.ranks_per_node = Some(ranks_per_node(measured.cpus(), &scenario.nodes));
    }
    scenario.check()?;
    let file = trace_file(trace, &measured);
    let question = WhatIf { iterations_given, windows, measured, scenario };
    let bar = Progress::steps_of_work("simulations", question.steps());
    let answer = question.answer(|steps| bar.steps_more(steps), |known| bar.show(&view::costs(known)))?;
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

/// Most runs of each simulation, where they can be afforded and make the answer surer.
const RUNS: u32 = 32;
/// Without other words: an allreduce after each millisecond of work.
fn program(args: &Args) -> ProgramSpec {
    let work_ns = (!args.flags.names_program()).then_some(1_000_000);
    ProgramSpec { work_ns, ..ProgramSpec::named("allreduce") }
}
