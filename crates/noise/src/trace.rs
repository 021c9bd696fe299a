//! The noise trace: what a measurement leaves, one row a detour.

use colony_node::class::Class;
use colony_node::cpu::CpuSet;
use colony_node::record::NodeRecord;
use serde::{Deserialize, Serialize};

use crate::Source;

/// A detour: an interval in which a CPU was taken from the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detour {
    /// Node it happened on; 0 where there is only one.
    pub node: u32,
    /// CPU it happened on.
    pub cpu: u16,
    /// Start, TAI nanoseconds.
    pub start_ns: i64,
    /// Length, with the smallest loop already taken off.
    pub duration_ns: u64,
    /// Index into [`Trace::sources`].
    pub source: u16,
}

impl Detour {
    /// The instant it ended, TAI nanoseconds (saturating).
    #[must_use]
    pub fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add_unsigned(self.duration_ns)
    }
}

/// What a trace's reader must know about how it was made; kept as file metadata.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceMeta {
    /// `colony.trace/1`.
    pub schema: String,
    /// Counts per second of the counter that measured; 0 where another tool wrote the trace.
    pub tsc_hz: f64,
    /// Detours shorter than this were not looked for.
    pub threshold_ns: u64,
    /// The observer's smallest loop, taken off every detour.
    pub smallest_loop_ns: f64,
    /// CPUs that were observed.
    pub cpus: CpuSet,
    /// Seconds each CPU was observed for.
    pub observed_s: f64,
    /// Start of the observation, TAI nanoseconds.
    pub start_ns: i64,
    /// Kernel events that were lost on the way to the attribution.
    pub lost_events: u64,
    /// Detours that found the ring full: counted in the histograms, missing as rows.
    pub dropped: u64,
    /// Scheduling class of the observer.
    pub observer: Option<Class>,
    /// The node's state; `None` where another tool wrote the trace.
    pub node: Option<NodeRecord>,
}

/// Detours in order of their start, with the names of their sources.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// How it was made.
    pub meta: TraceMeta,
    /// The sources that occur; [`Detour::source`] points here.
    pub sources: Vec<Source>,
    /// The detours, by start.
    pub detours: Vec<Detour>,
}

impl TraceMeta {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.trace/1";
}

impl Trace {
    /// A trace of detours in any order, each with its source.
    #[must_use]
    pub fn collect(meta: TraceMeta, rows: impl IntoIterator<Item = (Detour, Source)>) -> Self {
        let mut numbers = std::collections::HashMap::new();
        let mut sources = Vec::new();
        let mut detours: Vec<Detour> = rows
            .into_iter()
            .map(|(detour, source)| {
                let number = *numbers.entry(source).or_insert_with_key(|s| {
                    sources.push(s.clone());
                    (sources.len() - 1) as u16
                });
                Detour { source: number, ..detour }
            })
            .collect();
        detours.sort_by_key(|d| (d.start_ns, d.node, d.cpu));
        Self { meta, sources, detours }
    }

    /// The source of a detour of this trace.
    #[must_use]
    pub fn source(&self, detour: &Detour) -> &Source {
        self.sources.get(usize::from(detour.source)).unwrap_or(&Source::Unexplained)
    }
}
