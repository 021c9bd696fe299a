// SPDX-License-Identifier: MIT OR Apache-2.0
//! Evacuation by warnings: a thread of each rank watches the [health file](colony_node::health) of its host. When the file
//! warns, the PEs of the process are evacuated, and when the host is healthy again, they are readmitted.

use std::path::PathBuf;
use std::time::Duration;

use colony_node::health::{self, HealthError, HealthReport, Look, State, Watch};

use crate::report::report_line;
use crate::signals;
use crate::transport::Transport;

/// The time from one look at the file's attributes to the next.
const EVERY: Duration = Duration::from_millis(50);
/// The same while there is no file, as on a host without `colonyd`.
const ABSENT: Duration = Duration::from_secs(1);
/// Memory for the thread's stack.
const STACK: usize = 256 << 10;

/// Watches the health file from now on, for the life of the process. A job of one process has nowhere to go, and a compute
/// node has neither such a file nor a thread to spare.
pub(crate) fn watch(transport: &dyn Transport) {
    if transport.size() < 2 || transport.name() == "torus" {
        return;
    }
    let Some(path) = health::path_from_environment() else { return };
    let rank = transport.rank();
    let thread = std::thread::Builder::new().name("health".to_owned()).stack_size(STACK);
    if let Err(error) = thread.spawn(move || follow(path, rank)) {
        report_line!("warning: rank {rank} does not watch the health of its host: {error}");
    }
}

fn follow(path: PathBuf, rank: u32) {
    let (mut watch, mut host) = (Watch::new(path), Host::default());
    loop {
        let look = watch.look();
        let pause = if matches!(look, Look::Absent) { ABSENT } else { EVERY };
        if let Some(change) = host.take(look) {
            apply(change, rank);
        }
        std::thread::sleep(pause);
    }
}

/// A change of the host.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Warned(String),
    Recovered,
    /// The file cannot be used.
    Unreadable(String),
}

/// The state of the host by the file.
#[derive(Debug, Default)]
struct Host {
    is_warned: bool,
    /// A file that cannot be used was reported.
    has_complained: bool,
}

impl Host {
    /// The change that a look has found. A file that is missing or cannot be used changes nothing.
    fn take(&mut self, look: Look) -> Option<Change> {
        match look {
            Look::Absent | Look::Unchanged => None,
            Look::Changed(Ok(report)) => self.take_report(&report),
            Look::Changed(Err(error)) => self.take_error(&error),
        }
    }

    fn take_report(&mut self, report: &HealthReport) -> Option<Change> {
        let is_warned = report.state == State::Warning;
        let was_warned = std::mem::replace(&mut self.is_warned, is_warned);
        match (was_warned, is_warned) {
            (false, true) => Some(Change::Warned(report.summary())),
            (true, false) => Some(Change::Recovered),
            _ => None,
        }
    }

    fn take_error(&mut self, error: &HealthError) -> Option<Change> {
        // a file that was removed between two system calls is a missing one
        let is_gone = matches!(error, HealthError::Read { source, .. } if source.kind() == std::io::ErrorKind::NotFound);
        if is_gone || std::mem::replace(&mut self.has_complained, true) {
            return None;
        }
        Some(Change::Unreadable(error.to_string()))
    }
}

/// Evacuates or readmits the PEs of this process. Says so before the PEs do.
fn apply(change: Change, rank: u32) {
    match change {
        Change::Warned(reason) => {
            let is_away = signals::is_evacuated_by_signal();
            let moves = if is_away { "it is evacuated already" } else { "its objects migrate" };
            report_line!("warning: the host of rank {rank} may fail ({reason}): {moves}");
            signals::warn(&reason);
        }
        Change::Recovered => {
            let moves = if signals::is_warned() {
                "it is readmitted"
            } else {
                "it stays as the administrator's signal has asked"
            };
            report_line!("the host of rank {rank} is healthy again: {moves}");
            signals::end_warning();
        }
        Change::Unreadable(error) => {
            report_line!("warning: rank {rank} ignores the health of its host: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(text: &str) -> Look {
        Look::Changed(Ok(HealthReport::parse(text.as_bytes()).expect("a report")))
    }

    fn foreign() -> Look {
        Look::Changed(Err(HealthError::Foreign { path: "x".into(), reason: "no".to_owned() }))
    }

    #[test]
    fn only_changes_of_the_state_evacuate_and_readmit() {
        let healthy = || report(r#"{"schema": "colony.health/1", "state": "healthy"}"#);
        let warning = |text: &str| {
            let reasons = format!(r#"[{{"source": "edac", "text": "{text}"}}]"#);
            report(&format!(r#"{{"schema": "colony.health/1", "state": "warning", "reasons": {reasons}}}"#))
        };
        let mut host = Host::default();
        for (look, expected) in [
            (healthy(), None),
            (warning("a"), Some(Change::Warned("edac: a".to_owned()))),
            (Look::Unchanged, None),
            (warning("b"), None),
            // neither readmits
            (Look::Absent, None),
            (foreign(), Some(Change::Unreadable("x is no health file: no".to_owned()))),
            (foreign(), None),
            (warning("b"), None),
            (healthy(), Some(Change::Recovered)),
            (foreign(), None),
            (warning("c"), Some(Change::Warned("edac: c".to_owned()))),
        ] {
            let shown = format!("{look:?}");
            assert_eq!(host.take(look), expected, "{shown}");
        }
    }
}
