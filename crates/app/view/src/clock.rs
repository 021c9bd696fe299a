// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clocks as tables.

use std::fmt::Write;

use colony_client::{Coordination, Mode};
use colony_clock::simulate::Simulation;
use colony_clock::sync::SyncReport;
use colony_time::ClockQuality;
use colony_time::quality::Leap;

use crate::table::{self, name, wrap};
use crate::units::{count, counted, three, time};

/// Nodes shown; the rest is in the JSON.
const ROWS: usize = 24;

/// The kernel's clock state, and colonyd's judgement of it if colonyd runs.
#[must_use]
pub fn quality(q: &ClockQuality, daemon: Option<&Coordination>) -> String {
    let mut out = String::new();
    let source = q.source.as_deref().map(|s| name(s, 40));
    let state = match (q.synchronised, source) {
        (true, Some(source)) => format!("disciplined by {source}"),
        (true, None) => "disciplined, though by no program that is known".into(),
        (false, Some(source)) => format!("not synchronised, although {source} runs"),
        (false, None) => "not synchronised: nobody disciplines it".into(),
    };
    // writing to a String cannot fail
    let _ = writeln!(out, "clock      {state}");
    let bound = match q.error_bound_ns {
        Some(ns) => format!("within {} of UTC", time(ns as f64)),
        None if q.synchronised => "unknown: its source tells the kernel no bound".into(),
        None => "unknown".into(),
    };
    let _ = writeln!(out, "error      {bound}");
    let tai = match q.tai_offset_s {
        0 => "the kernel does not know its offset: TAI shows UTC here".into(),
        s => format!("{s} s ahead of UTC"),
    };
    let _ = writeln!(out, "TAI        {tai}");
    let _ = writeln!(out, "rate       corrected by {} ppm", three(q.frequency_ppm));
    if let Some(leap) = q.leap {
        let what = if leap == Leap::Insert { "one more" } else { "one less" };
        let _ = writeln!(out, "leap       {what} second at the end of the day (UTC)");
    }
    match daemon {
        Some(c) => out.push_str(&kept(c)),
        None => out.push_str("colonyd    does not run here\n"),
    }
    out
}

/// colonyd's judgement of the clock.
fn kept(c: &Coordination) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}", wrap(&format!("colonyd    {}", coordination(c))));
    if let Some(cluster) = &c.cluster {
        let text = format!(
            "cluster    clock of {}: {} ahead of this one, gains {} ppm, estimated {} ago",
            name(&cluster.reference, 40),
            time(cluster.offset_ns as f64),
            three(cluster.drift_ppm),
            time(cluster.age_ns as f64),
        );
        let _ = writeln!(out, "{}", wrap(&text));
    }
    if let (steps @ 1.., Some(last)) = (c.steps, c.last_step_ns) {
        let _ = writeln!(out, "set        {}, last by {}", counted(steps, "time"), time(last as f64));
    }
    out
}

/// Quality of the coordination in a few words: `coordinated within 21.0 µs`.
#[must_use]
pub fn coordination(c: &Coordination) -> String {
    let reason = || c.reason.as_deref().unwrap_or("for no reason that is known");
    match (c.mode, c.error_bound_ns) {
        (Mode::Coordinated, Some(bound)) => {
            format!("coordinated within {}, guards of {}", time(bound as f64), time(c.guard_ns as f64))
        }
        (Mode::Coordinated, None) => "coordinated".into(),
        (Mode::OwnPhase, _) => format!("uncoordinated (own phase): {}", reason()),
        (Mode::Off, _) => format!("uncoordinated (no windows are kept): {}", reason()),
    }
}

/// Table of all nodes' offsets and bounds.
#[must_use]
pub fn sync(r: &SyncReport) -> String {
    let mut nodes: Vec<_> = r.nodes.iter().collect();
    let largest = nodes.iter().map(|n| n.estimate.bound_ns).max().unwrap_or(0);
    let growth = nodes.iter().map(|n| n.estimate.growth_ppm).fold(0.0, f64::max);
    let mut out = format!(
        "{} in {}; errors under {}, growing by {} a second at most\n",
        counted(u64::from(r.node_count), "node"),
        counted(r.rounds.into(), "round"),
        time(largest as f64),
        time(growth * 1e3),
    );
    let left_out = nodes.len().saturating_sub(ROWS);
    if left_out > 0 {
        nodes.sort_by_key(|n| std::cmp::Reverse(n.estimate.bound_ns));
        nodes.truncate(ROWS);
    }
    let header = ["host", "rank", "offset", "drift ppm", "bound", "residual", "trip", "lost"];
    let mut t = table::new(header);
    for n in &nodes {
        t.add_row([
            name(&n.host, 16),
            n.rank.to_string(),
            time(n.estimate.offset_ns as f64),
            format!("{:.2}", n.estimate.drift_ppm),
            time(n.estimate.bound_ns as f64),
            time(n.residual_ns),
            time(n.round_trip_ns as f64),
            format!("{}/{}", n.lost, n.trips.saturating_add(n.lost)),
        ]);
    }
    let _ = writeln!(out, "{t}");
    if left_out > 0 {
        let _ = writeln!(out, "not shown (--json): {} with smaller errors", counted(left_out as u64, "node"));
    }
    if r.dropped.any() {
        let _ = writeln!(out, "{}", wrap(&format!("dropped datagrams: {}", r.dropped)));
    }
    out
}

