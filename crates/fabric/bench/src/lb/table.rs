// SPDX-License-Identifier: MIT OR Apache-2.0
//! The comparison for people: at most 80 columns.

use std::fmt;

use super::params::NONE;
use super::result::{Comparison, Run, Stretch};

/// Stands for a figure that was not seen.
const NOT_SEEN: &str = "–";
/// The table says so if iterations take so many times the CPU time of the fullest PE.
const MUCH_BEYOND: f64 = 1.3;
/// Columns for the name of a strategy.
const NAME: usize = 13;

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = &self.params;
        for (number, &program) in p.programs.iter().enumerate() {
            let from = number * p.strategies.len();
            let runs = self.runs.get(from..from + p.strategies.len()).unwrap_or_default();
            let (objects, pes) = (counted(p.objects(), "object"), counted(p.pes(), "PE"));
            let iterations = counted(p.iterations.into(), "iteration");
            writeln!(f, "{}: {objects} of {} on {pes}, {iterations}", program.name(), bytes(p.bytes))?;
            writeln!(
                f,
                "{:34}{:>10}{:>11}{:>13}{:>12}",
                "", "expected", "measured", "iteration ms", "balance ms"
            )?;
            write!(f, "{:NAME$}{:>6}{:>9}{:>6}", "strategy", "moved", "bytes", "gain")?;
            writeln!(
                f,
                "{:>5}{:>5}{:>6}{:>5}{:>7}{:>6}{:>7}{:>5}",
                "from", "to", "from", "to", "before", "after", "decide", "move"
            )?;
            runs.iter().try_for_each(|run| row(f, run))?;
            if let Some(run) = runs.first() {
                writeln!(
                    f,
                    "checksum {}, the same in {}\n",
                    run.checksum,
                    counted(runs.len() as u64, "run")
                )?;
            }
        }
        notes(f, self)
    }
}

fn row(f: &mut fmt::Formatter<'_>, run: &Run) -> fmt::Result {
    let s = &run.summary;
    let name: String = match run.strategy.chars().count() {
        0..=NAME => run.strategy.clone(),
        _ => run.strategy.chars().take(NAME - 1).chain(['…']).collect(),
    };
    let seen = |figure: Option<String>| figure.unwrap_or_else(|| NOT_SEEN.into());
    let ratio = |value: Option<f64>| seen(value.map(|v| format!("{v:.2}")));
    let ms = |s: Option<f64>| seen(s.map(|s| three(s * 1e3)));
    let expected = run.balancings.first().and_then(|b| b.expected);
    let after = s.after;
    let decision = (run.strategy != NONE && after.is_some()).then_some(s.decision_s);
    write!(
        f,
        "{name:NAME$}{:>6}{:>9}{:>6}",
        short(run.moved),
        bytes(run.bytes_moved),
        seen(s.gain.map(percent))
    )?;
    write!(f, "{:>5}{:>5}", ratio(expected.map(|e| e[0])), ratio(expected.map(|e| e[1])))?;
    write!(f, "{:>6}{:>5}", ratio(s.before.imbalance), ratio(after.and_then(|a| a.imbalance)))?;
    write!(f, "{:>7}{:>6}", ms(Some(s.before.iteration_s)), ms(after.map(|a| a.iteration_s)))?;
    writeln!(f, "{:>7}{:>5}", ms(decision), ms(after.map(|_| s.migration_s)))
}

fn notes(f: &mut fmt::Formatter<'_>, c: &Comparison) -> fmt::Result {
    writeln!(
        f,
        "expected: imbalance at the first balancing, by the strategy; measured: by the\n\
         CPU time of objects, before it and after; gain: less time than without strategy"
    )?;
    let any = |of: fn(&Run) -> bool| c.runs.iter().any(of);
    if any(|run| run.summary.gain.is_none() || run.summary.before.imbalance.is_none()) {
        writeln!(f, "{NOT_SEEN}: not seen in these runs")?;
    }
    if let Some(times) = beyond_cpu(c) {
        writeln!(
            f,
            "iterations take {} times the CPU time of the fullest PE; other programs or\n\
             waits for messages take the rest, and gains say little about balancing",
            three(times)
        )?;
    }
    match c.cpus {
        Some(cpus) if u64::from(cpus) < c.params.pes() => writeln!(
            f,
            "{} take turns on {}: times and gains say little",
            counted(c.params.pes(), "PE"),
            counted(cpus.into(), "CPU")
        ),
        _ => Ok(()),
    }
}

/// The time of all iterations over the CPU time of the fullest PE in them, if it is much more.
fn beyond_cpu(c: &Comparison) -> Option<f64> {
    let stretches = || c.runs.iter().flat_map(|run| &run.stretches);
    let all = |of: fn(&Stretch) -> f64| stretches().map(|s| of(s) * f64::from(s.iterations)).sum::<f64>();
    let times = all(|s| s.iteration_s) / all(|s| s.cpu_s);
    (times.is_finite() && times > MUCH_BEYOND).then_some(times)
}

