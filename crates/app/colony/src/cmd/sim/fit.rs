// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony noise fit`: models of measured noise, for scenarios.

use std::path::PathBuf;

use colony_project::fit::{self, Fitted};
use colony_view::sim as view;
use serde::Serialize;

use super::traces;

/// Fit a model to each source of a trace, and say how well it fits
///
/// A model is a few numbers, and can be changed: what if this daemon ran twice as often? --toml writes the
/// models as they stand in a scenario of `colony sim`; sources too rare to be fitted are left out of it.
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
        return crate::cmd::print_text(&fit::scenario(&sources, cores).to_toml()?);
    }
    let document =
        Document { schema: "colony.noise.fit/1", trace: args.trace.display().to_string(), sources };
    crate::cmd::print(args.json, &document, |d| view::fits(&d.sources))
}
