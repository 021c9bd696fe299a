// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony noise`: traces read, converted, compared, fitted.

use std::path::PathBuf;
use std::process::ExitCode;

use colony_time::{DutyCycle, Windows};
use colony_trace::convert::{self, Format};
use colony_trace::diff::Diff;
use colony_trace::summary::Summary;
use colony_trace::wakeups::WakeUps;
use colony_trace::{Trace, periodic};
use colony_view::trace as view;
use serde::Serialize;

use crate::words::{Ns, duty, ns, some_of};

/// Read, convert, compare and fit noise traces
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    Show(Show),
    Convert(Convert),
    Diff(DiffArgs),
    Fit(super::sim::fit::Args),
}

/// Say what a trace holds: sources, what is periodic, the split into windows
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony noise show node.parquet
  colony noise show node.parquet --period 100ms --duty 95%")]
struct Show {
    /// The trace, in any format `colony noise convert` reads, or wake-up latencies of cyclictest or rtla timerlat hist
    trace: PathBuf,
    /// Split it by windows of this period
    #[arg(long, value_parser = ns, value_name = "TIME", requires = "duty")]
    period: Option<Ns>,
    /// Favored share of the period
    #[arg(long, value_parser = duty, value_name = "DUTY", requires = "period")]
    duty: Option<DutyCycle>,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// Convert a trace between formats
///
/// The content of the input and the name of the output determine the format; --from and --to override them.
#[derive(clap::Args)]
#[command(
    after_help = "Formats: parquet, csv, netgauge, osnoise (or rtla), chrome; only read: sched (or ftrace),
hwlat, histogram, ftq, fwq; only written: hdr. Files compressed with gzip or zstd are read too.
Examples:
  colony noise convert node.parquet node.csv
  colony noise convert all.parquet node2.parquet --node 2     one node of several
  colony noise convert node.parquet node.json --to chrome     for chrome://tracing or Perfetto
  colony noise convert osnoise.txt node.parquet --from rtla
  colony noise convert sched_switch.txt.gz node.parquet       text of trace-cmd or perf script"
)]
struct Convert {
    /// The trace to read
    input: PathBuf,
    /// The file to write
    output: PathBuf,
    /// Format of the input [default: by its content]
    #[arg(long, value_name = "FORMAT")]
    from: Option<Format>,
    /// Format of the output [default: by its name]
    #[arg(long, value_name = "FORMAT")]
    to: Option<Format>,
    /// Keep the detours of this node alone
    #[arg(long, value_name = "NUMBER")]
    node: Option<u32>,
}

/// Compare two traces: did the change help?
///
/// Every figure with the 95 % confidence interval of its difference. A dash: too few detours for an interval.
#[derive(clap::Args)]
#[command(after_help = "Example:
  colony noise diff before.parquet after.parquet")]
struct DiffArgs {
    /// The trace before the change
    before: PathBuf,
    /// The trace after it
    after: PathBuf,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// JSON document of `colony noise show --json`.
#[derive(Serialize)]
struct Shown {
    schema: &'static str,
    #[serde(serialize_with = "unknown_as_null")]
    meta: colony_trace::TraceMeta,
    summary: Summary,
    /// `None` for a trace whose detours are placed at random: it has no periods.
    periodic: Option<Vec<periodic::Finding>>,
}

/// The metadata of a trace file, in which 0 stands for a figure that its tool did not state.
fn unknown_as_null<S: serde::Serializer>(meta: &colony_trace::TraceMeta, to: S) -> Result<S::Ok, S::Error> {
    let mut value = serde_json::to_value(meta).map_err(serde::ser::Error::custom)?;
    for field in ["tsc_hz", "smallest_loop_ns", "observed_s"] {
        if let Some(figure) = value.get_mut(field).filter(|figure| figure.as_f64() == Some(0.0)) {
            *figure = serde_json::Value::Null;
        }
    }
    value.serialize(to)
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Show(a) => show(&a)?,
        Action::Convert(a) => convert(&a)?,
        Action::Diff(a) => diff(&a)?,
        Action::Fit(a) => super::sim::fit::run(&a)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn convert(a: &Convert) -> anyhow::Result<()> {
    let mut trace = super::read_trace_as(&a.input, a.from)?;
    if let Some(node) = a.node {
        let nodes = trace.nodes();
        if !nodes.contains(&node) {
            let there =
                if nodes.is_empty() { "no detours".into() } else { format!("nodes {}", some_of(&nodes)) };
            let file = a.input.display();
            return Err(crate::exit::WrongUse(format!(
                "{file} has no detours of node {node}; it has {there}"
            ))
            .into());
        }
        trace = trace.of_node(node);
    }
    Ok(convert::write(&trace, &a.output, a.to)?)
}

/// JSON document of `colony noise show --json` for wake-up latencies.
#[derive(Serialize)]
struct ShownWakeUps {
    schema: &'static str,
    #[serde(flatten)]
    wakeups: WakeUps,
}

fn show_wakeups(a: &Show, wakeups: WakeUps) -> anyhow::Result<()> {
    if a.period.is_some() {
        return Err(crate::exit::wrong(format!(
            "--period and --duty divide detours into windows, and {} holds how late threads woke up",
            a.trace.display()
        )));
    }
    for note in &wakeups.notes {
        note!("{}: {note}", a.trace.display());
    }
    let shown = ShownWakeUps { schema: "colony.noise.wakeups/1", wakeups };
    super::print(a.json, &shown, |s| colony_view::wakeups::of_other_tool(&s.wakeups))
}

fn show(a: &Show) -> anyhow::Result<()> {
    if let Some(wakeups) = colony_trace::wakeups::read(&a.trace)? {
        return show_wakeups(a, wakeups);
    }
    let trace: Trace = super::read_trace(&a.trace)?;
    let windows = a
        .period
        .zip(a.duty)
        .map(|(period, duty)| Windows::new(period.0, duty, 0))
        .transpose()
        .map_err(|e| crate::exit::WrongUse(e.to_string()))?;
    let shown = Shown {
        schema: "colony.noise.show/1",
        summary: Summary::of(&trace, windows),
        periodic: (!trace.meta.has_random_instants).then(|| periodic::of_trace(&trace)),
        meta: trace.meta,
    };
    super::print(a.json, &shown, |s| view::summary(&s.meta, &s.summary, s.periodic.as_deref()))
}

fn diff(a: &DiffArgs) -> anyhow::Result<()> {
    let (before, after) = (super::read_trace(&a.before)?, super::read_trace(&a.after)?);
    let diff = Diff::of(&before, &after)?;
    super::print(a.json, &diff, view::diff)
}
