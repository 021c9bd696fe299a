// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transactions, and their journals.

use std::io::ErrorKind;

use colony_node::cpu::CpuSet;
use colony_node::task::TaskId;
use serde::{Deserialize, Serialize};

use crate::error::TuneError;
use crate::node::Node;
use crate::place::Place;
use crate::value::same;

/// A change of one setting, before it is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Action {
    /// A value into a file.
    Write {
        /// The file, below `/proc` or `/sys`.
        file: String,
        /// The value.
        value: String,
    },
    /// Other CPUs for a task.
    Affinity {
        /// The task, by its number and its start.
        task: TaskId,
        /// Its name, for tables.
        name: String,
        /// The CPUs.
        cpus: CpuSet,
    },
    /// A command, and the one that undoes it. Its effect is not read back.
    Command {
        /// Program and arguments.
        apply: Vec<String>,
        /// Program and arguments; `None` if nothing is to be undone.
        undo: Option<Vec<String>>,
    },
}

impl Action {
    /// The action in words, for errors and tables.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Write { file, value } => format!("{value} into {file}"),
            Self::Affinity { task, name, cpus } => format!("{} for task {} ({name})", cpus.named(), task.tid),
            Self::Command { apply, .. } => apply.join(" "),
        }
    }

    /// The place that is written, and the value; `None` for a command.
    #[must_use]
    pub fn setting(&self) -> Option<(Place<'_>, String)> {
        match self {
            Self::Write { file, value } => Some((Place::File(file), value.clone())),
            Self::Affinity { task, cpus, .. } => Some((Place::Task(*task), cpus.to_string())),
            Self::Command { .. } => None,
        }
    }
}

/// Progress of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Progress {
    /// Not begun, or begun and interrupted in a write.
    Planned,
    /// A command that was started; its end is not known.
    Started,
    /// Made and verified.
    Done,
    /// Refused by the kernel, or without effect.
    Failed {
        /// The kernel's answer.
        reason: String,
    },
}

/// A change of one setting in a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The rule or option behind the change.
    pub reason: String,
    /// The change.
    #[serde(flatten)]
    pub action: Action,
    /// If the kernel refuses an optional step or takes another value, the step is left out. Any other step fails the transaction.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// The value before; empty for commands.
    #[serde(default)]
    pub before: String,
    /// The value as read back after the write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The progress.
    pub progress: Progress,
}

impl Step {
    /// A step that is not begun.
    #[must_use]
    pub fn new(reason: impl Into<String>, action: Action) -> Self {
        Self {
            reason: reason.into(),
            action,
            optional: false,
            before: String::new(),
            after: None,
            progress: Progress::Planned,
        }
    }

    /// The step is left out where the kernel refuses it.
    #[must_use]
    pub fn or_left_out(self) -> Self {
        Self { optional: true, ..self }
    }

    /// Returns `true` if the step changes this place.
    pub(crate) fn changes(&self, place: Place<'_>) -> bool {
        self.action.setting().is_some_and(|(own, _)| own == place)
    }

    /// Returns `true` if the step has written to this place.
    pub(crate) fn has_written(&self, place: Place<'_>) -> bool {
        self.changes(place) && !matches!(self.progress, Progress::Failed { .. })
    }

    /// Returns `true` if the step was refused and its place has the value before again.
    pub(crate) fn is_taken_back(&self) -> bool {
        matches!(self.progress, Progress::Failed { .. }) && self.after.is_none()
    }
}

/// Boot and version of a journal.
#[derive(Deserialize)]
struct Head {
    schema: String,
    boot: String,
}

/// The phase of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Steps are being made. A journal in this phase without a living process is of a crash.
    Applying,
    /// All steps are made, or failed and left out.
    Applied,
    /// Steps are being undone.
    Reverting,
}

/// Steps that belong together, as their journal holds them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    /// [`Transaction::SCHEMA`].
    pub schema: String,
    /// The name by which it is reverted.
    pub name: String,
    /// The boot it belongs to.
    pub boot: String,
    /// The phase.
    pub phase: Phase,
    /// The steps, in the order of their application.
    pub steps: Vec<Step>,
}

impl Transaction {
    /// Schema of journals, and of `--json`.
    pub const SCHEMA: &str = "colony.tune/2";
    /// The schema before: its journals, not the ledger of affinities, have the CPUs that tasks had.
    const SCHEMA_WITHOUT_LEDGER: &str = "colony.tune/1";

