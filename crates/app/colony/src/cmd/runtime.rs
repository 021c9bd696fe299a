// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony runtime`: requests to the ranks of running programs of objects.

use std::io::Write;
use std::process::ExitCode;

use colony_runtime::ranks::{self, Request};
use colony_view::table;

use crate::exit::wrong;

/// List the ranks of running programs of objects, evacuate them, or change their number
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
}

/// List the ranks that run on this host
#[derive(clap::Args)]
struct Ranks {
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

fn list(json: bool) -> anyhow::Result<()> {
    let ranks = ranks::ranks();
    if json {
        writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&ranks)?)?;
        return Ok(());
    }
    if ranks.is_empty() {
        writeln!(std::io::stdout(), "no rank of a job runs on this host")?;
        return Ok(());
    }
    let mut rows = table::numbers(&["job", "rank", "process", "program"], 0);
    for rank in ranks {
        let row = [rank.launcher.to_string(), rank.rank.to_string(), rank.pid.to_string(), rank.program];
        rows.add_row(row);
    }
    writeln!(std::io::stdout(), "{}", table::trimmed(&rows))?;
    Ok(())
}
