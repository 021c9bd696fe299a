//! A measurement as tables.

use std::fmt::Write;

use colony_noise::measure::{Explained, Measurement};

use crate::table::{self, name, wrap};
use crate::units::{count, percent, three, time};

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
    let _ = explained(w, m);
    for warning in &m.warnings {
        let _ = writeln!(w, "{}", wrap(&format!("note: {warning}")));
    }
    out
}

fn head(w: &mut String, m: &Measurement) -> std::fmt::Result {
    writeln!(w, "{}", table::node(&m.node))?;
    let what = format!(
        "CPUs {} for {} s as {}, detours from {}; stolen: {}",
        m.cpus,
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
    let mut t = table::new(["source", "detours", "stolen", "of CPU", "median", "99 %", "longest"]);
    for s in m.sources.iter().take(ROWS) {
        let lengths = [s.lengths.p50_ns, s.lengths.p99_ns, s.lengths.max_ns];
        let [p50, p99, max] = lengths.map(|ns| if s.detours == 0 { "–".into() } else { time(ns as f64) });
        t.add_row([
            name(&s.source.to_string(), 22),
            count(s.detours),
            time(s.stolen_ns as f64),
            percent(s.stolen_share),
            p50,
            p99,
            max,
        ]);
    }
    if let Some(rest) = m.sources.get(ROWS..).filter(|r| !r.is_empty()) {
        let stolen: u64 = rest.iter().map(|s| s.stolen_ns).sum();
        let share: f64 = rest.iter().map(|s| s.stolen_share).sum();
        t.add_row([
            format!("{} more (--json)", rest.len()),
            count(rest.iter().map(|s| s.detours).sum()),
            time(stolen as f64),
            percent(share),
        ]);
    }
    t
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
