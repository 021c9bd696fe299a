// SPDX-License-Identifier: MIT OR Apache-2.0
//! A measurement as tables.

use std::fmt::Write;

use colony_measure::{Explained, Measurement, SourceReport};
use colony_study::format::{NOT_SEEN, seen};

use crate::ipi;
use crate::table::{self, name, wrap};
use crate::units::{count, counted, percent, three, time};
use crate::until;

/// Sources shown; the rest is summed up in one row.
const ROWS: usize = 16;

/// The measurement as text of at most 80 columns.
#[must_use]
pub fn render(m: &Measurement) -> String {
    let mut out = String::new();
    let w = &mut out;
    // writing to a String cannot fail
    let _ = head(w, m);
    let _ = writeln!(w, "{}", per_cpu(m));
    let _ = writeln!(w, "{}", sources(m));
    w.push_str(&ipi::render(m));
    let _ = measuring_itself(w, m);
    let _ = explained(w, m);
    for warning in &m.warnings {
        let _ = writeln!(w, "{}", wrap(&format!("note: {warning}")));
    }
    let observed = until::Observed {
        cpus: &m.cpus,
        seconds: m.per_cpu.iter().map(|c| c.observed_s).fold(0.0, f64::max),
        not_attributed: m.attribution.reason.as_deref(),
    };
    out.push_str(&until::render(m.until.as_ref(), &observed));
    out
}

fn head(w: &mut String, m: &Measurement) -> std::fmt::Result {
    writeln!(w, "{}", table::node(&m.node))?;
    let what = format!(
        "{} for {} s as {}, detours from {}; stolen: {}",
        m.cpus.named(),
        three(m.per_cpu.first().map_or(m.duration_s, |c| c.observed_s)),
        m.observer,
        time(m.threshold_ns as f64),
        percent(m.stolen_share()),
    );
    writeln!(w, "{}", wrap(&what))
}

fn per_cpu(m: &Measurement) -> comfy_table::Table {
    let mut t =
        table::new(["CPU", "detours", "per s", "stolen", "median", "99 %", "longest", "loop", "÷ bare"]);
    for c in &m.per_cpu {
        t.add_row([
            c.cpu.to_string(),
            count(c.detours),
            three(c.detours as f64 / c.observed_s),
            percent(c.stolen_share),
            time(c.lengths.p50_ns as f64),
            time(c.lengths.p99_ns as f64),
            time(c.lengths.max_ns as f64),
            format!("{:.1} ns", c.loop_ns),
            format!("{:.2}", c.loop_ratio),
        ]);
    }
    t
}

fn sources(m: &Measurement) -> comfy_table::Table {
    let mut t = table::new(["source", "events", "detours", "stolen", "of CPU", "median", "longest"]);
    for s in m.sources.iter().take(ROWS) {
        t.add_row(source_row(s));
    }
    if let Some(rest) = m.sources.get(ROWS..).filter(|r| !r.is_empty()) {
        let stolen: u64 = rest.iter().map(|s| s.stolen_ns).sum();
        let share: f64 = rest.iter().map(|s| s.stolen_share).sum();
        t.add_row([
            format!("{} more (--json)", rest.len()),
            String::new(),
            count(rest.iter().map(|s| s.detours).sum()),
            time(stolen as f64),
            percent(share),
        ]);
    }
    t
}

fn source_row(s: &SourceReport) -> [String; 7] {
    [
        name(&s.source.to_string(), 20),
        s.events.map_or_else(|| NOT_SEEN.into(), count),
        seen(s.detours, count(s.detours)),
        seen(s.stolen_ns, time(s.stolen_ns as f64)),
        seen(s.stolen_ns, percent(s.stolen_share)),
        seen(s.detours, time(s.lengths.p50_ns as f64)),
        seen(s.detours, time(s.lengths.max_ns as f64)),
    ]
}

/// Time that the measurement itself took, which is in no other figure.
fn measuring_itself(w: &mut String, m: &Measurement) -> std::fmt::Result {
    let Some(own) = m.measuring_itself.as_ref().filter(|o| o.events > Some(0)) else { return Ok(()) };
    let text = format!(
        "measuring itself: {} in {}, {} of CPU; in no figure above, in the trace as `observer`",
        time(own.stolen_ns as f64),
        counted(own.events.unwrap_or(0), "event"),
        percent(own.stolen_share),
    );
    writeln!(w, "{}", wrap(&text))
}

fn explained(w: &mut String, m: &Measurement) -> std::fmt::Result {
    let a = &m.attribution;
    if let Some(reason) = &a.reason {
        return writeln!(w, "{}", wrap(&format!("not attributed: {reason}")));
    }
    let say =
        |e: &Explained| format!("{} of stolen time, {} of detours", percent(e.stolen), percent(e.detours));
    let lost = count(a.lost_events);
    writeln!(w, "{}", wrap(&format!("explained: {}; lost events: {lost}", say(&a.explained))))?;
    if a.explained_without_throttle != a.explained {
        writeln!(w, "without throttle: {}", say(&a.explained_without_throttle))?;
    }
    if !a.missing_tracepoints.is_empty() {
        let missing = a.missing_tracepoints.join(", ");
        writeln!(w, "{}", wrap(&format!("this kernel has no tracepoint {missing}")))?;
    }
    Ok(())
}