/// Residuals and bounds of simulated nodes.
#[must_use]
pub fn simulation(s: &Simulation) -> String {
    let mut out = String::new();
    for (what, rows) in [("nodes", &s.by_nodes), ("steps", &s.by_depth)] {
        let mut t =
            table::new([what, "rounds", "median", "99 %", "largest", "bound: median", "largest", "outside"]);
        for r in rows {
            t.add_row([
                if what == "nodes" { count(u64::from(r.nodes)) } else { r.depth.to_string() },
                r.rounds.to_string(),
                time(r.residual_p50_ns as f64),
                time(r.residual_p99_ns as f64),
                time(r.residual_max_ns as f64),
                time(r.bound_p50_ns as f64),
                time(r.bound_max_ns as f64),
                r.outside.to_string(),
            ]);
        }
        let _ = writeln!(out, "{t}\n");
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use colony_clock::simulate::{Model, simulate};
    use colony_clock::sync::{Dropped, NodeResult};
    use colony_time::Estimate;

    fn fits(text: &str) {
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
    }

    #[test]
    fn a_clock_is_told_in_few_lines() {
        let q = ClockQuality { source: Some("chronyd\u{1b}[2J".into()), ..ClockQuality::default() };
        let text = quality(&q, None);
        assert!(text.contains("not synchronised") && !text.contains('\u{1b}'), "{text}");
        fits(&text);
        let c = Coordination {
            mode: Mode::OwnPhase,
            reason: Some(
                "nobody disciplines this node's clock (chronyd, or colony clock sync --feed)".into(),
            ),
            kept: None,
            guard_ns: 0,
            error_bound_ns: None,
            error_bound_source: None,
            max_error_ns: 500_000,
            cluster: None,
            steps: 2,
            last_step_ns: Some(-37_000_000_000),
            kernel: q.clone(),
        };
        let good =
            ClockQuality { synchronised: true, error_bound_ns: Some(12_345), leap: Some(Leap::Insert), ..q };
        let text = quality(&good, Some(&c));
        for part in ["12.3 µs of UTC", "own phase", "set        2 times, last by -37.0 s", "one more second"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        fits(&text);
    }

    #[test]
    fn many_nodes_are_the_worst_ones() {
        let node = |rank: u32| NodeResult {
            rank,
            host: format!("a-very-long-name-of-a-node-{rank}"),
            depth: 1,
            estimate: Estimate {
                bound_ns: u64::from(rank) * 1000,
                offset_ns: -36_000_000_000_000,
                ..Estimate::EXACT
            },
            round_trip_ns: 60_000,
            residual_ns: 12.0,
            trips: 100,
            lost: 1,
        };
        let mut r = SyncReport {
            schema: SyncReport::SCHEMA.into(),
            cycle: 1,
            node_count: 40,
            rounds: 6,
            round_ns: 1,
            interval_ns: 1,
            wander_ppm: 0.1,
            rank: 0,
            dropped: Dropped::default(),
            nodes: (0..40).map(node).collect(),
        };
        let text = sync(&r);
        assert!(text.contains("16 nodes with smaller errors") && text.contains("39.0 µs"), "{text}");
        fits(&text);
        r.nodes.truncate(2);
        assert_eq!(sync(&r).lines().count(), 5);
        r.dropped = Dropped { other_version: 3, malformed: 1, ..Dropped::default() };
        let text = sync(&r);
        assert!(text.contains("dropped datagrams: 1 malformed, 3 of another version"), "{text}");
        fits(&text);
    }

    #[test]
    fn a_simulation_fits_a_terminal() {
        let model = Model { nodes: 40, round_ns: 100_000_000, ..Model::default() };
        let text = simulation(&simulate(&model, |_, _| 10_000).expect("possible"));
        assert!(text.lines().filter(|l| l.starts_with("40 ")).count() == 1, "{text}");
        fits(&text);
    }
}
