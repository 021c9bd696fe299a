// SPDX-License-Identifier: MIT OR Apache-2.0
//! The main job: measure this node's noise, suffer it with and without coordination, project it, report.

use std::time::Instant;

use colony_time::Windows;

use crate::node::{BenchRun, Injection, OwnNoise};
use crate::project::{self, Level};
use crate::results::{Cell, Edges, Published, Results, SchedulerKind, unix_now_s};
use crate::{Node, Params, Progress, StudyError, costing, format, quiet, seeds, table};

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
    let mut results = Results {
        schema: Results::SCHEMA.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        command: params.command(),
        started_unix_s,
        took_s: 0.0,
        params: params.clone(),
        warnings: record.warnings(),
        node: record,
        privileges: node.privileges(),
        headline: String::new(),
        not_done: node.privileges().missing().into_iter().map(str::to_owned).collect(),
        neighbours: quiet::wait_until_quiet(params, node, progress),
        noise: None,
        card: None,
        allreduce: Vec::new(),
        spare_core: None,
        scaling: None,
        published: Vec::new(),
    };
    let mut steps = Steps { params, node, progress, results: &mut results };
    let quiet = steps.noise();
    steps.allreduce()?;
    let levels = steps.levels(quiet.as_ref().map(|q| &q.merged))?;
    steps.spare_core();
    steps.projection(levels)?;
    // simulations last: they use every CPU, and what is measured should not meet them
    steps.card(quiet.as_ref());
    if !params.published {
        let line = "the seeds' figures were not simulated again: a hurried study leaves them out, colony study NAME has them";
        results.not_done.push(line.into());
    }
    let in_kernel = in_the_kernel(params, node, progress, &mut results)?;
    results.published = published(&results)?;
    results.published.extend(in_kernel);
    results.headline = table::headline(&results);
    results.took_s = began.elapsed().as_secs_f64();
    Ok(results)
}

/// Seconds of each of the two runs that compare a spare core with none.
const SPARE_CORE_S: f64 = 3.0;
/// Reason why a level has no coordinated curve.
const NO_WINDOWS: &str = "what coordinated windows would gain on many nodes: the noise they leave was not measured \
                          here, which needs the right to real-time classes (root, CAP_SYS_NICE)";

struct Steps<'a> {
    params: &'a Params,
    node: &'a mut dyn Node,
    progress: &'a dyn Progress,
    results: &'a mut Results,
}

