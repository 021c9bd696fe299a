// SPDX-License-Identifier: MIT OR Apache-2.0
//! SC06 paper, Table 2, and HPC-Colony progress report 2006, Figs. 1 and 2: what TLB misses cost the NAS benchmarks.
//!
//! The time predicted is the published time without misses and the time of the misses of our programs. The cost of one miss is
//! fitted to integer sort; the other programs are predicted with it.

use colony_nodes::tlb::{Prediction, Processor, predict};

use super::{Cited, Context, Document, Experiment, Method, Ours, settings};
use crate::StudyError;
use crate::results::{Basis, Published};
use crate::tlb::{TlbRun, WHAT};

/// Programs of Table 2 that `colony-nas` has, in the published class, A.
const KERNELS: &[(&str, &str)] =
    &[("is", "A"), ("cg", "A"), ("ep", "A"), ("lu", "A"), ("sp", "A"), ("bt", "A")];
/// The same in class S, in seconds.
const SMALL: &[(&str, &str)] = &[("is", "S"), ("cg", "S"), ("mg", "S")];

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "tlb",
        what: "TLB misses of serial NAS kernels by page size, in a model of the PowerPC 440 fed with their addresses, and \
               the time that they add; class A",
        run: |e, c| run(e, c, KERNELS, 600.0),
        ..TABLE_2
    },
    Experiment {
        name: "tlb-s",
        what: "the comparison of tlb in class S, which takes seconds: TLB misses of serial NAS kernels by page size",
        run: |e, c| run(e, c, SMALL, 10.0),
        ..TABLE_2
    },
];

const TABLE_2: Experiment = Experiment {
    name: "",
    document: Document::BlueGene2006,
    place: "Table 2; HPC-Colony progress report 2006, Figs. 1 and 2",
    what: "",
    published: &[
        "The reason for performance difference is that Linux has to handle TLB misses during execution, while CNK does \
         not, as it maps the entire node memory in the TLB of the processor.",
        "is A: +303.0 %; ep.A: +2.7 %; lu A: +32.5 %; sp.A: +38.0 %; cg A: +19.2 %; bt A: +17.3 %",
        "We observe a drastic reduction in the number of TLB misses (b) and an improvement in performance under Linux \
         (a), matching the performance under CNK.",
    ],
    method: Method::ComputeNode,
    settings: settings::NONE,
    run: |_, _| Ok(Vec::new()),
};

/// A row of Table 2.
struct Row {
    kernel: &'static str,
    /// Time on the compute node kernel, which has no misses, seconds.
    cnk_s: f64,
    /// Time on Linux, seconds.
    linux_s: f64,
    /// More time on Linux, as printed, and as a share.
    more: (&'static str, f64),
}

/// Table 2, all in class A.
const PUBLISHED: [Row; 6] = [
    Row { kernel: "is", cnk_s: 5.7, linux_s: 23.0, more: ("+303.0 %", 3.03) },
    Row { kernel: "ep", cnk_s: 172.6, linux_s: 177.2, more: ("+2.7 %", 0.027) },
    Row { kernel: "lu", cnk_s: 380.3, linux_s: 504.0, more: ("+32.5 %", 0.325) },
    Row { kernel: "sp", cnk_s: 375.0, linux_s: 517.4, more: ("+38.0 %", 0.38) },
    Row { kernel: "cg", cnk_s: 27.1, linux_s: 32.3, more: ("+19.2 %", 0.192) },
    Row { kernel: "bt", cnk_s: 522.6, linux_s: 613.0, more: ("+17.3 %", 0.173) },
];

/// The program that the cost of a miss is fitted to: it has the most.
const FITTED: &str = "is";
/// Pages of 4 KiB, those of Linux in the published runs, as a power of two.
const SMALL_PAGES: u32 = 12;

fn published(kernel: &str, class: &str) -> Option<&'static Row> {
    PUBLISHED.iter().find(|row| row.kernel == kernel && class == "A")
}

/// The PowerPC 440 with the cost of a miss that the fitted program has among these runs; as it is if that did not run.
fn processor(runs: &[TlbRun]) -> Processor {
    let preset = Processor::PPC440;
    let fitted = runs.iter().find(|run| run.kernel == FITTED).and_then(|run| {
        let row = published(&run.kernel, &run.class)?;
        let misses = run.misses(SMALL_PAGES).filter(|&misses| misses > 0)?;
        Some((row.linux_s - row.cnk_s) * preset.mhz * 1e6 / misses as f64)
    });
    Processor { miss_cycles: fitted.unwrap_or(preset.miss_cycles), ..preset }
}

fn run(
    e: &Experiment,
    c: &mut Context<'_>,
    kernels: &[(&str, &str)],
    seconds: f64,
) -> Result<Vec<Published>, StudyError> {
    let Some(node) = c.node.as_deref_mut() else { return Ok(Vec::new()) };
    let runs = c.progress.during(WHAT, seconds, || node.tlb(kernels))?;
    let processor = processor(&runs);
    let cost = e.row(
        "cycles of a TLB miss",
        Ours::Count(processor.miss_cycles.round() as u64),
        "fitted to the published times of is.A (5.7 and 23.0 s at 700 MHz) if it is among these runs, else the value that \
         colony cnk run --tlb ppc440 takes",
    );
    let rows = runs.iter().flat_map(|run| rows(e, run, processor));
    Ok(std::iter::once(cost).chain(rows).collect())
}

