// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scenario as people write it: TOML with a default for every line, turned into [`Simulation`](crate::simulate::Simulation)s.
//!
//! ```
//! use colony_sim::spec::{Scenario, Traces};
//! let scenario = Scenario::parse(
//!     r#"
//!     nodes = [64, 1024]
//!     schedulers = ["none", "fair", { coordinated = { period = "100ms", duty_cycle = "80%" } }]
//!     program = { name = "allreduce", bytes = 8, iterations = 100 }
//!     noise = [{ name = "daemon", leibniz = { mean = "1ms", sleep = "9ms" } }]
//!     "#,
//! )?;
//! let points = scenario.points()?;
//! assert_eq!(points.len(), 6);
//! let simulation = points[0].simulation(&Traces::new())?;
//! assert_eq!((simulation.nodes, simulation.program.iterations), (64, 100));
//! # Ok::<(), colony_sim::spec::SpecError>(())
//! ```

mod error;
mod machine;
mod noise;
mod plain;
mod point;
mod program;
mod scheduler;
mod steps;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use error::SpecError;
pub use machine::MachineSpec;
pub use noise::{Leibniz, Measured, Repeated, SourceSpec, Traces};
pub(crate) use plain::path_at;
pub use plain::plain;
pub use point::Point;
pub use program::ProgramSpec;
pub use scheduler::{SchedulerSpec, Slices, Windowed};

/// Values by the path of what they replace, as `program.bytes`.
pub type Settings = std::collections::BTreeMap<String, toml::Value>;

/// A scenario: every node count with every scheduler, and with every combination of the values swept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Node counts.
    pub nodes: Vec<u32>,
    /// Seed of everything random.
    pub seed: u64,
    /// Independent runs of each point.
    pub repetitions: u32,
    /// Ranks on each node, one a core, instead of the machine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks_per_node: Option<u32>,
    /// Begin of the job after the boot of the nodes. Without it: late enough for every daemon to have found its rhythm.
    #[serde(
        with = "colony_time::notation::some_ns",
        rename = "begin",
        skip_serializing_if = "Option::is_none"
    )]
    pub begin_ns: Option<u64>,
    /// Name of a machine profile, or a machine.
    pub machine: MachineSpec,
    /// The schedulers, which decide when noise runs.
    pub schedulers: Vec<SchedulerSpec>,
    /// The program.
    pub program: ProgramSpec,
    /// Sources of noise on every node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub noise: Vec<SourceSpec>,
    /// Values to try, by what they replace: `"program.bytes" = [8, 1024]`.
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub sweep: std::collections::BTreeMap<String, Vec<toml::Value>>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            nodes: vec![1024, 4096, 16_384],
            seed: 1,
            repetitions: 10,
            ranks_per_node: None,
            begin_ns: None,
            machine: MachineSpec::default(),
            schedulers: vec![SchedulerSpec::Preempt],
            program: ProgramSpec::default(),
            noise: Vec::new(),
            sweep: std::collections::BTreeMap::new(),
        }
    }
}

impl Scenario {
    /// Most points of a scenario.
    pub const MOST_POINTS: usize = 100_000;
    /// Most repetitions of a point.
    pub const MOST_REPETITIONS: u32 = 100_000;

