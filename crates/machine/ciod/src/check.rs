// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of a job without nodes.

use std::fmt::Write as _;

use crate::worker::start;
use crate::{JobError, JobSpec};

/// Looks at a job for so many nodes with so many bytes of memory each, as the caller: what it would be, for people.
///
/// # Errors
/// The errors in its description or its programs that [`crate::Job::wait`] would return.
pub fn check(spec: &JobSpec, nodes: u32, window: u64) -> Result<String, JobError> {
    let size = spec.size(nodes)?;
    let memory = window / u64::from(spec.mode.processes());
    let mut text = format!("{size} processes on {nodes} nodes, {} MiB each\n", memory >> 20);
    let others = spec.programs.iter().map(|p| &p.executable);
    for path in std::iter::once(&spec.executable).chain(others) {
        let place = spec.directory.join(path);
        let program =
            start::open(&place, memory).map_err(|why| JobError::Program { path: path.clone(), why })?.program;
        let bytes: u64 = program.loads.iter().map(|l| l.length).sum();
        // writing to a string does not fail
        let _ = writeln!(text, "{}: {} segments, {} KiB", path.display(), program.loads.len(), bytes >> 10);
    }
    Ok(text)
}
