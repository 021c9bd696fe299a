// SPDX-License-Identifier: MIT OR Apache-2.0
//! A measurement of wake-up latency as tables.

use std::fmt::Write;

use colony_measure::wakeups::{DelayPart, Latencies, LongestWakeup, WakeupMeasurement};
use colony_study::format::{NOT_KNOWN, NOT_SEEN, seen};
use colony_trace::wakeups::{Quantile, Row, WakeUps};

use crate::table::{self, name, wrap};
use crate::units::{count, counted, percent, time};
use crate::until;

/// Sources shown; the rest is summed up in one row.
const ROWS: usize = 16;
/// Parts of the longest latency shown, the longest ones.
const PARTS: usize = 5;

/// The measurement as text of at most 80 columns.
#[must_use]
pub fn render(m: &WakeupMeasurement) -> String {
    let mut out = String::new();
    // writing to a String cannot fail
    let _ = write_all(&mut out, m);
    let observed = until::Observed {
        cpus: &m.cpus,
        seconds: m.per_cpu.iter().map(|c| c.observed_s).fold(0.0, f64::max),
        not_attributed: m.attribution.reason.as_deref(),
    };
    out.push_str(&until::render(m.until.as_ref(), &observed));
    out
}

fn write_all(w: &mut String, m: &WakeupMeasurement) -> std::fmt::Result {
    writeln!(w, "{}", table::node(&m.node))?;
    let what = format!(
        "{} for {} as {}, a timer every {}: latency from its instant to its interrupt, and to the thread that waits",
        m.cpus.named(),
        time(m.per_cpu.iter().map(|c| c.observed_s).fold(0.0, f64::max) * 1e9),
        m.class,
        time(m.interval_ns as f64),
    );
    writeln!(w, "{}", wrap(&what))?;
    writeln!(w, "{}", table::trimmed(&per_cpu(m)))?;
    missed(w, m)?;
    if !m.sources.is_empty() {
        writeln!(w, "{}", table::trimmed(&sources(m)))?;
    }
    longest(w, m)?;
    measuring_itself(w, m)?;
    explained(w, m)?;
    for warning in &m.warnings {
        writeln!(w, "{}", wrap(&format!("note: {warning}")))?;
    }
    Ok(())
}

fn per_cpu(m: &WakeupMeasurement) -> comfy_table::Table {
    let mut t = table::numbers(
        &["CPU", "latency to", "number", "shortest", "median", "99 %", "99.9 %", "longest"],
        2,
    );
    for c in &m.per_cpu {
        t.add_row(latency_row(c.cpu.to_string(), "interrupt", c.interrupt.as_ref()));
        t.add_row(latency_row(String::new(), "thread", c.thread.as_ref()));
    }
    t
}

/// Latencies that another tool measured, as text of at most 80 columns.
#[must_use]
pub fn of_other_tool(found: &WakeUps) -> String {
    let time_s = found.observed_s.map_or_else(String::new, |s| format!(" for {}", time(s * 1e9)));
    let what = format!("wake-up latencies that {} measured{time_s}; no detours", found.tool);
    let mut t =
        table::numbers(&["of", "latency to", "number", "shortest", "median", "99 %", "99.9 %", "longest"], 2);
    for row in &found.rows {
        t.add_row(row_of_other_tool(row));
    }
    format!("{}\n{}\n", wrap(&what), table::trimmed(&t))
}

fn row_of_other_tool(row: &Row) -> [String; 8] {
    let (of, to) = (row.of.clone(), row.latency_to.to_owned());
    let unknown = || NOT_KNOWN.to_owned();
    let Some(l) = &row.latencies else {
        return [of, to, NOT_SEEN.to_owned(), unknown(), unknown(), unknown(), unknown(), unknown()];
    };
    let known = |ns: Option<u64>| ns.map_or_else(unknown, |ns| time(ns as f64));
    let quantile = |quantile: Option<Quantile>| {
        let Some(q) = quantile else { return unknown() };
        format!("{}{}", if q.is_lower_bound { "> " } else { "" }, time(q.ns as f64))
    };
    [
        of,
        to,
        count(l.count),
        known(l.min_ns),
        quantile(l.p50_ns),
        quantile(l.p99_ns),
        quantile(l.p999_ns),
        known(l.max_ns),
    ]
}

