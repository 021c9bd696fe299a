// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reverting a transaction.

use std::io::ErrorKind;

use colony_ledger::Released;
use colony_node::task::TaskId;
use serde::Serialize;

use crate::error::TuneError;
use crate::node::Node;
use crate::place::Place;
use crate::transaction::{Action, Phase, Progress, Step, Transaction, check_name, list};
use crate::value::{chosen, same};

/// A setting that was left as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// The file, or the task in words.
    pub file: String,
    /// The value that the transaction wrote.
    pub written: String,
    /// The value now.
    pub now: String,
}

/// A reverted transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reverted {
    /// Files, tasks and commands that were undone.
    pub undone: Vec<String>,
    /// Files and tasks that have been changed since by a later transaction, and tasks also by a reservation of cores: the original
    /// value is restored when that one ends.
    pub handed_on: Vec<String>,
    /// Settings that another program has changed since.
    pub changed_since: Vec<Kept>,
    /// Files that are gone with their device or CPU, and tasks that have ended.
    pub gone: Vec<String>,
    /// Commands whose undo failed after an interruption: they may not have run, or may have been undone already.
    pub uncertain: Vec<String>,
    /// Settings that could not be restored, each with the kernel's answer.
    #[serde(skip)]
    pub(crate) failed: Vec<String>,
}

/// Restores every setting of the transaction `name`, the last step first. With `force`, also settings that another program has
/// changed since.
///
/// # Errors
/// [`TuneError::Unknown`]; [`TuneError::Revert`] if settings could not be restored: they stay in the journal, and the others
/// are restored.
pub fn revert(node: &impl Node, name: &str, force: bool) -> Result<Reverted, TuneError> {
    check_name(name)?;
    let Some(mut t) = Transaction::load(node, name)? else {
        let names = list(node)?.into_iter().map(|t| t.name).collect();
        return Err(TuneError::Unknown { name: name.to_owned(), names });
    };
    undo(node, &mut t, force)
}

/// Undoes a transaction and removes its journal.
pub(crate) fn undo(node: &impl Node, t: &mut Transaction, force: bool) -> Result<Reverted, TuneError> {
    // the values after the steps are known only if the last step was journalled
    let interrupted = t.phase != Phase::Applied;
    t.phase = Phase::Reverting;
    t.save(node)?;
    let choices = if force { Choices::Undo } else { Choices::Keep };
    let done = undo_steps(node, t, force || interrupted, choices)?;
    if done.failed.is_empty() {
        t.discard(node)?;
        return Ok(done);
    }
    // these steps are as they were: in effect, and to be reverted
    t.phase = Phase::Applied;
    t.save(node)?;
    Err(TuneError::Revert { name: t.name.clone(), reasons: done.failed })
}

/// What happens to CPUs that another program has chosen for a task since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choices {
    Keep,
    /// By force.
    Undo,
}

/// Undoes the steps, the last one first, and takes those that are undone out of the transaction. With `all`, after an
/// interruption or by force, settings are restored although their present value is not the one that the step left, and a
/// command whose undo fails is not tried again.
pub(crate) fn undo_steps(
    node: &impl Node,
    t: &mut Transaction,
    all: bool,
    choices: Choices,
) -> Result<Reverted, TuneError> {
    let mut done = Reverted::default();
    let mut left = Vec::new();
    while let Some(step) = t.steps.pop() {
        let failed = match &step.action {
            Action::Command { apply, undo } => {
                let failed = undo_command(node, &step, apply, undo.as_deref(), &mut done);
                let (uncertain, failed) = if all { (failed, None) } else { (None, failed) };
                done.uncertain.extend(uncertain);
                failed
            }
            Action::Affinity { task, .. } => undo_binding(node, &t.name, &step, *task, choices, &mut done),
            Action::Write { .. } => undo_setting(node, &t.name, &step, all, &mut done)?,
        };
        let is_command = matches!(step.action, Action::Command { .. });
        match failed {
            Some(reason) => {
                done.failed.push(reason);
                left.insert(0, step);
            }
            // a command is not undone twice, as a value may be
            None if is_command => {
                let rest = [&t.steps[..], &left].concat();
                Transaction { steps: rest, ..t.clone() }.save(node)?;
            }
            None => {}
        }
    }
    t.steps = left;
    Ok(done)
}