    /// Reads the journal of this name; `None` if there is none of this boot. A journal of another boot is removed: the settings
    /// it speaks of ended with that boot. A journal that cannot be read or understood stays, since what it would undo is still in
    /// effect.
    ///
    /// # Errors
    /// [`TuneError::Damaged`] if the bytes are wrong, [`TuneError::Foreign`] for another version's, [`TuneError::Journal`] if the
    /// file system does not give the bytes now.
    pub(crate) fn load(node: &impl Node, name: &str) -> Result<Option<Self>, TuneError> {
        let journal = TuneError::journal(format!("reading that of {name}"));
        let Some(bytes) = node.load(name).map_err(journal)? else { return Ok(None) };
        let damaged = |reason: String| TuneError::Damaged {
            name: name.to_owned(),
            file: node.journal_file(name),
            reason,
        };
        let head: Head = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
        let boot = node.boot().map_err(TuneError::journal(format!("judging the age of that of {name}")))?;
        if head.boot != boot {
            let failed = TuneError::journal(format!("removing that of {name}"));
            return node.discard(name).map_err(failed).map(|()| None);
        }
        if ![Self::SCHEMA, Self::SCHEMA_WITHOUT_LEDGER].contains(&head.schema.as_str()) {
            return Err(TuneError::Foreign { name: name.to_owned(), schema: head.schema });
        }
        let read: Self = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
        if !read.is_of_this_version() {
            return Err(TuneError::Foreign { name: name.to_owned(), schema: head.schema });
        }
        read.check(name).map_err(damaged).map(|()| Some(read))
    }

    /// Checks that the journal can be undone as that of `name`.
    fn check(&self, name: &str) -> Result<(), String> {
        if self.name != name {
            return Err(format!("it names the transaction {:?}", self.name));
        }
        let mut places = self.steps.iter().filter_map(|step| step.action.setting());
        places.try_for_each(|(place, _)| place.check().map_err(|e| e.to_string()))
    }

    fn is_of_this_version(&self) -> bool {
        let is_binding = |step: &Step| matches!(step.action, Action::Affinity { .. });
        self.schema == Self::SCHEMA
            || self.schema == Self::SCHEMA_WITHOUT_LEDGER && !self.steps.iter().any(is_binding)
    }

    pub(crate) fn save(&self, node: &impl Node) -> Result<(), TuneError> {
        let failed = TuneError::journal(format!("writing that of {}", self.name));
        let bytes = serde_json::to_vec_pretty(self).map_err(std::io::Error::from);
        bytes.and_then(|bytes| node.save(&self.name, &bytes)).map_err(failed)
    }

    pub(crate) fn discard(&self, node: &impl Node) -> Result<(), TuneError> {
        node.discard(&self.name).map_err(TuneError::journal(format!("removing that of {}", self.name)))
    }
}

/// Checks that `name` can be a transaction's, and so a file's.
pub(crate) fn check_name(name: &str) -> Result<(), TuneError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=40).contains(&name.len()) && name.chars().all(fits) {
        return Ok(());
    }
    Err(TuneError::Name(name.chars().take(80).collect()))
}

/// The transactions of this boot, the first one first.
///
/// # Errors
/// [`TuneError::Journal`].
pub fn list(node: &impl Node) -> Result<Vec<Transaction>, TuneError> {
    let names = node.journals().map_err(TuneError::journal("listing"))?;
    names.iter().filter_map(|name| Transaction::load(node, name).transpose()).collect()
}

/// State of a step's setting now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "now", rename_all = "kebab-case")]
pub enum Standing {
    /// The setting has the step's value.
    InEffect,
    /// Another program has changed it since.
    Changed {
        /// The value now.
        value: String,
    },
    /// The file is gone with its device or CPU, or the task has ended.
    Gone,
    /// The value cannot be read.
    Unknown {
        /// The kernel's answer.
        reason: String,
    },
    /// The step was not made.
    NotMade {
        /// The reason.
        reason: String,
    },
    /// A command: its effect is not read.
    NotRead,
}

/// State of a step's setting now.
#[must_use]
pub fn standing(node: &impl Node, step: &Step) -> Standing {
    match &step.progress {
        Progress::Failed { reason } => return Standing::NotMade { reason: reason.clone() },
        Progress::Planned => return Standing::NotMade { reason: "interrupted".into() },
        Progress::Started | Progress::Done => {}
    }
    let Some((place, value)) = step.action.setting() else { return Standing::NotRead };
    match place.read(node) {
        Ok(now) if same(&now, step.after.as_deref().unwrap_or(&value)) => Standing::InEffect,
        Ok(now) => Standing::Changed { value: now.trim().to_owned() },
        Err(e) if e.kind() == ErrorKind::NotFound => Standing::Gone,
        Err(e) => Standing::Unknown { reason: e.to_string() },
    }
}
