// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report card on the page: three figures, what to change, what sources cost, spare cores.

use colony_project::changes::{Added, Alone};

use super::figure::Figure;
use super::html::Html;
use crate::advice::Cost;
use crate::card::Card;
use crate::choice;
use crate::format::{NOT_SEEN, counted, percent, time};

/// The main sentence of the page; `None` if the noise was not costed.
pub(super) fn lead(card: &Card) -> Option<String> {
    let noise = card.doctor.noise.as_ref()?;
    let mut text = format!(
        "On {} like this one, the node's noise adds {} to a step of {}",
        counted(noise.nodes.into(), "node"),
        added(&noise.all),
        time(noise.quiet_ns)
    );
    if let Some((finding, step)) = card.steps().next() {
        text += &format!("; the best first change ({}) leaves {}", finding.finding.id, added(&step.left));
    }
    Some(text + ".")
}

/// This node in three figures: value and name of each.
pub(super) fn figures_of_node(card: &Card) -> Vec<(String, String)> {
    let Some(noise) = &card.doctor.noise else { return Vec::new() };
    let stolen = (percent(noise.stolen_share), format!("of the time of {} is stolen", noise.cpus.named()));
    let worst = match card.worst() {
        Some(worst) => (percent(worst.share), format!("by the worst source, {}", worst.source)),
        None => ("–".into(), "the worst source is not known: sources were not attributed".into()),
    };
    let nodes = counted(noise.nodes.into(), "node");
    let cost = (added(&noise.all), format!("added to a step of {} on {nodes}", time(noise.quiet_ns)));
    vec![stolen, worst, cost]
}

fn added(a: &Added) -> String {
    crate::format::added(a, percent)
}

/// The changes in order, each with its commands.
pub(super) fn changes(h: &mut Html, card: &Card) {
    let Some(noise) = &card.doctor.noise else { return };
    h.raw("<section class=\"card wide\" id=\"changes\"><h2>What to change, in this order</h2>\n");
    if card.doctor.sequence.is_empty() {
        h.prose("p", match card.attributed {
            true if noise.stopped => "The time for the costs ended before a change was simulated.",
            true if !card.doctor.no_remedy.is_empty() => {
                "Beside the sources that have no remedy, no change gives back time that can be told from chance."
            }
            true => "No change of a setting that the doctor knows gives time back on this node.",
            false => "The sources of the noise are not known: attribution needs root (CAP_BPF, CAP_PERFMON).",
        });
    } else {
        let mut rows = vec![vec!["(nothing)".into(), "–".into(), added(&noise.all), "–".into()]];
        for (number, (finding, step)) in (1..).zip(card.steps()) {
            let alone = match &finding.cost {
                Cost::Simulated { added: cost, .. } => added(cost),
                _ => "–".into(),
            };
            rows.push(vec![
                format!("{number}. {}", finding.finding.id),
                alone,
                added(&step.left),
                finding.finding.title.clone(),
            ]);
        }
        h.table(&["Change", "#Costs alone", "#Left after it", "Finding"], &rows);
        for (number, (finding, step)) in (1..).zip(card.steps()) {
            h.element("h3", &format!("{number}. {}", finding.finding.id));
            h.file(&finding.commands_of(step.remedy).join("\n"));
        }
    }
    if !card.doctor.no_remedy.is_empty() {
        h.raw("<h3>No remedy</h3>\n");
        let lines = card.doctor.no_remedy_lines(|s| format!("{} ({})", s.source, added(&s.added)));
        h.list(lines.iter().map(String::as_str));
    }
    for note in &card.doctor.notes {
        h.prose("p", &format!("{note}."));
    }
    h.prose(
        "p",
        "Cost: time added to a step (1 ms of work, then an allreduce), with its 95 % interval. Costs do not add up. Risk and undo \
         of each change: colony doctor --explain NAME.",
    );
    if !card.own.is_empty() {
        let own: Vec<String> =
            card.own.iter().map(|s| format!("{} ({})", s.source, percent(s.share))).collect();
        h.prose("p", &format!("Left out, since the study started them: {}.", own.join(", ")));
    }
    if card.stopped {
        h.raw("<p>The time for simulations ended before every figure was as precise as it can be.</p>\n");
    }
    h.raw("</section>\n");
}

/// The costs of sources, and the choice of spare cores and windows.
pub(super) fn figures(h: &mut Html, card: &Card, number: &mut u32) {
    costs(h, card, number);
    throughput(h, card, number);
}

fn costs(h: &mut Html, card: &Card, number: &mut u32) {
    if card.scaling.is_empty() {
        return;
    }
    let mut headings = vec!["Noise".to_owned()];
    headings.extend(card.scaling.iter().map(|s| format!("#{}", counted(s.nodes.into(), "node"))));
    let row = |what: &str, of: &dyn Fn(usize) -> String| {
        [what.to_owned()].into_iter().chain((0..card.scaling.len()).map(of)).collect::<Vec<_>>()
    };
    let mut rows = vec![row("all", &|s| added(&card.scaling[s].all))];
    if !card.doctor.sequence.is_empty() {
        rows.push(row("after all changes", &|s| card.scaling[s].changed.as_ref().map_or("–".into(), added)));
    }
    for (place, source) in card.sources.iter().enumerate() {
        let alone = |s: usize| match card.scaling[s].alone.get(place) {
            Some(Alone::Added(a)) => added(a),
            Some(Alone::NotSeen) => NOT_SEEN.into(),
            Some(Alone::NotSimulated) | None => "–".into(),
        };
        rows.push(row(&format!("{} alone ({})", source.source, percent(source.share)), &alone));
    }
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    Figure {
        id: "costs",
        title: "What each source costs, by node count",
        caption: "Time that noise adds to a step (1 ms of work, then an allreduce): all of it, what the changes above leave of it, \
                  and single sources alone. Bars are 95 % intervals. A source that no run met is not drawn.",
        command: card.commands.get(1).map_or("", String::as_str),
        summary: "Numbers, by source and nodes",
        headings: &headings,
        rows,
        tall: true,
    }
    .write(h, number);
}

fn throughput(h: &mut Html, card: &Card, number: &mut u32) {
    let Some(answer) = card.choice.as_ref().filter(|a| !a.scales.is_empty()) else { return };
    let headings = choice::headings(answer);
    let headings: Vec<String> = headings
        .iter()
        .enumerate()
        .map(|(c, text)| if c == 0 { text.clone() } else { format!("#{text}") })
        .collect();
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut caption = choice::best(answer).unwrap_or_default();
    for note in choice::notes(answer) {
        let mut letters = note.chars();
        let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
        caption += &format!(" {first}{}.", letters.as_str());
    }
    Figure {
        id: "choice",
        title: &format!("How many of {} should be spare?", counted(answer.cores.into(), "core")),
        caption: &caption,
        command: card.commands.get(2).map_or("", String::as_str),
        summary: "Numbers, by choice and nodes",
        headings: &headings,
        rows: choice::rows(answer),
        tall: true,
    }
    .write(h, number);
}