fn rows(e: &Experiment, run: &TlbRun, processor: Processor) -> Vec<Published> {
    let published = published(&run.kernel, &run.class);
    let found = predict(&run.setup, &run.counts, processor, published.map(|row| row.cnk_s));
    let name = format!("{}.{}", run.kernel, run.class);
    let runs = match run.continued_to {
        Some(all) => format!("runs of 1 and of 3 iterations, continued to {all},"),
        None => "whole run".to_owned(),
    };
    let counted = format!(
        "{runs} of one static program on a compute node, time counted in instructions; TLB of {} entries, {} \
         replacement; again: colony study {}",
        run.setup.entries(),
        run.setup.replacement(),
        e.name
    );
    let base = match published {
        Some(row) => format!("{} s without misses (published)", row.cnk_s),
        None => format!("{} cycles an instruction", processor.cycles_per_instruction),
    };
    let time =
        format!("{base}, {:.0} cycles a miss at {} MHz; {counted}", processor.miss_cycles, processor.mhz);
    let mut all =
        vec![e.row(format!("{name}: instructions"), Ours::Count(run.counts.instructions), &counted)];
    for size in &found.rows {
        let pages = format!("{name}, {} pages", bytes(size.page_bytes));
        all.push(e.row(format!("{pages}: TLB misses"), Ours::Count(size.misses), &counted));
        let rate = size.misses_per_second.unwrap_or(0.0).round() as u64;
        all.push(e.row(format!("{pages}: TLB misses a second"), Ours::Count(rate), &time));
        let cited = published.filter(|_| size.page_bytes == 1 << SMALL_PAGES).map(cited);
        let more = Ours::Share(more(&found, size.miss_time_s));
        all.push(e.beside(format!("{pages}: more time than without misses"), cited, more, &time));
    }
    all
}

fn cited(row: &Row) -> Cited {
    let basis = if row.kernel == FITTED { Basis::Fitted } else { Basis::Predicted };
    Cited::value(row.more.0, row.more.1, basis)
}

/// Time of the misses over the time without them.
fn more(found: &Prediction, miss_time_s: f64) -> f64 {
    if found.base_time_s > 0.0 { miss_time_s / found.base_time_s } else { 0.0 }
}

fn bytes(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes >> 10),
        mib => format!("{mib} MiB"),
    }
}

#[cfg(test)]
mod tests {
    use colony_nodes::tlb::{Counts, Setup};

    use super::*;

    fn a_run(kernel: &str, class: &str, misses: [u64; 3]) -> TlbRun {
        let mut counts = Counts { instructions: 1_000_000, ..Counts::default() };
        counts.misses[..3].copy_from_slice(&misses);
        TlbRun {
            kernel: kernel.into(),
            class: class.into(),
            setup: Setup::ppc440(),
            counts,
            continued_to: None,
        }
    }

    #[test]
    fn the_cost_fitted_to_one_program_predicts_the_others() {
        let runs = [a_run("is", "A", [86_500_000, 80_000_000, 8]), a_run("cg", "A", [26_000_000, 1, 0])];
        let processor = processor(&runs);
        assert!((processor.miss_cycles - 140.0).abs() < 1e-9, "17.3 s at 700 MHz: {processor:?}");
        let rows: Vec<_> = runs.iter().flat_map(|run| rows(&EXPERIMENTS[0], run, processor)).collect();
        let row = |what: &str| rows.iter().find(|r| r.what == what).expect(what);
        let fitted = row("is.A, 4 KiB pages: more time than without misses");
        assert!((fitted.value.expect("a value") - 17.3 / 5.7).abs() < 1e-9);
        assert_eq!((fitted.basis, fitted.published_value), (Some(Basis::Fitted), Some(3.03)));
        let predicted = row("cg.A, 4 KiB pages: more time than without misses");
        assert!((predicted.value.expect("a value") - 5.2 / 27.1).abs() < 1e-9);
        assert_eq!(predicted.basis, Some(Basis::Predicted));
        assert_eq!(row("cg.A, 64 KiB pages: more time than without misses").basis, None);
        assert_eq!(row("cg.A, 16 MiB pages: TLB misses a second").value, Some(0.0));
    }

    #[test]
    fn classes_that_were_not_published_have_no_value_beside_them() {
        let runs = [a_run("is", "S", [7, 0, 0])];
        assert_eq!(processor(&runs), Processor::PPC440);
        let rows = rows(&EXPERIMENTS[1], &runs[0], Processor::PPC440);
        assert!(rows.iter().all(|row| row.basis.is_none() && row.published == "–"));
    }

    #[test]
    fn printed_shares_are_those_of_the_printed_times() {
        for row in &PUBLISHED {
            assert!((row.linux_s / row.cnk_s - 1.0 - row.more.1).abs() < 0.006, "{}", row.kernel);
        }
    }
}
