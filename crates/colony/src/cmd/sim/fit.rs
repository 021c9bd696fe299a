//! `colony noise fit`: models of measured noise, for scenarios.

use std::path::PathBuf;

use colony_sim::fit::{self, Fit};
use colony_sim::source::{Class, Placement};
use colony_sim::spec::{Scenario, SourceSpec};
use colony_sim::{NodeNoise, SimError};
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
    let cores = measured.cpus().max(1);
    let fitted = |(name, noise): &(String, NodeNoise)| fitted(name, noise);
    let mut sources: Vec<Fitted> = measured.sources.iter().map(fitted).collect::<Result<_, _>>()?;
    sources.sort_by(|a, b| b.stolen_share.total_cmp(&a.stolen_share));
    if args.toml {
        return crate::cmd::print_text(&scenario(&sources, cores).to_toml()?);
    }
    let document =
        Document { schema: "colony.noise.fit/1", trace: args.trace.display().to_string(), sources };
    crate::cmd::print(args.json, &document, |d| view::fits(&d.sources))
}

/// A model of the CPUs that have the source, for those alone.
fn fitted(name: &str, noise: &NodeNoise) -> Result<Fitted, SimError> {
    let all = noise.cpus();
    let cpus: Vec<usize> = (0..all.len()).filter(|&c| !all[c].detours().is_empty()).collect();
    let part = NodeNoise::new(cpus.iter().map(|&c| all[c].clone()).collect())?;
    let share = cpus.len() as f64 / all.len() as f64;
    let (fit, reason) = match fit::fit(&part) {
        Ok(fit) => (Some(fit), None),
        Err(e) => (None, Some(e.to_string())),
    };
    let cores = || cpus.iter().filter_map(|&c| u32::try_from(c).ok()).collect();
    Ok(Fitted {
        name: name.to_owned(),
        class: Class::of(name),
        detours: part.cpus().iter().map(|c| c.detours().len()).sum(),
        stolen_share: part.stolen_share() * share,
        cores: (cpus.len() < all.len()).then(cores),
        model_share: fit.as_ref().map_or(0.0, |f| f.model_load * share),
        fit,
        reason,
    })
}

fn scenario(sources: &[Fitted], cores: usize) -> Scenario {
    let model = |f: &Fitted, fit: &Fit, placement| SourceSpec {
        name: Some(f.name.clone()),
        model: Some(fit.model.clone()),
        class: Some(f.class),
        placement,
        ..SourceSpec::default()
    };
    let mut noise = Vec::new();
    for (f, fit) in sources.iter().filter_map(|f| Some((f, f.fit.as_ref()?))) {
        match &f.cores {
            None => noise.push(model(f, fit, Placement::EachCore)),
            Some(on) => noise.extend(on.iter().map(|&core| model(f, fit, Placement::Core(core)))),
        }
    }
    Scenario { noise, ranks_per_node: u32::try_from(cores).ok(), ..Scenario::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colony_sim::CpuNoise;
    use colony_sim::noise::Detour;

    fn every(every_ns: u64) -> CpuNoise {
        let span_ns = 1_000_000_000;
        let detours = (0..span_ns / every_ns).map(|i| Detour { start_ns: i * every_ns, duration_ns: 10_000 });
        CpuNoise::new(span_ns, detours).expect("some time")
    }

    #[test]
    fn a_source_of_some_cpus_asks_for_no_more_than_was_measured() {
        let quiet = || CpuNoise::quiet(1_000_000_000).expect("a span");
        for cpus in [
            vec![every(1_000_000), quiet(), every(1_000_000), quiet()],
            // CPU 1 has a tenth of what CPU 0 has
            vec![every(1_000_000), every(10_000_000), quiet(), quiet()],
            vec![every(1_000_000); 4],
        ] {
            let noise = NodeNoise::new(cpus).expect("CPUs");
            let fits = [fitted("thread:t", &noise).expect("fits")];
            let share = fits[0].model_share;
            assert!((share / noise.stolen_share() - 1.0).abs() < 0.05, "{share} {fits:?}");
            let placed = scenario(&fits, 4).noise.len();
            assert_eq!(placed, if fits[0].cores.is_none() { 1 } else { 2 });
        }
    }
}
