// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony sim --fit-machine`: a machine profile from benchmarks.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::Context;
use colony_bench::{BenchResult, Launch, Params, Program};
use colony_sim::local::{self, BenchReport, Fit, Measured};
use colony_view::machine as view;
use colony_view::progress::Progress;
use serde::Serialize;

use super::args::Args;
use crate::exit::wrong;

/// Ranks of the benchmarks run here.
const RANKS: u32 = 2;
/// Sizes they are run with, where they have any.
const BYTES: [u64; 5] = [32, 256, 2048, 16_384, 131_072];

/// JSON document of `colony sim --fit-machine --json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: &'static str,
    machine: &'a colony_sim::machine::Machine,
    rms: f64,
    residuals: Vec<Residual>,
}

#[derive(Serialize)]
struct Residual {
    #[serde(flatten)]
    measured: Measured,
    fitted_ns: f64,
}

pub(super) fn run(args: &Args, files: &[PathBuf]) -> anyhow::Result<ExitCode> {
    if let Some(out) = &args.out {
        if out.extension().is_none_or(|e| e != "toml") {
            return Err(wrong(format!("--out {}: name it .toml", out.display())));
        }
        crate::cmd::can_write(out)?;
    }
    let measured = if files.is_empty() { benchmarks()? } else { stored(files)? };
    let fit = local::fit(&measured).map_err(|e| wrong(e.to_string()))?;
    let profile = fit.machine.to_toml()?;
    if let Some(out) = &args.out {
        colony_node::file::write_atomically::<std::io::Error>(out, |w| w.write_all(profile.as_bytes()))
            .with_context(|| format!("writing {}", out.display()))?;
    }
    crate::cmd::print(args.json, &document(&fit), |_| match &args.out {
        Some(_) => view::fit(&fit),
        // a profile as it stands: the table is comment
        None => {
            view::fit(&fit).lines().fold(profile, |all, l| format!("{all}{}\n", format!("# {l}").trim_end()))
        }
    })?;
    if let Some(out) = &args.out {
        note!("written: {}", out.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn document(fit: &Fit) -> Document<'_> {
    let residual = |&(measured, fitted_ns): &(Measured, f64)| Residual { measured, fitted_ns };
    Document {
        schema: "colony.sim.fit_machine/1",
        version: env!("CARGO_PKG_VERSION"),
        machine: &fit.machine,
        rms: fit.rms,
        residuals: fit.residuals.iter().map(residual).collect(),
    }
}

/// Medians of results that were kept.
fn stored(files: &[PathBuf]) -> anyhow::Result<Vec<Measured>> {
    let mut all = Vec::new();
    for file in files {
        let found = report(file)?.measured();
        if found.is_empty() {
            note!(
                "note: {} is left out: only barrier, allreduce, glob, alltoall and ring tell what messages cost",
                file.display()
            );
        }
        all.extend(found);
    }
    Ok(all)
}

fn report(file: &Path) -> anyhow::Result<BenchReport> {
    let name = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {name}"))?;
    let none = |why: String| wrong(format!("{name} is no result of `colony bench --json` ({why})"));
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| none(e.to_string()))?;
    BenchResult::check_schema(&value).map_err(none)?;
    serde_json::from_value(value).map_err(|e| none(e.to_string()))
}

/// Medians of the benchmarks, run here one after the other, a second each at most.
fn benchmarks() -> anyhow::Result<Vec<Measured>> {
    let stop = crate::cmd::stop_flag()?;
    let sized = [Program::Allreduce, Program::Alltoall, Program::Ring];
    let mut runs = vec![Params::new(Program::Barrier)];
    runs.extend(sized.into_iter().flat_map(|p| BYTES.map(|bytes| Params { bytes, ..Params::new(p) })));
    let bar = Progress::steps_of_work("benchmarks", runs.len() as u64);
    let mut all = Vec::new();
    for params in runs {
        let params = Params { seconds: Some(1.0), ..params };
        let result = Launch::new(params, RANKS).run_while(|| !stop.load(Ordering::Relaxed))?;
        let report: BenchReport = serde_json::from_value(serde_json::to_value(&result)?)?;
        all.extend(report.measured());
        bar.step();
    }
    Ok(all)
}
