// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measurements of a study, one after the other. A figure that cannot be measured, or not in peace, is missing with its
//! reason; nothing stands in for it.

use colony_sim::NodeNoise;
use colony_time::Windows;

use crate::node::{BenchRun, Injection, OwnNoise};
use crate::project::{self, Level};
use crate::results::{Cell, Figure, Missing, Results, SchedulerKind};
use crate::watch::{Watch, Watched};
use crate::{Node, Params, Progress, StudyError, costing, table};

/// Seconds of each of the two runs that compare a spare core with none.
const SPARE_CORE_S: f64 = 3.0;
/// Reason why there is nothing coordinated.
const NO_RIGHT: &str = "coordinated windows need the right to real-time classes (root, CAP_SYS_NICE)";

pub(crate) struct Steps<'a> {
    params: &'a Params,
    node: &'a mut dyn Node,
    progress: &'a dyn Progress,
    results: &'a mut Results,
    watch: Watch,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(
        params: &'a Params,
        node: &'a mut dyn Node,
        progress: &'a dyn Progress,
        results: &'a mut Results,
    ) -> Self {
        let usual = results.neighbours.as_ref().map(|n| n.before.clone());
        Self { params, node, progress, results, watch: Watch::new(usual) }
    }

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

    /// Measures a figure. A disturbed measurement is repeated while the time for repetitions lasts, and the measurement with the
    /// least load is returned. The error is the reason why there is no figure.
    fn watched<T>(
        &mut self,
        what: &str,
        seconds: f64,
        mut run: impl FnMut(&mut dyn Node) -> Result<T, StudyError>,
    ) -> Result<Watched<T>, String> {
        let planned_s = self.planned_s();
        let mut best: Option<Watched<T>> = None;
        loop {
            let before = self.node.usage();
            let value = self.progress.during(what, seconds, || run(self.node)).map_err(|e| e.to_string())?;
            let (load, disturbed) = self.watch.judge(before.as_ref(), self.node.usage().as_ref());
            let others = |load: &Option<crate::neighbours::Load>| load.as_ref().map_or(0.0, |l| l.others);
            if best.as_ref().is_none_or(|b| others(&load) < others(&b.load)) {
                best = Some(Watched { value, load, disturbed });
            }
            match best {
                Some(found) if found.disturbed.is_none() || !self.watch.may_repeat(seconds, planned_s) => {
                    return Ok(found);
                }
                _ => {}
            }
        }
    }

    /// Seconds of all measurements, each once.
    fn planned_s(&self) -> f64 {
        let p = self.params;
        p.noise_percent.len() as f64 * 2.0 * (p.bench_s + p.measure_injected_s)
    }

    fn missing(&mut self, noise_percent: f64, scheduler: SchedulerKind, figure: Figure, reason: &str) {
        if self.results.missing.iter().all(|m| m.reason != reason) {
            self.progress.note(reason);
        }
        self.results.missing.push(Missing { noise_percent, scheduler, figure, reason: reason.into() });
    }

    pub(crate) fn noise(&mut self) -> Option<OwnNoise> {
        let seconds = self.params.measure_s;
        let before = self.node.usage();
        let measured = self.step("measuring this node's noise", seconds, |n| n.noise(seconds));
        let during = self.node.usage().zip(before).map(|(now, before)| now.since(&before));
        if let Some(neighbours) = &mut self.results.neighbours {
            neighbours.during = during.clone().filter(|_| measured.is_some());
        }
        let noise = measured?;
        self.watch.usual = during.or(self.watch.usual.take());
        self.results.noise = Some(noise.summary.clone());
        Some(noise)
    }

    /// Makes the report card: the cost of each source, and the changes in order.
    pub(crate) fn card(&mut self, noise: Option<&OwnNoise>) {
        let Some(noise) = noise else { return };
        match costing::card(self.node, noise, self.params, self.progress) {
            Ok(card) => self.results.card = Some(card),
            Err(e) => self.left_out(&e.to_string()),
        }
    }

    /// Noise levels × schedulers.
    pub(crate) fn allreduce(&mut self) -> Result<(), StudyError> {
        let windows = self.params.windows()?;
        for &percent in &self.params.noise_percent {
            for windows in [None, Some(windows)] {
                let scheduler = kind(windows.as_ref());
                if windows.is_some() && !self.results.privileges.real_time {
                    self.missing(percent, scheduler, Figure::Allreduce, NO_RIGHT);
                    continue;
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
                let what = format!("allreduce, {}, {}", table::noise_name(percent), scheduler.name());
                match self.watched(&what, self.params.bench_s, |n| n.bench(&run)) {
                    Ok(Watched { disturbed: Some(reason), .. }) | Err(reason) => {
                        self.missing(percent, scheduler, Figure::Allreduce, &reason);
                    }
                    Ok(Watched { value: cell, load, disturbed: None }) => {
                        self.results.allreduce.push(Cell { noise_percent: percent, scheduler, load, ..cell });
                    }
                }
            }
        }
        Ok(())
    }

    /// Runs the same job without and with a spare core.
    pub(crate) fn spare_core(&mut self) {
        let seconds = SPARE_CORE_S / self.params.faster;
        self.results.spare_core =
            self.step("measuring a spare core", 2.0 * seconds, |n| n.spare_core(seconds));
    }

    /// Measures each noise level; those that cannot be measured in peace are missing.
    pub(crate) fn levels(&mut self, quiet: Option<&NodeNoise>) -> Result<Vec<Level>, StudyError> {
        let windows = self.params.windows()?;
        let mut levels = Vec::new();
        for &percent in &self.params.noise_percent {
            let (unmodified, coordinated) = (SchedulerKind::Unmodified, SchedulerKind::Coordinated);
            let noise = match quiet {
                Some(quiet) if percent == 0.0 => Ok(quiet.clone()),
                _ => self.detours(percent, None),
            };
            let noise = match noise {
                Ok(noise) => noise,
                Err(reason) => {
                    self.missing(percent, unmodified, Figure::Projection, &reason);
                    self.missing(percent, coordinated, Figure::Projection, &reason);
                    continue;
                }
            };
            let residual = match self.results.privileges.real_time {
                true => self.detours(percent, Some(windows)),
                false => Err(NO_RIGHT.into()),
            };
            if let Err(reason) = &residual {
                self.missing(percent, coordinated, Figure::Projection, reason);
            }
            let edges = self.results.cell(percent, coordinated).and_then(|c| c.edges.as_ref());
            levels.push(Level {
                percent,
                noise: Some(noise),
                residual: residual.ok(),
                edge_lateness_ns: edges.map(|e| project::spread(&e.histogram)).unwrap_or_default(),
            });
        }
        Ok(levels)
    }

    /// The detours of the job's CPUs beside injected noise, in favored windows if there are any.
    fn detours(&mut self, percent: f64, windows: Option<Windows>) -> Result<NodeNoise, String> {
        let (seconds, injection) = (self.params.measure_injected_s, Injection::leibniz(percent));
        let place = if windows.is_some() { " in favored windows" } else { "" };
        let what = format!("measuring {}{place}", table::noise_name(percent));
        let found = self.watched(&what, seconds, |n| n.detours(seconds, &injection, windows.as_ref()))?;
        found.disturbed.map_or(Ok(found.value), Err)
    }

    /// Projects the levels; without any, there is no projection.
    pub(crate) fn projection(&mut self, levels: &[Level]) -> Result<(), StudyError> {
        if levels.is_empty() {
            return Ok(());
        }
        let from = "the noise of this node as measured, alone and with the seeds' daemon beside it, without what its hypervisor \
                    takes";
        let command = self.params.command();
        let scale = || project::scaling(self.params, levels, from, &command);
        let (scaling, warnings) = self.progress.during("projecting", 8.0, scale)?;
        self.results.warnings.extend(warnings);
        self.results.scaling = Some(scaling);
        Ok(())
    }
}

fn kind(windows: Option<&Windows>) -> SchedulerKind {
    if windows.is_some() { SchedulerKind::Coordinated } else { SchedulerKind::Unmodified }
}
