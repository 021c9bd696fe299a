// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of the file `clock`, and how well the windows of a node agree with those of other nodes.

use colony_time::ClockQuality;
use colony_time::clock::{Clock, tai_offset_s};
use colony_time::{WindowKind, Windows};
use serde::{Deserialize, Serialize};

/// The report of the file `clock`: the position of the node in its period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockReport {
    /// [`ClockReport::SCHEMA`].
    pub schema: String,
    /// TAI when this was made, in nanoseconds since 1970.
    pub tai_ns: i64,
    /// Seconds TAI is ahead of UTC, as the kernel has it.
    pub tai_offset_s: i64,
    /// True if the kernel knows that offset. If not, `tai_ns` is UTC, and the node agrees only with nodes that do not know it
    /// either.
    pub tai_offset_known: bool,
    /// The windows as they are set.
    pub windows: Windows,
    /// The windows that this node enforces, on its own clock and with guards, and how exact they are.
    pub coordination: Coordination,
    /// Time since this period began, in nanoseconds.
    pub phase_ns: u64,
    /// The window that is open at `tai_ns`.
    pub window: WindowKind,
    /// The next edge, in TAI nanoseconds.
    pub next_edge_ns: i64,
    /// The window that opens at the next edge.
    pub next_window: WindowKind,
}

impl ClockReport {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.clock/1";

    /// The clock of this node now, with these windows.
    #[must_use]
    pub fn now(windows: Windows, coordination: Coordination) -> Self {
        Self::at(windows, coordination, Clock::Tai.now_ns(), tai_offset_s())
    }

    fn at(windows: Windows, coordination: Coordination, tai_ns: i64, tai_offset_s: i64) -> Self {
        let kept = coordination.kept.unwrap_or(windows);
        let edge = kept.next_edge(tai_ns);
        Self {
            schema: Self::SCHEMA.into(),
            tai_ns,
            tai_offset_s,
            tai_offset_known: tai_offset_s != 0,
            windows,
            coordination,
            phase_ns: kept.phase(tai_ns),
            window: kept.kind(tai_ns),
            next_edge_ns: edge.at_ns,
            next_window: edge.opens,
        }
    }
}

/// The relation of this node's windows to those of other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Coordinated with all nodes whose clock error is within the limit.
    Coordinated,
    /// On this node's own clock, whatever its error.
    OwnPhase,
    /// No windows are enforced.
    Off,
}

/// The agreement of the windows with those of other nodes, in the files `clock` and `stats`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Coordination {
    /// The relation to other nodes' windows.
    pub mode: Mode,
    /// The reason for which they are not coordinated; `None` if they are.
    pub reason: Option<String>,
    /// The windows that are enforced, on this node's clock and with guards; `None` in [`Mode::Off`].
    pub kept: Option<Windows>,
    /// Width of the guards on both sides of a favored window, in nanoseconds.
    pub guard_ns: u64,
    /// Upper bound of this clock's error, in nanoseconds, if it is known.
    pub error_bound_ns: Option<u64>,
    /// The source of that bound: `cluster`, `configuration`, `kernel`, or the program that disciplines the clock.
    #[serde(default)]
    pub error_bound_source: Option<String>,
    /// The largest error with which windows are coordinated, in nanoseconds.
    pub max_error_ns: u64,
    /// The estimate of the cluster's clock, if windows are counted on that clock instead of TAI.
    pub cluster: Option<Cluster>,
    /// Number of times the clock was set since the daemon started.
    pub steps: u64,
    /// By how much the clock was set the last time, in nanoseconds.
    pub last_step_ns: Option<i64>,
    /// The state of the clock according to the kernel.
    pub kernel: ClockQuality,
}

/// An estimate of the cluster's clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// The node whose clock it is.
    pub reference: String,
    /// That clock less this node's TAI now, in nanoseconds.
    pub offset_ns: i64,
    /// Drift of that clock against this node's TAI, in parts per million.
    pub drift_ppm: f64,
    /// Time since the estimate was made, in nanoseconds.
    pub age_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use colony_time::DutyCycle;

    #[test]
    fn the_clock_says_which_window_it_is_in_and_what_comes() {
        let windows = Windows::new(100, DutyCycle::Ns(95), 0).expect("possible");
        let state = |kept| Coordination {
            mode: Mode::OwnPhase,
            reason: None,
            kept,
            guard_ns: 0,
            error_bound_ns: None,
            error_bound_source: None,
            max_error_ns: 500_000,
            cluster: None,
            steps: 0,
            last_step_ns: None,
            kernel: ClockQuality::default(),
        };
        let clock = ClockReport::at(windows, state(None), 1_097, 37);
        assert_eq!((clock.phase_ns, clock.window), (97, WindowKind::Regular));
        assert_eq!((clock.next_edge_ns, clock.next_window), (1_100, WindowKind::Favored));
        assert!(clock.tai_offset_known);
        assert!(!ClockReport::at(windows, state(None), 0, 0).tai_offset_known);
        let kept = windows.guarded(2).expect("some is left");
        assert_eq!(ClockReport::at(windows, state(Some(kept)), 1_096, 0).window, WindowKind::Favored);
        let text = serde_json::to_string(&clock).expect("serializable");
        assert_eq!(serde_json::from_str::<ClockReport>(&text).expect("own text"), clock);
    }
}
