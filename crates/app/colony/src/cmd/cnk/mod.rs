// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony cnk`.

mod calls;
pub(crate) mod program;
mod run;
mod tlb;

use std::process::ExitCode;

/// Compute nodes: a kernel that loads one program and stays out of its way
///
/// Nodes are virtual machines that run Colony's compute node kernel. They have no files of their own: what a program asks
/// of the system is done by an I/O daemon on this machine, in the user's name.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Run(Box<run::Args>),
    Calls(calls::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Run(args) => run::run(*args),
        What::Calls(args) => calls::run(&args),
    }
}
