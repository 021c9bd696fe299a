// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of cyclictest of rt-tests: the line of each thread, the histogram (`-h`), and JSON (`--json`).
//!
//! ```text
//! T: 0 ( 1234) P:80 I:1000 C:  10000 Min:      1 Act:    2 Avg:    2 Max:      45
//! # Histogram
//! 000001 005000\t003000
//! # Total: 000010000 000006667
//! # Min Latencies: 00001 00001
//! # Avg Latencies: 00002 00002
//! # Max Latencies: 00045 00812
//! # Histogram Overflows: 00000 00001
//! ```

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Column, Row, WakeUps, numbers};
use crate::trace::Problem;

const TOOL: &str = "cyclictest";

/// Threads of one run: it has one a CPU at most.
const MAX_THREADS: usize = 1 << 16;

/// A result of cyclictest in JSON, as far as it is read.
#[derive(Deserialize)]
#[serde(expecting = "a result of cyclictest: an object with `thread`")]
struct Json {
    #[serde(default)]
    resolution_in_ns: u8,
    thread: BTreeMap<u32, Thread>,
}

#[derive(Deserialize)]
#[serde(expecting = "a thread of cyclictest: an object with `min` and `max`")]
struct Thread {
    #[serde(default)]
    histogram: BTreeMap<u64, u64>,
    cycles: Option<u64>,
    min: Option<u64>,
    avg: Option<f64>,
    max: Option<u64>,
    cpu: Option<u32>,
}

pub(super) fn is_in(text: &str) -> bool {
    is_json(text)
        || text.lines().any(|line| thread(line).is_some())
        || text.lines().any(|line| line.starts_with("# Histogram"))
            && text.lines().any(|line| bucket(line).is_some())
}

fn is_json(text: &str) -> bool {
    let text = text.trim_start();
    let is_named = |key: &str| text.split_once(key).is_some_and(|(_, rest)| rest.contains(TOOL));
    text.starts_with('{') && text.contains("\"rt_test_version\"") && is_named("\"cmdline\"")
}

pub(super) fn read(text: &str) -> Result<WakeUps, Problem> {
    if is_json(text) { json(text) } else { lines(text) }
}

fn json(text: &str) -> Result<WakeUps, Problem> {
    let found: Json = serde_json::from_str(text).map_err(|e| Problem::Json(e.to_string()))?;
    let unit_ns = if found.resolution_in_ns == 1 { 1 } else { 1000 };
    let ns = |value: u64| value.saturating_mul(unit_ns);
    let rows = found.thread.into_iter().map(|(number, thread)| {
        let in_histogram = thread.histogram.values().fold(0u64, |sum, n| sum.saturating_add(*n));
        let column = Column {
            buckets: thread.histogram.iter().map(|(from, n)| (ns(*from), *n)).collect(),
            // cyclictest writes no count of those beyond the last bucket, and the number of all
            beyond: match thread.histogram.is_empty() {
                true => 0,
                false => thread.cycles.unwrap_or(0).saturating_sub(in_histogram),
            },
            count: thread.cycles,
            min_ns: thread.min.map(ns),
            mean_ns: thread.avg.filter(|avg| avg.is_finite()).map(|avg| avg * unit_ns as f64),
            max_ns: thread.max.map(ns),
        };
        let of = thread.cpu.map_or_else(|| format!("thread {number}"), |cpu| format!("CPU {cpu}"));
        Row { of, latency_to: "thread", latencies: column.latencies() }
    });
    Ok(WakeUps { tool: TOOL, observed_s: None, rows: rows.collect(), notes: Vec::new() })
}

/// The text that cyclictest prints.
fn lines(text: &str) -> Result<WakeUps, Problem> {
    let mut threads: BTreeMap<usize, Column> = BTreeMap::new();
    let (mut rows, mut below) = (Vec::new(), BTreeMap::new());
    for (at, line) in text.lines().enumerate() {
        if let Some((number, column)) = thread(line) {
            // it prints the line of a thread again and again: the last one counts
            threads.insert(number, column);
        } else if let Some((from, words)) = bucket(line) {
            rows.push((at, from, words));
        } else if let Some((name, words)) = line.strip_prefix("# ").and_then(|line| line.split_once(':')) {
            below.entry(name.trim()).or_insert_with(|| (at, words.split_whitespace().collect::<Vec<_>>()));
        }
    }
    let wide = rows.iter().map(|(_, _, words)| words.len()).min().unwrap_or(0);
    // with -H, a last column sums up all threads
    let of_threads = below.get("Min Latencies").map_or(wide, |(_, words)| words.len().min(wide));
    let mut columns = vec![Column::default(); of_threads];
    for (at, from, words) in rows {
        for (column, count) in columns.iter_mut().zip(numbers(at, &words, of_threads)?) {
            column.buckets.extend(count.map(|count| (us(from), count)));
        }
    }
    let mut set = |name: &str, set: fn(&mut Column, u64)| {
        let Some((at, words)) = below.get(name) else { return Ok(()) };
        let values = numbers(*at, words, of_threads)?;
        columns
            .iter_mut()
            .zip(values)
            .for_each(|(column, value)| value.into_iter().for_each(|v| set(column, v)));
        Ok::<(), Problem>(())
    };
    set("Min Latencies", |column, value| column.min_ns = Some(us(value)))?;
    set("Avg Latencies", |column, value| column.mean_ns = Some(us(value) as f64))?;
    set("Max Latencies", |column, value| column.max_ns = Some(us(value)))?;
    set("Histogram Overflows", |column, value| column.beyond = value)?;
    let all: Vec<(usize, Column)> = match columns.is_empty() {
        true => threads.into_iter().collect(),
        false => columns.into_iter().enumerate().collect(),
    };
    let row = |(number, column): (usize, Column)| Row {
        of: format!("thread {number}"),
        latency_to: "thread",
        latencies: column.latencies(),
    };
    Ok(WakeUps {
        tool: TOOL,
        observed_s: None,
        rows: all.into_iter().map(row).collect(),
        notes: vec![
            "the file does not state its unit: it is taken to be microseconds, as without the option -N"
                .into(),
        ],
    })
}

fn us(value: u64) -> u64 {
    value.saturating_mul(1000)
}

/// `T: 0 ( 1234) P:80 I:1000 C:  10000 Min:      1 Act:    2 Avg:    2 Max:      45`: the thread, and what is known of its latencies.
fn thread(line: &str) -> Option<(usize, Column)> {
    let rest = line.trim().strip_prefix("T:")?;
    let number = rest.split('(').next()?.trim().parse().ok().filter(|n| *n < MAX_THREADS)?;
    let value = |name: &str| rest.split_once(name)?.1.split_whitespace().next()?.parse::<u64>().ok();
    let (count, min) = (value(" C:")?, value("Min:")?);
    let column = Column {
        count: Some(count),
        min_ns: Some(us(min)),
        mean_ns: value("Avg:").map(|avg| us(avg) as f64),
        max_ns: Some(us(value("Max:")?)),
        ..Column::default()
    };
    Some((number, column))
}

/// `000001 005000\t003000`: the begin of a bucket, and its counts.
fn bucket(line: &str) -> Option<(u64, Vec<&str>)> {
    let (from, counts) = line.split_once(char::is_whitespace)?;
    let is_number = |word: &str| word.len() >= 6 && word.bytes().all(|b| b.is_ascii_digit());
    let words: Vec<&str> = counts.split_whitespace().collect();
    let is_row = is_number(from) && !words.is_empty() && words.iter().all(|word| is_number(word));
    is_row.then(|| Some((from.parse().ok()?, words)))?
}
