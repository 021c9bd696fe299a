// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models of measured noise.

use colony_sim::fit::{self, Fit, Verdict};
use colony_sim::{NodeNoise, SimError};
use colony_source::Source;
use pyo3::prelude::*;
use serde::Serialize;

use crate::trace::Trace;
use crate::{interruptible, value_error};

/// The fields of a source in `colony noise fit --json`, and the verdict.
#[derive(Serialize)]
struct Fitted {
    fit: Fit,
    verdict: Verdict,
    stolen_share: f64,
    model_share: f64,
}

/// The model fitted to the CPUs of a trace that have detours, as a dict, and the numbers of these CPUs.
#[pyfunction]
pub(crate) fn fit_trace<'py>(
    py: Python<'py>,
    trace: PyRef<'py, Trace>,
) -> PyResult<(Bound<'py, PyAny>, Vec<usize>)> {
    let all = trace.noise().clone();
    let cpus: Vec<usize> = (0..all.cpus().len()).filter(|&c| !all.cpus()[c].detours().is_empty()).collect();
    let part: Result<NodeNoise, SimError> =
        NodeNoise::new(cpus.iter().map(|&c| all.cpus()[c].clone()).collect());
    let part = part.map_err(value_error)?;
    let fit = interruptible(py, move || fit::fit(&part))?.map_err(value_error)?;
    let share = cpus.len() as f64 / all.cpus().len() as f64;
    let (verdict, model_share) = (fit.verdict(), fit.model_load * share);
    let fitted = Fitted { fit, verdict, stolen_share: all.stolen_share(), model_share };
    Ok((pythonize::pythonize(py, &fitted)?, cpus))
}

/// The default kind of a source, by its name.
#[pyfunction]
pub(crate) fn default_kind(name: &str) -> &'static str {
    Source::from(name).class().name()
}
