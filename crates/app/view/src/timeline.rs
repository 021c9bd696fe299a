// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of a run's time lines.

use std::fmt::Write;

use colony_timeline::analysis::segments::State;
use colony_timeline::analysis::stragglers::{SourceTime, Straggler, Stragglers};
use colony_timeline::analysis::summary::Summary;
use colony_timeline::analysis::utilization::{Times, Utilization};

use crate::table::{self, name, wrap};
use crate::units::{bytes, count, counted, percent, three, time};

/// PEs that are listed one by one; of more, the extremes.
const PES: usize = 8;
/// Entry methods and stragglers that are listed; the rest is in the JSON.
const ROWS: usize = 12;

/// The figures of a run.
#[must_use]
pub fn summary(s: &Summary) -> String {
    let mut out = String::new();
    let w = &mut out;
    // writing to a String cannot fail
    let _ = writeln!(w, "{}", wrap(&headline(s)));
    let _ = writeln!(w, "\n{}", utilization(&s.utilization));
    let _ = writeln!(w, "busiest PE over the mean: {}", three(s.utilization.imbalance()));
    let _ = writeln!(w, "{}", wrap(&messages(s)));
    let _ = writeln!(w, "\n{}", entries(s));
    let _ = writeln!(w, "\n{}", stragglers(s));
    for note in &s.notes {
        let _ = writeln!(w, "{}", wrap(&format!("note: {note}")));
    }
    out
}

fn headline(s: &Summary) -> String {
    let mut text = format!(
        "{}: {} in {} for {}, {}",
        name(&s.meta.program, 30),
        counted(s.pes, "PE"),
        match s.processes.len() as u64 {
            1 => "1 process".into(),
            n => format!("{} processes", count(n)),
        },
        time(s.duration_ns as f64),
        counted(s.events, "event"),
    );
    if s.dropped > 0 {
        let _ = write!(text, " ({} dropped)", count(s.dropped));
    }
    text
}

fn messages(s: &Summary) -> String {
    let m = &s.messages;
    let mut text = format!("{}, {}", counted(m.messages, "message"), bytes(m.bytes));
    if m.not_executed > 0 {
        let _ = write!(text, " ({} without a known execution)", count(m.not_executed));
    }
    if s.migrations.arrived > 0 {
        let _ = write!(
            text,
            "; {} migrated, {}",
            counted(s.migrations.arrived, "object"),
            bytes(s.migrations.bytes)
        );
    }
    text
}

fn utilization(u: &Utilization) -> String {
    let mut t = table::new(["PE", "busy", "overhead", "balancing", "idle", "events", "dropped"]);
    let mut add = |label: String, times: &Times, events: u64, dropped: u64| {
        let shares = State::ALL.map(|s| percent(times.share(s)));
        let cells = [label].into_iter().chain(shares).chain([count(events), count(dropped)]);
        t.add_row(cells.collect::<Vec<_>>());
    };
    if u.pes.len() <= PES {
        u.pes.iter().for_each(|p| add(p.pe.to_string(), &p.times, p.events, p.dropped));
    } else {
        let share = |times: &Times| times.share(State::Busy);
        let by_share = |a: &&_, b: &&_| {
            let of = |p: &colony_timeline::analysis::utilization::PeTimes| share(&p.times);
            of(a).total_cmp(&of(b))
        };
        for (label, found) in
            [("least busy", u.pes.iter().min_by(by_share)), ("busiest", u.pes.iter().max_by(by_share))]
        {
            if let Some(p) = found {
                add(format!("{} ({label})", p.pe), &p.times, p.events, p.dropped);
            }
        }
    }
    let sum = |of: fn(&colony_timeline::analysis::utilization::PeTimes) -> u64| u.pes.iter().map(of).sum();
    add("all".into(), &u.all, sum(|p| p.events), sum(|p| p.dropped));
    table::trimmed(&t)
}

fn entries(s: &Summary) -> String {
    let mut t = table::new(["entry method", "calls", "of busy", "mean", "median", "99 %", "longest"]);
    for e in s.entries.iter().take(ROWS) {
        t.add_row([
            name(&e.name, 26),
            count(e.calls),
            percent(e.share),
            time(e.mean_ns),
            time(e.median_ns as f64),
            time(e.p99_ns as f64),
            time(e.max_ns as f64),
        ]);
    }
    let mut text = table::trimmed(&t);
    if s.entries.len() > ROWS {
        let _ = write!(text, "\n… and {} more (--json)", s.entries.len() - ROWS);
    }
    text
}

fn stragglers(s: &Summary) -> String {
    let found = &s.stragglers;
    if found.list.is_empty() {
        return "no execution took longer than the median of its entry method".into();
    }
    let mut t = table::numbers(&["straggler", "PE", "CPU", "at", "took", "median", "detours", "source"], 1);
    if let Some(column) = t.column_mut(7) {
        column.set_cell_alignment(comfy_table::CellAlignment::Left);
    }
    for x in found.list.iter().take(ROWS) {
        let since = x.begin_ns.saturating_sub(s.utilization.begin_ns);
        t.add_row([
            name(&x.entry, 18),
            x.pe.to_string(),
            x.cpu.map_or("–".into(), |cpu| cpu.to_string()),
            time(since as f64),
            time(x.duration_ns as f64),
            time(x.median_ns as f64),
            x.stolen_ns.map_or("–".into(), |ns| time(ns as f64)),
            name(&cause(x), 20),
        ]);
    }
    let mut text = table::trimmed(&t);
    if let Some(line) = noise(found) {
        let _ = write!(text, "\n{}", wrap(&line));
    }
    text
}

/// The source that took the most time from a straggler.
fn cause(s: &Straggler) -> String {
    match (s.stolen_ns, s.sources.as_slice()) {
        (None, _) => "not observed".into(),
        (Some(_), []) => "none seen".into(),
        (Some(_), [one]) => one.source.clone(),
        (Some(_), [first, rest @ ..]) => format!("{} +{}", name(&first.source, 16), rest.len()),
    }
}

/// The time that noise took from all executions.
fn noise(found: &Stragglers) -> Option<String> {
    let n = found.noise.as_ref()?;
    let mut text = format!("detours hit {} of {}", count(n.hit), counted(n.observed, "observed execution"),);
    if n.stolen_ns > 0 {
        let source = |s: &SourceTime| format!("{} {}", name(&s.source, 24), time(s.ns as f64));
        let sources: Vec<String> = n.sources.iter().take(3).map(source).collect();
        let _ = write!(text, " and took {} from them: {}", time(n.stolen_ns as f64), sources.join(", "));
    }
    Some(text)
}
