// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spare cores and windows compared, on a terminal.

use std::fmt::Write;

use colony_project::choose::Answer;
use colony_sim::spec::Scenario;
use colony_study::choice;

use crate::table::{self, name, wrap};
use crate::units::{counted, time};

/// Node counts of a table: more do not fit into its width.
const COLUMNS: usize = 3;

/// The choices as tables of a few node counts each, the best one in a sentence, notes.
#[must_use]
pub fn choices(scenario: &Scenario, answer: &Answer) -> String {
    let mut out = format!("{}\n", wrap(&question(scenario, answer)));
    let (headings, rows) = (choice::headings(answer), choice::rows(answer));
    let columns: Vec<usize> = (1..headings.len()).collect();
    for some in columns.chunks(COLUMNS) {
        let of = |row: &[String]| -> Vec<String> {
            [0].iter().chain(some).filter_map(|&c| row.get(c).cloned()).collect()
        };
        let headings = of(&headings);
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        let mut t = table::numbers(&headings, 1);
        for row in &rows {
            t.add_row(of(row));
        }
        let _ = writeln!(out, "\n{}", table::trimmed(&t));
    }
    if let Some(best) = choice::best(answer) {
        let _ = writeln!(out, "{}", wrap(&best));
    }
    for note in choice::notes(answer) {
        let _ = writeln!(out, "{}", wrap(&name(&format!("note: {note}"), 400)));
    }
    out
}

fn question(scenario: &Scenario, answer: &Answer) -> String {
    let mut text = format!("Throughput of nodes like this one in %, {}", name(&scenario.program.name, 30));
    if let Some(ns) = scenario.program.work_ns {
        let _ = write!(text, " after {} of work", time(ns as f64));
    }
    let cores = counted(answer.cores.into(), "core");
    let _ = write!(
        text,
        ", {cores} each ({} measured), network of {}",
        answer.measured,
        name(scenario.machine.name(), 30)
    );
    text
}
