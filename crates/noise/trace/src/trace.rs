// SPDX-License-Identifier: MIT OR Apache-2.0
//! The noise trace: what a measurement leaves, one row a detour.

mod builder;
mod error;
mod overlap;
pub(crate) mod parquet;
mod rows;
mod stated;
#[cfg(test)]
pub(crate) mod synthetic;

use std::collections::BTreeMap;
use std::path::Path;

pub use builder::TraceBuilder;
pub use error::{OtherFile, Problem, TraceError};
pub(crate) use stated::{Lengths, NO_CPU, Stated, classes};

use colony_node::class::Class as SchedulingClass;
use colony_node::cpu::CpuSet;
use colony_node::record::NodeRecord;
use serde::{Deserialize, Serialize};

use crate::{Class, Source};

/// Detours a trace may have; more would not fit a node's memory.
pub const MAX_DETOURS: usize = 200_000_000;

/// Different sources a trace may have.
pub const MAX_SOURCES: usize = u16::MAX as usize;

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

    /// The CPU and node it happened on.
    #[must_use]
    pub fn lane(&self) -> Lane {
        Lane { node: self.node, cpu: self.cpu }
    }
}

/// The conditions under which a trace was made; kept as file metadata.
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
    /// Kernel events that were lost. Detours may lack their source; in the trace of another tool, detours may be missing.
    pub lost_events: u64,
    /// Detours that were counted and are missing as rows: the ring was full, or the tool does not write each one.
    pub dropped: u64,
    /// Scheduling class of the observer.
    pub observer: Option<SchedulingClass>,
    /// The node's state; `None` where another tool wrote the trace.
    pub node: Option<NodeRecord>,
    /// The class of each source, as the measurement stated it. A source that is not in it has the default class of
    /// its name ([`Source::class`]); [`Trace::class`] applies this rule.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub classes: BTreeMap<Source, Class>,
    /// Notes for the reader of the trace, one sentence each: values that the file of another tool does not state and that were derived, and
    /// rows that were changed or left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The file was a histogram, and the instants of its detours are random: nothing can be concluded from them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_random_instants: bool,
}

/// Detours in order of their start, with the names of their sources.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// The metadata: the conditions under which the trace was made.
    pub meta: TraceMeta,
    /// The sources that occur; [`Detour::source`] points here.
    pub sources: Vec<Source>,
    /// The detours, by start.
    pub detours: Vec<Detour>,
}

impl TraceMeta {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.trace/1";

    /// The key of [`TraceMeta::classes`] among the plain names.
    pub(crate) const CLASSES: &str = "classes";

    /// The metadata as one line of JSON.
    pub(crate) fn to_json(&self) -> Result<String, Problem> {
        for (name, value) in [
            ("tsc_hz", self.tsc_hz),
            ("smallest_loop_ns", self.smallest_loop_ns),
            ("observed_s", self.observed_s),
        ] {
            if !value.is_finite() {
                return Err(Problem::Meta(format!("`{name}` is {value}, not a finite number")));
            }
        }
        serde_json::to_string(self).map_err(|e| Problem::Meta(e.to_string()))
    }

    /// Reads [`TraceMeta::to_json`].
    pub(crate) fn from_json(json: &str) -> Result<Self, Problem> {
        #[derive(Deserialize)]
        struct Version {
            schema: String,
        }
        let version: Version = serde_json::from_str(json).map_err(|e| Problem::Meta(e.to_string()))?;
        if version.schema != Self::SCHEMA {
            return Err(Problem::Schema(version.schema.chars().take(80).collect()));
        }
        serde_json::from_str(json).map_err(|e| Problem::Meta(e.to_string()))
    }

    /// The metadata under plain names, for people and other tools.
    pub(crate) fn plain(&self) -> Vec<(&'static str, String)> {
        let node = |field: fn(&NodeRecord) -> &String| {
            self.node.as_ref().map_or_else(String::new, |n| field(n).clone())
        };
        let mut pairs = vec![
            ("schema", self.schema.clone()),
            ("tsc_hz", self.tsc_hz.to_string()),
            ("threshold_ns", self.threshold_ns.to_string()),
            ("smallest_loop_ns", self.smallest_loop_ns.to_string()),
            ("cpus", self.cpus.to_string()),
            ("observed_s", self.observed_s.to_string()),
            ("start_ns", self.start_ns.to_string()),
            ("kernel", node(|n| &n.kernel)),
            ("cpu_model", node(|n| &n.cpu_model)),
            ("lost_events", self.lost_events.to_string()),
            ("dropped", self.dropped.to_string()),
            ("observer", self.observer.map(|c| c.to_string()).unwrap_or_default()),
        ];
        if let Ok(json) = serde_json::to_string(&self.classes)
            && !self.classes.is_empty()
        {
            pairs.push((Self::CLASSES, json));
        }
        pairs
    }
}

