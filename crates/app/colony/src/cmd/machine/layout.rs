// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony machine layout`.

use std::process::ExitCode;

use colony_model::{
    BitSteering, Block, FailedBit, Kind, Location, NodeMemory, Partition, Personality, SecurityKey, Site,
};
use serde::Serialize;

use super::Extent;
use crate::exit::wrong;

/// Show the parts of a machine: psets, I/O nodes, and the personality of a node
///
/// The whole machine is one partition. Addresses are those of the default network, 10.64.0.0/16.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony machine layout --shape 8x8x8 --pset 64
  colony machine layout --shape 8x8x8 --pset 64 --node R00-M0-N04-J12
  colony machine layout --shape 64x32x32 --node R00-M0-N00-I00        an I/O node
  colony machine layout --shape 8x8x8 --steer 1:17                    a failed bit of memory
  colony machine layout --shape 4x4x4 --json | jq '.psets[].io_node'")]
pub(super) struct Args {
    #[command(flatten)]
    extent: Extent,
    /// Node whose personality is shown [default: the first compute node]
    #[arg(long, value_name = "LOCATION")]
    node: Option<Location>,
    /// Memory of a node in MiB
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory: u32,
    /// Failed bit of the node's memory that the spare bit of its rank replaces, as 1:17; may be repeated
    #[arg(long, value_name = "RANK:BIT")]
    steer: Vec<FailedBit>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    partition: &'a Partition,
    site: &'a Site,
    psets: Vec<Pset>,
    personality: &'a Personality,
    /// As bytes of an encoded personality, with a key of zeros.
    encoded: String,
}

#[derive(Serialize)]
struct Pset {
    number: u32,
    io_node: Location,
    /// Numbers of the compute nodes in the partition, by their rank in the pset.
    nodes: Vec<u32>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (machine, size) = args.extent.get()?;
    let block = Block::whole(machine);
    let partition = Partition::new(machine, &block.name(machine), block, size)?;
    let site = Site::default();
    let location = args.node.unwrap_or_else(|| partition.location(0));
    let steering = args.steer.iter().copied().try_fold(BitSteering::default(), BitSteering::with)?;
    let memory = NodeMemory { bytes: u64::from(args.memory) << 20, steering };
    let personality = personality(&partition, location, memory, &site)?;
    let psets = partition.psets();
    let report = Report {
        schema: "colony.machine.layout/1",
        partition: &partition,
        site: &site,
        psets: (0..psets.count())
            .map(|number| Pset {
                number,
                io_node: partition.io_location(number),
                nodes: (0..size.nodes()).map(|rank| psets.node(number, rank)).collect(),
            })
            .collect(),
        personality: &personality,
        encoded: personality.encode().iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    crate::cmd::print(args.json, &report, |r| {
        colony_view::layout::layout(r.partition, r.site, r.personality)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The personality of the node at a location. The key is given at boot; here it is zero.
fn personality(
    partition: &Partition,
    location: Location,
    memory: NodeMemory,
    site: &Site,
) -> anyhow::Result<Personality> {
    match location.kind() {
        Kind::Compute => Ok(partition.compute_personality(partition.node_at(location)?, memory)),
        Kind::Io => {
            let at = partition.machine().coords(location)?;
            let (pset, _) = partition.psets().place(partition.block().shape().number(at));
            let used = partition.io_location(pset);
            if used != location {
                let size = partition.psets().size();
                return Err(wrong(format!(
                    "{location} serves no pset if psets have {size} compute nodes: use {used}, the I/O node of that pset"
                )));
            }
            Ok(partition.io_personality(pset, memory, site, SecurityKey::default())?)
        }
        _ => Err(wrong(format!(
            "{location} is not a node: use a compute node such as {} or an I/O node such as {}",
            partition.location(0),
            partition.io_location(0)
        ))),
    }
}
