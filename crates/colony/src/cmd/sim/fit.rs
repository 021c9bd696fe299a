//! `colony noise fit`: models of measured noise, for scenarios.

use std::path::PathBuf;

use colony_sim::fit::{self, Fit};
use colony_sim::source::{Class, Placement};
use colony_sim::spec::{Scenario, SourceSpec};
use colony_view::sim::{self as view, Fitted};
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

/// What `colony noise fit --json` prints.
#[derive(Serialize)]
struct Document {
    schema: &'static str,
    trace: String,
    sources: Vec<Fitted>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let measured = traces::read(&args.trace)?;
    let cores = measured.sources.first().map_or(1, |(_, noise)| noise.cpus().len());
    let fitted = |(name, noise): &(String, colony_sim::NodeNoise)| {
        let (fit, reason) = match fit::fit(noise) {
            Ok(fit) => (Some(fit), None),
            Err(e) => (None, Some(e.to_string())),
        };
        // a model is of a CPU that has the source
        let having: Vec<usize> =
            (0..noise.cpus().len()).filter(|&c| !noise.cpus()[c].detours().is_empty()).collect();
        let core =
            if noise.cpus().len() > 1 && having.len() == 1 { u32::try_from(having[0]).ok() } else { None };
        let spread = if core.is_some() { noise.cpus().len() as f64 } else { 1.0 };
        Fitted {
            name: name.clone(),
            class: Class::of(name),
            detours: noise.cpus().iter().map(|c| c.detours().len()).sum(),
            stolen_share: noise.stolen_share(),
            core,
            model_share: fit.as_ref().map_or(0.0, |f| f.model_load / spread),
            fit,
            reason,
        }
    };
    let mut sources: Vec<Fitted> = measured.sources.iter().map(fitted).collect();
    sources.sort_by(|a, b| b.stolen_share.total_cmp(&a.stolen_share));
    if args.toml {
        print!("{}", scenario(&sources, cores).to_toml()?);
        return Ok(());
    }
    let document =
        Document { schema: "colony.noise.fit/1", trace: args.trace.display().to_string(), sources };
    crate::cmd::print(args.json, &document, |d| view::fits(&d.sources))
}

fn scenario(sources: &[Fitted], cores: usize) -> Scenario {
    let model = |f: &Fitted, fit: &Fit| SourceSpec {
        name: Some(f.name.clone()),
        model: Some(fit.model.clone()),
        class: Some(f.class),
        placement: f.core.map_or(Placement::EachCore, Placement::Core),
        ..SourceSpec::default()
    };
    let noise = sources.iter().filter_map(|f| Some(model(f, f.fit.as_ref()?))).collect();
    Scenario { noise, ranks_per_node: u32::try_from(cores).ok(), ..Scenario::default() }
}
