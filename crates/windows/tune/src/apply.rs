// SPDX-License-Identifier: MIT OR Apache-2.0
//! Applying a transaction.

use std::io::ErrorKind;

use crate::error::TuneError;
use crate::node::Node;
use crate::place::Place;
use crate::revert::{Choices, undo_steps};
use crate::transaction::{Action, Phase, Progress, Step, Transaction, check_name};
use crate::value::same;

/// Reaction to a step that fails and is not [optional](Step::optional).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The steps before it are undone, and the transaction fails.
    #[default]
    Undo,
    /// The step is left out, and the others are made.
    KeepGoing,
}

/// An applied transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The transaction; [`Progress::Failed`] steps are those left out under [`OnFailure::KeepGoing`].
    pub transaction: Transaction,
    /// Steps that were not needed: the setting had the value already.
    pub unneeded: Vec<Step>,
    /// Optional steps that the kernel refused, or took as another value. They were taken back, and are in no journal.
    pub refused: Vec<Step>,
}

/// Makes `steps` as the transaction `name`. Nothing is journalled if no step is needed.
///
/// An optional step is tried where it stands between the others, not by itself before: some refusals depend on the steps before
/// it, as that of an interrupt whose new CPU has no free vector any more.
///
/// # Errors
/// [`TuneError`]; the node is as before unless the error names settings that could not be restored.
pub fn apply(
    node: &impl Node,
    name: &str,
    steps: Vec<Step>,
    on_failure: OnFailure,
) -> Result<Applied, TuneError> {
    check_name(name)?;
    if Transaction::load(node, name)?.is_some() {
        return Err(TuneError::Exists(name.to_owned()));
    }
    let Sorted { needed, unneeded, mut refused } = read_before(node, steps, on_failure)?;
    let boot = node
        .boot()
        .map_err(TuneError::journal("naming the boot in it"))
        .map_err(TuneError::before_changes)?;
    let schema = Transaction::SCHEMA.to_owned();
    let mut t = Transaction { schema, name: name.to_owned(), boot, phase: Phase::Applying, steps: needed };
    if t.steps.is_empty() {
        t.phase = Phase::Applied;
        return Ok(Applied { transaction: t, unneeded, refused });
    }
    t.save(node).map_err(TuneError::before_changes)?;
    match make(node, &mut t, on_failure) {
        Ok(taken_back) => {
            refused.extend(taken_back);
            Ok(Applied { transaction: t, unneeded, refused })
        }
        Err(failure) => Err(give_back(node, t, failure)),
    }
}

/// Steps by what is to be done with them.
#[derive(Default)]
struct Sorted {
    needed: Vec<Step>,
    /// The setting has the value already.
    unneeded: Vec<Step>,
    /// Optional, and their present value cannot be read.
    refused: Vec<Step>,
}

/// Reads the present value of each setting.
fn read_before(node: &impl Node, steps: Vec<Step>, on_failure: OnFailure) -> Result<Sorted, TuneError> {
    let mut sorted = Sorted::default();
    for mut step in steps {
        let Some((place, value)) = step.action.setting() else {
            sorted.needed.push(step);
            continue;
        };
        place.check()?;
        // a step before may write the same place: its value is another one by then
        let is_written = sorted.needed.iter().any(|s| s.changes(place));
        match place.read(node) {
            Ok(now) if same(&now, &value) && !is_written => sorted.unneeded.push(step),
            Ok(now) => {
                step.before = now;
                sorted.needed.push(step);
            }
            Err(e) if step.optional => {
                step.progress = Progress::Failed { reason: place.explain(&e) };
                sorted.refused.push(step);
            }
            Err(e) if on_failure == OnFailure::KeepGoing => {
                step.progress = Progress::Failed { reason: e.to_string() };
                sorted.needed.push(step);
            }
            Err(e) => {
                let reason = e.to_string();
                return Err(TuneError::Step { step: step.action.describe(), reason, kept: Vec::new() });
            }
        }
    }
    Ok(sorted)
}

/// The failure of a transaction whose steps are undone next.
enum Failure {
    Step(String, String),
    Journal(TuneError),
}

