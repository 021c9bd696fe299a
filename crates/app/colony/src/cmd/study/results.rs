// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the results of a study of its own go: files, a page, the terminal.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

#[derive(clap::Args)]
pub(super) struct ResultArgs {
    /// Write the results as JSON to this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write a page with plots and all numbers, which opens offline
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// Writes a page, whole or not at all.
pub(super) fn write_page(path: &Path, page: &str) -> anyhow::Result<()> {
    colony_node::file::write_atomically::<std::io::Error>(path, |w| w.write_all(page.as_bytes()))
        .with_context(|| format!("writing {}", path.display()))
}

impl ResultArgs {
    /// Checks that the files can be written, before the work that makes the results.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.out.iter().try_for_each(|path| crate::cmd::can_write(path))?;
        self.report.iter().try_for_each(|path| crate::cmd::can_write_page(path))
    }

    /// Writes the files that are asked for, and prints the results.
    pub(super) fn tell<T: serde::Serialize>(
        &self,
        results: &T,
        page: impl FnOnce() -> String,
        table: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        if let Some(out) = &self.out {
            crate::cmd::keep(out, results)?;
        }
        if let Some(report) = &self.report {
            write_page(report, &page())?;
        }
        crate::cmd::print(self.json, results, table)?;
        for written in self.files() {
            note!("written: {}", written.display());
        }
        Ok(())
    }

    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.out.iter().chain(&self.report)
    }
}
