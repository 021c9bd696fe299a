// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony partition`.

use std::process::ExitCode;

use colony_control_api::api::{Holder, PartitionRequest, RightsRequest};
use colony_model::Shape;
use colony_view::control;

use crate::cmd::control::{Nodes, Target, wait_booted};

/// Partitions of a machine: make them, boot them, switch them off
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    List(ListArgs),
    Create(CreateArgs),
    Boot(BootArgs),
    Free(FreeArgs),
    Remove(RemoveArgs),
    Allow(AllowArgs),
    Deny(DenyArgs),
}

/// List partitions, with the nodes of each that are free for jobs
#[derive(clap::Args)]
struct ListArgs {
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// Make a partition of nodes that no other partition has
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony partition create --shape 8x8x8
  colony partition create --shape 4x4x2 --name test --pset 8
  colony partition create --shape 8x8x8 --at 8,0,0")]
struct CreateArgs {
    /// Compute nodes along x, y and z
    #[arg(long, value_name = "XxYxZ")]
    shape: Shape,
    /// First node [default: the first place where the shape fits, in any orientation]
    #[arg(long, value_name = "X,Y,Z", value_parser = coords)]
    at: Option<Coords>,
    /// Name [default: that of its first midplane or node]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    nodes: Nodes,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// Boot the nodes of a partition
#[derive(clap::Args)]
struct BootArgs {
    /// The partition
    name: String,
    /// Do not wait until the nodes are ready
    #[arg(long)]
    no_wait: bool,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// Switch the nodes of a partition off; a job that runs is ended
#[derive(clap::Args)]
struct FreeArgs {
    /// The partition
    name: String,
}

/// Remove a partition whose nodes are off
#[derive(clap::Args)]
struct RemoveArgs {
    /// The partition
    name: String,
}

/// Let a user or the members of a group run jobs on a partition
///
/// From the first one on, only those who are allowed run jobs on it, beside root and the daemon's user.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony partition allow R00-M0 --user eve
  colony partition allow R00-M0 --group chemistry")]
struct AllowArgs {
    /// The partition
    name: String,
    #[command(flatten)]
    holder: HolderArgs,
}

/// Take the right to run jobs on a partition back; jobs in its queue stay there
///
/// When nobody is left who is allowed, all users may run jobs on it again.
#[derive(clap::Args)]
struct DenyArgs {
    /// The partition
    name: String,
    #[command(flatten)]
    holder: HolderArgs,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct HolderArgs {
    /// Name or number of the user
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Name or number of the group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
}

impl HolderArgs {
    fn request(self, may_run: bool) -> RightsRequest {
        let group = self.group.map(Holder::Group);
        let holder = group.or(self.user.map(Holder::User)).unwrap_or(Holder::User(String::new()));
        RightsRequest { holder, may_run }
    }
}

#[derive(Clone, Copy)]
struct Coords([u32; 3]);

fn coords(text: &str) -> Result<Coords, String> {
    let numbers: Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
    let all = numbers.ok().and_then(|numbers| <[u32; 3]>::try_from(numbers).ok());
    all.map(Coords).ok_or_else(|| "the first node has three coordinates, such as 8,0,0".to_owned())
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    match args.what {
        What::List(ListArgs { json }) => {
            crate::cmd::print(json, &client.machine()?.partitions, |all| control::partitions(all))?;
        }
        What::Create(CreateArgs { shape, at, name, nodes, json }) => {
            let nodes = nodes.request(shape.nodes());
            let origin = at.map(|coords| coords.0);
            let made = client.add_partition(&PartitionRequest { name, shape, origin, nodes })?;
            crate::cmd::print(json, &made, control::partition)?;
        }
        What::Boot(BootArgs { name, no_wait, json }) => {
            let mut partition = client.boot(&name)?;
            if !no_wait {
                partition = wait_booted(&client, &name)?;
            }
            crate::cmd::print(json, &partition, control::partition)?;
        }
        What::Free(FreeArgs { name }) => {
            let partition = client.free(&name)?;
            crate::cmd::print(false, &partition, control::partition)?;
        }
        What::Remove(RemoveArgs { name }) => client.remove_partition(&name)?,
        What::Allow(AllowArgs { name, holder }) => {
            let partition = client.set_rights(&name, &holder.request(true))?;
            crate::cmd::print(false, &partition, control::partition)?;
        }
        What::Deny(DenyArgs { name, holder }) => {
            let partition = client.set_rights(&name, &holder.request(false))?;
            crate::cmd::print(false, &partition, control::partition)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
