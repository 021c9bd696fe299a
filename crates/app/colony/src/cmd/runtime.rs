// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony runtime`: requests to the ranks of running programs of objects.

use std::io::Write;
use std::process::ExitCode;

use colony_node::health::{HealthError, HealthReport, path_from_environment};
use colony_runtime::ranks::{self, Rank, Request};
use colony_time::clock::Clock;
use colony_view::{health, table};
use serde::Serialize;

use crate::exit::wrong;

/// List the ranks of running programs of objects, evacuate them, or change their number; show the health of this host
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    Ranks(Ranks),
    Evacuate(Evacuate),
    Readmit(Readmit),
    Grow(Grow),
    Shrink(Shrink),
    Health(Health),
}

/// List the ranks that run on this host
#[derive(clap::Args)]
struct Ranks {
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// Show the health file of this host, whose warnings evacuate the ranks here
///
/// colonyd writes the file, /run/colony-health/health.json. COLONY_HEALTH names another one.
#[derive(clap::Args)]
struct Health {
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// Move all objects of a rank on this host to other ranks while the program runs on
///
/// The rank gets no objects until it is readmitted. It still forwards messages, so its process must run on. The rank prints a line when
/// it is empty.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony runtime ranks
  colony runtime evacuate 3
  colony runtime evacuate 3 --job 4711")]
struct Evacuate {
    #[command(flatten)]
    target: Target,
}

/// Let an evacuated rank have objects again, from the next load balancing on
#[derive(clap::Args)]
struct Readmit {
    #[command(flatten)]
    target: Target,
}

/// Give a job on this host more ranks while it runs
///
/// The job writes its next checkpoint to disk, ends its processes and goes on from there with the new number of ranks. It needs
/// COLONY_CHECKPOINT with disk=FOLDER.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony runtime grow 4
  colony runtime grow 4 --job 4711")]
struct Grow {
    #[command(flatten)]
    change: Change,
}

/// Take ranks away from a job on this host while it runs, as grow adds them
#[derive(clap::Args)]
struct Shrink {
    #[command(flatten)]
    change: Change,
}

#[derive(clap::Args)]
struct Change {
    /// Number of ranks
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,
    /// Process id of the job's launcher, if several jobs run on this host
    #[arg(long, value_name = "PID")]
    job: Option<i32>,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Target {
    /// Rank of the job
    #[arg(value_name = "RANK")]
    rank: u32,
    /// Process id of the job's launcher, if several jobs have such a rank
    #[arg(long, value_name = "PID")]
    job: Option<i32>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Ranks(Ranks { json }) => list(json)?,
        Action::Evacuate(Evacuate { target }) => send(Request::Evacuate, &target)?,
        Action::Readmit(Readmit { target }) => send(Request::Readmit, &target)?,
        Action::Grow(Grow { change }) => resize(&change, 1)?,
        Action::Shrink(Shrink { change }) => resize(&change, -1)?,
        Action::Health(Health { json }) => show_health(json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn send(request: Request, target: &Target) -> anyhow::Result<()> {
    let rank = ranks::request(request, target.rank, target.job).map_err(|error| wrong(error.to_string()))?;
    let verb = match request {
        Request::Evacuate => "evacuate",
        Request::Readmit => "readmit",
    };
    writeln!(std::io::stdout(), "requested: {verb} {rank}")?;
    Ok(())
}

fn resize(change: &Change, sign: i64) -> anyhow::Result<()> {
    let resized = ranks::resize(sign * i64::from(change.ranks), change.job)
        .map_err(|error| wrong(error.to_string()))?;
    let ranks::Resized { launcher, from, to } = resized;
    if change.json {
        writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&resized)?)?;
    } else {
        writeln!(
            std::io::stdout(),
            "requested: job {launcher} goes on with {to} ranks instead of {from} after its next checkpoint"
        )?;
    }
    Ok(())
}

/// A rank, and the health of its host.
#[derive(Serialize)]
struct Listed {
    #[serde(flatten)]
    rank: Rank,
    host: &'static str,
}

fn list(json: bool) -> anyhow::Result<()> {
    // a file that cannot be used is `colony runtime health`'s to report
    let report = path_from_environment().and_then(|path| HealthReport::read(&path).ok());
    let host = health::state(report.as_ref());
    let ranks: Vec<Listed> = ranks::ranks().into_iter().map(|rank| Listed { rank, host }).collect();
    if json {
        writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&ranks)?)?;
        return Ok(());
    }
    if ranks.is_empty() {
        writeln!(std::io::stdout(), "no rank of a job runs on this host")?;
        return Ok(());
    }
    let mut rows = table::numbers(&["job", "rank", "process", "program", "host"], 0);
    for Listed { rank, host } in ranks {
        let [launcher, pid] = [rank.launcher, rank.pid].map(|pid| pid.to_string());
        rows.add_row([launcher, rank.rank.to_string(), pid, rank.program, host.to_owned()]);
    }
    writeln!(std::io::stdout(), "{}", table::trimmed(&rows))?;
    Ok(())
}

fn show_health(json: bool) -> anyhow::Result<()> {
    let path = path_from_environment()
        .ok_or_else(|| wrong("COLONY_HEALTH is none, so that no file has the health of this host"))?;
    let report = HealthReport::read(&path).map_err(|error| match &error {
        HealthError::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            anyhow::anyhow!("{error}; is colonyd running?")
        }
        _ => error.into(),
    })?;
    if json {
        writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        write!(std::io::stdout(), "{}", health::health(&path, &report, Clock::Realtime.now_ns()))?;
    }
    Ok(())
}
