// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each source of a measured node costs at scale.

use std::collections::BTreeMap;

use colony_sim::spec::{Measured, Scenario, SchedulerSpec};
use colony_sim::what_if::{Answer, WhatIf, ranks_per_node};
use pyo3::prelude::*;
use serde::Serialize;

use crate::trace::Trace;
use crate::{interruptible, read, spec, value_error};

/// What `colony sim --what-if --json` has of the question and the answer.
#[derive(Serialize)]
struct Answered {
    scenario: Scenario,
    windows: SchedulerSpec,
    answer: Answer,
}

/// Asks what each source of `measured` costs the program of `scenario`, and what windows (its first scheduler) or a
/// spare core give back: the scenario asked, the windows, and the answer, as a dict.
#[pyfunction]
pub(crate) fn what_if<'py>(
    py: Python<'py>,
    machine: &Bound<'py, PyAny>,
    scenario: &Bound<'py, PyAny>,
    measured: Vec<(String, PyRef<'py, Trace>)>,
    iterations_given: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let machine: spec::MachineSpec = read(machine)?;
    let scenario: Scenario = read(scenario)?;
    let places_ranks = scenario.ranks_per_node.is_some() || !machine.is_of_the_crate();
    let mut scenario = spec::on(machine, scenario).map_err(value_error)?;
    let measured =
        Measured { sources: measured.iter().map(|(name, t)| (name.clone(), t.noise().clone())).collect() };
    if !places_ranks {
        scenario.ranks_per_node = Some(ranks_per_node(measured.cpus(), &scenario.nodes));
        scenario.check().map_err(value_error)?;
    }
    let windows = scenario.schedulers.first().cloned().unwrap_or(SchedulerSpec::Preempt);
    let question = WhatIf { scenario, measured, windows, iterations_given };
    let answered = interruptible(py, move || {
        let answer = question.answer(|_| (), |_| ())?;
        let WhatIf { scenario, windows, .. } = question;
        Ok::<_, colony_sim::spec::SpecError>(Answered { scenario, windows, answer })
    })?;
    Ok(pythonize::pythonize(py, &answered.map_err(value_error)?)?)
}

/// Sources by name, as [`what_if`] takes them; for scenarios.
pub(crate) fn measured(
    traces: &BTreeMap<String, Vec<(String, PyRef<'_, Trace>)>>,
) -> BTreeMap<String, Measured> {
    let of_file = |sources: &Vec<(String, PyRef<'_, Trace>)>| Measured {
        sources: sources.iter().map(|(name, t)| (name.clone(), t.noise().clone())).collect(),
    };
    traces.iter().map(|(file, sources)| (file.clone(), of_file(sources))).collect()
}
