// SPDX-License-Identifier: MIT OR Apache-2.0
//! Applying a transaction.

use crate::error::TuneError;
use crate::node::Node;
use crate::revert::undo_steps;
use crate::transaction::{Action, Phase, Progress, Step, Transaction, check_file, check_name};
use crate::value::{chosen, same};

/// Reaction to a step that fails.
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
    /// The transaction; [`Progress::Failed`] steps are those left out.
    pub transaction: Transaction,
    /// Steps that were not needed: the setting had the value already.
    pub unneeded: Vec<Step>,
}

/// Makes `steps` as the transaction `name`. Nothing is journalled if no step is needed.
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
    let (needed, unneeded) = read_before(node, steps, on_failure)?;
    let boot = node.boot();
    let schema = Transaction::SCHEMA.to_owned();
    let mut t = Transaction { schema, name: name.to_owned(), boot, phase: Phase::Applying, steps: needed };
    if t.steps.is_empty() {
        t.phase = Phase::Applied;
        return Ok(Applied { transaction: t, unneeded });
    }
    t.save(node).map_err(TuneError::before_changes)?;
    match make(node, &mut t, on_failure) {
        Ok(()) => Ok(Applied { transaction: t, unneeded }),
        Err(failure) => Err(give_back(node, t, failure)),
    }
}

/// The present value of each setting; steps that have their value already are put aside.
fn read_before(
    node: &impl Node,
    steps: Vec<Step>,
    on_failure: OnFailure,
) -> Result<(Vec<Step>, Vec<Step>), TuneError> {
    let (mut needed, mut unneeded) = (Vec::new(), Vec::<Step>::new());
    for mut step in steps {
        if let Action::Write { file, value } = &step.action {
            check_file(file)?;
            match node.read(file) {
                Ok(now) if same(&now, value) && !is_written(&needed, file) => {
                    unneeded.push(step);
                    continue;
                }
                Ok(now) => step.before = now,
                Err(e) if on_failure == OnFailure::KeepGoing => {
                    step.progress = Progress::Failed { reason: e.to_string() };
                }
                Err(e) => {
                    let reason = e.to_string();
                    return Err(TuneError::Step { step: step.action.describe(), reason, kept: Vec::new() });
                }
            }
        }
        needed.push(step);
    }
    Ok((needed, unneeded))
}

/// Returns `true` if a step before writes the file, so that its value is another one by then.
fn is_written(steps: &[Step], file: &str) -> bool {
    steps.iter().any(|s| matches!(&s.action, Action::Write { file: other, .. } if other == file))
}

/// The failure of a transaction whose steps are undone next.
enum Failure {
    Step(String, String),
    Journal(TuneError),
}

/// Makes the steps in order, and journals the end.
fn make(node: &impl Node, t: &mut Transaction, on_failure: OnFailure) -> Result<(), Failure> {
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
        match (make_step(node, step), on_failure) {
            (Ok(()), _) => step.progress = Progress::Done,
            (Err(reason), OnFailure::KeepGoing) => step.progress = Progress::Failed { reason },
            (Err(reason), OnFailure::Undo) => return Err(Failure::Step(step.action.describe(), reason)),
        }
    }
    t.phase = Phase::Applied;
    t.save(node).map_err(Failure::Journal)
}

/// Makes one step, and reads back what it wrote. A file that took another value gets its old one again.
fn make_step(node: &impl Node, step: &mut Step) -> Result<(), String> {
    let (file, value) = match &step.action {
        Action::Command { apply, .. } => return node.run(apply).map_err(|e| e.to_string()),
        Action::Write { file, value } => (file, value),
    };
    node.write(file, value).map_err(|e| e.to_string())?;
    let after = node.read(file).map_err(|e| e.to_string())?;
    if !same(&after, value) {
        let reason = format!("the kernel took the value {} instead of {value}", after.trim());
        if let Err(e) = node.write(file, chosen(&step.before)) {
            // the revert tries again
            step.after = Some(after);
            return Err(format!("{reason}, and did not take the old one again: {e}"));
        }
        return Err(reason);
    }
    step.after = Some(after);
    Ok(())
}

/// Undoes the steps made so far, and says what failed.
fn give_back(node: &impl Node, mut t: Transaction, failure: Failure) -> TuneError {
    t.phase = Phase::Reverting;
    let undone = undo_steps(node, &mut t, true);
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
