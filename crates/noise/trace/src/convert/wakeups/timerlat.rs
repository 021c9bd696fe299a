// SPDX-License-Identifier: MIT OR Apache-2.0
//! Histograms of `rtla timerlat hist`:
//!
//! ```text
//! # RTLA timerlat histogram
//! # Time unit is microseconds (us)
//! # Duration:   0 00:00:10
//! Index   IRQ-000   Thr-000   IRQ-001   Thr-001      Usr-000 too, with the option --user-threads
//! 5            18      9000        20      8000
//! over:         0         0         0         0
//! count:    10000     10000     10000     10000
//! min:          0         5         0         5
//! avg:          0         6         0         6
//! max:         12        50         5        50
//! ALL:        IRQ       Thr
//! ```

use super::{Column, Row, WakeUps, numbers, wrong};
use crate::convert::histogram::days_and_time;
use crate::trace::Problem;

pub(super) fn is_in(text: &str) -> bool {
    text.trim_start().starts_with("# RTLA timerlat hist")
}

pub(super) fn read(text: &str) -> Result<WakeUps, Problem> {
    let unit_ns = if text.lines().any(|l| l.starts_with("# Time unit is nanoseconds")) { 1 } else { 1000 };
    let mut found = WakeUps { tool: "rtla timerlat", observed_s: None, rows: Vec::new(), notes: Vec::new() };
    let mut columns: Vec<Column> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if let Some(duration) = line.strip_prefix("# Duration:") {
            found.observed_s = days_and_time(duration);
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some((first, rest)) = words.split_first() else { continue };
        match *first {
            // what follows sums up all CPUs
            "ALL:" => break,
            "Index" if !columns.is_empty() => {
                return Err(wrong(at, "a second histogram begins here; read each by itself"));
            }
            "Index" => {
                found.rows = rest.iter().map(|word| row(at, word)).collect::<Result<_, _>>()?;
                columns = vec![Column::default(); found.rows.len()];
            }
            name => {
                let Some(set) = setter(name, unit_ns) else { continue };
                let values = numbers(at, rest, columns.len())?;
                columns.iter_mut().zip(values).for_each(|(column, value)| set(column, value));
            }
        }
    }
    let lacks_longest = |column: &Column| column.max_ns.is_none() && column.latencies().is_some();
    if columns.iter().any(lacks_longest) {
        found.notes.push("the file ends before the longest latencies: it may be cut off".into());
    }
    for (row, column) in found.rows.iter_mut().zip(&columns) {
        row.latencies = column.latencies();
    }
    Ok(found)
}

/// Sets a figure of a column.
type Setter = Box<dyn Fn(&mut Column, Option<u64>)>;

/// What a row sets in each column by its first word; `None` for a word that is none of the histogram's.
fn setter(name: &str, unit_ns: u64) -> Option<Setter> {
    let ns = move |value: Option<u64>| value.map(|value| value.saturating_mul(unit_ns));
    Some(match name {
        "over:" => Box::new(|column, value| column.beyond = value.unwrap_or(0)),
        "count:" => Box::new(|column, value| column.count = value),
        "min:" => Box::new(move |column, value| column.min_ns = ns(value)),
        "avg:" => Box::new(move |column, value| column.mean_ns = ns(value).map(|ns| ns as f64)),
        "max:" => Box::new(move |column, value| column.max_ns = ns(value)),
        index => {
            let from_ns = index.parse::<u64>().ok()?.saturating_mul(unit_ns);
            Box::new(move |column, value| column.buckets.extend(value.map(|count| (from_ns, count))))
        }
    })
}

/// The row of a column called `IRQ-000`.
fn row(line: usize, word: &str) -> Result<Row, Problem> {
    let unknown = || wrong(line, format!("expected IRQ-000, Thr-000, … after Index, found `{word}`"));
    let (kind, cpu) = word.split_once('-').ok_or_else(unknown)?;
    let cpu: u32 = cpu.parse().map_err(|_| unknown())?;
    let latency_to = match kind {
        "IRQ" => "interrupt",
        "Thr" => "thread",
        "Usr" => "user",
        _ => return Err(unknown()),
    };
    Ok(Row { of: format!("CPU {cpu}"), latency_to, latencies: None })
}
