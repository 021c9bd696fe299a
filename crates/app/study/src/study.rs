// SPDX-License-Identifier: MIT OR Apache-2.0
//! The main job: measure this node's noise, suffer it with and without coordination, project it, report.

use std::time::Instant;

use crate::results::{Published, Results, SchedulerKind, unix_now_s};
use crate::steps::Steps;
use crate::{Node, Params, Progress, StudyError, claims, format, quiet, seeds, table};

/// Runs the whole study on `node`. A step that is not possible here is left out and said so in
/// [`Results::not_done`]; the others go on.
///
/// # Errors
/// [`StudyError::Params`] before anything runs; [`StudyError::Sim`] where the projection is refused.
pub fn run(params: &Params, node: &mut dyn Node, progress: &dyn Progress) -> Result<Results, StudyError> {
    params.check()?;
    let began = Instant::now();
    let started_unix_s = unix_now_s();
    let record = node.record();
    let neighbours = quiet::wait_until_quiet(params, node, progress);
    let warnings = match &neighbours {
        Some(_) => record.warnings_except_load(),
        None => record.warnings(),
    };
    let mut results = Results {
        schema: Results::SCHEMA.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        command: params.command(),
        started_unix_s,
        took_s: 0.0,
        params: params.clone(),
        warnings,
        node: record,
        privileges: node.privileges(),
        headline: String::new(),
        not_done: node.privileges().missing().into_iter().map(str::to_owned).collect(),
        neighbours,
        noise: None,
        card: None,
        allreduce: Vec::new(),
        spare_core: None,
        scaling: None,
        published: Vec::new(),
        missing: Vec::new(),
    };
    let mut steps = Steps::new(params, node, progress, &mut results);
    let quiet = steps.noise();
    steps.allreduce()?;
    let levels = steps.levels(quiet.as_ref().map(|q| &q.merged))?;
    steps.spare_core();
    steps.projection(&levels)?;
    // simulations last: they use every CPU, and what is measured should not meet them
    steps.card(quiet.as_ref());
    if !params.published {
        let line = "the seeds' figures were not simulated again: a hurried study leaves them out, colony study NAME has them";
        results.not_done.push(line.into());
    }
    let in_kernel = in_the_kernel(params, node, progress, &mut results)?;
    results.published = progress.during("simulating the published figures", 12.0, || published(&results))?;
    if params.published {
        let long = seeds::all().filter(|e| e.method == seeds::Method::LongProjection).map(|e| e.name);
        let long: Vec<&str> = long.collect();
        let line = format!(
            "{}: simulations of half a minute; colony study {} has them",
            long.join(", "),
            long.join(" ")
        );
        results.not_done.push(line);
    }
    results.published.extend(in_kernel);
    results.headline = table::headline(&results);
    results.took_s = began.elapsed().as_secs_f64();
    Ok(results)
}

/// Rows of the scheduler in the kernel, where they are asked for and a virtual node can be had.
fn in_the_kernel(
    params: &Params,
    node: &mut dyn Node,
    progress: &dyn Progress,
    results: &mut Results,
) -> Result<Vec<Published>, StudyError> {
    let left_out = if params.virtual_node {
        let mut context = seeds::Context::new(params, Some(node), progress);
        match seeds::find("vm")?.run(&mut context) {
            Ok(outcome) => return Ok(outcome.rows),
            Err(e) => {
                progress.note(&e.to_string());
                e.to_string()
            }
        }
    } else {
        "the scheduler in the kernel was not measured on a virtual node: --virtual-node adds it, colony study vm has it \
         alone (a minute or more)"
            .into()
    };
    results.not_done.push(left_out);
    Ok(Vec::new())
}

/// Published figures beside ours: what this study measured, then what can be projected.
fn published(results: &Results) -> Result<Vec<Published>, StudyError> {
    let mut rows = if results.params.published { seeds::projected(&results.params)? } else { Vec::new() };
    let colony = seeds::find("fig6")?;
    for &percent in results.params.noise_percent.iter().filter(|p| **p > 0.0) {
        let has = |kind| results.cell(percent, kind).is_some();
        if !has(SchedulerKind::Unmodified) || !has(SchedulerKind::Coordinated) {
            continue;
        }
        let of_many = match percent {
            21.0 => "; published for thousands of nodes: 3175.7 seconds to 1.73 seconds (1836×)",
            2.0 => "; published for thousands of nodes: about a 10% improvement (1.1×)",
            _ => "",
        };
        let ranks = format::counted(results.params.ranks.into(), "rank");
        let (ours, value, how) = match claims::measured(results, percent) {
            Ok(gain) => (gain.text(), Some(gain.times), format!("measured, {ranks} on one node")),
            Err(why) => (
                format::NOT_KNOWN.into(),
                None,
                format!("measured, {ranks} on one node, no gain to claim: {why}"),
            ),
        };
        rows.push(Published {
            experiment: if percent == 2.0 { "fig8" } else { "fig6" }.into(),
            place: colony.document.title().into(),
            what: format!(
                "{} % noise, this node: allreduce, unmodified over coordinated",
                format::number(percent)
            ),
            // the document has no value of one node
            published: format::NOT_KNOWN.into(),
            published_value: None,
            basis: None,
            ours,
            value,
            note: how + of_many,
        });
    }
    Ok(rows)
}
