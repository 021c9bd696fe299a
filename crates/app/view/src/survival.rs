// SPDX-License-Identifier: MIT OR Apache-2.0
//! What failures cost under each scheme of fault tolerance, and which to choose when.

use std::collections::BTreeSet;
use std::fmt::Write;

use colony_study::format::{count, counted, number, percent, span};
use colony_survival::scheme::Scheme;
use colony_survival::study::{Cell, Results, Row};

use crate::table::{self, wrap};

/// A table for each number of PEs, then the map.
#[must_use]
pub fn results(r: &Results) -> String {
    let mut out = format!("{}\n", wrap(&headline(r)));
    for pes in &r.study.pes {
        let rows: Vec<&Row> = r.rows.iter().filter(|row| row.pes == *pes).collect();
        let Some(first) = rows.first() else { continue };
        let (pes, nodes) = (counted(*pes, "PE"), counted(first.nodes, "node"));
        let _ =
            writeln!(out, "\n{pes} on {nodes}, a failure each {} on average", span(first.platform_mtbf_s));
        let _ = writeln!(out, "{}", schemes(&rows));
        let reasons: BTreeSet<String> = rows
            .iter()
            .filter_map(|row| Some(format!("{}: {}", row.scheme.name(), row.reason.as_ref()?)))
            .collect();
        for reason in reasons {
            let _ = writeln!(out, "{}", wrap(&reason));
        }
    }
    for line in KEY {
        let _ = writeln!(out, "{}", wrap(line));
    }
    let _ = writeln!(out, "\n{}", map(r));
    out
}

/// Columns of the tables.
const KEY: [&str; 3] = [
    "",
    "time %, energy: added to those of the job without failures and schemes; ±: 95 % interval of time; interval, best between: \
     work between checkpoints, simulated; Daly: by formula;",
    "lost: probability that the job loses both copies of a state, by formula.",
];

/// The job and its nodes in one sentence.
#[must_use]
pub fn headline(r: &Results) -> String {
    let (f, j) = (&r.study.scenario.failures, &r.study.scenario.job);
    let law =
        if f.shape == 1.0 { "exponential".into() } else { format!("Weibull, shape {}", number(f.shape)) };
    format!(
        "A job of {} with {} of state a PE; a node fails each {} on average ({law}).",
        span(j.work_s),
        bytes(j.state_bytes),
        span(f.mtbf_s)
    )
}

fn bytes(n: f64) -> String {
    let (unit, name) = match n {
        v if v < 999.5 => (1.0, "B"),
        v if v < 999.5e3 => (1e3, "kB"),
        v if v < 999.5e6 => (1e6, "MB"),
        v if v < 999.5e9 => (1e9, "GB"),
        _ => (1e12, "TB"),
    };
    format!("{} {name}", number(n / unit))
}

fn schemes(rows: &[&Row]) -> String {
    let header = ["scheme", "time %", "±", "energy", "interval", "best\u{a0}between", "Daly", "lost"];
    let mut t = table::new(header);
    let none = || "–".to_owned();
    let hundred = |share: f64| number(share * 100.0);
    for row in rows {
        let e = row.estimate.as_ref();
        let interval = match (row.daly_s, e) {
            (None, _) | (_, None) => none(),
            (_, Some(e)) => bound(&e.interval_s.map_or_else(|| "the job".into(), span)),
        };
        t.add_row([
            row.scheme.name().into(),
            e.map_or_else(none, |e| hundred(e.time.mean)),
            e.and_then(|e| e.time.ci95).map_or_else(none, |half| two_digits(half * 100.0)),
            e.map_or_else(none, |e| hundred(e.energy.mean)),
            interval,
            row.optimum.as_ref().map_or_else(none, |o| bound(&between(o.flat_s))),
            row.daly_s.map_or_else(none, |s| bound(&span(s))),
            row.both_lost.map_or_else(none, |p| format!("{p:.1e}")),
        ]);
    }
    table::trimmed(&t)
}

/// Text that no line break separates.
fn bound(text: &str) -> String {
    text.replace(' ', "\u{a0}")
}

/// A positive number with two significant digits.
fn two_digits(value: f64) -> String {
    let digits = if value > 0.0 { (1 - value.log10().floor() as i32).clamp(0, 6) as usize } else { 0 };
    format!("{value:.digits$}")
}

/// Two spans, with one unit if it is the same.
fn between((low, high): (f64, f64)) -> String {
    let short = |s: f64| {
        let text = span(s);
        let (value, unit) = text.split_once(' ').unwrap_or((&text, ""));
        // two digits are enough for the ends
        let value = value
            .parse::<f64>()
            .map_or(value.to_owned(), |v| if v >= 10.0 { format!("{v:.0}") } else { format!("{v:.1}") });
        (value, unit.to_owned())
    };
    let ((a, a_unit), (b, b_unit)) = (short(low), short(high));
    if (&a, &a_unit) == (&b, &b_unit) {
        return format!("{a} {a_unit}");
    }
    if a_unit == b_unit { format!("{a}–{b} {b_unit}") } else { format!("{a} {a_unit}–{b} {b_unit}") }
}

