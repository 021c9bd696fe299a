// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wake-up latencies that other tools measured: results of cyclictest and of `rtla timerlat hist`.
//!
//! A wake-up latency is how late a thread runs that waits for a timer. It is no detour: nothing tells how much of it a program that
//! computes would lose, so these files can be shown, and neither fitted nor simulated.

mod cyclictest;
mod timerlat;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::Serialize;

use super::text::HEAD;
use super::unpack;
use crate::trace::{Problem, TraceError};

/// Bytes of the largest result: a histogram of a million rows has fewer.
const MAX_BYTES: u64 = 256 << 20;

/// The result of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WakeUps {
    /// The program that measured.
    pub tool: &'static str,
    /// Length of the run, seconds; `None` if the file does not state it.
    pub observed_s: Option<f64>,
    /// A row for each thread and kind of latency.
    pub rows: Vec<Row>,
    /// What was derived, because the file does not state it.
    pub notes: Vec<String>,
}

/// The latencies of one kind, of one thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// `CPU 3`, or `thread 3` if the file does not name CPUs.
    pub of: String,
    /// What the timer's instant is followed by: `interrupt`, `thread`, or `user` for the return to the program.
    pub latency_to: &'static str,
    /// `None` if there was no wake-up.
    pub latencies: Option<Latencies>,
}

/// A distribution of latencies, nanoseconds. Figures are as fine as the tool's, which writes whole microseconds by default.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latencies {
    /// The number of wake-ups.
    pub count: u64,
    /// Shortest.
    pub min_ns: Option<u64>,
    /// Mean.
    pub mean_ns: Option<f64>,
    /// Median; `None` if the file has no histogram.
    pub p50_ns: Option<Quantile>,
    /// 99th percentile; `None` also for fewer than 100 wake-ups.
    pub p99_ns: Option<Quantile>,
    /// 99.9th percentile; `None` also for fewer than 1,000 wake-ups.
    pub p999_ns: Option<Quantile>,
    /// Longest.
    pub max_ns: Option<u64>,
}

/// A quantile of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Quantile {
    /// The begin of the bucket that has it.
    pub ns: u64,
    /// It lies beyond the last bucket, which begins at `ns`.
    pub is_lower_bound: bool,
}

/// The result in the file at `path`, which may be compressed with gzip or zstd; `None` if it is a file of another kind.
///
/// # Errors
/// [`TraceError`]: the file is not there, or is damaged (where, and what was found).
pub fn read(path: &Path) -> Result<Option<WakeUps>, TraceError> {
    of_file(path).map_err(TraceError::reading(path))
}

fn of_file(path: &Path) -> Result<Option<WakeUps>, Problem> {
    let mut input = unpack::unpacked(File::open(path)?)?.0;
    let mut text = Vec::new();
    input.by_ref().take(HEAD as u64).read_to_end(&mut text)?;
    if !is_in(&String::from_utf8_lossy(&text)) {
        return Ok(None);
    }
    input.take(MAX_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Problem::Meta(format!("it has more than {MAX_BYTES} bytes, and a result has fewer")));
    }
    parse(&String::from_utf8_lossy(&text)).map(Some)
}

/// True if a file that begins with `text` is such a result.
pub(crate) fn is_in(text: &str) -> bool {
    timerlat::is_in(text) || cyclictest::is_in(text)
}

fn parse(text: &str) -> Result<WakeUps, Problem> {
    let found = if timerlat::is_in(text) { timerlat::read(text)? } else { cyclictest::read(text)? };
    if found.rows.is_empty() {
        return Err(Problem::Empty(
            "a histogram of wake-ups, or a line of each thread with its shortest and longest",
        ));
    }
    Ok(found)
}

/// For fuzzers and property tests: reads any text.
#[doc(hidden)]
pub fn fuzz_parse(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = timerlat::read(&text);
    let _ = cyclictest::read(&text);
    let _ = parse(&text);
}

/// A histogram of one row, in nanoseconds, with what the file states beside it.
#[derive(Clone, Debug, Default)]
struct Column {
    /// The begin of a bucket, and the number of wake-ups in it.
    buckets: Vec<(u64, u64)>,
    /// Wake-ups beyond the last bucket.
    beyond: u64,
    /// The number of all wake-ups, if it is stated.
    count: Option<u64>,
    min_ns: Option<u64>,
    mean_ns: Option<f64>,
    max_ns: Option<u64>,
}

impl Column {
    /// The summary; `None` if there was no wake-up.
    fn latencies(&self) -> Option<Latencies> {
        let inside = self.buckets.iter().fold(0u64, |sum, (_, n)| sum.saturating_add(*n));
        let counted = inside.saturating_add(self.beyond);
        // without a histogram, the stated number is all that there is
        let count = if counted > 0 { counted } else { self.count.unwrap_or(0) };
        let quantile =
            |q: f64, at_least: u64| (counted >= at_least.max(1)).then(|| self.quantile(q, counted));
        (count > 0).then(|| Latencies {
            count,
            min_ns: self.min_ns,
            mean_ns: self.mean_ns,
            p50_ns: quantile(0.5, 1),
            p99_ns: quantile(0.99, 100),
            p999_ns: quantile(0.999, 1_000),
            max_ns: self.max_ns,
        })
    }

    fn quantile(&self, q: f64, counted: u64) -> Quantile {
        let rank = ((q * counted as f64).ceil() as u64).clamp(1, counted);
        let mut below = 0u64;
        for (ns, n) in &self.buckets {
            below = below.saturating_add(*n);
            if below >= rank {
                return Quantile { ns: *ns, is_lower_bound: false };
            }
        }
        Quantile { ns: self.buckets.last().map_or(0, |(ns, _)| *ns), is_lower_bound: true }
    }
}

fn wrong(line: usize, reason: impl Into<String>) -> Problem {
    Problem::Line { line: line as u64 + 1, reason: reason.into() }
}

/// The whole numbers in a row, one for each of `columns` columns; a dash is one that is not known.
fn numbers(line: usize, words: &[&str], columns: usize) -> Result<Vec<Option<u64>>, Problem> {
    let number = |word: &&str| if *word == "-" { Some(None) } else { word.parse().ok().map(Some) };
    let all: Option<Vec<Option<u64>>> =
        words.get(..columns).and_then(|words| words.iter().map(number).collect());
    all.ok_or_else(|| {
        let shown: String = words.join(" ").chars().take(60).collect();
        wrong(line, format!("expected a number for each of {columns} columns, found `{shown}`"))
    })
}

#[cfg(test)]
mod tests;