    /// Reads a scenario's text and checks it.
    ///
    /// # Errors
    /// [`SpecError::Line`] with the line and what is wrong there.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let scenario: Self = toml::from_str(text).map_err(|e| SpecError::toml(text, &e))?;
        scenario.check().map_err(|e| e.in_text(text))?;
        Ok(scenario)
    }

    /// Reads a scenario's file. The files of traces it names are looked for beside it.
    ///
    /// # Errors
    /// [`SpecError::Read`]; [`SpecError::Line`] with the file, the line, and what is wrong there.
    pub fn read(path: &Path) -> Result<Self, SpecError> {
        let (scenario, text, _) = Self::read_unchecked(path)?;
        scenario.check().map_err(|e| e.in_text(&text).in_file(path))?;
        Ok(scenario)
    }

    /// Reads a scenario's file without [`Scenario::check`], for a caller that changes values before they are checked. With the
    /// scenario, the file's table: it has the keys that the file states; the scenario has a value for every key.
    ///
    /// # Errors
    /// [`SpecError::Read`]; [`SpecError::Line`] for text that is no scenario.
    pub fn read_with_keys(path: &Path) -> Result<(Self, toml::Table), SpecError> {
        Self::read_unchecked(path).map(|(scenario, _, keys)| (scenario, keys))
    }

    fn read_unchecked(path: &Path) -> Result<(Self, String, toml::Table), SpecError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SpecError::Read { path: path.to_owned(), source })?;
        let wrong = |e: toml::de::Error| SpecError::toml(&text, &e).in_file(path);
        let mut scenario: Self = toml::from_str(&text).map_err(wrong)?;
        let keys = toml::from_str(&text).map_err(wrong)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        for source in &mut scenario.noise {
            for trace in source.trace.iter_mut().chain(&mut source.traces) {
                *trace = folder.join(&trace).display().to_string();
            }
        }
        Ok((scenario, text, keys))
    }

    /// The scenario as TOML, with every default written out.
    ///
    /// # Errors
    /// [`SpecError::Value`] for a number beyond TOML's (2⁶³).
    pub fn to_toml(&self) -> Result<String, SpecError> {
        toml::to_string(self).map_err(|_| unwritable())
    }

    /// # Errors
    /// [`SpecError::Value`] names the first value that makes no sense, and why.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.nodes.is_empty() || self.nodes.contains(&0) {
            return Err(SpecError::value("nodes", crate::SimError::Nodes));
        }
        if self.repetitions == 0 || self.repetitions > Self::MOST_REPETITIONS {
            let fault = format!("choose 1 to {}", Self::MOST_REPETITIONS);
            return Err(SpecError::value("repetitions", fault));
        }
        if self.schedulers.is_empty() {
            return Err(SpecError::value("schedulers", format!("name one: {}", SchedulerSpec::NAMES)));
        }
        let machine = self.machine()?;
        for &nodes in &self.nodes {
            machine.layout(nodes).map_err(|e| SpecError::value("nodes", e))?;
            self.program.check_on(&machine, nodes)?;
        }
        self.schedulers.iter().try_for_each(|s| s.scheduler().map(drop))?;
        for (i, source) in self.noise.iter().enumerate() {
            source.check().map_err(|e| e.inside(&format!("noise.{i}")))?;
        }
        // every combination must make sense before the first is run
        self.points().map(drop)
    }

    /// The machine, with this scenario's ranks.
    pub(crate) fn machine(&self) -> Result<crate::machine::Machine, SpecError> {
        let mut machine = self.machine.machine()?;
        if let Some(ranks) = self.ranks_per_node {
            machine.ranks_per_node = ranks;
        }
        match machine.ranks_per_node {
            0 => Err(SpecError::value("ranks_per_node", "a node needs one rank at least")),
            _ => Ok(machine),
        }
    }

    /// Files of traces that the scenario needs.
    ///
    /// # Errors
    /// As [`Scenario::points`].
    pub fn trace_files(&self) -> Result<Vec<String>, SpecError> {
        let points = self.points()?;
        let mut files: Vec<String> =
            points.iter().flat_map(|p| &p.scenario.noise).flat_map(SourceSpec::files).cloned().collect();
        files.sort();
        files.dedup();
        Ok(files)
    }
}

/// A scenario that is no TOML.
fn unwritable() -> SpecError {
    let fault = format!(
        "one of its numbers is beyond {}, the largest that TOML can write; give a smaller one",
        i64::MAX
    );
    SpecError::value("scenario", fault)
}

#[cfg(test)]
mod tests;
