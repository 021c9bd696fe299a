// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of `colony doctor`: findings with their costs, and the changes in order.

use colony_doctor::remedy::Remedy;
use colony_doctor::{Examination, Finding, Level, Passed, Undecided};
use colony_node::cpu::CpuSet;
use colony_project::changes::Added;
use serde::{Deserialize, Serialize};

/// The result of `colony doctor`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// `colony.doctor/1`.
    pub schema: String,
    /// Version of Colony.
    pub version: String,
    /// The node's name, if its files have it.
    pub host: Option<String>,
    /// The kernel's release, if its files have it.
    pub kernel: Option<String>,
    /// CPUs of the job.
    pub cpus: CpuSet,
    /// The trace that costs are from, and the node count; `None` without a trace.
    pub noise: Option<Noise>,
    /// The findings: those that cost most first, then by severity.
    pub findings: Vec<Costed>,
    /// The changes, the cheapest that are worth it first.
    pub sequence: Vec<Step>,
    /// Sources that no change of this node takes away, the costliest first.
    #[serde(default)]
    pub no_remedy: Vec<Stays>,
    /// Rules that could not be decided.
    pub undecided: Vec<Undecided>,
    /// Rules that found nothing.
    pub passed: Vec<Passed>,
    /// Facts that limit the result.
    pub notes: Vec<String>,
}

/// The noise that costs are from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// The trace's file.
    pub trace: String,
    /// CPUs of the job that were measured.
    pub cpus: CpuSet,
    /// Seconds they were measured for.
    pub observed_s: f64,
    /// Share of their time that was stolen.
    pub stolen_share: f64,
    /// The source that stole most, and its share of the CPUs' time.
    pub worst: Option<(String, f64)>,
    /// Nodes simulated.
    pub nodes: u32,
    /// Ranks on them.
    pub ranks: u32,
    /// Time of an iteration without noise, nanoseconds.
    pub quiet_ns: f64,
    /// Time that all noise adds to an iteration.
    pub all: Added,
    /// `true` if the time for the costs ended before the sequence was known.
    #[serde(default)]
    pub stopped: bool,
}

/// A finding and its cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costed {
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
    /// Its cost.
    pub cost: Cost,
    /// Commands of a root shell that apply the first remedy.
    pub commands: Vec<String>,
    /// Commands of a root shell that undo it.
    pub undo: Vec<String>,
}

/// The cost of a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Cost {
    /// There is no trace.
    NoTrace,
    /// No source of noise shows this finding in a trace.
    NoSource,
    /// The trace has none of the finding's sources, or they made no difference.
    NotSeen,
    /// The time for the costs ended before.
    NotSimulated,
    /// Time that the finding's sources alone add to an iteration.
    Simulated {
        /// The time added.
        added: Added,
        /// `true` if the remedy takes only a part of these sources: the cost is an upper bound.
        at_most: bool,
        /// The sources of the trace.
        sources: Vec<String>,
    },
}

/// A step of the sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Name of the finding.
    pub finding: String,
    /// Place of the remedy among those of the finding.
    #[serde(default)]
    pub remedy: usize,
    /// Time that the noise adds which is left after this change and those before it.
    pub left: Added,
}

/// A source of noise that stays whatever is changed on the node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stays {
    /// The source.
    pub source: String,
    /// Time that it alone adds to an iteration.
    pub added: Added,
    /// The reason, as the kernel gives it.
    pub reason: String,
}

impl Cost {
    /// Share of an iteration that the finding's sources add; 0 if none was seen.
    #[must_use]
    pub fn share(&self) -> f64 {
        if let Self::Simulated { added, .. } = self { added.share } else { 0.0 }
    }
}

impl Advice {
    /// The sources without a remedy, a line a reason; `of` writes the time that one adds.
    #[must_use]
    pub fn no_remedy_lines(&self, of: impl Fn(&Stays) -> String) -> Vec<String> {
        let mut lines: Vec<(String, &str)> = Vec::new();
        for stays in &self.no_remedy {
            match lines.iter_mut().find(|(_, reason)| *reason == stays.reason) {
                Some((sources, _)) => *sources += &format!(", {}", of(stays)),
                None => lines.push((of(stays), &stays.reason)),
            }
        }
        lines.into_iter().map(|(sources, reason)| format!("{sources}: {reason}")).collect()
    }

    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.doctor/1";

    /// The finding with this name.
    #[must_use]
    pub fn finding(&self, id: &str) -> Option<&Costed> {
        self.findings.iter().find(|f| f.finding.id == id)
    }

    /// Findings above a level.
    pub fn above_level(&self, level: Level) -> impl Iterator<Item = &Costed> {
        self.findings.iter().filter(move |f| f.finding.level > level)
    }

    /// Findings that cost more than this share of an iteration.
    pub fn above_share(&self, share: f64) -> impl Iterator<Item = &Costed> {
        self.findings.iter().filter(move |f| f.cost.share() > share)
    }

    /// An examination without a trace.
    #[must_use]
    pub fn without_trace(examination: Examination) -> Self {
        let costed = |finding: Finding| {
            let none = finding.touches.sources.is_empty();
            Costed::new(finding, if none { Cost::NoSource } else { Cost::NoTrace })
        };
        Self {
            schema: Self::SCHEMA.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            host: examination.host,
            kernel: examination.kernel,
            cpus: examination.job,
            noise: None,
            findings: examination.findings.into_iter().map(costed).collect(),
            sequence: Vec::new(),
            no_remedy: Vec::new(),
            undecided: examination.undecided,
            passed: examination.passed,
            notes: Vec::new(),
        }
    }
}

impl Costed {
    fn new(finding: Finding, cost: Cost) -> Self {
        let first = finding.remedies.first();
        let (commands, undo) = first.map(|r| (r.commands(), r.undo_commands())).unwrap_or_default();
        Self { finding, cost, commands, undo }
    }

    /// The commands of a root shell that apply one of the remedies.
    #[must_use]
    pub fn commands_of(&self, remedy: usize) -> Vec<String> {
        self.finding.remedies.get(remedy).map(Remedy::commands).unwrap_or_default()
    }
}
