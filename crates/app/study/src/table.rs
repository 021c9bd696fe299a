// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one table of a study, for a terminal.

use crate::results::{Published, Results, SchedulerKind};
use crate::{format, seeds};

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

/// One row a run of `allreduce`; the last column is the projected mean at the largest published node count.
#[must_use]
pub fn rows(results: &Results) -> Vec<[String; 9]> {
    let row = |cell: &crate::results::Cell| {
        let split = cell.split.map_or("–".into(), |s| {
            let share = |ns: u64, of: u64| format::percent(ns as f64 / of.max(1) as f64);
            format!(
                "{} | {}",
                share(s.stolen_favored_ns, s.favored_ns),
                share(s.stolen_regular_ns, s.regular_ns)
            )
        });
        let projected = results
            .scaling
            .as_ref()
            .and_then(|s| s.curve(cell.noise_percent, cell.scheduler)?.at(SHOWN_NODES).copied());
        [
            noise_name(cell.noise_percent),
            cell.scheduler.name().into(),
            format::count(cell.ops),
            format::time(cell.mean_ns),
            format::time(cell.p99_ns as f64),
            format::time(cell.p99_9_ns as f64),
            format::time(cell.max_ns as f64),
            split,
            projected.map_or("–".into(), |p| {
                format!("{} at {}", format::time(p.mean_ns), format::count(p.nodes))
            }),
        ]
    };
    results.allreduce.iter().map(row).collect()
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

/// The node count that headline and table show.
pub const SHOWN_NODES: u64 = 16_384;

/// `quiet`, or the level.
#[must_use]
pub fn noise_name(percent: f64) -> String {
    if percent > 0.0 { format!("{} % noise", format::number(percent)) } else { "quiet".into() }
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
        "A spare core (--spare-cores 1, {}), measured here: {} of the time of CPUs {} is stolen by this node's own noise, {} without.",
        spare.partition.describe(),
        format::percent(spare.stolen_with),
        spare.job,
        format::percent(spare.stolen_without)
    ))
}

/// The main result in one sentence, as far as it was measured.
#[must_use]
pub fn headline(results: &Results) -> String {
    let worst = results.params.noise_percent.iter().copied().fold(0.0, f64::max);
    let at = |kind| {
        let measured = results.scaling.as_ref().filter(|s| s.measured)?;
        Some(measured.curve(worst, kind)?.at(SHOWN_NODES)?.mean_ns)
    };
    let mut text = String::new();
    if let Some(u) = at(SchedulerKind::Unmodified) {
        text = format!(
            "With {} on every one of {} nodes, an allreduce would take {} on Linux as it is",
            noise_name(worst),
            format::count(SHOWN_NODES),
            format::time(u),
        );
        text += &match at(SchedulerKind::Coordinated) {
            Some(c) => {
                format!(" and {} in coordinated windows: {} faster.", format::time(c), format::times(u / c))
            }
            None => ". What coordinated windows would leave of it was not measured.".into(),
        };
    }
    let favored = |kind| {
        let s = results.cell(worst, kind)?.split?;
        Some(s.stolen_favored_ns as f64 / s.favored_ns.max(1) as f64)
    };
    if let (Some(u), Some(c)) = (favored(SchedulerKind::Unmodified), favored(SchedulerKind::Coordinated)) {
        text += &format!(
            " On this node, windows cut what is stolen from favored time from {} to {}.",
            format::percent(u),
            format::percent(c)
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
