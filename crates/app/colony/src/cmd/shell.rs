// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony completions` and `colony man`: generated from the command line's own description.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

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

/// Prints the script that completes `command`.
pub(crate) fn completions(args: CompletionsArgs, mut command: clap::Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "colony", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the manual pages of `command` and its subcommands.
pub(crate) fn man(args: ManArgs, command: clap::Command) -> anyhow::Result<ExitCode> {
    let to = || format!("writing manual pages to {}", args.folder.display());
    std::fs::create_dir_all(&args.folder).with_context(to)?;
    clap_mangen::generate_to(command, &args.folder).with_context(to)?;
    Ok(ExitCode::SUCCESS)
}
