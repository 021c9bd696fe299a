// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page of published experiments that were done again: published values beside ours, and lines over numbers of
//! nodes where an experiment has any.

use colony_sim::words::number_of;
use serde::Serialize;

use super::figure::Figure;
use super::html::Html;
use crate::chart::{Chart, Surface};
use crate::seeds::{Experiment, Outcome};

/// Experiments and their outcomes, to be shown as a page.
#[derive(Clone, Copy, Debug)]
pub struct Beside<'a> {
    /// Each experiment with its outcome.
    pub outcomes: &'a [(&'static Experiment, &'a Outcome)],
    /// The command that makes them again.
    pub command: &'a str,
}

/// Data that the script draws, and all outcomes for other programs.
#[derive(Serialize)]
struct Data<'a> {
    outcomes: Vec<&'a Outcome>,
    charts: Vec<&'a Chart>,
}

impl Beside<'_> {
    /// The page: one file, which asks for no other.
    #[must_use]
    pub fn page(&self) -> String {
        let outcomes = || self.outcomes.iter().map(|(_, outcome)| *outcome);
        let data =
            Data { outcomes: outcomes().collect(), charts: outcomes().flat_map(|o| &o.charts).collect() };
        super::document("Colony: published experiments", &data, super::BESIDE, |h| {
            h.raw("<header>\n<p class=\"kicker\">Colony study of published experiments</p>\n");
            h.prose("h1", "Published figures, beside ours").raw("\n</header>\n<main>\n");
            let mut number = 0;
            for (experiment, outcome) in self.outcomes {
                outcome.charts.iter().for_each(|chart| figure(chart).write(h, &mut number));
                rows(h, experiment, outcome);
            }
            h.raw("<section class=\"card wide\" id=\"again\"><h2>Run it again</h2>\n");
            h.command(self.command).raw("</section>\n</main>\n");
            super::foot(h, env!("CARGO_PKG_VERSION"));
        })
    }
}

fn figure(chart: &Chart) -> Figure<'_> {
    Figure {
        id: &chart.id,
        title: &chart.title,
        caption: &chart.caption,
        command: "",
        summary: "Numbers",
        headings: &[],
        rows: Vec::new(),
        tall: true,
    }
}

/// What was published, word for word; then all values.
fn rows(h: &mut Html, experiment: &Experiment, outcome: &Outcome) {
    h.raw("<section class=\"card wide\">").element("h2", experiment.name).prose("p", experiment.what);
    for said in experiment.published {
        h.raw("<blockquote>").text(said).raw("</blockquote>\n");
    }
    for chart in &outcome.charts {
        h.prose("h3", &chart.title);
        let mut headings = chart.headings();
        headings.iter_mut().skip(1).for_each(|nodes| nodes.insert(0, '#'));
        h.table(&headings.iter().map(String::as_str).collect::<Vec<_>>(), &chart.rows().collect::<Vec<_>>());
    }
    outcome.surfaces.iter().for_each(|surface| heat_maps(h, surface));
    let row = |r: &crate::results::Published| {
        vec![r.what.clone(), r.published.clone(), r.ours.clone(), r.fidelity()]
    };
    h.stacked_table(
        &["Figure", "Published", "#Ours", "Error, origin"],
        &outcome.rows.iter().map(row).collect::<Vec<_>>(),
    );
    let mut notes: Vec<&str> =
        outcome.rows.iter().map(|r| r.note.as_str()).filter(|n| !n.is_empty()).collect();
    notes.dedup();
    h.list(notes).raw("</section>\n");
}

/// The heat maps of a surface, side by side if there is room.
fn heat_maps(h: &mut Html, surface: &Surface) {
    h.prose("h3", &surface.title).prose("p", &surface.caption).raw("<div class=\"columns\">\n");
    for map in &surface.maps {
        let rows = surface.table_rows(map).zip(&map.values);
        let with_heat = rows.map(|(texts, values)| {
            (texts, values.iter().map(|value| value.map(|v| surface.heat(v))).collect())
        });
        h.raw("<div>").prose("h4", &number_of(map.nodes.into(), "node"));
        h.heat_map(surface.headings(), with_heat).raw("</div>\n");
    }
    h.raw("</div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{HeatMap, Line, Quantity};

    #[test]
    fn charts_are_drawn_and_their_numbers_and_what_was_published_stand_below() {
        let experiment = crate::seeds::find("three-kernels").expect("there is one");
        let line = |name: &str, values: &[f64]| Line { name: name.into(), values: values.to_vec() };
        let chart = Chart {
            id: "weak".into(),
            title: "time of a step".into(),
            caption: "A level line is ideal.".into(),
            quantity: Quantity::Ns,
            nodes: vec![1024, 65_536],
            lines: vec![line("CNK", &[1e6, 1e6]), line("<b>", &[2e6, 4e6])],
        };
        let surface = Surface {
            id: "map".into(),
            title: "<i>time</i>".into(),
            caption: "Rows and columns.".into(),
            quantity: Quantity::Times,
            row_name: "detour".into(),
            rows: vec!["16 µs".into()],
            columns: vec!["each 1 ms".into(), "each 2 ms".into(), "each 3 ms".into()],
            maps: vec![HeatMap { nodes: 512, values: vec![vec![Some(1.0), Some(8.0), None]] }],
        };
        let outcome = Outcome {
            schema: Outcome::SCHEMA,
            name: experiment.name,
            rows: Vec::new(),
            charts: vec![chart],
            surfaces: vec![surface],
        };
        let html = Beside { outcomes: &[(experiment, &outcome)], command: "colony study '<b>'" }.page();
        assert_eq!(html.matches("<canvas").count(), 1);
        assert!(
            html.contains("65,536") && html.contains("4 ms") && html.contains("almost linear improvement")
        );
        assert!(
            html.contains("<td class=\"n h0\">1×</td><td class=\"n h8\">8×</td><td class=\"n\">–</td>"),
            "{html}"
        );
        assert!(!html.contains("<b>") && !html.contains("<i>") && !html.contains("src=\"http"));
    }
}
