// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony bench lb`: strategies of load balancing on objects that migrate.

use std::path::PathBuf;
use std::process::ExitCode;

use colony_bench::lb::LbOptions;
use colony_view::progress::Progress;

/// Run the Lb test and a stencil whose load moves, with each strategy of load balancing
///
/// Objects on a 2-D mesh really migrate between processes, which this command starts over sockets; MPI is not needed.
/// lb-test has fixed, unequal loads; in stencil, a hot spot travels once around the mesh. All runs of a program have
/// the same objects and must have the same checksum.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony bench lb
  colony bench lb -n 4 --mesh 16 --strategy none,refine:tolerance=1.02
  colony bench lb --program stencil --strategy all --json")]
pub(crate) struct Args {
    #[command(flatten)]
    options: LbOptions,
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
    let bar = Progress::steps_of_work("runs", params.runs() as u64);
    let result = params.run(|| bar.step())?;
    drop(bar);
    if let Some(out) = &args.out {
        crate::cmd::keep(out, &result)?;
    }
    crate::cmd::print(args.json, &result, ToString::to_string)?;
    Ok(ExitCode::SUCCESS)
}
