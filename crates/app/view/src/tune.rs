// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transactions of settings: plans, applied ones, reverted ones.

use std::fmt::Write;

use colony_tune::{Action, Applied, Plan, Profile, Progress, Reverted, Standing, Step, Transaction};

use crate::table::{broken, name, wrap};

/// Width of the column of rules.
const RULE: usize = 20;

/// A plan that is not made yet.
#[must_use]
pub fn plan(plan: &Plan, profile: &Profile) -> String {
    let mut out = String::new();
    // writing to a String cannot fail
    let _ = match plan.steps.len() {
        0 => writeln!(out, "The profile {} changes nothing on this node.", profile.name),
        1 => writeln!(out, "The profile {} makes 1 change:", profile.name),
        n => writeln!(out, "The profile {} makes {n} changes:", profile.name),
    };
    for step in &plan.steps {
        row(&mut out, &step.reason, &step.action.describe());
    }
    if !plan.parameters.is_empty() {
        out.push_str("\nParameters for the kernel command line, which take effect at the next boot:\n");
        for p in &plan.parameters {
            let instead = p.replaces.as_ref().map(|old| format!(" (instead of {old})")).unwrap_or_default();
            row(&mut out, "", &format!("{}{instead}", p.parameter));
        }
    }
    left_out(&mut out, plan);
    out
}

fn left_out(out: &mut String, plan: &Plan) {
    if !plan.left_out.is_empty() {
        out.push_str("\nFindings that stay:\n");
        for l in &plan.left_out {
            row(out, &l.id, &l.reason);
        }
    }
}

/// The result of `colony tune apply`. `still` are findings that the node has after all changes.
#[must_use]
pub fn applied(applied: &Applied, plan: &Plan, still: &[String]) -> String {
    let t = &applied.transaction;
    let done = || t.steps.iter().filter(|s| s.progress == Progress::Done);
    let (made, unread) = (done().count(), done().filter(|s| is_command(s)).count());
    let of = format!("{}: {made} of {} changes made", t.name, t.steps.len());
    let mut out = match unread {
        0 => format!("{of} and read back\n"),
        _ => format!("{of}, {} read back ({} not)\n", made - unread, commands_are(unread)),
    };
    for step in &t.steps {
        row(&mut out, &step.reason, &change(step));
    }
    for step in &applied.unneeded {
        row(&mut out, &step.reason, &format!("{} already", step.action.describe()));
    }
    if !still.is_empty() {
        let text =
            format!("The doctor still finds: {}. Interrupts move when they next arrive.", still.join(", "));
        let _ = writeln!(out, "\n{}", wrap(&text));
    }
    left_out(&mut out, plan);
    if made > 0 {
        let _ = writeln!(out, "\nundo: colony tune revert {}", t.name);
    }
    out
}

fn change(step: &Step) -> String {
    let text = match &step.action {
        Action::Write { file, value } => format!("{file}: {} → {value}", shown(&step.before)),
        Action::Affinity { task, name: task_name, cpus } => {
            format!("CPUs of task {} ({task_name}): {} → {cpus}", task.tid, shown(&step.before))
        }
        Action::Command { apply, .. } => apply.join(" "),
    };
    match &step.progress {
        Progress::Failed { reason } => format!("{text}: not made: {reason}"),
        _ if is_command(step) => format!("{text} (not read back)"),
        _ => text,
    }
}

fn is_command(step: &Step) -> bool {
    matches!(step.action, Action::Command { .. })
}

/// So many commands, as the subject of a sentence.
fn commands_are(n: usize) -> String {
    if n == 1 { "1 command is".into() } else { format!("{n} commands are") }
}

/// A value on one line, cut to what a table has room for.
fn shown(value: &str) -> String {
    match value.trim() {
        "" => "(empty)".into(),
        text => name(text, 40),
    }
}

/// Applied transactions, with the state of each setting now.
#[must_use]
pub fn transactions(all: &[(Transaction, Vec<Standing>)]) -> String {
    if all.is_empty() {
        return "No transaction is applied.\n".into();
    }
    let mut out = String::new();
    for (t, standings) in all {
        let count = |standing: &Standing| standings.iter().filter(|s| *s == standing).count();
        let (in_effect, unread) = (count(&Standing::InEffect), count(&Standing::NotRead));
        let note = if unread == 0 { String::new() } else { format!(" ({} not read)", commands_are(unread)) };
        let _ = writeln!(out, "{}: {in_effect} of {} changes in effect{note}", t.name, t.steps.len());
        for (step, standing) in t.steps.iter().zip(standings) {
            let now = match standing {
                Standing::InEffect | Standing::NotRead => String::new(),
                Standing::Changed { value } => format!("; changed since, now {}", shown(value)),
                Standing::Gone => "; the file is gone, or the task has ended".into(),
                Standing::Unknown { reason } => format!("; cannot be read: {reason}"),
                Standing::NotMade { reason } => format!("; not made: {reason}"),
            };
            let plain = Step { progress: Progress::Done, ..step.clone() };
            row(&mut out, &step.reason, &format!("{}{now}", change(&plain)));
        }
    }
    out
}

/// The result of `colony tune revert`.
#[must_use]
pub fn reverted(transaction: &str, r: &Reverted) -> String {
    let mut out = format!("{transaction}: {} restored\n", changes(r.undone.len()));
    for file in &r.handed_on {
        row(
            &mut out,
            "",
            &format!("{file}: restored when the later transaction that changes it is reverted"),
        );
    }
    for kept in &r.changed_since {
        row(
            &mut out,
            "",
            &format!(
                "{}: changed since to {}, left alone (--force restores it)",
                kept.file,
                shown(&kept.now)
            ),
        );
    }
    for file in &r.gone {
        row(&mut out, "", &format!("{file}: gone, nothing is to be restored"));
    }
    for text in &r.uncertain {
        row(&mut out, "", &format!("{text}: not repeated"));
    }
    out
}

fn changes(n: usize) -> String {
    if n == 1 { "1 change".into() } else { format!("{n} changes") }
}

/// A rule and a text beside it, on as many lines as the text needs.
fn row(out: &mut String, rule: &str, text: &str) {
    let clean = name(text, usize::MAX - 1);
    let mut rule = name(rule, RULE);
    for line in broken(&clean, 80 - RULE - 4) {
        let _ = writeln!(out, "  {rule:RULE$}  {line}");
        rule.clear();
    }
}
