// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony timeline`: time lines of object programs.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use colony_study::report::Recorded;
use colony_timeline::analysis::summary::Summary;
use colony_timeline::{Noise, Observed, Timeline, perfetto, projections, sample};
use colony_trace::{Detour, Problem, Trace, TraceBuilder, TraceMeta};
use colony_view::timeline as view;
use serde::Serialize;

use crate::exit::wrong;

/// Show where an object program's time went, and which noise delayed it
///
/// The runtime writes one file for each process of a run; every command takes the files of one run together. They also take the logs of a
/// Charm++ program: its .sts file, or the folder with it.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    Show(Show),
    Report(Report),
    Convert(Convert),
    Sample(Sample),
}

/// The files of a run, and the noise under it.
#[derive(clap::Args)]
struct Input {
    /// The time lines of a run, one file for each of its processes; or the .sts file of a Charm++ program, or the folder with it
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A noise trace that was measured while the program ran, for a host of the run; again for each host
    #[arg(long, value_name = "[HOST=]TRACE")]
    noise: Vec<String>,
}

/// Print utilization, entry methods and stragglers
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony timeline show run.*.timeline
  colony timeline show run.*.timeline --noise node.parquet     which detours made the stragglers
  colony timeline show run.*.timeline --noise n1=n1.parquet --noise n2=n2.parquet
  colony timeline show run.sts                                  logs of a Charm++ program
  colony timeline show run.*.timeline --json | jq '.entries[] | [.name, .calls, .share]'")]
