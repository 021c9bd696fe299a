// SPDX-License-Identifier: MIT OR Apache-2.0
//! Injected noise as tables: what was asked for beside what was achieved.

use std::fmt::Write;

use colony_inject::leibniz::LeibnizReport;
use colony_inject::noise_table::NoiseTable;
use colony_inject::{DetourReport, Injection, Quantiles, ReplayReport};
use colony_study::format;

use crate::table::{self, wrap};
use crate::units::{count, percent, three, time};

/// A run of detours.
#[must_use]
pub fn detours(r: &DetourReport) -> String {
    let p = &r.plan;
    let asked = format!(
        "asked for: {} every {}, phase {}, seed {}",
        time(p.length_ns as f64),
        time(p.interval_ns as f64),
        p.phase,
        p.seed
    );
    injection(&asked, &r.injection)
}

/// A replayed trace.
#[must_use]
pub fn replay(r: &ReplayReport) -> String {
    let cpus: Vec<String> = r.cpus.iter().map(|(from, to)| format!("{from}→{to}")).collect();
    let asked = format!(
        "asked for: {} s of the trace at speed {}, CPUs {}",
        three(r.trace_s),
        r.plan.speed,
        cpus.join(" ")
    );
    injection(&asked, &r.injection)
}

fn injection(asked: &str, i: &Injection) -> String {
    let mut out = String::new();
    let w = &mut out;
    // writing to a String cannot fail
    let _ = writeln!(w, "{}\nran {} s as {}", wrap(asked), three(i.elapsed_s), i.class);
    let mut t =
        table::new(["CPU", "made", "missed", "asked", "achieved", "of CPU", "too long", "late", "late 99 %"]);
    for c in &i.cpus {
        t.add_row([
            c.cpu.to_string(),
            count(c.made),
            count(c.missed),
            percent(c.duty_asked),
            percent(c.duty),
            percent(c.cpu_share),
            seen(&c.spin_error_ns, c.spin_error_ns.p50),
            seen(&c.late_ns, c.late_ns.p50),
            seen(&c.late_ns, c.late_ns.p99),
        ]);
    }
    let _ = writeln!(w, "{t}");
    if !i.check.is_empty() {
        let _ = writeln!(w, "\nas the victim saw it, before the run:");
        let _ = writeln!(w, "{}", victims(i));
    }
    for note in i.not_real_time.iter().chain(&i.warnings) {
        let _ = writeln!(w, "{}", wrap(&format!("note: {note}")));
    }
    out
}

/// A quantile of what was measured, nanoseconds.
fn seen(q: &Quantiles, ns: u64) -> String {
    format::seen(q.count, time(ns as f64))
}

fn victims(i: &Injection) -> comfy_table::Table {
    let mut t = table::new(["CPU", "asked/s", "seen/s", "length", "99 %", "interval", "buried", "foreign"]);
    for v in &i.check {
        t.add_row([
            v.cpu.to_string(),
            three(v.asked_per_s),
            three(v.seen_per_s),
            seen(&v.length_ns, v.length_ns.p50),
            seen(&v.length_ns, v.length_ns.p99),
            seen(&v.interval_ns, v.interval_ns.p50),
            count(v.buried),
            count(v.foreign),
        ]);
    }
    t
}

/// A run of noise daemons.
#[must_use]
pub fn leibniz(r: &LeibnizReport) -> String {
    let mut out = String::new();
    let w = &mut out;
    let what = format!(
        "Leibniz noise: {} asked for, up to {} terms, {} million terms/s here, {} s",
        percent(r.noise_asked),
        count(r.max_terms),
        three(r.terms_per_s / 1e6),
        three(r.elapsed_s),
    );
    let _ = writeln!(w, "{}", wrap(&what));
    let mut t = table::new(["CPU", "calculations", "mean", "noise made", "in the long run", "of CPU"]);
    for c in &r.cpus {
        t.add_row([
            c.cpu.to_string(),
            count(c.calculations),
            time(c.mean_calculation_ns),
            percent(c.noise),
            percent(c.noise_long_run),
            percent(c.cpu_share),
        ]);
    }
    let _ = writeln!(w, "{t}");
    for warning in &r.warnings {
        let _ = writeln!(w, "{}", wrap(&format!("note: {warning}")));
    }
    out
}

/// Fig. 4: terms to noise.
#[must_use]
pub fn noise_table(r: &NoiseTable) -> String {
    let mut t = table::new(["max terms", "on BG/L", "predicted", "measured", "long run", "published"]);
    for row in &r.rows {
        t.add_row([
            count(row.max_terms),
            count(row.bgl_max_terms),
            percent(row.predicted),
            percent(row.measured),
            percent(row.long_run),
            row.published.clone().unwrap_or_default(),
        ]);
    }
    format!("CPU {}: {} million terms/s\n{t}\n", r.cpu, three(r.terms_per_s / 1e6))
}
