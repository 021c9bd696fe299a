// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony machine drain` and `undrain`.

use std::process::ExitCode;

use colony_control_api::api::DrainRequest;
use colony_view::control;

use crate::cmd::control::Target;

/// Give no new jobs to nodes; jobs that run on them go on
///
/// The location is that of a compute node, of an I/O node (for the nodes of its pset), of a node card, a midplane or a rack.
/// Nodes stay drained until `colony machine undrain`, also if they are switched off and booted again.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony machine drain R00-M0-N04-J12 --reason 'memory errors'
  colony machine drain R00-M0-N04 --reason 'card is exchanged'
  colony machine undrain R00-M0-N04")]
pub(super) struct DrainArgs {
    #[command(flatten)]
    target: Target,
    /// The nodes
    location: String,
    /// Why they get no jobs
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// Give jobs to drained nodes again
///
/// Events before are not counted towards thresholds any more.
#[derive(clap::Args)]
pub(super) struct UndrainArgs {
    #[command(flatten)]
    target: Target,
    /// The location that was drained
    location: String,
}

pub(super) fn drain(args: &DrainArgs) -> anyhow::Result<ExitCode> {
    let request = DrainRequest { location: args.location.clone(), reason: args.reason.clone() };
    let drain = args.target.client()?.drain(&request)?;
    crate::cmd::print(args.json, &drain, |drain| control::drains(std::slice::from_ref(drain)))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn undrain(args: &UndrainArgs) -> anyhow::Result<ExitCode> {
    args.target.client()?.undrain(&args.location)?;
    Ok(ExitCode::SUCCESS)
}
