// SPDX-License-Identifier: MIT OR Apache-2.0
//! The proof of a run as tables.

use std::fmt::Write;

use colony_client::AgentStats;
use colony_client::Backend;
use colony_client::ExtStats;
use colony_sched::proof::{Proof, ProofSource, WindowTimes};
use colony_sched::run::RunReport;
use colony_stats::Distribution;

use crate::keeper;
use crate::spare;
use crate::table::{self, name, wrap};
use crate::units::{count, percent, three, time};

/// Threads shown; the rest is in the JSON.
const ROWS: usize = 10;
/// Bars of the lateness histogram.
const BAR: usize = 40;

/// A run's report as text of at most 80 columns.
#[must_use]
pub fn render(r: &RunReport) -> String {
    let mut out = String::new();
    let w = &mut out;
    let by = match r.backend {
        Backend::None => "none (windows only measured)",
        Backend::Daemon => "colonyd",
        Backend::SchedExt => "sched_ext",
        _ => "agent",
    };
    let head = format!(
        "windows: period {}, favored {} ({}) · backend: {by} · {}",
        time(r.windows.period_ns() as f64),
        time(r.windows.favored_ns() as f64),
        percent(r.windows.duty()),
        r.cpus.named(),
    );
    // writing to a String cannot fail
    let _ = writeln!(w, "{}", wrap(&head));
    let _ = writeln!(
        w,
        "ran {} s; job's CPU time {} s",
        three(r.wall_ns as f64 / 1e9),
        three(r.job_cpu_ns as f64 / 1e9)
    );
    let _ = writeln!(w, "{}", windows(&r.proof));
    let _ = deferred(w, &r.proof);
    if let Some(ext) = &r.sched_ext {
        let _ = scheduler(w, ext);
    }
    if let Some(agent) = &r.agent {
        let _ = switching(w, agent);
    }
    if let Some(spare) = &r.spare {
        let _ = spare::render(w, spare);
    }
    if let Some(pages) = &r.pages {
        w.push_str(&crate::pages::render(pages));
    }
    if !r.left_running.is_empty() {
        let pids: Vec<String> = r.left_running.iter().map(ToString::to_string).collect();
        let pids = pids.join(" ");
        let _ = writeln!(w, "{}", wrap(&format!("note: outlived the program, in their own class: {pids}")));
    }
    for note in r.proof.notes.iter().chain(&r.warnings) {
        let _ = writeln!(w, "{}", wrap(&format!("note: {note}")));
    }
    out
}

fn windows(p: &Proof) -> comfy_table::Table {
    let mut t =
        table::new(["windows", "observed", "job ran", "stolen", "of time", "contended", "waking", "irqs"]);
    for (window, x) in [("favored", &p.favored), ("regular", &p.regular)] {
        t.add_row(window_row(window, x));
    }
    t
}

fn window_row(window: &str, x: &WindowTimes) -> [String; 8] {
    [
        window.into(),
        time(x.observed_ns as f64),
        // the job ran there too while one of its tasks waited for another
        time((x.job_ns + x.contended_ns) as f64),
        time(x.stolen_ns as f64),
        percent(x.stolen_ns as f64 / x.observed_ns.max(1) as f64),
        time(x.contended_ns as f64),
        time(x.waking_ns as f64),
        time(x.interrupts_ns as f64),
    ]
}

fn deferred(w: &mut String, p: &Proof) -> std::fmt::Result {
    if p.source == ProofSource::Schedstat {
        return writeln!(w, "no names: the proof comes from /proc/<tid>/schedstat (BPF needs root)");
    }
    if p.threads.is_empty() {
        return writeln!(w, "nothing ran while the job waited");
    }
    let mut t = table::new(["ran while the job waited", "in favored", "in regular", "times"]);
    for d in p.threads.iter().take(ROWS) {
        t.add_row([
            name(&format!("thread:{}", d.comm), 24),
            time(d.favored_ns as f64),
            time(d.regular_ns as f64),
            count(d.times),
        ]);
    }
    if let Some(rest) = p.threads.get(ROWS..).filter(|r| !r.is_empty()) {
        t.add_row([
            format!("{} more", rest.len()),
            time(rest.iter().map(|d| d.favored_ns).sum::<u64>() as f64),
            time(rest.iter().map(|d| d.regular_ns).sum::<u64>() as f64),
            count(rest.iter().map(|d| d.times).sum()),
        ]);
    }
    writeln!(w, "{t}")
}

/// Counters of the scheduler in the kernel.
fn scheduler(w: &mut String, e: &ExtStats) -> std::fmt::Result {
    if !e.deferred.is_empty() {
        let mut t = table::new(["held back", "in favored", "longest", "times"]);
        for d in e.deferred.iter().take(ROWS) {
            t.add_row([
                name(&format!("thread:{}", d.comm), 24),
                time(d.total_ns as f64),
                time(d.max_ns as f64),
                count(d.times),
            ]);
        }
        writeln!(w, "{t}")?;
    }
    lateness(w, e.edges, e.missed, &e.lateness)?;
    writeln!(w, "{}", wrap(&keeper::favored(e)))
}

/// Counters of the agent.
fn switching(w: &mut String, a: &AgentStats) -> std::fmt::Result {
    lateness(w, a.edges, a.missed, &a.lateness)?;
    writeln!(w, "{}", wrap(&keeper::switches(a)))
}

/// Edges by how late they were: a bar a factor of two.
fn lateness(w: &mut String, edges: u64, missed: u64, l: &Distribution) -> std::fmt::Result {
    writeln!(w, "{}", wrap(&keeper::edges(edges, missed, l)))?;
    let octaves = l.octaves();
    let most = octaves.iter().map(|&(_, n)| n).max().unwrap_or(1).max(1);
    for (up_to, n) in octaves {
        let bar = (n * BAR as u64).div_ceil(most) as usize;
        writeln!(w, "  ≤ {:>8} {:>8} {}", time(up_to as f64), count(n), "█".repeat(bar))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_ran_too_while_its_own_tasks_waited_for_each_other() {
        let times = WindowTimes {
            observed_ns: 10_000_000,
            job_ns: 6_000_000,
            contended_ns: 3_000_000,
            ..WindowTimes::default()
        };
        let row = window_row("favored", &times);
        assert_eq!((row[2].as_str(), row[5].as_str()), ("9.00 ms", "3.00 ms"));
    }
}