fn latency_row(cpu: String, to: &str, latencies: Option<&Latencies>) -> [String; 8] {
    let Some(l) = latencies else {
        let none = || NOT_KNOWN.to_owned();
        return [cpu, to.to_owned(), NOT_SEEN.to_owned(), none(), none(), none(), none(), none()];
    };
    let ns = |ns: u64| time(ns as f64);
    let known = |quantile: Option<u64>| quantile.map_or_else(|| NOT_KNOWN.to_owned(), ns);
    [
        cpu,
        to.to_owned(),
        count(l.count),
        ns(l.min_ns),
        ns(l.p50_ns),
        known(l.p99_ns),
        known(l.p999_ns),
        ns(l.max_ns),
    ]
}

/// Instants that passed while a thread waited for an earlier one.
fn missed(w: &mut String, m: &WakeupMeasurement) -> std::fmt::Result {
    let missed = m.per_cpu.iter().filter(|c| c.missed > 0);
    let each: Vec<String> = missed.map(|c| format!("{} on CPU {}", count(c.missed), c.cpu)).collect();
    if each.is_empty() {
        return Ok(());
    }
    let text = format!(
        "instants that passed while the thread still waited for an earlier one, in no row: {}",
        each.join(", ")
    );
    writeln!(w, "{}", wrap(&text))
}

fn sources(m: &WakeupMeasurement) -> comfy_table::Table {
    let mut t = table::new(["source", "wake-ups", "time", "of all latency", "longest"]);
    for s in m.sources.iter().take(ROWS) {
        t.add_row([
            name(&s.source.to_string(), 32),
            seen(s.wakeups, count(s.wakeups)),
            seen(s.time_ns, time(s.time_ns as f64)),
            seen(s.time_ns, percent(s.share)),
            s.longest_ns.map_or_else(|| NOT_SEEN.into(), |ns| time(ns as f64)),
        ]);
    }
    if let Some(rest) = m.sources.get(ROWS..).filter(|r| !r.is_empty()) {
        t.add_row([
            format!("{} more (--json)", rest.len()),
            seen(rest.iter().map(|s| s.wakeups).sum(), count(rest.iter().map(|s| s.wakeups).sum())),
            time(rest.iter().map(|s| s.time_ns).sum::<u64>() as f64),
            percent(rest.iter().map(|s| s.share).sum()),
        ]);
    }
    t
}

/// The longest latency and its parts.
fn longest(w: &mut String, m: &WakeupMeasurement) -> std::fmt::Result {
    let Some(LongestWakeup { cpu, after_ns, latency_ns, parts, .. }) = m.longest.first() else {
        return Ok(());
    };
    let ns = |ns: u64| time(ns as f64);
    let part = |p: &DelayPart| format!("{} {}", name(&p.source.to_string(), 32), ns(p.duration_ns));
    let mut shown: Vec<String> = parts.iter().take(PARTS).map(part).collect();
    shown.extend(parts.get(PARTS..).filter(|rest| !rest.is_empty()).map(|rest| {
        format!("{} more sources {} (--json)", rest.len(), ns(rest.iter().map(|p| p.duration_ns).sum()))
    }));
    let parts = if shown.is_empty() { String::new() } else { format!(": {}", shown.join(", ")) };
    let text = format!("longest: {} on CPU {cpu}, {} after the start{parts}", ns(*latency_ns), ns(*after_ns));
    writeln!(w, "{}", wrap(&text))
}

/// Wake-ups that the measurement itself delayed, which are in no other figure.
fn measuring_itself(w: &mut String, m: &WakeupMeasurement) -> std::fmt::Result {
    let own: u64 = m.per_cpu.iter().filter_map(|c| c.measuring_itself).sum();
    if own == 0 {
        return Ok(());
    }
    let text = format!(
        "measuring itself delayed {} most, which no figure includes; in others its part is `observer`",
        counted(own, "more wake-up")
    );
    writeln!(w, "{}", wrap(&text))
}

fn explained(w: &mut String, m: &WakeupMeasurement) -> std::fmt::Result {
    let a = &m.attribution;
    if let Some(reason) = &a.reason {
        return writeln!(w, "{}", wrap(&format!("not attributed: {reason}")));
    }
    if let Some(share) = a.explained {
        let lost = count(a.lost_events);
        writeln!(w, "explained: {} of all latency; lost events: {lost}", percent(share))?;
    }
    if !a.missing_tracepoints.is_empty() {
        let missing = a.missing_tracepoints.join(", ");
        writeln!(w, "{}", wrap(&format!("this kernel has no tracepoint {missing}")))?;
    }
    Ok(())
}
