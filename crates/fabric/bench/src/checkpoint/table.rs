// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result for people: at most 80 columns.

use std::fmt;

use super::result::{CheckpointBench, Run};
use super::size::show;

/// Stands for a figure that is not in the published table.
const NOT_THERE: &str = "–";

impl fmt::Display for CheckpointBench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = &self.params;
        let (processes, pes) = (p.processes, p.pes());
        write!(f, "{pes} PEs in {processes} processes, {} objects each", p.objects)?;
        match p.changed {
            Some(changed) => writeln!(f, ", of which {changed} change")?,
            None => writeln!(f)?,
        }
        writeln!(f, "{:11}{:>16} {:>30}{:>20}", "", "Table 1, s", "measured here, ms", "simulated, s")?;
        write!(f, "{:11}{:>8}{:>8} ", "bytes a PE", "8192", "20480")?;
        writeln!(f, "{:>8}{:>8}{:>8}{:>6}{:>10}{:>10}", "quiet", "copy", "floor", "ratio", "8192", "20480")?;
        self.runs.iter().try_for_each(|run| row(f, run))?;
        notes(f, self)
    }
}

fn row(f: &mut fmt::Formatter<'_>, run: &Run) -> fmt::Result {
    write!(f, "{:11}", show(run.bytes))?;
    for published in &run.published {
        let text = published.seconds.map_or_else(|| NOT_THERE.to_owned(), |s| format!("{s:.3}"));
        write!(f, "{text:>8}")?;
    }
    let [quiet, copy, floor] = [&run.quiet, &run.copy, &run.floor].map(|spread| three(spread.least_s * 1e3));
    write!(f, " {quiet:>8}{copy:>8}{floor:>8}{:>6}", three(run.ratio))?;
    run.simulated.iter().try_for_each(|simulated| write!(f, "{:>10}", three(simulated.total_s)))?;
    writeln!(f)
}

fn notes(f: &mut fmt::Formatter<'_>, bench: &CheckpointBench) -> fmt::Result {
    writeln!(
        f,
        "\nTable 1: published times on Blue Gene/L; measured: the least of each; copy:\n\
         until all PEs have both copies; floor: one memcpy, and an exchange by sockets"
    )?;
    if bench.params.changed.is_some() {
        for run in &bench.runs {
            let [sent, all] = [run.sent_bytes, run.image_bytes].map(show);
            writeln!(f, "{} a PE: {sent} of {all} are sent to buddies", show(run.bytes))?;
        }
    }
    match bench.cpus {
        Some(cpus) if u64::from(cpus) < bench.params.pes() => {
            writeln!(f, "{} PEs take turns on {cpus} CPU(s)", bench.params.pes())
        }
        _ => Ok(()),
    }
}

/// Three digits, in at most seven columns.
fn three(value: f64) -> String {
    match value.abs() {
        x if x >= 999_999.5 => format!("{value:.1e}"),
        x if x >= 99.95 => format!("{value:.0}"),
        x if x >= 9.995 => format!("{value:.1}"),
        x if x >= 0.9995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::params::tests::small;
    use super::super::told::{Checkpoint, Floor};
    use super::*;

    fn bench(factor: f64) -> CheckpointBench {
        let checkpoint =
            Checkpoint { bytes: 160_100, sent: 20_100, quiet_s: 1e-4 * factor, copy_s: 0.0125 * factor };
        let floor = Floor { memcpy_s: 0.002 * factor, total_s: 0.010 * factor };
        let params = small();
        let run = |bytes| Run::of(&params, bytes, &[checkpoint; 3], &[floor; 3]).expect("a run");
        let runs = vec![run(80_000), run(300_000), run(73_500_001)];
        CheckpointBench {
            schema: CheckpointBench::SCHEMA,
            params: params.clone(),
            host: "n0".into(),
            cpus: Some(1),
            assumptions: Vec::new(),
            runs,
        }
    }

    #[test]
    fn the_table_fits_into_eighty_columns() {
        for factor in [1e-6, 1.0, 1e5] {
            for line in bench(factor).to_string().lines() {
                let columns = line.chars().count();
                assert!(columns <= 80 && !line.ends_with(' '), "{columns} columns: {line}");
            }
        }
    }

    #[test]
    fn bytes_that_are_sent_are_named_if_only_some_objects_change() {
        let mut bench = bench(1.0);
        assert!(!bench.to_string().contains("sent"), "{bench}");
        bench.params.changed = Some(1);
        let text = bench.to_string();
        assert!(text.contains(", 3 objects each, of which 1 change\n"), "{text}");
        assert!(text.contains("\n80 kB a PE: 20.1 kB of 160.1 kB are sent to buddies\n"), "{text}");
    }

    #[test]
    fn published_times_stand_beside_measured_ones_where_there_are_some() {
        let text = bench(1.0).to_string();
        let row =
            |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{text}"));
        assert!(row("80 kB").contains(" 0.161   0.378    0.100    12.5    10.0  1.25"), "{text}");
        assert!(row("300 kB").contains(" 0.163       – "), "{text}");
        assert!(row("73.5 MB").contains("     –       – "), "{text}");
        assert!(text.contains("2 PEs take turns on 1 CPU(s)"), "{text}");
    }
}
