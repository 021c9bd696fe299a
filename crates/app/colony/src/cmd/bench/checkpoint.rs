// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony bench checkpoint`: the time of checkpoints in memory.

use std::path::PathBuf;
use std::process::ExitCode;

use colony_bench::checkpoint::CheckpointOptions;
use colony_view::progress::Progress;

/// Measure checkpoints in memory, beside published times and the least time that their bytes take
///
/// Processes, which this command starts over sockets, run objects of the given size and make a checkpoint at every
/// round: each PE's image is kept by its own process and by another. The floor is one memcpy and an exchange of the
/// same bytes by the same processes. Times on 8192 and 20480 PEs are simulated. MPI is not needed.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony bench checkpoint
  colony bench checkpoint -n 4 --total 147MB
  colony bench checkpoint --total 147MB --objects 10 --changed 1
  colony bench checkpoint --bytes 80kB,20MB --repeat 10 --json")]
pub(crate) struct Args {
    #[command(flatten)]
    options: CheckpointOptions,
    /// Keep the result as JSON
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let params = args.options.params();
    if let Some(out) = &args.out {
        crate::cmd::can_write(out)?;
    }
    let bar = Progress::steps_of_work("sizes", params.bytes.len() as u64);
    let result = params.run(|| bar.step())?;
    drop(bar);
    if let Some(out) = &args.out {
        crate::cmd::keep(out, &result)?;
    }
    crate::cmd::print(args.json, &result, ToString::to_string)?;
    Ok(ExitCode::SUCCESS)
}
