// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony noise fit`: models of measured noise, for scenarios.

use std::path::PathBuf;

use colony_project::fit::{self, Fitted};
use colony_view::sim as view;
use serde::Serialize;

use super::traces;
use crate::exit::wrong;

/// Fit a model to each source of a trace, and say how well it fits
///
/// A model is a few numbers, and can be changed: what if this daemon ran twice as often? --toml writes the
/// models as they stand in a scenario of `colony sim`, and names the sources that are too rare to be fitted in
/// comments: the scenario has none of their noise.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony noise fit node.parquet
  colony noise fit node.parquet --toml > scenario.toml && colony sim scenario.toml")]
pub(crate) struct Args {
    /// The trace, in any format `colony noise convert` reads
    trace: PathBuf,
    /// Write the models as part of a scenario
    #[arg(long, conflicts_with = "json")]
    toml: bool,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// JSON document of `colony noise fit --json`.
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    trace: String,
    sources: Vec<Fitted>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let measured = traces::read(&args.trace)?;
    let cores = measured.cpus().max(1);
    let sources = fit::fit_sources(&measured)?;
    if args.toml {
        return print_scenario(args, &sources, cores);
    }
    let document =
        Document { schema: "colony.noise.fit/1", trace: args.trace.display().to_string(), sources };
    crate::cmd::print(args.json, &document, |d| view::fits(&d.sources))
}

/// Writes the scenario, and says on standard error and in comments which sources it lacks.
fn print_scenario(args: &Args, sources: &[Fitted], cores: usize) -> anyhow::Result<()> {
    if !sources.is_empty() && sources.iter().all(|s| s.fit.is_none()) {
        return Err(wrong(format!(
            "no source of {} can be fitted (too few detours of each), and a scenario without noise would be misleading; \
             measure for longer, or simulate the trace itself: colony sim --what-if {0}",
            args.trace.display()
        )));
    }
    let mut comments = String::new();
    for source in sources.iter().filter(|s| s.fit.is_none()) {
        let share = colony_view::units::percent(source.stolen_share);
        let reason = source.reason.as_deref().unwrap_or("no model fits");
        let line = format!("{} ({share} of the CPUs) is not in the scenario: {reason}", source.name);
        note!("{line}");
        // the name of a thread can hold a line break
        comments += &format!("# {}\n", line.replace(char::is_control, " "));
    }
    crate::cmd::print_text(&(comments + &fit::scenario(sources, cores).to_toml()?))
}
