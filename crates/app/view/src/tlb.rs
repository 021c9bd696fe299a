// SPDX-License-Identifier: MIT OR Apache-2.0
//! Misses of a modelled TLB, and the time that they cost.

use std::fmt::Write as _;

use colony_tlb::{Prediction, Row};

use crate::table::{self, wrap};
use crate::units::{bytes, counted, percent, scaled, time};

/// Shown in place of a rate of a program that did nothing.
const NONE: &str = "–";

/// The table of a run: a row for each page size. `is_whole`: the program has ended by itself and without an error.
#[must_use]
pub fn prediction(p: &Prediction, is_whole: bool) -> String {
    let mut out = String::new();
    let kinds = if p.setup.unified() { "data and instructions" } else { "data only" };
    let (entries, replacement) = (p.setup.entries(), p.setup.replacement());
    // writing to a String cannot fail
    let _ = writeln!(out, "TLB entries: {entries}, {replacement} replacement, {kinds}");
    let run = extent(is_whole);
    let _ = writeln!(out, "{run}: {}", counted(p.instructions, "instruction"));
    let header = [
        "pages",
        "accesses",
        "misses",
        "per 1000\ninstr.",
        "per\nsecond",
        "miss\ntime",
        "time",
        "share of\nmisses",
    ];
    let mut t = table::new(header);
    for row in &p.rows {
        t.add_row(cells(p, row));
    }
    let _ = writeln!(out, "{}", table::trimmed(&t));
    let _ = writeln!(out, "{}", wrap(&basis(p)));
    out
}

/// The part of a program's run that was counted.
pub(crate) const fn extent(is_whole: bool) -> &'static str {
    if is_whole { "Whole run of the program" } else { "Run until an error or a signal" }
}

fn cells(p: &Prediction, row: &Row) -> [String; 8] {
    let or_none = |value: Option<f64>, text: fn(f64) -> String| value.map_or(NONE.into(), text);
    [
        bytes(row.page_bytes),
        scaled(p.accesses as f64),
        scaled(row.misses as f64),
        or_none(row.misses_per_1000_instructions, per_1000),
        or_none(row.misses_per_second, scaled),
        time(row.miss_time_s * 1e9),
        time(row.time_s * 1e9),
        or_none(row.miss_share, percent),
    ]
}

/// A rate, to three places behind the point.
fn per_1000(n: f64) -> String {
    if n > 0.0 && n < 0.001 { "<0.001".into() } else { format!("{n:.3}") }
}

/// The origin of the times.
fn basis(p: &Prediction) -> String {
    let processor = &p.processor;
    let base = if p.base_time_given {
        format!("{} without misses", time(p.base_time_s * 1e9))
    } else {
        format!("{} cycles an instruction", processor.cycles_per_instruction)
    };
    let sums = match p.cpus {
        0 | 1 => String::new(),
        cpus => format!(" Counts and times are sums over {cpus} CPUs."),
    };
    format!(
        "Times are predicted for a processor of {} MHz with {base} and {} cycles a miss.{sums}",
        processor.mhz, processor.miss_cycles
    )
}

#[cfg(test)]
mod tests {
    use colony_tlb::{Counts, Processor, Setup, predict};

    use super::*;

    #[test]
    fn a_prediction_fits_80_columns_whatever_was_counted() {
        let huge = u64::MAX / 2;
        let most = Counts {
            cpus: 9999,
            instructions: huge,
            accesses: huge,
            fetches: huge,
            misses: [huge / 4; 8],
            ..Counts::default()
        };
        let small =
            Counts { cpus: 1, instructions: 1, accesses: 1, fetches: 1, misses: [1; 8], ..Counts::default() };
        for counts in [most, small, Counts::default()] {
            let text = prediction(&predict(&Setup::ppc440(), &counts, Processor::PPC440, None), false);
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            assert_eq!(
                text.lines().filter(|line| line.contains(" KiB ") || line.contains(" MiB ")).count(),
                3
            );
        }
    }

    #[test]
    fn a_small_rate_is_not_zero_and_sums_over_cpus_are_named() {
        assert_eq!([0.0, 0.0001, 0.0014].map(per_1000), ["0.000", "<0.001", "0.001"]);
        let of_one = predict(&Setup::ppc440(), &Counts::default(), Processor::PPC440, None);
        assert!(!prediction(&of_one, true).contains("sums over"));
        let of_four = Prediction { cpus: 4, ..of_one };
        let text = prediction(&of_four, true);
        assert!(text.replace("\n  ", " ").contains("sums over 4 CPUs"), "{text}");
    }
}
