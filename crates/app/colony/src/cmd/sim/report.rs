// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony sim --report`: the results as a page.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use colony_sim::sweep::Results;
use colony_study::report::Simulated;
use colony_view::sim as view;

/// Writes the page to `path`.
pub(super) fn write(path: &Path, results: &Results) -> anyhow::Result<()> {
    let (what, command) = (view::headline(&results.scenario), crate::words::command());
    let page = Simulated { results, what: &what, command: &command }.page()?;
    colony_node::file::write_atomically::<std::io::Error>(path, |w| w.write_all(page.as_bytes()))
        .with_context(|| format!("writing {}", path.display()))
}
