// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of each source of a measured node at scale.

use std::collections::BTreeMap;

use colony_sim::source::{Class, MeasuredSource};
use colony_sim::spec::{Measured, Scenario, SchedulerSpec};
use colony_sim::what_if::{Answer, WhatIf, ranks_per_node};
use pyo3::prelude::*;
use serde::Serialize;

use crate::trace::Trace;
use crate::{interruptible, read, spec, value_error};

/// The fields of the question and the answer in `colony sim --what-if --json`.
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
    measured: Vec<Source<'py>>,
    iterations_given: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let machine: spec::MachineSpec = read(machine)?;
    let scenario: Scenario = read(scenario)?;
    let places_ranks = scenario.ranks_per_node.is_some() || !machine.is_of_the_crate();
    let mut scenario = spec::on(machine, scenario).map_err(value_error)?;
    let measured = of_node(&measured)?;
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

/// A measured source as Python hands it over: its name, its kind and its detours.
pub(crate) type Source<'py> = (String, String, PyRef<'py, Trace>);

/// The sources of one node.
fn of_node(sources: &[Source<'_>]) -> PyResult<Measured> {
    let source = |(name, kind, trace): &Source<'_>| {
        let class = Class::ALL.into_iter().find(|class| class.name() == kind);
        let class = class.ok_or_else(|| {
            value_error(format!("there is no kind {kind:?} of source; choose task, irq or local"))
        })?;
        Ok(MeasuredSource { name: name.clone(), class, noise: trace.noise().clone() })
    };
    Ok(Measured { sources: sources.iter().map(source).collect::<PyResult<_>>()? })
}

/// The sources of the node of each file; for scenarios.
pub(crate) fn of_files(traces: &BTreeMap<String, Vec<Source<'_>>>) -> PyResult<BTreeMap<String, Measured>> {
    traces.iter().map(|(file, sources)| Ok((file.clone(), of_node(sources)?))).collect()
}
