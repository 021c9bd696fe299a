// SPDX-License-Identifier: MIT OR Apache-2.0
//! HPC-Colony progress report 2006: checkpoints in memory, as a time of each processor and a time of each byte.

use super::{Cited, Context, Document, Experiment, Method, Ours, settings};
use crate::StudyError;
use crate::results::{Basis, Published};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment {
    name: "checkpoint-table",
    document: Document::Progress2006,
    place: "Section 2.3, Table 1",
    what: "checkpoints in memory: two values give the time of a processor and the time of a byte, five are predicted",
    published: &[
        "Table 1: Time taken to perform in-memory checkpoints with different amounts of data per BG/L processor",
        "the checkpointing overhead increases proportionally to the amount of state in each processor",
    ],
    method: Method::Arithmetic,
    settings: settings::NONE,
    run: table,
}];

/// A time of the table.
struct Entry {
    processors: u64,
    /// Bytes of each processor; the report's kB are taken as 1000 bytes.
    bytes: u64,
    published: Cited,
}

const fn entry(processors: u64, kb: u64, text: &'static str, s: f64, basis: Basis) -> Entry {
    Entry { processors, bytes: kb * 1000, published: Cited::s(text, s, basis) }
}

/// The table; the first two are those of the fit.
const TABLE_1: [Entry; 7] = [
    entry(8192, 80, ".1613006 s", 0.161_300_6, Basis::Fitted),
    entry(8192, 20_000, ".4174428 s", 0.417_442_8, Basis::Fitted),
    entry(8192, 300, ".1626386 s", 0.162_638_6, Basis::Predicted),
    entry(8192, 1200, ".1801744 s", 0.180_174_4, Basis::Predicted),
    entry(8192, 5000, ".2370764 s", 0.237_076_4, Basis::Predicted),
    entry(20_480, 80, ".3777704 s", 0.377_770_4, Basis::Predicted),
    entry(20_480, 20_000, ".6924555 s", 0.692_455_5, Basis::Predicted),
];

/// A checkpoint takes a time for each processor, one after the other, and for each byte of a processor.
#[derive(Clone, Copy, Debug)]
struct Line {
    processor_ns: f64,
    byte_ns: f64,
}

impl Line {
    /// The line through two times of equally many processors.
    fn through(small: &Entry, large: &Entry) -> Option<Self> {
        let (a, b) = (small.published.value?, large.published.value?);
        let byte_ns = (b - a) / (large.bytes - small.bytes) as f64;
        let processor_ns = (a - byte_ns * small.bytes as f64) / small.processors as f64;
        Some(Self { processor_ns, byte_ns })
    }

    fn ns(self, entry: &Entry) -> f64 {
        self.processor_ns * entry.processors as f64 + self.byte_ns * entry.bytes as f64
    }
}

fn table(e: &Experiment, _: &mut Context<'_>) -> Result<Vec<Published>, StudyError> {
    let [small, large, ..] = &TABLE_1;
    let line = Line::through(small, large)
        .ok_or_else(|| StudyError::Params("the checkpoints of the fit have no times".into()))?;
    let note = "time of a processor × processors + time of a byte × bytes of a processor";
    let mut rows = vec![
        e.row(
            "time of a processor",
            Ours::Ns(line.processor_ns),
            "fitted; a message that one processor handles for each of the others takes some µs at 700 MHz",
        ),
        e.row(
            "time of a byte",
            Ours::Ns(line.byte_ns),
            "fitted; a link of 175 MB/s takes 5.7 ns of it, copies in memory the rest",
        ),
    ];
    rows.extend(TABLE_1.iter().map(|entry| {
        let what = format!("{} processors, {} kB each", entry.processors, entry.bytes / 1000);
        e.beside(what, entry.published, Ours::Ns(line.ns(entry)), note)
    }));
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_times_predict_the_others_within_a_tenth() {
        let line = Line::through(&TABLE_1[0], &TABLE_1[1]).expect("times");
        for entry in &TABLE_1 {
            let error = line.ns(entry) / entry.published.value.expect("a time") - 1.0;
            let most = if entry.published.basis == Basis::Fitted { 1e-9 } else { 0.1 };
            assert!(error.abs() <= most, "{} × {}: {error}", entry.processors, entry.bytes);
        }
    }
}
