// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony machine up`, `status`, `nodes` and `down`.

use std::process::ExitCode;

use colony_control_api::api::MachineRequest;
use colony_model::Shape;
use colony_view::control;

use super::allocation::From;
use super::web::Listen;
use crate::cmd::control::{Nodes, Target, partition, wait_booted};
use crate::exit::wrong;

/// Boot a machine of virtual compute nodes, and keep it running
///
/// The control daemon is started if it does not run. Daemon, nodes and jobs go on when this command has ended.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony machine up --shape 2x2x2
  colony machine up --shape 8x8x8 --pset 64 --kernel cnk
  colony machine up --shape 8x8x8 --unpartitioned
  colony machine up --shape 2x2x2 --listen 192.0.2.1:8443
  sbatch --cpus-per-task 8 --mem 8G --time 1:00:00 --wrap 'colony machine up --slurm && colony job run -- ./program'")]
pub(super) struct UpArgs {
    #[command(flatten)]
    target: Target,
    /// Compute nodes along x, y and z: multiples of 8, or 2, 4 and 8
    #[arg(long, value_name = "XxYxZ", required_unless_present_any = ["slurm", "flux"])]
    shape: Option<Shape>,
    #[command(flatten)]
    from: From,
    #[command(flatten)]
    nodes: Nodes,
    /// Boot nothing: partitions are made by `colony partition create`
    #[arg(long)]
    unpartitioned: bool,
    /// Do not wait until the nodes are ready
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    listen: Listen,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// Show the machine: its partitions, and the jobs that wait or run
#[derive(clap::Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    target: Target,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// List the compute nodes of a partition
#[derive(clap::Args)]
pub(super) struct NodesArgs {
    #[command(flatten)]
    target: Target,
    /// The partition [default: the only one]
    #[arg(value_name = "PARTITION")]
    partition: Option<String>,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// Switch all nodes off and end the control daemon
///
/// Jobs that run are ended. Their output, the jobs and the events stay in the folder of the machine.
#[derive(clap::Args)]
pub(super) struct DownArgs {
    #[command(flatten)]
    target: Target,
}

pub(super) fn up(args: &UpArgs) -> anyhow::Result<ExitCode> {
    let network = args.listen.request()?;
    let request = request(args)?;
    let client = args.target.started()?;
    // a refused machine leaves nothing behind: neither a daemon, nor nodes without the port that was asked for
    let mut machine = client.set_up(&request).inspect_err(|_| client.end_unused_daemon())?;
    if let Some(Err(refused)) = network.map(|network| client.open_network(&network)) {
        let _ = client.down();
        return Err(refused.into());
    }
    if let (Some(partition), false) = (machine.partitions.first(), args.no_wait) {
        wait_booted(&client, &partition.name)?;
        machine = client.machine()?;
    }
    crate::cmd::print(args.json, &machine, control::machine)?;
    Ok(ExitCode::SUCCESS)
}

/// The machine that is asked for: refused before a daemon is started if its nodes do not fit in their allocation.
fn request(args: &UpArgs) -> anyhow::Result<MachineRequest> {
    let (allocation, notes) = args.from.get()?.unzip();
    let shape = match (args.shape, &allocation) {
        (Some(shape), _) => shape,
        (None, Some(own)) => own.largest(|nodes| args.nodes.request(nodes)).map_err(wrong)?,
        (None, None) => return Err(wrong("a machine has a shape: give one by --shape")),
    };
    let nodes = (!args.unpartitioned).then(|| args.nodes.request(shape.nodes()));
    if let (Some(own), Some(nodes)) = (&allocation, &nodes) {
        own.check(shape.nodes(), nodes, 0).map_err(wrong)?;
    }
    for text in notes.unwrap_or_default() {
        note!("note: {text}");
    }
    Ok(MachineRequest { shape, partition: nodes, allocation })
}

pub(super) fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let machine = args.target.client()?.machine()?;
    crate::cmd::print(args.json, &machine, control::machine)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn nodes(args: &NodesArgs) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    let nodes = client.nodes(&partition(&client, args.partition.as_deref())?)?;
    crate::cmd::print(args.json, &nodes, |nodes| control::nodes(nodes))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn down(args: &DownArgs) -> anyhow::Result<ExitCode> {
    args.target.client()?.down()?;
    crate::cmd::print_text("all nodes are off\n")?;
    Ok(ExitCode::SUCCESS)
}
