// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony clock`: how good clocks are, and comparing them.

mod simulate;
mod sync;

use std::process::ExitCode;

use anyhow::Context;
use colony_client::Client;
use colony_client::ClockReport;
use colony_time::ClockQuality;
use colony_time::clock::Clock;
use colony_view::clock as view;
use serde::Serialize;

/// See how good the nodes' clocks are, and make them good enough for coordinated windows
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    Show(Show),
    Sync(sync::Args),
    Simulate(simulate::Args),
}

/// Say how good this node's clock is, and what colonyd makes of it
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony clock show
  colony clock show --json | jq .kernel.error_bound_ns")]
struct Show {
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// JSON document of `colony clock show --json`.
#[derive(Serialize)]
struct Shown {
    schema: &'static str,
    tai_ns: i64,
    kernel: ClockQuality,
    /// The file `clock` of colonyd, where it runs.
    colonyd: Option<ClockReport>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Show(a) => show(&a)?,
        Action::Sync(a) => sync::run(&a)?,
        Action::Simulate(a) => simulate::run(&a)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show(a: &Show) -> anyhow::Result<()> {
    let kernel = ClockQuality::now().context("asking the kernel about its clock (adjtimex)")?;
    let colonyd = Client::find().and_then(|c| c.clock().ok());
    let shown = Shown { schema: "colony.clock.show/1", tai_ns: Clock::Tai.now_ns(), kernel, colonyd };
    super::print(a.json, &shown, |s| view::quality(&s.kernel, s.colonyd.as_ref().map(|c| &c.coordination)))
}
