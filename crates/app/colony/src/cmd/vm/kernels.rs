// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony vm kernels`.

use std::process::ExitCode;

use colony_vm::kernel;

/// List the kernels that machines can have
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony vm kernels                those in the cache
  colony vm kernels --available    and those of Debian's archive")]
pub(super) struct Args {
    /// Also those of Debian's archive, whose index is fetched unless it is of today
    #[arg(long)]
    available: bool,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let all = kernel::available(args.available, &mut super::notice)?;
    crate::cmd::print(args.json, &all, |all| colony_view::vm::kernels(all))?;
    Ok(ExitCode::SUCCESS)
}
