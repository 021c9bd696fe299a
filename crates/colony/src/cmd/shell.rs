// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony completions` and `colony man`: generated from the command line's own description.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;

use crate::cli::Cli;

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(after_help = "Example:
  colony completions bash > ~/.local/share/bash-completion/completions/colony")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: clap_complete::Shell,
}

/// Write the manual pages, one a command, into a folder
#[derive(clap::Args)]
#[command(after_help = "Example:
  colony man ~/.local/share/man/man1 && man colony-measure")]
pub(crate) struct ManArgs {
    /// The folder; it is made if missing
    folder: PathBuf,
}

pub(crate) fn completions(args: CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "colony", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(args: ManArgs) -> anyhow::Result<ExitCode> {
    let to = || format!("writing manual pages to {}", args.folder.display());
    std::fs::create_dir_all(&args.folder).with_context(to)?;
    clap_mangen::generate_to(Cli::command(), &args.folder).with_context(to)?;
    Ok(ExitCode::SUCCESS)
}
