// SPDX-License-Identifier: MIT OR Apache-2.0
//! The health of a node.

use std::fmt::Write;
use std::path::Path;

use colony_node::health::{HealthReport, State};

use crate::table::wrap;

/// The report of the health file at `path`, `now_unix_ns` nanoseconds after 1970.
#[must_use]
pub fn health(path: &Path, report: &HealthReport, now_unix_ns: i64) -> String {
    let state = match report.state {
        State::Healthy => "nothing warns of a failure of this node",
        State::Warning => "this node may fail",
    };
    let mut out = format!("{}\n", wrap(&format!("{state} ({})", path.display())));
    for reason in &report.reasons {
        let age = reason.since_unix_ns.map(|since| now_unix_ns.saturating_sub(since).max(0));
        let age = age.map(|age| format!(", for {}", rough(age))).unwrap_or_default();
        let _ = writeln!(out, "{}", wrap(&format!("{reason}{age}")));
    }
    if !report.watched.is_empty() {
        let _ = writeln!(out, "{}", wrap(&format!("watched: {}", report.watched.join(", "))));
    }
    out
}

/// A time of seconds to days.
fn rough(ns: i64) -> String {
    match ns / 1_000_000_000 {
        s @ ..120 => format!("{s} s"),
        s @ ..7_200 => format!("{} min", s / 60),
        s @ ..172_800 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86_400),
    }
}

/// The state in a table.
#[must_use]
pub fn state(report: Option<&HealthReport>) -> &'static str {
    match report.map(|report| report.state) {
        Some(State::Healthy) => "healthy",
        Some(State::Warning) => "warning",
        None => "not watched",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colony_node::health::Reason;

    #[test]
    fn a_warning_has_its_source_and_its_age() {
        let reason = |since_unix_ns| Reason {
            source: "edac".to_owned(),
            text: "mc0\u{1b} fails".to_owned(),
            since_unix_ns,
        };
        let mut report = HealthReport {
            schema: HealthReport::SCHEMA.to_owned(),
            state: State::Warning,
            reasons: vec![reason(Some(1_000)), reason(Some(i64::MAX)), reason(None)],
            watched: vec!["edac".to_owned(), "operator".to_owned()],
        };
        let shown = health(Path::new("/x"), &report, 5_000_001_000);
        let expected = "this node may fail (/x)\nedac: mc0 fails, for 5 s\nedac: mc0 fails, for 0 s\n\
                        edac: mc0 fails\nwatched: edac, operator\n";
        assert_eq!(shown, expected);
        let seconds = [119, 120, 7200, 172_800].map(|s| rough(s * 1_000_000_000));
        assert_eq!(seconds, ["119 s", "2 min", "2 h", "2 days"]);
        (report.state, report.reasons, report.watched) = (State::Healthy, Vec::new(), Vec::new());
        assert_eq!(health(Path::new("/x"), &report, 0), "nothing warns of a failure of this node (/x)\n");
        assert_eq!([state(Some(&report)), state(None)], ["healthy", "not watched"]);
    }
}
