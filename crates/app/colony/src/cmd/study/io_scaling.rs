// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony study io-scaling`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use colony_study::io_scaling::{Folder, Plan};
use colony_study::report::Transferred;
use colony_view::io_scaling as view;
use colony_view::progress::Progress;

use super::results::ResultArgs;
use super::units::bytes;

/// Bandwidth of files from many compute nodes through I/O nodes, and what saturates
///
/// Compute nodes write files and read them again, as the benchmark IOR does, through I/O processes: one file a node, then
/// one file that all share. Measures the CPU time of a transfer by component (node, I/O process, file system) and the
/// time that the storage takes, and models the bandwidth of up to 2048 compute nodes and 256 I/O nodes from them. A folder
/// on NFS is a folder as any other: mount it first.
#[derive(clap::Args)]
#[command(after_help = "Sizes have a unit (kB or KiB, MB or MiB)
Examples:
  colony study io-scaling                               memory and this folder's file system; minutes
  colony study io-scaling --folder /dev/shm --nodes 1,2 --io-nodes 1 --block 8MiB
                                                        a try
  colony study io-scaling --folder /mnt/nfs --transfers 64KiB,1MiB --report io.html")]
pub(crate) struct Args {
    /// Folder for files, which are removed again; may be given again [default: /dev/shm and .]
    #[arg(long = "folder", value_name = "FOLDER")]
    folders: Vec<PathBuf>,
    /// Numbers of compute nodes, 64 at most
    #[arg(long, value_delimiter = ',', value_name = "N,N", default_values_t = Plan::default().nodes)]
    nodes: Vec<u32>,
    /// Numbers of I/O nodes
    #[arg(long, value_delimiter = ',', value_name = "N,N", default_values_t = Plan::default().io_nodes)]
    io_nodes: Vec<u32>,
    /// Bytes of a transfer
    #[arg(long, value_delimiter = ',', value_parser = bytes, value_name = "BYTES", default_value = "256KiB")]
    transfers: Vec<f64>,
    /// Bytes that a node writes, and reads
    #[arg(long, value_parser = bytes, value_name = "BYTES", default_value = "64MiB")]
    block: f64,
    #[command(flatten)]
    results: ResultArgs,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let plan = plan(&args);
    plan.check()?;
    args.results.check()?;
    let folders = plan.folders()?;
    super::clear_up_when_ended(folders.iter().map(|folder| folder.scratch().to_path_buf()).collect())?;
    let results = measure(&plan, &folders)?;
    drop(folders);
    args.results.tell(&results, || Transferred { results: &results }.page(), view::results)?;
    Ok(ExitCode::SUCCESS)
}

fn measure(plan: &Plan, folders: &[Folder]) -> anyhow::Result<colony_study::io_scaling::Results> {
    let bar = Progress::steps_of_work("jobs", plan.steps());
    let command = crate::words::command();
    Ok(plan.run(folders, &command, |text| note!("{text}"), || bar.step())?)
}

/// Each value once, in order; what is no whole number of bytes is refused with the rest.
fn plan(args: &Args) -> Plan {
    let once = |all: &[u32]| BTreeSet::from_iter(all.iter().copied()).into_iter().collect();
    let folders = if args.folders.is_empty() { Plan::default().folders } else { args.folders.clone() };
    Plan {
        folders,
        nodes: once(&args.nodes),
        io_nodes: once(&args.io_nodes),
        transfers: args.transfers.iter().map(|&b| b as u64).collect::<BTreeSet<u64>>().into_iter().collect(),
        block_bytes: args.block as u64,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn the_defaults_of_the_flags_are_those_of_the_library() {
        assert_eq!(plan(&Command::parse_from(["io-scaling"]).args), Plan::default());
    }
}
