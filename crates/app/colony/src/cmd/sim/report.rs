// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony sim --report`: the results as a page.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use colony_sim::detours::detours;
use colony_sim::spec::{Point, SchedulerSpec, Traces};
use colony_sim::sweep::Results;
use colony_study::report::{Schedule, Simulated, any_of};
use colony_view::sim as view;

/// Nodes of the picture of a schedule (Colony report, Fig. 2).
const PICTURED_NODES: u32 = 8;
/// Detours of all ranks of a pictured node. A schedule with more is left out.
const MOST_DETOURS: usize = 200_000;
/// Time that is pictured if there are no windows, nanoseconds; otherwise two periods.
const PICTURED_NS: u64 = 200_000_000;

/// Writes the page to `path`.
pub(super) fn write(path: &Path, results: &Results, traces: &Traces) -> anyhow::Result<()> {
    let (what, command) = (view::headline(&results.scenario), crate::words::command());
    let schedules = schedules(results, traces)?;
    let page = Simulated { results, what: &what, command: &command, schedules: &schedules }.page()?;
    colony_node::file::write_atomically::<std::io::Error>(path, |w| w.write_all(page.as_bytes()))
        .with_context(|| format!("writing {}", path.display()))
}

/// The schedule of each scheduler that lets noise reach the job, at the first of its points with most nodes.
fn schedules(results: &Results, traces: &Traces) -> anyhow::Result<Vec<Schedule>> {
    let points = || results.points.iter().map(|finished| &finished.point);
    let most = points().map(|point| point.nodes).max().unwrap_or(0);
    let period_ns = |scheduler: &SchedulerSpec| match scheduler {
        SchedulerSpec::Coordinated(windowed) => Some(windowed.period_ns),
        _ => None,
    };
    let longest = points().filter_map(|point| period_ns(&point.scheduler)).max();
    let span_ns = longest.map_or(PICTURED_NS, |ns| 2 * ns);
    let mut shown: Vec<&Point> = Vec::new();
    for point in points().filter(|p| p.nodes == most && p.scheduler != SchedulerSpec::None) {
        if shown.iter().all(|other| other.scheduler.name() != point.scheduler.name()) {
            shown.push(point);
        }
    }
    let all = shown.into_iter().map(|point| pictured(point, traces, span_ns));
    Ok(all.collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn pictured(point: &Point, traces: &Traces, span_ns: u64) -> anyhow::Result<Option<Schedule>> {
    let simulation = point.simulation(traces)?;
    let ranks_per_node = simulation.machine.ranks_per_node;
    let name = point.scheduler.name().to_owned();
    let ranks = 0..PICTURED_NODES.min(point.nodes) * ranks_per_node;
    let most = MOST_DETOURS / ranks_per_node as usize;
    let Some(detours) = detours(&simulation, ranks, span_ns, most)? else {
        note!("the page has no picture of {name}: a rank has more than {most} detours in it");
        return Ok(None);
    };
    let nodes = detours.chunks(ranks_per_node as usize).map(any_of).collect();
    Ok(Some(Schedule { name, span_ns, nodes, ranks_per_node }))
}
