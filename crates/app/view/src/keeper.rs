// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sentences on the backend and its counters that `colony run` and `colony top` share.

use colony_client::AgentStats;
use colony_client::Backend;
use colony_client::ExtStats;
use colony_client::StatsReport;
use colony_stats::Distribution;

use crate::table::name;
use crate::units::{count, counted, percent, time};

/// Threads named in one line.
const NAMED: usize = 5;

/// Number and lateness of edges.
pub(crate) fn edges(edges: u64, missed: u64, late: &Distribution) -> String {
    format!(
        "edges: {} ({} missed), late: median {}, 99 % {}, at most {}",
        count(edges),
        count(missed),
        time(late.p50_ns as f64),
        time(late.p99_ns as f64),
        time(late.max_ns as f64),
    )
}

/// Use of favored windows beside the job.
pub(crate) fn favored(e: &ExtStats) -> String {
    format!(
        "favored windows: {}, with other work in {}, {} in the worst; filled while the job slept {}, exempt {}; \
         ticks: {} in favored, {} in regular windows",
        count(e.favored_windows),
        count(e.windows_hit),
        time(e.worst_window_ns as f64),
        time(e.favored.filled_ns as f64),
        time(e.favored.exempt_ns as f64),
        count(e.ticks_favored),
        count(e.ticks_regular),
    )
}

/// The agent's counters, and the CPU time it took.
pub(crate) fn switches(a: &AgentStats) -> String {
    format!(
        "agent: {}, {} joined, {} of one CPU",
        if a.switches == 1 { "1 switch".into() } else { format!("{} switches", count(a.switches)) },
        counted(a.joined, "task"),
        percent(a.cpu_ns as f64 / a.wall_ns.max(1) as f64),
    )
}

/// Time stolen in favored windows since the job's first.
fn stolen(e: &ExtStats) -> String {
    format!(
        "stolen in favored windows: {}, {} of {}",
        time((e.favored.other_ns + e.favored.exempt_ns) as f64),
        percent(e.stolen_share()),
        time(e.favored.total_ns() as f64),
    )
}

/// The threads held back the longest.
fn held_back(e: &ExtStats) -> Option<String> {
    // they come with the longest first
    let named: Vec<_> = e
        .deferred
        .iter()
        .take(NAMED)
        .map(|d| format!("{} {}", name(&d.comm, 16), time(d.total_ns as f64)))
        .collect();
    (!named.is_empty()).then(|| format!("held back the longest: {}", named.join(", ")))
}

/// A heading and sentences about what keeps the windows of `colonyd`'s job, or did for the last one; nothing
/// before the first job.
pub(crate) fn of_daemon(stats: &StatsReport) -> Option<(String, Vec<String>)> {
    let by = match stats.kept_by {
        Backend::Daemon => "colonyd",
        Backend::SchedExt => "sched_ext",
        Backend::Agent => "the agent",
        Backend::None => "nothing any more",
    };
    let heading = match stats.job.active {
        true => format!(" windows of the job, kept by {by} "),
        false => format!(" windows of the last job, kept by {by} "),
    };
    let mut lines = Vec::new();
    if let Some(e) = &stats.sched_ext {
        lines.push(stolen(e));
        lines.push(edges(e.edges, e.missed, &e.lateness));
        lines.push(favored(e));
        lines.extend(held_back(e));
    }
    if let Some(a) = &stats.agent {
        lines.push(edges(a.edges, a.missed, &a.lateness));
        lines.push(switches(a));
    }
    lines.extend(stats.warnings.iter().map(|warning| format!("note: {warning}")));
    (!lines.is_empty()).then_some((heading, lines))
}
