// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of `docs/seeds.md`, held against the runs that make them.
//!
//! A figure of ours that is the same everywhere has the row it is from behind it: `1.98 ms<!--= ROW -->` in the section
//! of its experiment, `<!--= NAME: ROW -->` in another. ROW is the row's name, or a part of it that no other row has.
//! `ROW ÷ ROW` is the ratio of two rows, and `1 − 1 ÷ ROW` by what share a run is shorter, both with as many digits as
//! are shown.
//! A page that is read does not show that. `COLONY_UPDATE_DOCS=1` writes figures that differ anew.

use std::path::{Path, PathBuf};

use colony_study::results::Published;
use colony_study::seeds::{self, Method};

use super::rows;

const BEGIN: &str = "<!--= ";
const END: &str = " -->";

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/seeds.md")
}

/// Byte index of the figure at the end of `text`: a number, and its unit if it has one.
fn figure_at(text: &str) -> usize {
    let number =
        text.trim_end_matches(|c: char| c.is_alphabetic() || matches!(c, '%' | '×')).trim_end_matches(' ');
    let digits = number.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | ','));
    digits.trim_end_matches(['−', '-', '+']).len()
}

/// `ours` in the form of `shown`: without its unit, if the page writes that in words.
fn as_shown(ours: &str, shown: &str) -> String {
    let without_unit = shown.ends_with(|c: char| c.is_ascii_digit());
    match without_unit {
        true => ours.trim_end_matches(|c: char| !c.is_ascii_digit()).to_owned(),
        false => ours.to_owned(),
    }
}

/// The row that `wanted` names: of this name, else the only one that has it in its name.
fn named<'a>(all: &'a [Published], wanted: &str) -> Result<&'a Published, String> {
    if let Some(row) = all.iter().find(|r| r.what == wanted) {
        return Ok(row);
    }
    let mut found = all.iter().filter(|r| r.what.contains(wanted));
    match (found.next(), found.next()) {
        (Some(row), None) => Ok(row),
        (None, _) => Err(format!("no row `{wanted}`")),
        (Some(a), Some(b)) => Err(format!("`{wanted}` is a part of `{}` and of `{}`", a.what, b.what)),
    }
}

/// Figure that `wanted` names, in the form of `shown`: a row's figure, or one that follows from rows.
fn figure(all: &[Published], wanted: &str, shown: &str) -> Result<String, String> {
    let value = |row: &str| {
        let row = named(all, row)?;
        row.value.filter(|v| *v != 0.0).ok_or_else(|| format!("no value in `{}`", row.what))
    };
    if let Some(row) = wanted.strip_prefix("1 − 1 ÷ ") {
        return Ok(with_digits_of(shown, 100.0 * (1.0 - 1.0 / value(row)?)));
    }
    match wanted.split_once(" ÷ ") {
        Some((a, b)) => Ok(with_digits_of(shown, value(a)? / value(b)?)),
        None => Ok(as_shown(&named(all, wanted)?.ours, shown)),
    }
}

/// `value` with as many significant digits as the figure `shown` has, and its unit.
fn with_digits_of(shown: &str, value: f64) -> String {
    let number_ends = shown.rfind(|c: char| c.is_ascii_digit()).map_or(0, |at| at + 1);
    let (number, unit) = shown.split_at(number_ends);
    let decimals = number.split_once('.').map_or(0, |(_, after)| after.len());
    // zeros at the end of a whole number are rounding
    let zeros = if decimals == 0 { number.len() - number.trim_end_matches('0').len() } else { 0 };
    let grain = 10f64.powi(zeros as i32);
    format!(
        "{:.decimals$}{unit}",
        (value / grain * 10f64.powi(decimals as i32)).round() * grain / 10f64.powi(decimals as i32)
    )
}

/// A page with every figure as `rows` of experiments have it, and what was wrong.
fn renewed(page: &str, rows: impl Fn(&str) -> Vec<Published>) -> (String, Vec<String>) {
    let (mut out, mut wrong, mut section) = (String::new(), Vec::new(), "");
    for (number, line) in (1..).zip(page.lines()) {
        if let Some(head) = line.strip_prefix("## ") {
            section = head.trim_matches('`');
        }
        let mut pieces = line.split(BEGIN);
        let mut before = pieces.next().unwrap_or_default();
        for piece in pieces {
            let Some((reference, after)) = piece.split_once(END) else {
                wrong.push(format!("line {number}: a reference without an end"));
                continue;
            };
            let known = |name: &&str| seeds::find(name).is_ok();
            let (name, row) = match reference.split_once(": ").filter(|(name, _)| known(name)) {
                Some((name, row)) => (name, row),
                None => (section, reference),
            };
            let at = figure_at(before);
            let shown = &before[at..];
            let figure = match figure(&rows(name), row, shown) {
                Ok(figure) => figure,
                Err(e) => {
                    wrong.push(format!("line {number}: {name} has {e}"));
                    shown.to_owned()
                }
            };
            if figure != shown {
                wrong.push(format!("line {number}: {name}, {row}: the page has {shown}, the run {figure}"));
            }
            out += &format!("{}{figure}{BEGIN}{reference}{END}", &before[..at]);
            before = after;
        }
        out += before;
        out.push('\n');
    }
    (out, wrong)
}

