// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compute nodes: their system calls, and what became of a job.

use std::fmt::Write;

use colony_ciod::JobOutcome;

use crate::table::{self, wrap};

/// The table of calls: number, name, class, error.
#[must_use]
pub fn calls<'a>(rows: impl Iterator<Item = (u16, &'a str, &'a str, Option<&'a str>)>) -> String {
    let mut t = table::new(["call", "number", "done", "error"]);
    for (number, name, class, error) in rows {
        t.add_row([name.to_owned(), number.to_string(), class.to_owned(), error.unwrap_or("").to_owned()]);
    }
    format!("{t}\n")
}

/// Ranks of which details are shown; the others are counted.
const SHOWN: usize = 8;

/// Failures of a job, without those of processes that ended because another one failed; empty if there were none.
#[must_use]
pub fn outcome(outcome: &JobOutcome) -> String {
    let mut out = String::new();
    // writing to a String cannot fail
    if let Some(error) = &outcome.error {
        let _ = writeln!(out, "{}", wrap(&format!("error: {error}")));
    }
    let failed: Vec<_> = outcome.causes().collect();
    for p in failed.iter().take(SHOWN) {
        let _ = writeln!(out, "{}", wrap(&format!("rank {} on node {} {}", p.rank, p.node, p.end)));
        if let Some(crash) = &p.crash {
            let _ = writeln!(out, "{}", crash.trim_end());
        }
    }
    if failed.len() > SHOWN {
        let _ = writeln!(out, "… and {} more of {} processes", failed.len() - SHOWN, outcome.processes.len());
    }
    for line in &outcome.log {
        let _ = writeln!(out, "{}", wrap(line));
    }
    out
}
