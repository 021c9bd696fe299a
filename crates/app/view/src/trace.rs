// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of a trace, and of the differences between two.

use std::collections::BTreeSet;
use std::fmt::Write;

use colony_trace::TraceMeta;
use colony_trace::diff::{Diff, Figure, Verdict};
use colony_trace::periodic::Finding;
use colony_trace::summary::{Amount, Summary};

use crate::table::{self, name, wrap};
use crate::units::{count, counted, percent, three, time};

/// Sources and periods shown; the rest is in the JSON.
const ROWS: usize = 16;

/// `0.50 s`, and `3.01 ms` of an observation that is shorter than a tenth of a second.
fn length(seconds: f64) -> String {
    if seconds < 0.1 { time(seconds * 1e9) } else { format!("{} s", three(seconds)) }
}

/// A trace's summary, with its periods; `None` if the trace has no instants.
#[must_use]
pub fn summary(meta: &TraceMeta, s: &Summary, periodic: Option<&[Finding]>) -> String {
    let mut out = String::new();
    let w = &mut out;
    // writing to a String cannot fail
    if let Some(node) = &meta.node {
        let _ = writeln!(w, "{}", table::node(node));
    }
    let nodes: BTreeSet<u32> = s.lanes.iter().map(|l| l.lane.node).collect();
    let of_nodes =
        if nodes.len() > 1 { format!(" of {} nodes", count(nodes.len() as u64)) } else { "".into() };
    let _ = writeln!(
        w,
        "{}{of_nodes} for {}, {}; stolen: {}",
        counted(s.cpus as u64, "CPU"),
        length(s.observed_s),
        // a file of another program may not say which detours it leaves out
        match s.threshold_ns {
            0 => "shortest detour not known".to_owned(),
            ns => format!("detours of {} and longer", time(ns as f64)),
        },
        known(s.total.stolen_share, percent),
    );
    if s.lost_events > 0 {
        let lost = count(s.lost_events);
        let _ = writeln!(w, "lost events: {lost}; detours may be missing, or may lack their source");
    }
    if s.dropped > 0 {
        let _ =
            writeln!(w, "dropped detours: {}; they are counted and are not in this table", count(s.dropped));
    }
    let mut t = table::new(["source", "detours", "per s", "of CPU", "median", "99 %", "longest"]);
    for source in s.sources.iter().take(ROWS) {
        t.add_row(row(&source.source.to_string(), &source.amount));
    }
    t.add_row(row("all", &s.total));
    let _ = writeln!(w, "{t}");
    if let Some(split) = &s.windows {
        for (window, share) in [("favored", &split.favored), ("regular", &split.regular)] {
            let _ = writeln!(
                w,
                "{window} windows: {} stolen, {} of their time",
                time(share.stolen_ns as f64),
                known(share.stolen_share, percent)
            );
        }
    }
    let _ = match periodic {
        None => writeln!(w, "periods: –, for a histogram has no instants"),
        Some(periodic) => writeln!(w, "{}", periods(periodic)),
    };
    out
}

/// Periodic noise, one line a period.
#[must_use]
pub fn periods(periodic: &[Finding]) -> String {
    if periodic.is_empty() {
        return "nothing periodic was found".into();
    }
    let mut lines: Vec<String> = periodic
        .iter()
        .take(ROWS)
        .map(|f| wrap(&format!("periodic: {}", name(&f.to_string(), 120))))
        .collect();
    if periodic.len() > ROWS {
        lines.push(format!("… and {} more (--json)", periodic.len() - ROWS));
    }
    lines.join("\n")
}

fn row(source: &str, a: &Amount) -> [String; 7] {
    let time = |ns: Option<u64>| known(ns.map(|ns| ns as f64), time);
    [
        name(source, 22),
        count(a.count),
        known(a.per_s, three),
        known(a.stolen_share, percent),
        time(a.p50_ns),
        time(a.p99_ns),
        time(a.max_ns),
    ]
}

/// A figure; a dash if it is not known.
fn known(value: Option<f64>, show: fn(f64) -> String) -> String {
    value.map_or("–".into(), show)
}

/// Two traces compared.
#[must_use]
pub fn diff(d: &Diff) -> String {
    let mut t = table::new(["", "before", "after", "difference (95 %)", "change"]);
    let (all, by_source): (Vec<_>, Vec<_>) =
        d.changes.iter().partition(|c| !matches!(c.figure, Figure::Source(_)));
    for c in all.into_iter().chain(by_source.into_iter().take(ROWS / 2)) {
        let (label, show): (String, fn(f64) -> String) = match &c.figure {
            Figure::StolenShare => ("stolen".into(), percent),
            Figure::DetoursPerS => ("detours/s".into(), three),
            Figure::P50Ns => ("median".into(), time),
            Figure::P99Ns => ("99 %".into(), time),
            Figure::MaxNs => ("longest".into(), time),
            Figure::Source(source) => (source.to_string(), percent),
        };
        t.add_row([
            name(&label, 22),
            known(c.before, show),
            known(c.after, show),
            c.interval.map_or("–".into(), |(low, high)| format!("{} … {}", show(low), show(high))),
            match c.verdict {
                Verdict::NoDifferenceShown => "not shown".into(),
                shown => shown.name().to_owned(),
            },
        ]);
    }
    let mut out = format!("{t}\n");
    for warning in &d.warnings {
        let _ = writeln!(out, "{}", wrap(&format!("note: {warning}")));
    }
    out
}