fn counted(n: u64, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// A share in percent, in at most five columns.
fn percent(share: f64) -> String {
    if share < -0.99 { "<-99%".into() } else { format!("{:.0}%", (share * 100.0).round() + 0.0) }
}

/// Three digits.
fn three(value: f64) -> String {
    match value.abs() {
        x if x >= 99.95 => format!("{value:.0}"),
        x if x >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A number in at most five columns.
fn short(n: u64) -> String {
    match n {
        0..100_000 => n.to_string(),
        100_000..1_000_000 => format!("{}k", n / 1000),
        _ => format!("{}M", three(n as f64 / 1e6)),
    }
}

/// Bytes with three digits and a binary unit.
fn bytes(n: u64) -> String {
    let (value, unit) = match n {
        0..1024 => return format!("{n} B"),
        n if n < 1 << 20 => (n as f64 / 1024.0, "KiB"),
        n if n < 1 << 30 => (n as f64 / f64::from(1 << 20), "MiB"),
        _ => (n as f64 / f64::from(1 << 30), "GiB"),
    };
    if value.fract() == 0.0 { format!("{value:.0} {unit}") } else { format!("{} {unit}", three(value)) }
}

#[cfg(test)]
mod tests {
    use super::super::params::tests::small;
    use super::super::params::{Params, Program};
    use super::super::result::{Averages, Balancing, Summary};
    use super::*;

    fn comparison() -> Comparison {
        let run = |strategy: &str| Run {
            program: Program::Stencil,
            strategy: strategy.into(),
            checksum: "0123456789abcdef".into(),
            moved: 123_456_789,
            bytes_moved: 123_456_789 << 19,
            elapsed_s: vec![1.0],
            stretches: vec![Stretch {
                first: 0,
                iterations: 9,
                iteration_s: 1.2,
                cpu_s: 1.0,
                imbalance: None,
            }],
            balancings: vec![Balancing {
                moved: 1,
                expected: Some([12.34, 1.0]),
                decision_s: 0.1,
                migration_s: 0.1,
            }],
            summary: Summary {
                before: Averages { iteration_s: 12.345, imbalance: Some(14.0) },
                after: Some(Averages { iteration_s: 9.1, imbalance: Some(1.004) }),
                decision_s: 10.1,
                migration_s: 1.234,
                balanced_s: Some(1.0),
                gain: Some(-12.0),
            },
        };
        let strategies = ["greedy-refine:tolerance=1.01", NONE].map(str::to_owned).to_vec();
        let runs = strategies.iter().map(|s| run(s)).collect();
        let params = Params { programs: vec![Program::Stencil], strategies, mesh: 1000, ..small() };
        Comparison { schema: Comparison::SCHEMA, params, host: "n0".into(), cpus: Some(1), runs }
    }

    #[test]
    fn the_table_fits_into_eighty_columns() {
        let mut c = comparison();
        c.runs[1].stretches[0].iteration_s = 12_345.0;
        let text = c.to_string();
        assert!(text.contains("iterations take 6173 times"), "{text}");
        for line in text.lines() {
            assert!(
                line.chars().count() <= 80 && !line.ends_with(' '),
                "{} columns: {line}",
                line.chars().count()
            );
        }
        for part in ["greedy-refin…  123M", "<-99%", "12.34 1.00", "14.00 1.00", "the same in 2 runs"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(text.contains("2 PEs take turns on 1 CPU:") && !text.contains("not seen"), "{text}");
    }

    #[test]
    fn figures_that_were_not_seen_are_no_numbers() {
        let mut c = comparison();
        for run in &mut c.runs {
            run.balancings.clear();
            (run.summary.after, run.summary.gain) = (None, None);
        }
        let text = c.to_string();
        assert!(text.contains("–: not seen") && !text.contains("NaN"), "{text}");
    }

    #[test]
    fn a_busy_machine_is_seen_by_the_cpu_time() {
        let mut c = comparison();
        assert!(!c.to_string().contains("iterations take"));
        c.runs[0].stretches[0].iteration_s = 2.8;
        assert!(c.to_string().contains("iterations take 2.00 times the CPU time"), "{c}");
        c.runs.iter_mut().for_each(|run| run.stretches[0].cpu_s = 0.0);
        assert!(!c.to_string().contains("iterations take"), "a clock that is too coarse says nothing");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([0.123, 9.999, 99.99].map(three), ["0.12", "10.0", "100"]);
        assert_eq!([99_999, 100_000, 1_234_567].map(short), ["99999", "100k", "1.23M"]);
        assert_eq!([512, 512 << 10, 3 << 19].map(bytes), ["512 B", "512 KiB", "1.50 MiB"]);
        assert_eq!([-0.001, 0.256, -2.0].map(percent), ["0%", "26%", "<-99%"]);
    }
}
