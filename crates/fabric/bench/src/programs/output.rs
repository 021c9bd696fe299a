// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of a result.

use std::io::Write;
use std::path::PathBuf;

use crate::BenchResult;

/// The output of a result: options of `colony-bench` and `colony-bench-cnk`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Output {
    /// Write the result to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print the result as JSON, in one line, instead of the table
    #[arg(long)]
    pub json: bool,
}

impl Output {
    /// Gives the result to whoever asked for it.
    ///
    /// # Errors
    /// A message: the result could not be written, or it is wrong.
    pub fn write(&self, result: &BenchResult) -> Result<(), String> {
        let mut text = serde_json::to_string(result).map_err(|e| format!("cannot write the result: {e}"))?;
        text.push('\n');
        if let Some(path) = &self.out {
            colony_node::file::write_atomically::<std::io::Error>(path, |w| w.write_all(text.as_bytes()))
                .map_err(|e| format!("cannot write the result to {}: {e}", path.display()))?;
        }
        let mut stdout = std::io::stdout().lock();
        let written = if self.json { stdout.write_all(text.as_bytes()) } else { write!(stdout, "{result}") };
        match written.and_then(|()| stdout.flush()) {
            // a reader that has seen enough is no failure
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
                return Err(format!("cannot print the result: {e}"));
            }
            _ => {}
        }
        match result.results.iter().map(|m| m.wrong).sum() {
            0u64 => Ok(()),
            n => Err(format!("{n} stretches left a wrong value: {} computes wrongly", result.mpi.library)),
        }
    }
}
