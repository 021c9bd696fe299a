// SPDX-License-Identifier: MIT OR Apache-2.0
//! The result of a rule.

use serde::{Deserialize, Serialize};

use crate::remedy::Remedy;
use crate::touches::Touches;

/// Severity of a finding, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Worth knowing; changes no time of a job by itself.
    Note,
    /// Rare or short detours, or a risk that depends on the job.
    Low,
    /// Detours of microseconds many times a second, or rare ones of milliseconds.
    Medium,
    /// A job at scale loses a large share of its time.
    High,
}

impl Level {
    /// All, the least first.
    pub const ALL: [Self; 4] = [Self::Note, Self::Low, Self::Medium, Self::High];

    /// The level's name in flags, JSON and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// The part of the node that a rule reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// Parameters of the kernel's command line, and isolation of CPUs.
    Isolation,
    /// Device interrupts.
    Interrupts,
    /// The kernel's workqueues and timers.
    Workqueues,
    /// Real-time classes.
    RealTime,
    /// Watchdogs and tracers.
    Watchdogs,
    /// Memory: huge pages, scanners, swap.
    Memory,
    /// Control groups.
    Cgroups,
    /// Frequency, idle states, threads of a core, firmware, hypervisor.
    Power,
    /// Clocks.
    Clock,
    /// Schedulers loaded as BPF programs.
    SchedExt,
    /// Processes of user space.
    Daemons,
}

/// A file and the value seen in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The file, from the root; a command or `trace` if the value is from there.
    pub file: String,
    /// The value.
    pub value: String,
}

impl Evidence {
    /// Longest value that is kept, characters.
    const LONGEST: usize = 240;

    /// `value` as seen in `file`, cut to a length that fits a report.
    #[must_use]
    pub fn new(file: impl Into<String>, value: impl AsRef<str>) -> Self {
        let value = value.as_ref().trim();
        let value = match value.char_indices().nth(Self::LONGEST) {
            // a list of numbers is not cut within one
            Some((end, _)) => {
                let end = value[..end].rfind([' ', ',']).filter(|at| *at > end / 4).map_or(end, |at| at + 1);
                format!("{}…", &value[..end])
            }
            None if value.is_empty() => "(empty)".into(),
            None => value.to_owned(),
        };
        Self { file: file.into(), value }
    }
}

/// A setting that disturbs a job, or may.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the rule; with a colon and a name behind it if the rule has several findings.
    pub id: String,
    /// The part of the node.
    pub subject: Subject,
    /// The severity.
    pub level: Level,
    /// One sentence: the state, and its effect on the job's CPUs.
    pub title: String,
    /// The files it was seen in.
    pub evidence: Vec<Evidence>,
    /// The changes that would help, the best first; empty if nothing on this node helps.
    pub remedies: Vec<Remedy>,
    /// Advice where no change of a file or parameter helps, or that a remedy needs beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Owners of the settings that a remedy changes: resource managers, users, units. Empty for settings of the node itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
    /// The sources of noise, as traces name them, that the remedy takes from the job's CPUs.
    pub touches: Touches,
}

impl Finding {
    /// A finding without remedy and sources.
    pub(crate) fn new(level: Level, title: impl Into<String>) -> Self {
        Self {
            id: String::new(),
            subject: Subject::Isolation,
            level,
            title: title.into(),
            evidence: Vec::new(),
            remedies: Vec::new(),
            advice: None,
            owners: Vec::new(),
            touches: Touches::default(),
        }
    }

    pub(crate) fn seen(mut self, file: impl Into<String>, value: impl AsRef<str>) -> Self {
        self.evidence.push(Evidence::new(file, value));
        self
    }

    pub(crate) fn remedy(mut self, remedy: Remedy) -> Self {
        self.remedies.push(remedy);
        self
    }

    /// Adds advice behind the one that is there.
    pub(crate) fn advice(mut self, text: impl Into<String>) -> Self {
        let text = text.into();
        self.advice = Some(match self.advice.take() {
            Some(before) => format!("{before} {text}"),
            None => text,
        });
        self
    }

    /// The settings belong to these owners.
    pub(crate) fn owned_by(mut self, owners: impl IntoIterator<Item = String>) -> Self {
        self.owners.extend(owners);
        self.owners.sort();
        self.owners.dedup();
        self
    }

    /// The remedy takes all of these sources away.
    pub(crate) fn touches(mut self, touches: Touches) -> Self {
        self.touches = touches;
        self
    }
}

/// A rule that could not be decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undecided {
    /// Name of the rule.
    pub id: String,
    /// The part of the node.
    pub subject: Subject,
    /// The file that is missing, or may not be read; or what is unknown of this kernel.
    pub reason: String,
}

/// A rule that found nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// Name of the rule.
    pub id: String,
    /// The part of the node.
    pub subject: Subject,
    /// The value that shows it.
    pub evidence: Evidence,
}