/// Returns the failure, if the undo failed.
fn undo_command(
    node: &impl Node,
    step: &Step,
    apply: &[String],
    undo: Option<&[String]>,
    done: &mut Reverted,
) -> Option<String> {
    let ran = matches!(step.progress, Progress::Started | Progress::Done);
    let undo = undo.filter(|_| ran)?;
    match node.run(undo) {
        Ok(()) => done.undone.push(apply.join(" ")),
        Err(e) => return Some(format!("{}: {e}", undo.join(" "))),
    }
    None
}

/// Returns the failure, if the task could not get the CPUs that it had. The ledger of affinities knows them, whoever else has moved the
/// task before or since, and whether the step was made at all.
fn undo_binding(
    node: &impl Node,
    name: &str,
    step: &Step,
    task: TaskId,
    choices: Choices,
    done: &mut Reverted,
) -> Option<String> {
    let place = Place::Task(task);
    match node.unbind(name, task, choices == Choices::Undo) {
        Ok(Released::Nothing) => {}
        Ok(Released::Restored) => done.undone.push(place.to_string()),
        Ok(Released::HandedOn) => done.handed_on.push(place.to_string()),
        Ok(Released::Ended) => done.gone.push(place.to_string()),
        Ok(Released::Chosen(now)) => {
            let written = step.after.as_deref().unwrap_or_default().trim().to_owned();
            done.changed_since.push(Kept { file: place.to_string(), written, now: now.to_string() });
        }
        Err(e) => return Some(format!("{place}: {e}")),
    }
    None
}

/// Returns the failure, if the old value could not be written.
fn undo_setting(
    node: &impl Node,
    name: &str,
    step: &Step,
    all: bool,
    done: &mut Reverted,
) -> Result<Option<String>, TuneError> {
    let Some((place, value)) = step.action.setting() else { return Ok(None) };
    if step.is_taken_back() {
        return Ok(None);
    }
    if let Err(e) = place.check() {
        return Ok(Some(e.to_string()));
    }
    if hand_on(node, name, step, place)? {
        done.handed_on.push(place.to_string());
        return Ok(None);
    }
    let now = match place.read(node) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            done.gone.push(place.to_string());
            return Ok(None);
        }
        Err(e) => return Ok(Some(format!("{place}: {e}"))),
        Ok(now) => now,
    };
    if same(&now, &step.before) {
        return Ok(None);
    }
    let written = step.after.as_deref().unwrap_or(&value);
    if !all && !same(&now, written) && !place.is_changed_by_the_kernel() {
        let (written, now) = (written.trim().to_owned(), now.trim().to_owned());
        done.changed_since.push(Kept { file: place.to_string(), written, now });
        return Ok(None);
    }
    Ok(restore(node, name, place, &step.before, done))
}

/// Writes the old value, and reads it back; returns the failure.
fn restore(
    node: &impl Node,
    name: &str,
    place: Place<'_>,
    before: &str,
    done: &mut Reverted,
) -> Option<String> {
    let before = chosen(before);
    match place.put_back(node, name, before).and_then(|()| place.read(node)) {
        Ok(now) if same(&now, before) => done.undone.push(place.to_string()),
        Ok(now) => return Some(format!("{place}: the kernel took {} instead of {before}", now.trim())),
        // a device may go at any moment
        Err(e) if e.kind() == ErrorKind::NotFound => done.gone.push(place.to_string()),
        Err(e) => return Some(format!("{place}: {e}")),
    }
    None
}

/// Gives the original value to the next transaction that has changed the place after this one, if there is one.
fn hand_on(node: &impl Node, name: &str, step: &Step, place: Place<'_>) -> Result<bool, TuneError> {
    let Some(after) = &step.after else { return Ok(false) };
    let all = list(node)?;
    let later = all.into_iter().skip_while(|t| t.name != name).skip(1);
    for mut other in later {
        let mut writes = other.steps.iter_mut().filter(|s| s.has_written(place)).peekable();
        let Some(first) = writes.peek() else { continue };
        let inherits = same(&first.before, after) || same(&first.before, &step.before);
        if inherits {
            writes.for_each(|s| s.before.clone_from(&step.before));
            other.save(node)?;
        }
        return Ok(inherits);
    }
    Ok(false)
}
