// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony vm kernels`.

use std::process::ExitCode;

use colony_vm::{Kernel, kernel};

/// List the kernels that machines can have
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony vm kernels                those in the cache
  colony vm kernels --available    and those of Debian's archive
  colony vm kernels --fetch        fetch the default kernel, before a node needs it
  colony vm kernels --fetch 6.12 --fetch 7.3
                                   fetch the newest kernel of each series")]
pub(super) struct Args {
    /// Also those of Debian's archive, whose index is fetched unless it is of today
    #[arg(long)]
    available: bool,
    /// Fetch this release, or the newest that begins with it, unless it is in the cache (default: the kernel that machines
    /// have unless they name one)
    #[arg(long, value_name = "RELEASE", num_args = 0..=1, default_missing_value = "")]
    fetch: Vec<String>,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    for release in &args.fetch {
        Kernel::find_telling(release, &mut super::notice)?;
    }
    let all = kernel::available(args.available, &mut super::notice)?;
    crate::cmd::print(args.json, &all, |all| colony_view::vm::kernels(all))?;
    Ok(ExitCode::SUCCESS)
}