struct Show {
    #[command(flatten)]
    input: Input,
    /// Stragglers to list
    #[arg(long, value_name = "N", default_value_t = 12)]
    stragglers: usize,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// Write one page with time lines, utilization, messages and stragglers
///
/// The page is one file. It opens without a network.
#[derive(clap::Args)]
#[command(after_help = "Example:
  colony timeline report run.*.timeline --noise node.parquet -o report.html")]
struct Report {
    #[command(flatten)]
    input: Input,
    /// The page to write
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
}

/// Write the run for another viewer
#[derive(clap::Args)]
#[command(after_help = "Formats:
  projections  FILE.sts and a FILE.N.log for each PE, for Projections of Charm++
  perfetto     one trace for ui.perfetto.dev, with the noise of --noise under it
  timeline     one file of all processes
Examples:
  colony timeline convert run.*.timeline --to projections -o run.sts
  colony timeline convert run.*.timeline --to perfetto -o run.perfetto-trace
  colony timeline convert run.sts --to perfetto -o run.perfetto-trace")]
struct Convert {
    #[command(flatten)]
    input: Input,
    /// Format to write
    #[arg(long, value_name = "FORMAT")]
    to: Format,
    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
}

/// Write the files of a sample run, to try the other commands with
///
/// The sample is a stencil of 16 blocks on 4 PEs in 2 processes, computed from a model. It is the same each time: no program runs. The
/// folder receives stencil.0.timeline, stencil.1.timeline, and the noise of the sample's node in noise.parquet.
#[derive(clap::Args)]
#[command(after_help = "Example:
  colony timeline sample sample
  colony timeline show sample/*.timeline --noise sample/noise.parquet")]
struct Sample {
    /// The folder to write to; it is created if it does not exist
    folder: PathBuf,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    Projections,
    Perfetto,
    Timeline,
}

/// JSON document of `colony timeline show --json`.
#[derive(Serialize)]
struct Shown {
    schema: &'static str,
    #[serde(flatten)]
    summary: Summary,
}

/// Parts of the run over which `--json` has the utilization.
const SLICES: usize = 100;

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Show(a) => show(&a)?,
        Action::Report(a) => report(&a)?,
        Action::Convert(a) => convert(&a)?,
        Action::Sample(a) => write_sample(&a.folder)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show(a: &Show) -> anyhow::Result<()> {
    let (timeline, noise) = a.input.read()?;
    let summary = Summary::of(&timeline, noise.as_ref(), SLICES, a.stragglers);
    let shown = Shown { schema: "colony.timeline.show/1", summary };
    super::print(a.json, &shown, |s| view::summary(&s.summary))
}

fn report(a: &Report) -> anyhow::Result<()> {
    super::can_write(&a.out)?;
    let (timeline, noise) = a.input.read()?;
    let command = crate::words::command();
    let page = Recorded { timeline: &timeline, noise: noise.as_ref(), command: &command }.page();
    colony_node::file::write_atomically::<std::io::Error>(&a.out, |w| w.write_all(page.as_bytes()))
        .with_context(|| format!("writing {}", a.out.display()))
}

fn convert(a: &Convert) -> anyhow::Result<()> {
    let (timeline, noise) = a.input.read()?;
    if !matches!(a.to, Format::Perfetto) && noise.is_some() {
        return Err(wrong("--noise goes with --to perfetto: the other formats have no place for noise"));
    }
    for text in &timeline.meta().notes {
        note!("note: {text}");
    }
    match a.to {
        Format::Projections => projections::write(&timeline, &a.out)?,
        Format::Perfetto => perfetto::write(&timeline, noise.as_ref(), &a.out)?,
        Format::Timeline => timeline.write(&a.out)?,
    }
    Ok(())
}

impl Input {
    fn read(&self) -> anyhow::Result<(Timeline, Option<Noise>)> {
        if !self.noise.is_empty()
            && let Some(run) = self.files.iter().find(|file| projections::is_run(file))
        {
            return Err(wrong(format!(
                "--noise cannot be laid under {}: logs of Projections count time from the begin of the program, and noise traces are \
                 in TAI; leave --noise out",
                run.display()
            )));
        }
        let timeline = Timeline::read_all(&self.files)?;
        let mut hosts: Vec<&str> = timeline.processes().iter().map(|p| p.host.as_str()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        let mut noise = None::<Noise>;
        for given in &self.noise {
            let named = given.split_once('=').filter(|(host, _)| hosts.contains(host));
            let path = named.map_or(given.as_str(), |(_, path)| path);
            let trace = super::read_trace(Path::new(path))?;
            let host = match named {
                Some((host, _)) => host,
                None => host_of(&trace, path, &hosts)?,
            };
            add_trace(noise.get_or_insert_default(), host, &trace);
        }
        Ok((timeline, noise))
    }
}

/// The host of the run that a trace is of: the one that the trace names, or the only one if it names none.
fn host_of<'a>(trace: &Trace, path: &str, hosts: &[&'a str]) -> anyhow::Result<&'a str> {
    let of_trace = trace.meta.node.as_ref().map(|n| n.host.as_str());
    let found = match of_trace {
        Some(host) => hosts.iter().find(|h| **h == host),
        None => hosts.first().filter(|_| hosts.len() == 1),
    };
    found.copied().ok_or_else(|| {
        let said = of_trace.map_or("names no host".into(), |host| format!("is of {host}"));
        let first = hosts.first().unwrap_or(&"HOST");
        wrong(format!(
            "the noise trace {path} {said}, and the run has {}; name the host: --noise {first}={path}",
            hosts.join(", ")
        ))
    })
}

fn write_sample(folder: &Path) -> anyhow::Result<()> {
    let (parts, rows) = sample::stencil();
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    for (rank, part) in parts.iter().enumerate() {
        part.write(&folder.join(format!("stencil.{rank}.timeline")))?;
    }
    Ok(sample_noise(&parts[0], &rows)?.write(&folder.join("noise.parquet"))?)
}

/// Adds a noise trace of one node as that of `host`.
fn add_trace(noise: &mut Noise, host: &str, trace: &Trace) {
    let names: Vec<String> = trace.sources.iter().map(ToString::to_string).collect();
    let name = |source: u16| names.get(usize::from(source)).map_or("unexplained", String::as_str);
    let rows = trace.detours.iter().map(|d| (d.cpu, d.start_ns, d.end_ns(), name(d.source)));
    let first = trace.detours.iter().map(|d| d.start_ns).min();
    let last = trace.detours.iter().map(Detour::end_ns).max();
    let length_ns = (trace.meta.observed_s.max(0.0) * 1e9) as i64;
    let observed = match length_ns {
        // a trace of another tool: its rows are all that is known
        0 => Observed { begin_ns: first.unwrap_or(0), end_ns: last.unwrap_or(0) },
        length => {
            let begin_ns = trace.meta.start_ns;
            Observed { begin_ns, end_ns: begin_ns.saturating_add(length) }
        }
    };
    noise.add(host, observed, rows);
}

/// The noise of the sample node as a trace.
fn sample_noise(run: &Timeline, rows: &[sample::Row]) -> Result<Trace, Problem> {
    let (start_ns, end_ns) = run.span();
    let mut trace = TraceBuilder::new();
    for &(cpu, begin, end, source) in rows {
        let source = trace.source(&source.into())?;
        trace.push(Detour { node: 0, cpu, start_ns: begin, duration_ns: (end - begin) as u64, source })?;
    }
    trace.build(TraceMeta {
        cpus: (0..sample::PES as usize).collect(),
        observed_s: (end_ns - start_ns) as f64 / 1e9,
        start_ns,
        threshold_ns: 100,
        ..Default::default()
    })
}
