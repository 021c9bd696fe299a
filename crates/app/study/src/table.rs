// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one table of a study, for a terminal.

use crate::format::NOT_KNOWN;
use crate::results::{Cell, Figure, Published, Results, SchedulerKind};
use crate::{claims, format, seeds};

pub use crate::format::noise_name;
pub use crate::params::SHOWN_NODES;

/// Headings of [`rows`].
pub const HEADINGS: [&str; 9] = [
    "noise",
    "scheduler",
    "operations",
    "mean",
    "p99",
    "p99.9",
    "longest",
    "stolen, favored | regular",
    "projected",
];

/// One row a noise level and scheduler of the study, `–` where a figure is missing; the last column is the projected mean at
/// [`SHOWN_NODES`].
#[must_use]
pub fn rows(results: &Results) -> Vec<[String; 9]> {
    let row = |(percent, scheduler, cell): (f64, SchedulerKind, Option<&Cell>)| {
        let of = |text: &dyn Fn(&Cell) -> String| cell.map_or(NOT_KNOWN.into(), text);
        [
            noise_name(percent),
            scheduler.name().into(),
            of(&|c| format::count(c.ops)),
            of(&|c| format::time(c.mean_ns)),
            of(&|c| format::time(c.p99_ns as f64)),
            of(&|c| format::time(c.p99_9_ns as f64)),
            of(&|c| format::time(c.max_ns as f64)),
            of(&|c| format!("{} | {}", stolen(c, true), stolen(c, false))),
            projected_mean(results, percent, scheduler),
        ]
    };
    cells(results).into_iter().map(row).collect()
}

/// Every noise level and scheduler of the study, with its run of `allreduce` if there is one.
#[must_use]
pub fn cells(results: &Results) -> Vec<(f64, SchedulerKind, Option<&Cell>)> {
    let kinds = [SchedulerKind::Unmodified, SchedulerKind::Coordinated];
    let all = results.params.noise_percent.iter().flat_map(|&p| kinds.map(|kind| (p, kind)));
    let all = all.map(|(percent, kind)| (percent, kind, results.cell(percent, kind)));
    match results.allreduce.is_empty() && results.missing.is_empty() {
        true => Vec::new(),
        false => all.collect(),
    }
}

/// Share of favored, or else regular, time that was stolen from a run.
#[must_use]
pub fn stolen(cell: &Cell, favored: bool) -> String {
    let share = |stolen_ns: u64, of_ns: u64| format::percent(stolen_ns as f64 / of_ns.max(1) as f64);
    match (cell.split, favored) {
        (Some(s), true) => share(s.stolen_favored_ns, s.favored_ns),
        (Some(s), false) => share(s.stolen_regular_ns, s.regular_ns),
        (None, _) => NOT_KNOWN.into(),
    }
}

/// The projected mean at [`SHOWN_NODES`].
#[must_use]
pub fn projected_mean(results: &Results, percent: f64, scheduler: SchedulerKind) -> String {
    let scaling = results.scaling.as_ref();
    let point = scaling.and_then(|s| s.curve(percent, scheduler)?.at(SHOWN_NODES).copied());
    point.map_or(NOT_KNOWN.into(), |p| format::time(p.mean_ns))
}

/// The figures of these kinds that are missing, a line a reason.
#[must_use]
pub fn missing(results: &Results, figures: &[Figure]) -> Vec<String> {
    let mut lines: Vec<(String, &str)> = Vec::new();
    for m in results.missing.iter().filter(|m| figures.contains(&m.figure)) {
        let of = match m.figure {
            Figure::Allreduce => "",
            Figure::Projection => ", projected",
        };
        let name = format!("{}, {}{of}", noise_name(m.noise_percent), m.scheduler.name());
        match lines.iter_mut().find(|(_, reason)| *reason == m.reason) {
            Some((names, _)) => *names += &format!("; {name}"),
            None => lines.push((name, &m.reason)),
        }
    }
    lines.into_iter().map(|(names, reason)| format!("{NOT_KNOWN} {names}: {reason}")).collect()
}

/// Headings of [`experiments`].
pub const EXPERIMENT_HEADINGS: [&str; 4] = ["name", "document", "what", "how"];

