// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transactions, and their journals.

use serde::{Deserialize, Serialize};

use crate::error::TuneError;
use crate::node::Node;
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
    /// A command, and the one that undoes it.
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
            Self::Command { apply, .. } => apply.join(" "),
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
    /// The value of the file before; empty for commands.
    #[serde(default)]
    pub before: String,
    /// The value of the file as read back after the write.
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
            before: String::new(),
            after: None,
            progress: Progress::Planned,
        }
    }

    /// Returns `true` if the step has written `file`.
    pub(crate) fn has_written(&self, file: &str) -> bool {
        matches!(&self.action, Action::Write { file: own, .. } if own == file)
            && !matches!(self.progress, Progress::Failed { .. })
    }
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
    pub const SCHEMA: &str = "colony.tune/1";

    /// Reads the journal of this name; `None` if there is none of this boot. A journal of another boot, or in a form that is not
    /// ours, is removed: the settings it speaks of ended with that boot.
    pub(crate) fn load(node: &impl Node, name: &str) -> Result<Option<Self>, TuneError> {
        let journal = TuneError::journal(format!("reading that of {name}"));
        let Some(bytes) = node.load(name).map_err(journal)? else { return Ok(None) };
        let read: Option<Self> = serde_json::from_slice(&bytes).ok();
        match read.filter(|t| t.schema == Self::SCHEMA && t.name == name && t.boot == node.boot()) {
            Some(found) => Ok(Some(found)),
            None => node
                .discard(name)
                .map_err(TuneError::journal(format!("removing that of {name}")))
                .map(|()| None),
        }
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

/// A journal is read by root: it must not make root write an arbitrary file.
pub(crate) fn check_file(file: &str) -> Result<(), TuneError> {
    let below = file.starts_with("/proc/") || file.starts_with("/sys/");
    if below && !file.split('/').any(|part| part == "..") {
        return Ok(());
    }
    Err(TuneError::NotASetting(file.chars().take(200).collect()))
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
    /// The file is gone, with its device or CPU.
    Gone,
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
    match (&step.progress, &step.action) {
        (Progress::Failed { reason }, _) => Standing::NotMade { reason: reason.clone() },
        (Progress::Planned, _) => Standing::NotMade { reason: "interrupted".into() },
        (_, Action::Command { .. }) => Standing::NotRead,
        (_, Action::Write { file, value }) => match node.read(file) {
            Ok(now) if same(&now, step.after.as_deref().unwrap_or(value)) => Standing::InEffect,
            Ok(now) => Standing::Changed { value: now.trim().to_owned() },
            Err(_) => Standing::Gone,
        },
    }
}
