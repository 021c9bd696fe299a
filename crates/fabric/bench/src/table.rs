// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result for people: at most 80 columns.

use std::fmt;

use crate::{BenchResult, Comparison, Distribution, Measurement};

impl fmt::Display for BenchResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let library: String = self.mpi.library.chars().take_while(|&c| c != ',').take(30).collect();
        let nodes = match self.hosts.as_slice() {
            [one] => one.chars().take(20).collect(),
            many => format!("{} nodes", many.len()),
        };
        let plural = if self.ranks == 1 { "" } else { "s" };
        writeln!(f, "{}: {} rank{plural} on {nodes}, {library}", self.params.program.name(), self.ranks)?;
        writeln!(f, "{:>7} {:>10} {}", "ranks", "ops", Columns)?;
        for m in &self.results {
            writeln!(f, "{:>7} {:>10} {}", m.ranks, m.ops, Row(&m.all))?;
            for (name, part) in [("favored", &m.favored), ("regular", &m.regular)] {
                if let Some(part) = part {
                    writeln!(f, "{name:>7} {:>10} {}", part.count, Row(part))?;
                }
            }
        }
        if let Some(m) = self.whole() {
            notes(f, m)?;
        }
        self.comparison.as_ref().map_or(Ok(()), |c| comparison(f, c))
    }
}

struct Columns;

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9}", "mean µs")?;
        ["min", "p50", "p99", "p99.9", "max"].iter().try_for_each(|name| write!(f, " {name:>9}"))
    }
}

struct Row<'a>(&'a Distribution);

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let d = self.0;
        write!(f, "{:>9}", micros(d.mean_ns))?;
        [d.min_ns, d.p50_ns, d.p99_ns, d.p999_ns, d.max_ns]
            .iter()
            .try_for_each(|&ns| write!(f, " {:>9}", micros(ns as f64)))
    }
}

/// Nanoseconds as microseconds: three digits after the point below 100 µs, one below 100 ms, none from there on.
fn micros(ns: f64) -> String {
    let us = ns / 1e3;
    let digits = if us < 100.0 {
        3
    } else if us < 100_000.0 {
        1
    } else {
        0
    };
    format!("{us:.digits$}")
}

fn notes(f: &mut fmt::Formatter<'_>, m: &Measurement) -> fmt::Result {
    writeln!(f, "{:.3} s in operations; {:.3} s between stretches not counted", m.seconds, m.excluded_s)?;
    let detours: Vec<_> = m.per_rank.iter().filter_map(|r| r.detours).collect();
    if let Some(longest) = detours.iter().map(|d| d.max_ns).max() {
        let sum = |of: fn(&crate::DetourRecord) -> u64| detours.iter().map(of).sum::<u64>();
        let p50_ns = detours.iter().map(|d| d.p50_ns as f64).sum::<f64>() / detours.len() as f64;
        let (p50, longest) = (p50_ns / 1e3, longest as f64 / 1e3);
        writeln!(
            f,
            "detours: {} in operations ({} in all, {} missed); median {p50:.2} µs, longest {longest:.1} µs",
            sum(|d| d.timed),
            sum(|d| d.ran),
            sum(|d| d.missed)
        )?;
    }
    if let Some(w) = m.work {
        writeln!(f, "slowdown over undisturbed work: {:.4}", w.slowdown)?;
    }
    if m.wrong > 0 {
        writeln!(f, "WRONG VALUES in {} stretches: the MPI library computes wrongly", m.wrong)?;
    }
    Ok(())
}

fn comparison(f: &mut fmt::Formatter<'_>, c: &Comparison) -> fmt::Result {
    writeln!(
        f,
        "{} blocks of {} operations, medians: Rust {:.4} µs, C {:.4} µs, ratio {:.3}\n\
         C without a stamp for each operation {:.4} µs, ratio {:.3}",
        c.blocks_ns.len(),
        c.ops,
        c.rust_ns / 1e3,
        c.c_ns / 1e3,
        c.ratio,
        c.bare_c_ns / 1e3,
        c.bare_ratio
    )
}

#[cfg(test)]
mod tests {
    use super::micros;
    use crate::result::tests::example;

    #[test]
    fn nanoseconds_are_printed_as_microseconds() {
        for (ns, text) in [
            (0.0, "0.000"),
            (650.4, "0.650"),
            (3_280.0, "3.280"),
            (99_999.0, "99.999"),
            (123_456.0, "123.5"),
            (1e12, "1000000000"),
        ] {
            assert_eq!(micros(ns), text);
        }
    }

    #[test]
    fn the_table_fits_a_terminal() {
        let mut result = example();
        for m in &mut result.results {
            m.ops = 500_000_000;
            m.all.max_ns = 1_000_000_000_000;
            m.favored = Some(m.all.clone());
        }
        let text = result.to_string();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
        }
        for word in ["allreduce", "2 ranks on n0", "Open MPI v4.1.4", "favored", "ratio 0.800", "detours: 6"]
        {
            assert!(text.contains(word), "{word} in\n{text}");
        }
    }
}
