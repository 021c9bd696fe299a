// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sample outputs of the book that a run must repeat: those of blocks ```` ```console exact ````.
//!
//! A line `…` stands for any number of lines. `COLONY_UPDATE_DOCS=1` puts what the run printed in the place of a
//! sample that differs, and keeps what is left out.

use std::collections::BTreeMap;
use std::path::Path;

/// A line that stands for any number of lines.
const LEFT_OUT: &str = "…";

/// A sample output of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Number of its first line in the page, from 0.
    pub(crate) first: usize,
    pub(crate) lines: Vec<String>,
}

/// The pieces of a sample between the lines that are left out.
fn pieces(sample: &[String]) -> Vec<&[String]> {
    sample.split(|l| l == LEFT_OUT).collect()
}

/// Returns `true` if `printed` matches `sample`.
fn shows(sample: &[String], printed: &[&str]) -> bool {
    let same =
        |piece: &[String], lines: &[&str]| piece.iter().zip(lines).all(|(a, b)| a.trim_end() == b.trim_end());
    let pieces = pieces(sample);
    let [first, middle @ .., last] = &pieces[..] else {
        return pieces[0].len() == printed.len() && same(pieces[0], printed);
    };
    let (begin, end) = (first.len(), printed.len().saturating_sub(last.len()));
    if begin > end || !same(first, printed) || !same(last, &printed[end..]) {
        return false;
    }
    let mut at = begin;
    middle.iter().all(|piece| {
        match (at..=end.saturating_sub(piece.len())).find(|&i| same(piece, &printed[i..])) {
            Some(i) => {
                at = i + piece.len();
                true
            }
            None => false,
        }
    })
}

/// The first column of a line of a table, or its words: what stays where figures change.
fn label(line: &str) -> String {
    let head = line.trim_start().split("  ").next().unwrap_or_default();
    head.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Leaves the lines out of `printed` that `sample` leaves out; `None` if a line in the middle is not found.
fn shortened(sample: &[String], printed: &[&str]) -> Option<Vec<String>> {
    let own = |lines: &[&str]| lines.iter().map(|l| l.trim_end().to_owned()).collect::<Vec<_>>();
    let pieces = pieces(sample);
    let [first, middle @ .., last] = &pieces[..] else { return Some(own(printed)) };
    let (begin, end) = (first.len().min(printed.len()), printed.len().checked_sub(last.len())?);
    let mut lines = own(&printed[..begin]);
    let mut at = begin;
    for piece in middle {
        lines.push(LEFT_OUT.into());
        for line in *piece {
            let i = (at..end).find(|&i| label(printed[i]) == label(line))?;
            lines.push(printed[i].trim_end().to_owned());
            at = i + 1;
        }
    }
    lines.push(LEFT_OUT.into());
    lines.extend(own(&printed[end.max(at)..]));
    Some(lines)
}

/// Holds the samples of `page` against what was printed, by the sample's first line.
///
/// # Panics
/// If a sample differs and `update` is not set (which writes it anew).
pub(crate) fn check(
    name: &str,
    page: &Path,
    samples: &[Sample],
    printed: &BTreeMap<usize, String>,
    update: bool,
) {
    let mut drifted = Vec::new();
    for sample in samples {
        let Some(text) = printed.get(&sample.first) else { continue };
        let lines: Vec<&str> = text.lines().collect();
        if !shows(&sample.lines, &lines) {
            drifted.push((sample, lines));
        }
    }
    if drifted.is_empty() {
        return;
    }
    let mut told = String::new();
    for (sample, lines) in &drifted {
        told += &format!(
            "{name}:{} shows\n{}\nand the command prints\n{}\n",
            sample.first + 1,
            sample.lines.join("\n"),
            lines.join("\n")
        );
    }
    assert!(update, "{told}COLONY_UPDATE_DOCS=1 writes what the commands print");
    rewrite(page, &drifted);
    eprintln!("{name}: {} samples written anew", drifted.len());
}

fn rewrite(page: &Path, drifted: &[(&Sample, Vec<&str>)]) {
    let text = std::fs::read_to_string(page).expect("a page");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // from the end, so that numbers of lines stay true
    for (sample, printed) in drifted.iter().rev() {
        let Some(new) = shortened(&sample.lines, printed) else {
            panic!("{}:{}: choose the lines of this sample by hand", page.display(), sample.first + 1)
        };
        lines.splice(sample.first..sample.first + sample.lines.len(), new);
    }
    std::fs::write(page, lines.join("\n") + "\n").expect("the page can be written");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    const PRINTED: [&str; 5] = ["head", "a   1 ns", "b   2 ns", "c  30 ns", "tail"];

    #[test]
    fn a_sample_shows_a_run_if_every_line_of_it_is_there_in_order() {
        for right in [
            "head\n…",
            "…",
            "…\ntail",
            "head\n…\nb   2 ns\n…\ntail",
            "head\na   1 ns\nb   2 ns\nc  30 ns\ntail",
        ] {
            assert!(shows(&sample(right), &PRINTED), "{right}");
        }
        for wrong in [
            "",
            "head",
            "head\na   7 ns\n…",
            "…\nb   3 ns\n…",
            "…\nc  30 ns\n…\na   1 ns\n…",
            "…\nhead\n…\ntale",
        ] {
            assert!(!shows(&sample(wrong), &PRINTED), "{wrong}");
        }
        assert!(shows(&[], &[]) && !shows(&[], &["more"]));
    }

    #[test]
    fn a_sample_written_anew_leaves_out_what_it_left_out() {
        for (old, new) in [
            ("head\na   7 ns\n…", "head\na   1 ns\n…"),
            ("head\n…\nc  44 ns\n…\nfoot", "head\n…\nc  30 ns\n…\ntail"),
            ("old", "head\na   1 ns\nb   2 ns\nc  30 ns\ntail"),
        ] {
            assert_eq!(shortened(&sample(old), &PRINTED), Some(sample(new)));
            assert!(shows(&sample(new), &PRINTED));
        }
        assert_eq!(shortened(&sample("…\nd  1 ns\n…"), &PRINTED), None);
    }

    #[test]
    fn a_figure_that_drifts_is_told_and_written_anew_on_demand() {
        let dir = tempfile::tempdir().expect("a folder");
        let page = dir.path().join("p.md");
        std::fs::write(&page, "text\n```console exact\n$ colony a\none 1\n$ colony b\n…\ntwo 9\n```\nend\n")
            .expect("written");
        let sample =
            |first, lines: &[&str]| Sample { first, lines: lines.iter().map(|&l| l.to_owned()).collect() };
        let samples = [sample(3, &["one 1"]), sample(5, &["…", "two 9"])];
        let printed = BTreeMap::from([(3, "one 1\n".to_owned()), (5, "zero\ntwo 2\n".to_owned())]);
        let held = || check("p.md", &page, &samples, &printed, false);
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(held)).expect_err("it drifted");
        let told = told.downcast_ref::<String>().expect("a message");
        assert!(
            told.contains("p.md:6") && told.contains("two 2") && told.contains("COLONY_UPDATE_DOCS"),
            "{told}"
        );
        check("p.md", &page, &samples, &printed, true);
        let text = std::fs::read_to_string(&page).expect("there");
        assert_eq!(text, "text\n```console exact\n$ colony a\none 1\n$ colony b\n…\ntwo 2\n```\nend\n");
    }
}
