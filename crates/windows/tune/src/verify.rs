// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparing settings with the values that transactions applied.

use std::io::ErrorKind;

use colony_node::task::TaskId;
use serde::Serialize;

use crate::error::TuneError;
use crate::node::Node;
use crate::place::Place;
use crate::transaction::{Action, Phase, Progress, Step, Transaction, check_name, list};
use crate::value::same;

/// Result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "kebab-case")]
pub enum Verdict {
    /// The setting has the value that was applied.
    Same,
    /// The setting has another value.
    Different,
    /// A later change of a transaction has written the setting; that change is compared instead.
    Superseded {
        /// The transaction of the later change.
        by: String,
    },
    /// The task has ended, so nothing is left to compare.
    Ended,
    /// The file is gone with its device or CPU.
    Gone,
    /// A command: its effect cannot be read back.
    NotRead,
    /// The value cannot be read now.
    Unreadable {
        /// The kernel's answer.
        reason: String,
    },
    /// The change was left out when the transaction was applied.
    NotMade {
        /// The kernel's answer.
        reason: String,
    },
    /// The process that made or undid the transaction was killed before this change was complete.
    Interrupted,
}

impl Verdict {
    /// Returns `true` unless the setting differs from what was applied, or may differ. A command cannot be compared, and does not count.
    #[must_use]
    pub const fn is_as_applied(&self) -> bool {
        match self {
            Self::Same | Self::Superseded { .. } | Self::Ended | Self::NotRead | Self::NotMade { .. } => true,
            Self::Different | Self::Gone | Self::Unreadable { .. } | Self::Interrupted => false,
        }
    }
}

/// One change, compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The rule or option behind the change.
    pub rule: String,
    /// The file, the task or the command in words.
    pub setting: String,
    /// The task, by its number and its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The value that was applied; `None` for a command.
    pub applied: Option<String>,
    /// The value now; `None` if it was not read.
    pub now: Option<String>,
    /// The result.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// The changes of a transaction, compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// The transaction.
    pub name: String,
    /// Set if every change is as it was applied.
    pub as_applied: bool,
    /// The changes, in the order of their application.
    pub checks: Vec<Check>,
}

/// Compares the settings of the transaction `name`, or of all transactions, with the values that were applied. Changes nothing.
///
/// # Errors
/// [`TuneError::Unknown`]; journals that cannot be read.
pub fn verify(node: &impl Node, name: Option<&str>) -> Result<Vec<Verified>, TuneError> {
    name.map_or(Ok(()), check_name)?;
    let all = list(node)?;
    let is_asked = |t: &&Transaction| name.is_none_or(|name| t.name == name);
    if let Some(name) = name.filter(|_| !all.iter().any(|t| is_asked(&t))) {
        let names = all.into_iter().map(|t| t.name).collect();
        return Err(TuneError::Unknown { name: name.to_owned(), names });
    }
    Ok(all.iter().filter(is_asked).map(|t| verify_transaction(node, t, &all)).collect())
}

fn verify_transaction(node: &impl Node, t: &Transaction, all: &[Transaction]) -> Verified {
    let later = || all.iter().skip_while(|other| other.name != t.name).skip(1);
    let check = |(at, step): (usize, &Step)| {
        let place = step.action.setting().map(|(place, _)| place);
        let in_own = place.filter(|&place| t.steps[at + 1..].iter().any(|s| s.has_written(place)));
        let in_other =
            place.and_then(|place| later().find(|other| other.steps.iter().any(|s| s.has_written(place))));
        let by = in_other.map(|other| &other.name).or(in_own.map(|_| &t.name));
        check_step(node, step, t.phase, by)
    };
    let checks: Vec<Check> = t.steps.iter().enumerate().map(check).collect();
    let as_applied = t.phase == Phase::Applied && checks.iter().all(|c| c.verdict.is_as_applied());
    Verified { name: t.name.clone(), as_applied, checks }
}

/// `superseded_by`: the transaction with a later change of the same setting.
fn check_step(node: &impl Node, step: &Step, phase: Phase, superseded_by: Option<&String>) -> Check {
    let (setting, task) = match &step.action {
        Action::Affinity { task, name, .. } => (format!("CPUs of task {} ({name})", task.tid), Some(*task)),
        Action::Write { file, .. } => (file.clone(), None),
        Action::Command { apply, .. } => (apply.join(" "), None),
    };
    let place = step.action.setting();
    let applied = place.as_ref().map(|(_, value)| step.after.as_deref().unwrap_or(value).trim().to_owned());
    let mut check =
        Check { rule: step.reason.clone(), setting, task, applied, now: None, verdict: Verdict::NotRead };
    check.verdict = match (&step.progress, place, superseded_by) {
        (Progress::Failed { reason }, ..) => Verdict::NotMade { reason: reason.clone() },
        // the journal has the progress of settings only if it was complete
        _ if phase != Phase::Applied => Verdict::Interrupted,
        (Progress::Planned, ..) => Verdict::Interrupted,
        (_, None, _) => Verdict::NotRead,
        (_, Some((place, value)), by) => {
            let applied = step.after.as_deref().unwrap_or(&value);
            let (verdict, now) = compare(node, place, applied);
            check.now = now;
            match by {
                Some(by) if verdict == Verdict::Different => Verdict::Superseded { by: by.clone() },
                _ => verdict,
            }
        }
    };
    check
}

/// Compares a setting with the value that was read back when it was applied; returns the value now, if it can be read.
fn compare(node: &impl Node, place: Place<'_>, applied: &str) -> (Verdict, Option<String>) {
    match place.read(node) {
        Ok(now) => {
            let verdict = if same(&now, applied) { Verdict::Same } else { Verdict::Different };
            (verdict, Some(now.trim().to_owned()))
        }
        Err(e) if e.kind() == ErrorKind::NotFound => match place {
            Place::Task(_) => (Verdict::Ended, None),
            Place::File(_) => (Verdict::Gone, None),
        },
        Err(e) => (Verdict::Unreadable { reason: e.to_string() }, None),
    }
}