impl Default for TraceMeta {
    /// The metadata of a trace that another tool wrote: all values unknown.
    fn default() -> Self {
        Self {
            schema: Self::SCHEMA.into(),
            tsc_hz: 0.0,
            threshold_ns: 0,
            smallest_loop_ns: 0.0,
            cpus: CpuSet::default(),
            observed_s: 0.0,
            start_ns: 0,
            lost_events: 0,
            dropped: 0,
            observer: None,
            node: None,
            classes: BTreeMap::new(),
            notes: Vec::new(),
            has_random_instants: false,
        }
    }
}

/// One CPU of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lane {
    /// The node.
    pub node: u32,
    /// The CPU.
    pub cpu: u16,
}

impl std::fmt::Display for Lane {
    /// `CPU 3`, or `node 2 CPU 3` off node 0.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.node {
            0 => write!(f, "CPU {}", self.cpu),
            node => write!(f, "node {node} CPU {}", self.cpu),
        }
    }
}

impl Trace {
    /// Reads a trace file (Parquet). Files of other formats: [`crate::convert::read`].
    ///
    /// # Errors
    /// [`TraceError`] where the file is not there, not whole, or no trace.
    pub fn read(path: &Path) -> Result<Self, TraceError> {
        let file = std::fs::File::open(path).map_err(|e| TraceError::reading(path)(e.into()))?;
        parquet::read(file).map_err(TraceError::reading(path))
    }

    /// Writes a trace file (Parquet): the whole file or none.
    ///
    /// # Errors
    /// [`TraceError`] with the file system's reason.
    pub fn write(&self, path: &Path) -> Result<(), TraceError> {
        colony_node::file::write_atomically(path, |out| parquet::write(self, out))
            .map_err(TraceError::writing(path))
    }

    /// The source of a detour of this trace.
    #[must_use]
    pub fn source(&self, detour: &Detour) -> &Source {
        self.sources.get(usize::from(detour.source)).unwrap_or(&Source::Unexplained)
    }

    /// The class of a source: the class that the metadata states, else the default class of its name.
    #[must_use]
    pub fn class(&self, source: &Source) -> Class {
        self.meta.classes.get(source).copied().unwrap_or_else(|| source.class())
    }

    /// Sum of all detours, nanoseconds (saturating).
    #[must_use]
    pub fn stolen_ns(&self) -> u64 {
        self.detours.iter().fold(0, |sum, d| sum.saturating_add(d.duration_ns))
    }

    /// Numbers of the nodes that have detours, ascending.
    #[must_use]
    pub fn nodes(&self) -> Vec<u32> {
        let mut nodes: Vec<u32> = self.detours.iter().map(|d| d.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// The detours of one node, with the metadata of all.
    #[must_use]
    pub fn of_node(mut self, node: u32) -> Self {
        self.detours.retain(|d| d.node == node);
        self
    }

    /// The same trace without the detours of one source.
    #[must_use]
    pub fn without(mut self, source: &Source) -> Self {
        let number = self.sources.iter().position(|s| s == source);
        self.detours.retain(|d| Some(usize::from(d.source)) != number);
        self
    }

    /// The CPUs of all nodes: those observed, and any other a detour names.
    #[must_use]
    pub fn lanes(&self) -> Vec<Lane> {
        let mut nodes = self.nodes();
        if nodes.is_empty() {
            nodes.push(0);
        }
        let observed = nodes.iter().flat_map(|&node| {
            self.meta.cpus.iter().filter_map(move |cpu| Some(Lane { node, cpu: cpu.try_into().ok()? }))
        });
        let mut lanes: Vec<Lane> = observed.chain(self.detours.iter().map(Detour::lane)).collect();
        lanes.sort_unstable();
        lanes.dedup();
        lanes
    }

    /// Each CPU with its detours in order of their start; observed CPUs without any are there too.
    #[must_use]
    pub fn by_lane(&self) -> BTreeMap<Lane, Vec<Detour>> {
        let mut map: BTreeMap<Lane, Vec<Detour>> =
            self.lanes().into_iter().map(|l| (l, Vec::new())).collect();
        for d in &self.detours {
            map.entry(d.lane()).or_default().push(*d);
        }
        map
    }

    /// Observed time of all CPUs together, nanoseconds; 0 where nothing is known of it.
    #[must_use]
    pub fn observed_ns(&self) -> f64 {
        self.meta.observed_s.max(0.0) * 1e9 * self.lanes().len() as f64
    }
}