/// Two letters for a scheme in the map.
const fn letters(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::None => "no",
        Scheme::Disk => "di",
        Scheme::Double => "do",
        Scheme::DoubleDisk => "dd",
        Scheme::Evacuation => "ev",
        Scheme::Logging => "lo",
    }
}

/// Columns that fit beside the times.
const COLUMNS: usize = 11;

/// The scheme to choose, by MTBF of a node and PEs.
fn map(r: &Results) -> String {
    let mut pes = r.study.map_pes.clone();
    let mut mtbf_s = r.study.map_mtbf_s.clone();
    pes.sort_unstable();
    pes.dedup();
    mtbf_s.sort_by(f64::total_cmp);
    mtbf_s.dedup();
    // as many columns as fit, spread over all of them
    let shown: Vec<u64> = match pes.len() {
        n if n <= COLUMNS => pes,
        n => (0..COLUMNS).map(|i| pes[i * (n - 1) / (COLUMNS - 1)]).collect(),
    };
    let cell = |p: u64, m: f64| r.map.iter().find(|c| c.pes == p && c.mtbf_s == m);
    let best = percent(r.study.as_good);
    let title = format!(
        "Scheme to choose, by MTBF of a node and PEs: the simplest that costs at most {best} of the work more than the cheapest"
    );
    let mut out = format!("{}\n", wrap(&title));
    for &m in mtbf_s.iter().rev() {
        let _ = write!(out, "{:>7}", span(m));
        for &p in &shown {
            let _ = write!(out, "{:>6}", cell(p, m).map_or_else(String::new, mark));
        }
        out.push('\n');
    }
    let _ = write!(out, "{:>7}", "PEs");
    for &p in &shown {
        let _ = write!(out, "{:>6}", short(p));
    }
    let chosen: Vec<Scheme> =
        Scheme::ALL.into_iter().filter(|s| r.map.iter().any(|c| c.choice == Some(*s))).collect();
    let mut key: Vec<String> = chosen.iter().map(|s| format!("{} {}", letters(*s), s.name())).collect();
    if r.map.iter().any(|c| c.undecided) {
        key.push("? too few runs to be sure".into());
    }
    if r.map.iter().any(|c| c.choice.is_none()) {
        key.push("– no scheme makes progress".into());
    }
    out + "\n" + &wrap(&key.join(", "))
}

fn mark(c: &Cell) -> String {
    let letters = c.choice.map_or("–", letters);
    if c.undecided { format!("{letters}?") } else { letters.into() }
}

/// A number of PEs in few characters: 1K, 128K, 1M.
fn short(pes: u64) -> String {
    match pes {
        p if p >= 1 << 20 && p % (1 << 20) == 0 => format!("{}M", p >> 20),
        p if p >= 1 << 10 && p % (1 << 10) == 0 => format!("{}K", p >> 10),
        p if p < 100_000 => p.to_string(),
        p => format!("{}k", count(p / 1000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colony_survival::scenario::{Scenario, YEAR_S};
    use colony_survival::study::Study;

    fn study() -> Study {
        Study {
            scenario: Scenario::default(),
            schemes: Scheme::ALL.to_vec(),
            pes: vec![1024, 1 << 20],
            runs: 10,
            map_pes: (10..=30).map(|k| 1 << k).collect(),
            map_mtbf_s: vec![0.01 * YEAR_S, YEAR_S],
            map_runs: 3,
            as_good: 0.01,
            seed: 1,
        }
    }

    #[test]
    fn tables_and_map_fit_into_eighty_columns() {
        let text = results(&study().run(|| ()).expect("runs"));
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        for part in ["1024 PEs on 16 nodes", "no progress", "lost: probability", "1M", "ev evacuation"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(text.lines().filter(|l| l.starts_with("logging ")).count(), 2, "{text}");
    }

    #[test]
    fn what_a_machine_cannot_run_has_its_reason() {
        let mut study = study();
        study.scenario.job.state_bytes = 2e9;
        let text = results(&study.run(|| ()).expect("runs"));
        assert!(text.contains("double: five copies"), "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
    }

    #[test]
    fn ends_of_a_range_share_their_unit() {
        assert_eq!(between((600.0, 2400.0)), "10–40 min");
        assert_eq!(between((90.0, 2400.0)), "90 s–40 min");
        assert_eq!(between((600.0, 601.0)), "10 min");
    }
}
