// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of `docs/seeds.md` that has every published value beside ours: its error, and the origin of ours.
//!
//! `COLONY_UPDATE_DOCS=1` writes it anew from the runs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use colony_study::results::{Basis, Published};
use colony_study::seeds::{self, Method};

use super::rows;

const BEGIN: &str = "<!-- fidelity -->\n";
const END: &str = "<!-- end of fidelity -->";

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/seeds.md")
}

/// Rows with a published value, of all experiments that have the same result on every machine.
fn published() -> Vec<Published> {
    let same = |e: &&seeds::Experiment| {
        matches!(e.method, Method::Arithmetic | Method::Projection | Method::LongProjection | Method::Both)
    };
    seeds::all().filter(same).flat_map(|e| rows(e.name)).filter(|row| row.basis.is_some()).collect()
}

/// Share of the published value that an error may have to be counted as near.
const NEAR: f64 = 0.1;

/// Number of values, and of those near the published one, by origin of ours.
fn summary(rows: &[Published]) -> String {
    let of = |basis: Option<Basis>| {
        let errors: Vec<f64> = rows
            .iter()
            .filter(|row| basis.is_none_or(|basis| row.basis == Some(basis)))
            .filter_map(Published::error)
            .collect();
        (errors.len(), errors.iter().filter(|e| e.abs() <= NEAR).count())
    };
    let (all, near) = of(None);
    let by_basis: Vec<String> = Basis::ALL
        .into_iter()
        .map(|basis| (basis, of(Some(basis))))
        .filter(|(_, (all, _))| *all > 0)
        .map(|(basis, (all, near))| format!("{near} of {all} {}", basis.name()))
        .collect();
    let limits = rows.iter().filter(|row| row.published_value.is_none()).count();
    format!(
        "{all} values, {near} of ours within 10 %: {}. {limits} published limits have no error.\n",
        by_basis.join(", ")
    )
}

fn table(rows: &[Published]) -> String {
    let mut text = summary(rows);
    text += "\n| experiment | | published | ours | error, origin |\n|---|---|---|---|---|\n";
    for row in rows {
        let what = row.what.split(" (").next().unwrap_or(&row.what);
        let _ = writeln!(
            text,
            "| [`{0}`](#{0}) | {what} | {1} | {2} | {3} |",
            row.experiment,
            row.published,
            row.ours,
            row.fidelity()
        );
    }
    text
}

#[test]
fn the_book_has_every_published_value_with_the_error_and_the_origin_of_ours() {
    let text = std::fs::read_to_string(page()).expect("docs/seeds.md");
    let (before, rest) = text.split_once(BEGIN).expect("docs/seeds.md has the begin of the table");
    let (shown, after) = rest.split_once(END).expect("docs/seeds.md has the end of the table");
    let found = table(&published());
    if std::env::var("COLONY_UPDATE_DOCS").is_ok_and(|v| v == "1") && found != shown {
        std::fs::write(page(), format!("{before}{BEGIN}{found}{END}{after}"))
            .expect("docs/seeds.md can be written");
        return;
    }
    assert_eq!(shown, found, "COLONY_UPDATE_DOCS=1 writes the table of the runs");
}

/// A published value belongs to one row; a variation of the row's parameters is ours alone.
#[test]
fn only_values_stand_in_the_published_column_and_each_once() {
    let mut seen = std::collections::BTreeSet::new();
    for experiment in seeds::all().filter(|e| e.method == Method::Both || e.method == Method::Projection) {
        for row in rows(experiment.name) {
            let is_value = row.published.contains(|c: char| c.is_ascii_digit());
            assert_eq!(row.basis.is_some(), row.published != "–", "{row:?}");
            assert!(row.published == "–" || is_value, "words are no value: {row:?}");
            let is_simulated = row.what.ends_with(", simulated");
            assert!(
                row.basis.is_none()
                    || seen.insert((row.experiment.clone(), row.published.clone(), is_simulated)),
                "the value of another row: {row:?}"
            );
        }
    }
}
