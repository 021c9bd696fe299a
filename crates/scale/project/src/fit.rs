// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models of measured noise: a few numbers for each source, that can be changed.

use colony_sim::fit::{self, Fit, Sampling};
use colony_sim::source::{Class, MeasuredSource, Placement};
use colony_sim::spec::{Measured, Scenario, SourceSpec};
use colony_sim::{NodeNoise, SimError};
use serde::Serialize;

/// A source of a trace with the model fitted to it.
#[derive(Clone, Debug, Serialize)]
pub struct Fitted {
    /// Its name.
    pub name: String,
    /// The class of the source, as in the trace.
    pub class: Class,
    /// Detours measured.
    pub detours: usize,
    /// Share of the CPUs' time it takes.
    pub stolen_share: f64,
    /// The cores that have it; `None` if all have it.
    pub cores: Option<Vec<u32>>,
    /// Share of the CPUs' time that the model takes, placed there.
    pub model_share: f64,
    /// How far the source's figures may be from those of the trace, on the CPUs that have it; of `stolen_share`, on all.
    pub sampling: Option<Sampling>,
    /// The model.
    pub fit: Option<Fit>,
    /// The reason for a source without a model.
    pub reason: Option<String>,
}

/// A model for each source, the source that takes the most time first. The model of a source describes the CPUs that
/// have the source, and is placed on those alone.
///
/// # Errors
/// [`SimError`] if the CPUs of a source were not observed for the same time.
pub fn fit_sources(measured: &Measured) -> Result<Vec<Fitted>, SimError> {
    let mut sources: Vec<Fitted> = measured.sources.iter().map(fit_source).collect::<Result<_, _>>()?;
    sources.sort_by(|a, b| b.stolen_share.total_cmp(&a.stolen_share));
    Ok(sources)
}

fn fit_source(source: &MeasuredSource) -> Result<Fitted, SimError> {
    let all = source.noise.cpus();
    let cpus: Vec<usize> = (0..all.len()).filter(|&c| !all[c].detours().is_empty()).collect();
    let part = NodeNoise::new(cpus.iter().map(|&c| all[c].clone()).collect())?;
    let share = cpus.len() as f64 / all.len() as f64;
    let (fit, reason) = match fit::fit(&part) {
        Ok(fit) => (Some(fit), None),
        Err(e) => (None, Some(e.to_string())),
    };
    let cores = || cpus.iter().filter_map(|&c| u32::try_from(c).ok()).collect();
    Ok(Fitted {
        name: source.name.clone(),
        class: source.class,
        detours: part.cpus().iter().map(|c| c.detours().len()).sum(),
        stolen_share: part.stolen_share() * share,
        cores: (cpus.len() < all.len()).then(cores),
        sampling: Sampling::of(&part)
            .map(|s| Sampling { stolen_share: s.stolen_share.map(|x| x * share), ..s }),
        model_share: fit.as_ref().map_or(0.0, |f| f.model_load * share),
        fit,
        reason,
    })
}

/// The models as the noise of a scenario on nodes of `cores` CPUs; sources without a model are left out.
#[must_use]
pub fn scenario(sources: &[Fitted], cores: usize) -> Scenario {
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
            let fits = [fit_source(&MeasuredSource::named("thread:t", noise.clone())).expect("fits")];
            let share = fits[0].model_share;
            assert!((share / noise.stolen_share() - 1.0).abs() < 0.05, "{share} {fits:?}");
            let placed = scenario(&fits, 4).noise.len();
            assert_eq!(placed, if fits[0].cores.is_none() { 1 } else { 2 });
        }
    }
}