#[test]
fn every_figure_of_the_book_is_that_of_its_run() {
    let text = std::fs::read_to_string(page()).expect("docs/seeds.md");
    let (new, wrong) = renewed(&text, rows);
    if std::env::var("COLONY_UPDATE_DOCS").is_ok_and(|v| v == "1") && new != text {
        std::fs::write(page(), new).expect("docs/seeds.md can be written");
        eprintln!("docs/seeds.md: written anew: {wrong:#?}");
        return;
    }
    assert!(
        wrong.is_empty(),
        "docs/seeds.md: {wrong:#?}\nCOLONY_UPDATE_DOCS=1 writes the figures of the runs"
    );
}

#[test]
fn every_table_of_our_simulations_names_its_rows() {
    let text = std::fs::read_to_string(page()).expect("docs/seeds.md");
    for section in text.split("\n## `").skip(1) {
        let name = section.split('`').next().unwrap_or_default();
        let method = seeds::find(name).expect("an experiment").method;
        let deterministic =
            matches!(method, Method::Arithmetic | Method::Projection | Method::LongProjection | Method::Both);
        if deterministic && section.contains("| ours") {
            assert!(section.contains(BEGIN), "the table of `{name}` has figures, and no row is named");
        }
    }
}

#[test]
fn figures_are_found_compared_and_written_anew() {
    for (text, figure) in [
        ("| 1.98 ms", "1.98 ms"),
        ("| 2328×, 2405×", "2405×"),
        ("| 18,688 nodes: 4.8 %", "4.8 %"),
        ("−0.05 %", "−0.05 %"),
        ("(11.2 ms", "11.2 ms"),
        ("it is 2855", "2855"),
    ] {
        assert_eq!(&text[figure_at(text)..], figure, "{text}");
    }
    let row = |what: &str, ours: &str| Published {
        experiment: "anl-ring".into(),
        place: String::new(),
        what: what.into(),
        published: String::new(),
        published_value: None,
        basis: None,
        ours: ours.into(),
        value: None,
        note: String::new(),
    };
    let rows = |name: &str| {
        assert!(["anl-ring", "fig6"].contains(&name));
        vec![
            row("detours of 10 µs", "2 ms"),
            row("detours of 10 µs, simulated", "2.05 ms"),
            row("ratio", "2405×"),
        ]
    };
    let page = "## `anl-ring`\n| a | 2 ms<!--= detours of 10 µs --> | 1.98 ms<!--= 10 µs, sim --> |\nx 24<!--= fig6: ratio --> times\n";
    let (new, wrong) = renewed(page, rows);
    assert_eq!(new, page.replace("1.98", "2.05").replace("x 24<", "x 2405<"));
    assert!(
        wrong.len() == 2 && wrong[0].contains("line 2") && wrong[0].contains("1.98 ms, the run 2.05 ms"),
        "{wrong:?}"
    );
    assert_eq!(renewed(&new, rows), (new.clone(), Vec::new()));
    let (_, wrong) = renewed("## `fig6`\n1<!--= detours of -->, 1<!--= nothing -->", rows);
    assert!(wrong.len() == 2 && wrong[0].contains("a part of") && wrong[1].contains("no row"), "{wrong:?}");
}

#[test]
fn figures_that_follow_from_rows_have_the_digits_that_are_shown() {
    for (shown, value, as_written) in [
        ("2400 times", 2405.4, "2400 times"),
        ("11.7 %", 11.664, "11.7 %"),
        ("33", 2405.4, "2405"),
        ("1000×", 2405.4, "2000×"),
        ("1.1×", 1.06, "1.1×"),
    ] {
        assert_eq!(with_digits_of(shown, value), as_written, "{shown}");
    }
    let row = |what: &str, value: f64| Published {
        experiment: "fig6".into(),
        place: String::new(),
        what: what.into(),
        published: String::new(),
        published_value: None,
        basis: None,
        ours: "–".into(),
        value: Some(value),
        note: String::new(),
    };
    let rows = [row("slow", 4000.0), row("fast", 1.6), row("nothing", 0.0)];
    assert_eq!(figure(&rows, "slow ÷ fast", "2400"), Ok("2500".into()));
    assert_eq!(figure(&rows, "1 − 1 ÷ fast", "11.7 %"), Ok("37.5 %".into()));
    assert!(figure(&rows, "slow ÷ nothing", "1").is_err_and(|e| e.contains("no value")));
}
