// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony vm`.

mod image;
mod kernels;
mod run;

use std::process::ExitCode;

/// Virtual Linux nodes: run a program in one, or in several on a network
///
/// A machine is made of one of Debian's kernels and an image made on the spot, of programs of this host with their
/// libraries. It is emulated, needs no privilege, and leaves nothing behind.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Run(Box<run::Args>),
    Kernels(kernels::Args),
    Image(image::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Run(args) => run::run(*args),
        What::Kernels(args) => kernels::run(&args),
        What::Image(args) => image::run(&args),
    }
}

/// Tells what takes long.
fn notice(text: &str) {
    note!("{text}");
}
