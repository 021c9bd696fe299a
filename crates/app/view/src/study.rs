// SPDX-License-Identifier: MIT OR Apache-2.0
//! A study on a terminal: its table, its list of experiments, its progress.

use std::cell::RefCell;
use std::fmt::Write;
use std::time::Duration;

use colony_sim::words::number_of;
use colony_study::chart::Surface;
use colony_study::format::NOT_KNOWN;
use colony_study::neighbours::Neighbours;
use colony_study::results::{Cell, Figure, Results, SchedulerKind};
use colony_study::table::{SHOWN_NODES, noise_name};
use colony_study::{format, seeds, table as figures};

use crate::progress::Progress;
use crate::table::{self, name, wrap};
use crate::units::time;

/// The node's report card first, then the published experiments' noise on this node, then what was not done.
#[must_use]
pub fn results(r: &Results) -> String {
    let nodes = format!("{} nodes", format::count(SHOWN_NODES));
    let mut t = table::new(["noise", "scheduler", "mean", "99.9 %", "longest", "favored", "regular", &nodes]);
    for (percent, scheduler, cell) in figures::cells(r) {
        t.add_row(row(r, percent, scheduler, cell));
    }
    let mut out = String::new();
    if let Some(busy) = r.neighbours.as_ref().and_then(Neighbours::warning) {
        let _ = writeln!(out, "\n{}", wrap(&name(&busy, LONGEST_LINE)));
    }
    if let Some(card) = &r.card {
        let _ = write!(out, "\n{}", crate::card::card(card));
    }
    let here: Vec<String> = [figures::windows_here(r), figures::spare_core_here(r)]
        .into_iter()
        .flatten()
        .map(|l| wrap(&l))
        .collect();
    if !here.is_empty() {
        let _ = writeln!(out, "\n{}", here.join("\n"));
    }
    let _ = writeln!(out, "\nThe published experiments' noise on this node:\n{}\n", wrap(&r.headline));
    if !figures::cells(r).is_empty() {
        let _ = writeln!(out, "{t}");
        out.push_str("favored, regular: time stolen from the job in such windows\n");
    }
    for line in figures::missing(r, &Figure::ALL) {
        let _ = writeln!(out, "{}", wrap(&name(&line, LONGEST_LINE)));
    }
    for line in r
        .not_done
        .iter()
        .map(|l| format!("left out: {l}"))
        .chain(r.warnings.iter().map(|w| format!("note: {w}")))
    {
        let _ = writeln!(out, "{}", wrap(&name(&line, LONGEST_LINE)));
    }
    out
}

fn row(r: &Results, percent: f64, scheduler: SchedulerKind, cell: Option<&Cell>) -> [String; 8] {
    let of = |text: &dyn Fn(&Cell) -> String| cell.map_or(NOT_KNOWN.into(), text);
    [
        noise_name(percent),
        scheduler.name().into(),
        of(&|c| time(c.mean_ns)),
        of(&|c| time(c.p99_9_ns as f64)),
        of(&|c| time(c.max_ns as f64)),
        of(&|c| figures::stolen(c, true)),
        of(&|c| figures::stolen(c, false)),
        figures::projected_mean(r, percent, scheduler),
    ]
}

/// Characters of a line at most: the reason of a failed step has its remedy at its end.
const LONGEST_LINE: usize = 1200;

/// Columns of an experiment's name.
const NAME: usize = 16;

/// Every experiment of the seeds that can be run.
#[must_use]
pub fn experiments() -> String {
    let mut out = String::new();
    for e in seeds::all() {
        let (what, place) = (e.what.to_owned(), format!("{}; by {}", e.citation(), e.method.name()));
        let lines = [what, place].map(|text| table::broken(&text, usize::from(table::WIDTH) - NAME - 1));
        for (i, line) in lines.iter().flatten().enumerate() {
            let _ = writeln!(out, "{:NAME$} {line}", if i == 0 { e.name } else { "" });
        }
    }
    out.push_str("\nExperiments with a command of their own:\n");
    for other in seeds::OTHER_COMMANDS {
        let text = format!("{}: {}", other.command, other.what);
        let place = format!("{}, {}", other.document.title(), other.place);
        let _ = writeln!(
            out,
            "{}\n    {}",
            wrap(&text),
            table::broken(&place, usize::from(table::WIDTH) - 4).join("\n    ")
        );
    }
    out
}

/// Outcome of one experiment: published figures beside ours, its lines over numbers of nodes, a note below.
#[must_use]
pub fn outcome(o: &seeds::Outcome) -> String {
    let mut t = table::new([o.name, "published", "ours", "error, origin"]);
    let mut notes: Vec<&str> = Vec::new();
    for row in &o.rows {
        t.add_row([&row.what, &row.published, &row.ours, &row.fidelity()]);
        if !row.note.is_empty() && !notes.contains(&row.note.as_str()) {
            notes.push(&row.note);
        }
    }
    let mut out = format!("{t}\n");
    for chart in &o.charts {
        let headings = chart.headings();
        let mut lines = table::numbers(&headings.iter().map(String::as_str).collect::<Vec<_>>(), 1);
        chart.rows().for_each(|row| {
            lines.add_row(row);
        });
        let _ = writeln!(out, "\n{}\n{}", wrap(&chart.title), table::trimmed(&lines));
    }
    o.surfaces.iter().for_each(|surface| heat_maps(&mut out, surface));
    for note in notes {
        let _ = writeln!(out, "{}", wrap(&format!("note: {note}")));
    }
    out
}

/// The heat maps of a surface as tables.
fn heat_maps(out: &mut String, surface: &Surface) {
    let _ = writeln!(out, "\n{}\n{}", wrap(&surface.title), wrap(&surface.caption));
    for map in &surface.maps {
        let mut t = table::numbers(&surface.headings().collect::<Vec<_>>(), 1);
        surface.table_rows(map).for_each(|row| {
            t.add_row(row);
        });
        let _ = writeln!(out, "{}\n{}", number_of(map.nodes.into(), "node"), table::trimmed(&t));
    }
}

/// Shows the steps of a study: a bar for the step that runs, a line for each that is over.
#[derive(Default)]
pub struct Steps(RefCell<Option<(String, crate::progress::Ticking)>>);

impl colony_study::Progress for Steps {
    fn begin(&self, what: &str, seconds: f64) {
        let bar = Progress::over(what, Duration::from_secs_f64(seconds.max(2.0))).ticking();
        *self.0.borrow_mut() = Some((what.to_owned(), bar));
    }

    fn end(&self) {
        if let Some((what, bar)) = self.0.borrow_mut().take() {
            drop(bar);
            colony_sched::log::say(format_args!("  {what}"));
        }
    }

    fn note(&self, line: &str) {
        colony_sched::log::say(format_args!("  left out: {line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_is_listed_with_its_place() {
        let text = experiments();
        for e in seeds::all() {
            assert!(text.contains(e.name), "{}", e.name);
            let place = e.place.split(':').next().expect("a word");
            assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(place), "{}", e.name);
        }
        assert!(seeds::OTHER_COMMANDS.iter().all(|other| text.contains(other.command)), "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
    }
}