/// `colony study --list`: one row an experiment.
#[must_use]
pub fn experiments() -> Vec<[String; 4]> {
    seeds::all().map(|e| [e.name.into(), e.citation(), e.what.into(), e.method.name().into()]).collect()
}

/// Headings of [`outcome`].
pub const OUTCOME_HEADINGS: [&str; 4] = ["what", "published", "ours", "how"];

/// `colony study NAME`: published values beside ours.
#[must_use]
pub fn outcome(outcome: &seeds::Outcome) -> Vec<[String; 4]> {
    let row = |p: &Published| [p.what.clone(), p.published.clone(), p.ours.clone(), p.note.clone()];
    outcome.rows.iter().map(row).collect()
}

/// The difference that coordinated windows make to the node's own noise, in one sentence; `None` if it was not measured.
#[must_use]
pub fn windows_here(results: &Results) -> Option<String> {
    let favored = |kind| {
        let split = results.cell(0.0, kind)?.split?;
        (split.favored_ns > 0).then(|| split.stolen_favored_ns as f64 / split.favored_ns as f64)
    };
    let (without, with) = (favored(SchedulerKind::Unmodified)?, favored(SchedulerKind::Coordinated)?);
    Some(format!(
        "Coordinated windows ({}), measured here: {} of favored time is stolen by this node's own noise, {} without windows.",
        results.params.windows_flags(),
        format::percent(with),
        format::percent(without)
    ))
}

/// The difference that a spare core makes to the node's own noise, in one sentence; `None` if it was not measured.
#[must_use]
pub fn spare_core_here(results: &Results) -> Option<String> {
    let spare = results.spare_core.as_ref()?;
    Some(format!(
        "A spare core (--spare-cores 1, {}), measured here: {} of the time of {} is stolen by this node's own noise, {} without.",
        spare.partition.describe(),
        format::percent(spare.stolen_with),
        spare.job.named(),
        format::percent(spare.stolen_without)
    ))
}

/// The main result in some sentences, as far as it was measured.
#[must_use]
pub fn headline(results: &Results) -> String {
    let worst = results.params.noise_percent.iter().copied().fold(0.0, f64::max);
    let mut text = projected(results, worst).unwrap_or_default();
    let favored = |kind| {
        let s = results.cell(worst, kind)?.split?;
        Some(s.stolen_favored_ns as f64 / s.favored_ns.max(1) as f64)
    };
    if let (Some(u), Some(c)) = (favored(SchedulerKind::Unmodified), favored(SchedulerKind::Coordinated)) {
        text += &format!(
            " On this node, with {}, {} of favored time is stolen in coordinated windows, {} without windows.",
            noise_name(worst),
            format::percent(c),
            format::percent(u)
        );
    }
    if text.is_empty() {
        text = match &results.noise {
            Some(n) => {
                format!("Noise takes {} of this node's processor time.", format::percent(n.stolen_share))
            }
            None => "Nothing could be measured on this node; see what was left out.".into(),
        };
    }
    text.trim_start().into()
}

/// The projection of a noise level, and what windows gain; `None` if it was not measured.
fn projected(results: &Results, percent: f64) -> Option<String> {
    let measured = results.scaling.as_ref().filter(|s| s.measured)?;
    let at = |kind| measured.curve(percent, kind)?.at(SHOWN_NODES);
    let unmodified = at(SchedulerKind::Unmodified)?;
    let text = format!(
        "With {} on every one of {} nodes, an allreduce would take {} on Linux as it is",
        noise_name(percent),
        format::count(SHOWN_NODES),
        claims::mean(unmodified),
    );
    let Some(coordinated) = at(SchedulerKind::Coordinated) else {
        let why = results.why_missing(percent, SchedulerKind::Coordinated, Figure::Projection);
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        return Some(format!("{text}. What coordinated windows would leave of it was not measured{why}."));
    };
    let text = format!("{text} and {} in coordinated windows", claims::mean(coordinated));
    Some(match claims::projected(results, percent) {
        Ok(gain) => format!("{text}: {}.", gain.text()),
        Err(why) => format!("{text}. That is no measure of the gain: {why}."),
    })
}
