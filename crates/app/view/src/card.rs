// SPDX-License-Identifier: MIT OR Apache-2.0
//! The node's report card on a terminal: three figures, what to change, what each source costs.

use std::fmt::Write;

use colony_project::changes::{Alone, AtScale};
use colony_study::card::{Card, SourceShare};
use colony_study::choice;
use colony_study::format::NOT_SEEN;

use crate::doctor;
use crate::table::{self, name, wrap};
use crate::units::{count, percent, time};

/// Node counts of the table of sources.
const SHOWN_NODES: [u32; 3] = [1024, 16_384, 1 << 20];

/// The first screen of a study.
#[must_use]
pub fn card(card: &Card) -> String {
    let mut out = figures(card);
    out.push_str(&changes(card));
    out.push_str(&sources(card));
    if let Some(best) = card.choice.as_ref().and_then(choice::best) {
        let _ = writeln!(out, "\n{}", wrap(&best));
    }
    for note in notes(card) {
        let _ = writeln!(out, "{}", wrap(&format!("note: {note}")));
    }
    out
}

/// This node in three figures.
fn figures(card: &Card) -> String {
    let Some(noise) = &card.doctor.noise else { return String::new() };
    let worst = match card.worst() {
        Some(SourceShare { source, share }) => format!("{}, {}", name(&source, 40), percent(share)),
        None => UNKNOWN.into(),
    };
    let cost = format!("noise adds {} to a step of {}", doctor::added(&noise.all), time(noise.quiet_ns));
    let stolen = format!("{} of the time of {}", percent(noise.stolen_share), noise.cpus.named());
    let rows = [
        ("stolen", stolen),
        ("worst source", worst),
        (&*format!("on {} nodes", count(noise.nodes.into())), cost),
    ]
    .map(|(what, text)| doctor::indented(what, WORDS, &text));
    format!("{}\n", rows.join("\n"))
}

/// Columns before a figure.
const WORDS: usize = 17;
/// The worst source without attribution.
const UNKNOWN: &str = "not known: the kernel tells sources only to root (CAP_BPF, CAP_PERFMON)";

/// The changes in order, with their commands below.
fn changes(card: &Card) -> String {
    let Some(noise) = &card.doctor.noise else { return String::new() };
    if card.doctor.sequence.is_empty() {
        let why = match card.attributed {
            false => "the sources are not known",
            true if noise.stopped => "the time for the costs ended before a change was simulated",
            true if !card.doctor.no_remedy.is_empty() => {
                "beside the sources that have no remedy, no change gives back time that can be told from chance"
            }
            true => "no change of a setting that colony doctor knows gives time back on this node",
        };
        return format!(
            "\n{}\n{}",
            wrap(&format!("What to change: {why}.")),
            doctor::no_remedy(&card.doctor)
        );
    }
    let mut t = table::new(["What to change, in this order", "costs alone", "left after it", "remedy"]);
    t.add_row(["(nothing)".to_owned(), String::new(), doctor::added(&noise.all), String::new()]);
    let mut commands = String::new();
    for (number, (finding, step)) in (1..).zip(card.steps()) {
        let what = format!("{number}. {}", name(&finding.finding.id, 40));
        let cost = doctor::cost(&finding.cost);
        let effort = finding.finding.remedies.get(step.remedy).map_or("", |r| r.effort.name());
        let _ = write!(commands, "{}", doctor::remedy_of_step(&what, finding, step.remedy));
        t.add_row([what, cost, doctor::added(&step.left), effort.into()]);
    }
    format!("\n{}\n{commands}{}", table::trimmed(&t), doctor::no_remedy(&card.doctor))
}

/// Table of the cost of each source alone, by node count.
fn sources(card: &Card) -> String {
    let scales: Vec<&AtScale> = card.scaling.iter().filter(|s| SHOWN_NODES.contains(&s.nodes)).collect();
    if !card.attributed || card.sources.is_empty() || scales.is_empty() {
        return String::new();
    }
    let nodes: Vec<String> = scales.iter().map(|s| format!("{} nodes", count(s.nodes.into()))).collect();
    let mut header = vec!["Cost of each source alone", "of CPU"];
    header.extend(nodes.iter().map(String::as_str));
    let mut t = table::numbers(&header, 1);
    for (place, source) in card.sources.iter().enumerate() {
        let costs = scales.iter().map(|s| match s.alone.get(place) {
            Some(Alone::Added(added)) => doctor::added(added),
            Some(Alone::NotSeen) => NOT_SEEN.into(),
            Some(Alone::NotSimulated) | None => doctor::NOT_SIMULATED.into(),
        });
        t.add_row([name(&source.source, 24), percent(source.share)].into_iter().chain(costs));
    }
    format!("\n{}\n", table::trimmed(&t))
}

fn notes(card: &Card) -> Vec<String> {
    let mut notes = card.doctor.notes.clone();
    if !card.own.is_empty() {
        let own = card.own.iter().map(|s| format!("{} ({})", name(&s.source, 30), percent(s.share)));
        notes.push(format!("left out, since the study started them: {}", own.collect::<Vec<_>>().join(", ")));
    }
    if card.stopped {
        notes.push("the time for simulations ended before every figure was as precise as it can be".into());
    }
    if !card.doctor.sequence.is_empty() {
        notes.push(
            "cost: time added to a step (1 ms of work, then an allreduce), with its 95 % interval (–: not known); costs do not add up; \
             colony doctor --explain FINDING prints all commands, risk and undo"
                .into(),
        );
    }
    notes
}
