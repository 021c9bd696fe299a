// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony vm image`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use colony_vm::{Kernel, Recipe};

/// Show what an image holds, or keep it as a file
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony vm image shell
  colony vm image node --with ./my-solver
  colony vm image my-node.toml --out my-node.cpio    an initramfs for other emulators
  colony vm image io-node --sbom io-node.spdx.json   what is in it, with digests and packages")]
pub(super) struct Args {
    /// A recipe: `shell`, `node`, `compute-linux`, `io-node`, or a TOML file
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
    /// Write the list of its files, with digests and the packages they come from, as SPDX 2.3 JSON
    #[arg(long, value_name = "FILE")]
    sbom: Option<PathBuf>,
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

/// SPDX asks for a time. This one is the same for all images: two of the same content have the same list.
const CREATED: &str = "1970-01-01T00:00:00Z";

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.out.iter().chain(&args.sbom).try_for_each(|path| crate::cmd::can_write(path))?;
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
    if let Some(file) = &args.sbom {
        let name = Path::new(&args.recipe)
            .file_stem()
            .map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        crate::cmd::keep(file, &image.sbom(&kernel, &name, CREATED)?)?;
    }
    let contents: Vec<_> = image.contents().collect();
    crate::cmd::print(args.json, &contents, |all| colony_view::vm::image(all.iter().cloned()))?;
    Ok(ExitCode::SUCCESS)
}
