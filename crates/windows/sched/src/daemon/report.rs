// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the daemon says of itself, as programs read it.

use colony_node::cpu::CpuSet;
use colony_time::clock::{Clock, tai_offset_s};
use colony_time::{WindowKind, Windows};
use serde::{Deserialize, Serialize};

use super::clock::Coordination;
use crate::agent::AgentStats;
use crate::ext::ExtStats;
use crate::keeper::Kept;

/// The file `clock`: where in its period the node is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockReport {
    /// [`ClockReport::SCHEMA`].
    pub schema: String,
    /// TAI when this was made, in nanoseconds since 1970.
    pub tai_ns: i64,
    /// Seconds TAI is ahead of UTC, as the kernel has it.
    pub tai_offset_s: i64,
    /// Whether the kernel was told that offset; where not, `tai_ns` is UTC, and nodes agree only with each
    /// other's likes.
    pub tai_offset_known: bool,
    /// The windows as they are set.
    pub windows: Windows,
    /// The windows as this node keeps them, on its own clock and with guards, and how well.
    pub coordination: Coordination,
    /// Time since this period began, in nanoseconds.
    pub phase_ns: u64,
    /// The window this is in.
    pub window: WindowKind,
    /// The next edge, in TAI nanoseconds.
    pub next_edge_ns: i64,
    /// The window that begins there.
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

/// The file `stats`: what the windows do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatsReport {
    /// [`StatsReport::SCHEMA`].
    pub schema: String,
    /// The daemon's process.
    pub pid: u32,
    /// Time since the daemon started, in nanoseconds.
    pub uptime_ns: u64,
    /// The windows as they are set.
    pub windows: Windows,
    /// How well they are kept together with other nodes.
    pub coordination: Coordination,
    /// The duty cycle as it was given.
    pub duty_cycle: String,
    /// CPUs the job has in favored windows.
    pub cpus: CpuSet,
    /// The job.
    pub job: JobReport,
    /// What the agent did: the one that runs, or the last one.
    pub agent: Option<AgentStats>,
    /// What keeps the windows: the means of the job that runs, or of the last one.
    #[serde(default)]
    pub kept_by: Kept,
    /// What the scheduler in the kernel did: the one that runs, or the last one.
    #[serde(default)]
    pub sched_ext: Option<ExtStats>,
    /// What the user should know.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// The job in [`StatsReport`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// Whether there is one, and an agent switches it.
    pub active: bool,
    /// Its processes.
    pub processes: Vec<i32>,
    /// How many threads they have.
    pub tasks: usize,
    /// Jobs since the daemon started, this one included.
    pub jobs: u64,
}

impl StatsReport {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.stats/1";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::clock::{ClockJudge, ClockRules};
    use colony_time::DutyCycle;

    #[test]
    fn the_clock_says_which_window_it_is_in_and_what_comes() {
        let windows = Windows::new(100, DutyCycle::Ns(95), 0).expect("possible");
        let state = |kept| Coordination {
            kept,
            ..ClockJudge::new(ClockRules::default(), windows, Err(Vec::new())).state().clone()
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