/// Makes the steps in order, and journals the end; returns the optional steps that were taken back.
fn make(node: &impl Node, t: &mut Transaction, on_failure: OnFailure) -> Result<Vec<Step>, Failure> {
    for place in 0..t.steps.len() {
        if t.steps[place].progress != Progress::Planned {
            continue;
        }
        if matches!(t.steps[place].action, Action::Command { .. }) {
            // a command that may have run must be undone, and nothing but the journal tells that after a crash
            t.steps[place].progress = Progress::Started;
            t.save(node).map_err(Failure::Journal)?;
        }
        let step = &mut t.steps[place];
        match make_step(node, &t.name, step) {
            Ok(()) => step.progress = Progress::Done,
            // an optional step whose old value was not taken again is a failure: the node is not as before
            Err(reason) if on_failure == OnFailure::KeepGoing || step.optional && step.after.is_none() => {
                step.progress = Progress::Failed { reason };
            }
            Err(reason) => return Err(Failure::Step(step.action.describe(), reason)),
        }
    }
    let (refused, kept) =
        std::mem::take(&mut t.steps).into_iter().partition(|s| s.optional && s.is_taken_back());
    t.steps = kept;
    t.phase = Phase::Applied;
    let saved = if t.steps.is_empty() { t.discard(node) } else { t.save(node) };
    saved.map_err(Failure::Journal).map(|()| refused)
}

/// Makes one step. The value of a setting is read back; one that the kernel did not take as it was written is taken back.
fn make_step(node: &impl Node, transaction: &str, step: &mut Step) -> Result<(), String> {
    let made = match &step.action {
        Action::Command { apply, .. } => return node.run(apply).map_err(|e| e.to_string()),
        action => {
            let written = |(place, value): (Place<'_>, String)| {
                write_and_read_back(node, transaction, place, &value, &step.before)
            };
            action.setting().map(written)
        }
    };
    match made {
        Some(Ok(after)) => step.after = Some(after),
        Some(Err(refusal)) => {
            step.after = refusal.stays;
            return Err(refusal.reason);
        }
        None => {}
    }
    Ok(())
}

/// The answer to a write that did not have the effect asked for.
struct Refusal {
    reason: String,
    /// The value that the place has now, if the old one was not taken again: a revert tries again.
    stays: Option<String>,
}

/// Writes a value, and returns what is read back.
fn write_and_read_back(
    node: &impl Node,
    transaction: &str,
    place: Place<'_>,
    value: &str,
    before: &str,
) -> Result<String, Refusal> {
    let reason = match place.write(node, transaction, value).and_then(|()| place.read(node)) {
        Ok(after) if same(&after, value) => return Ok(after),
        Ok(after) => format!("the kernel took the value {} instead of {value}", after.trim()),
        Err(e) => place.explain(&e),
    };
    Err(take_back(node, transaction, place, [value, before], reason))
}

/// Restores the old value, if the refused write of `value` has changed it.
fn take_back(
    node: &impl Node,
    transaction: &str,
    place: Place<'_>,
    [value, before]: [&str; 2],
    reason: String,
) -> Refusal {
    let now = match place.read(node) {
        Ok(now) if same(&now, before) => return Refusal { reason, stays: None },
        Ok(now) => now,
        Err(e) if e.kind() == ErrorKind::NotFound => return Refusal { reason, stays: None },
        // it may have been written
        Err(_) => value.to_owned(),
    };
    match place.put_back(node, transaction, before).and_then(|()| place.read(node)) {
        Ok(again) if same(&again, before) => Refusal { reason, stays: None },
        Ok(again) => {
            let reason = format!("{reason}, and took {} instead of the old one", again.trim());
            Refusal { reason, stays: Some(again) }
        }
        Err(e) => {
            let reason = format!("{reason}, and did not take the old one again: {e}");
            Refusal { reason, stays: Some(now) }
        }
    }
}

/// Undoes the steps made so far, and says what failed.
fn give_back(node: &impl Node, mut t: Transaction, failure: Failure) -> TuneError {
    t.phase = Phase::Reverting;
    let undone = undo_steps(node, &mut t, true, Choices::Keep);
    let kept = match undone {
        Ok(done) => [done.failed, done.uncertain].concat(),
        Err(e) => vec![e.to_string()],
    };
    if kept.is_empty() {
        // nothing is left to undo: a journal that stays means the same at the next look
        let _ = t.discard(node);
    } else {
        t.phase = Phase::Applied;
        let _ = t.save(node);
    }
    match failure {
        Failure::Step(step, reason) => TuneError::Step { step, reason, kept },
        Failure::Journal(TuneError::Journal { what, source, .. }) => {
            TuneError::Journal { what, source, unchanged: kept.is_empty() }
        }
        Failure::Journal(other) => other,
    }
}