impl Steps<'_> {
    /// A step with its progress; a failure is kept as something not done.
    fn step<T>(
        &mut self,
        what: &str,
        seconds: f64,
        run: impl FnOnce(&mut dyn Node) -> Result<T, StudyError>,
    ) -> Option<T> {
        let outcome = self.progress.during(what, seconds, || run(self.node));
        outcome.map_err(|e| self.left_out(&e.to_string())).ok()
    }

    fn left_out(&mut self, line: &str) {
        if !self.results.not_done.iter().any(|l| l == line) {
            self.progress.note(line);
            self.results.not_done.push(line.into());
        }
    }

    fn noise(&mut self) -> Option<OwnNoise> {
        let seconds = self.params.measure_s;
        let before = self.node.usage();
        let measured = self.step("measuring this node's noise", seconds, |n| n.noise(seconds));
        let during = self.node.usage().zip(before).map(|(now, before)| now.since(&before));
        if let Some(neighbours) = &mut self.results.neighbours {
            neighbours.during = during.filter(|_| measured.is_some());
        }
        let noise = measured?;
        self.results.noise = Some(noise.summary.clone());
        Some(noise)
    }

    /// Makes the report card: the cost of each source, and the changes in order.
    fn card(&mut self, noise: Option<&OwnNoise>) {
        let Some(noise) = noise else { return };
        match costing::card(self.node, noise, self.params, self.progress) {
            Ok(card) => self.results.card = Some(card),
            Err(e) => self.left_out(&e.to_string()),
        }
    }

    /// Noise levels × schedulers.
    fn allreduce(&mut self) -> Result<(), StudyError> {
        let windows = self.params.windows()?;
        for &percent in &self.params.noise_percent {
            for windows in [None, Some(windows)] {
                if windows.is_some() && !self.results.privileges.real_time {
                    continue; // said once, among what the privileges lack
                }
                let run = BenchRun {
                    program: "allreduce",
                    ranks: self.params.ranks,
                    seconds: self.params.bench_s,
                    ops: None,
                    injection: Injection::leibniz(percent),
                    windows,
                    seed: self.params.seed,
                };
                let what = format!("allreduce, {}, {}", table::noise_name(percent), kind(&windows).name());
                if let Some(cell) = self.step(&what, self.params.bench_s, |n| n.bench(&run)) {
                    self.results.allreduce.push(Cell {
                        noise_percent: percent,
                        scheduler: kind(&windows),
                        ..cell
                    });
                }
            }
        }
        Ok(())
    }

    /// The same job without and with a spare core.
    fn spare_core(&mut self) {
        let seconds = SPARE_CORE_S / self.params.faster;
        self.results.spare_core =
            self.step("measuring a spare core", 2.0 * seconds, |n| n.spare_core(seconds));
    }

    /// Measures each noise level; levels that cannot be measured are left out.
    fn levels(&mut self, quiet: Option<&colony_sim::NodeNoise>) -> Result<Vec<Level>, StudyError> {
        let windows = self.params.windows()?;
        let seconds = self.params.measure_injected_s;
        let mut levels = Vec::new();
        for &percent in &self.params.noise_percent {
            let injection = Injection::leibniz(percent);
            let name = table::noise_name(percent);
            let noise = match &quiet {
                Some(quiet) if percent == 0.0 => Some((*quiet).clone()),
                _ => {
                    self.step(&format!("measuring {name}"), seconds, |n| n.detours(seconds, &injection, None))
                }
            };
            let Some(noise) = noise else { return Ok(Vec::new()) };
            let edges = self.results.cell(percent, SchedulerKind::Coordinated).and_then(|c| c.edges.clone());
            let residual = if self.results.privileges.real_time {
                self.step(&format!("measuring {name} in favored windows"), seconds, |n| {
                    n.detours(seconds, &injection, Some(&windows))
                })
            } else {
                None
            };
            levels.push(Level {
                percent,
                noise: Some(noise),
                residual,
                edge_lateness_ns: edges.map(|e: Edges| project::spread(&e.histogram)).unwrap_or_default(),
            });
        }
        Ok(levels)
    }

    fn projection(&mut self, mut levels: Vec<Level>) -> Result<(), StudyError> {
        let measured = !levels.is_empty();
        let from = if measured {
            "the noise of this node as measured, alone and with the seeds' daemon beside it, without what its hypervisor takes"
        } else {
            for &percent in &self.params.noise_percent {
                levels.push(Level::described(percent));
            }
            "the seeds' noise daemon as described (Colony report, section 3.1.7); this node's noise could not be \
             measured"
        };
        let command = self.params.command();
        let scale = || project::scaling(self.params, &levels, from, &command);
        let (scaling, warnings) = self.progress.during("projecting", 3.0, scale)?;
        if !levels.iter().all(Level::has_coordinated) {
            self.left_out(NO_WINDOWS);
        }
        self.results.warnings.extend(warnings);
        self.results.scaling = Some(scaling);
        Ok(())
    }
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

fn kind(windows: &Option<Windows>) -> SchedulerKind {
    if windows.is_some() { SchedulerKind::Coordinated } else { SchedulerKind::Unmodified }
}

/// Published figures beside ours: what this study measured, then what can be projected.
fn published(results: &Results) -> Result<Vec<Published>, StudyError> {
    let mut rows = if results.params.published { seeds::projected(&results.params)? } else { Vec::new() };
    let colony = seeds::find("fig6")?;
    for &percent in results.params.noise_percent.iter().filter(|p| **p > 0.0) {
        let mean = |kind| results.cell(percent, kind).map(|c| c.mean_ns);
        let (Some(u), Some(c)) = (mean(SchedulerKind::Unmodified), mean(SchedulerKind::Coordinated)) else {
            continue;
        };
        let published = match percent {
            21.0 => "3175.7 seconds to 1.73 seconds (1836×), thousands of nodes",
            2.0 => "about a 10% improvement (1.1×), thousands of nodes",
            _ => "–",
        };
        rows.push(Published {
            experiment: if percent == 2.0 { "fig8" } else { "fig6" }.into(),
            place: colony.document.title().into(),
            what: format!(
                "{} % noise, this node: allreduce, unmodified over coordinated",
                format::number(percent)
            ),
            published: published.into(),
            ours: format::times(u / c),
            value: Some(u / c),
            note: format!("measured, {} on one node", format::counted(results.params.ranks.into(), "rank")),
        });
    }
    Ok(rows)
}
