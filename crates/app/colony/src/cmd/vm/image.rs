// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony vm image`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use colony_vm::{Kernel, Recipe};

/// Show what an image holds, or keep it as a file
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony vm image shell
  colony vm image node --with ./my-solver
  colony vm image my-node.toml --out my-node.cpio    an initramfs for other emulators")]
pub(super) struct Args {
    /// A recipe: `shell`, `node`, `io-node`, `mpi`, or a TOML file
    #[arg(default_value = "shell", value_name = "RECIPE")]
    recipe: String,
    /// A program of this host to add, with its libraries
    #[arg(long, value_name = "PROGRAM")]
    with: Vec<PathBuf>,
    /// The kernel whose modules it gets: a release, the beginning of one, or a file
    #[arg(long, default_value = "", hide_default_value = true, value_name = "KERNEL")]
    kernel: String,
    /// Write the image, a cpio archive
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(out) = &args.out {
        crate::cmd::can_write(out)?;
    }
    let mut image = Recipe::find(&args.recipe)?.image()?;
    for program in &args.with {
        image.program(program)?;
    }
    let kernel = Kernel::find_telling(&args.kernel, &mut super::notice)?;
    image.complete(&kernel)?;
    if let Some(out) = &args.out {
        let mut archive = Vec::new();
        image.write(&kernel, &mut archive)?;
        colony_node::file::write_atomically::<std::io::Error>(out, |w| w.write_all(&archive))?;
    }
    let contents: Vec<_> = image.contents().collect();
    crate::cmd::print(args.json, &contents, |all| colony_view::vm::image(all.iter().cloned()))?;
    Ok(ExitCode::SUCCESS)
}
