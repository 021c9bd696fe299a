// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony machine drain` and `undrain`.

use std::process::ExitCode;

use colony_control_api::api::DrainRequest;
use colony_view::control;

use crate::cmd::control::Target;

/// Give no new jobs to nodes; jobs that run on them go on
///
/// A location is that of a compute node, of an I/O node (for the nodes of its pset), of a node card, a midplane or a rack. Of
/// several, all are drained or none. Nodes stay drained until `colony machine undrain`, also if they are switched off and booted again.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony machine drain R00-M0-N04-J12 --reason 'memory errors'
  colony machine drain R00-M0-N04 --reason 'card is exchanged'
  colony machine drain R00-M0-N04,R00-M0-N05 --reason 'power supply'
  colony machine undrain R00-M0-N04")]
pub(super) struct DrainArgs {
    #[command(flatten)]
    target: Target,
    /// The nodes: locations, separated by spaces or commas
    #[arg(required = true, value_name = "LOCATION", value_delimiter = ',')]
    locations: Vec<String>,
    /// Why they get no jobs
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// Give jobs to drained nodes again
///
/// A location stands for all of its parts that are drained: `undrain R00-M0` gives jobs to all nodes of the midplane. Events before
/// are not counted towards thresholds any more. The locations that were drained are printed.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony machine undrain R00-M0-N04-J12
  colony machine undrain R00-M0
  colony machine undrain R00-M0-N04,R00-M0-N05")]
pub(super) struct UndrainArgs {
    #[command(flatten)]
    target: Target,
    /// Locations that were drained, or that contain such, separated by spaces or commas
    #[arg(required = true, value_name = "LOCATION", value_delimiter = ',')]
    locations: Vec<String>,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

pub(super) fn drain(args: &DrainArgs) -> anyhow::Result<ExitCode> {
    let request = DrainRequest { location: args.locations.join(","), reason: args.reason.clone() };
    let drains = args.target.client()?.drain(&request)?;
    crate::cmd::print(args.json, &drains, |drains| control::drains(drains))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn undrain(args: &UndrainArgs) -> anyhow::Result<ExitCode> {
    let ended = args.target.client()?.undrain(&args.locations.join(","))?;
    crate::cmd::print(args.json, &ended, |ended| control::undrained(ended))?;
    Ok(ExitCode::SUCCESS)
}
