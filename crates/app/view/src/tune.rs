// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transactions of settings: plans, applied ones, reverted ones.

use std::fmt::Write;

use colony_tune::{
    Action, Applied, Plan, Profile, Progress, Reverted, Standing, Step, Transaction, Verdict, Verified,
};

use crate::table::{self, broken, name, wrap};

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

/// The transactions that units apply again at every boot.
#[must_use]
pub fn units(names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    wrap(&format!("Applied again at every boot: {}", names.join(", "))) + "\n\n"
}

/// The result of `colony tune revert`. `unit_removed`: the transaction is not applied again at every boot any more.
#[must_use]
pub fn reverted(transaction: &str, r: &Reverted, unit_removed: bool) -> String {
    let mut out = format!("{transaction}: {} restored\n", changes(r.undone.len()));
    if unit_removed {
        row(&mut out, "", "its unit is removed: the next boot does not apply the transaction again");
    }
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

/// The result of `colony tune verify`.
#[must_use]
pub fn verified(all: &[Verified]) -> String {
    let mut out = String::new();
    for t in all {
        let count = |verdict: &Verdict| t.checks.iter().filter(|c| c.verdict == *verdict).count();
        let (same, unread, ended) = (count(&Verdict::Same), count(&Verdict::NotRead), count(&Verdict::Ended));
        let mut notes = Vec::new();
        if unread > 0 {
            notes.push(format!("{} not read back", commands_are(unread)));
        }
        match ended {
            0 => {}
            1 => notes.push("1 task has ended".into()),
            n => notes.push(format!("{n} tasks have ended")),
        }
        let note = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join(", ")) };
        let _ = writeln!(out, "{}: {same} of {} as applied{note}", t.name, changes(t.checks.len()));
        let mut table = table::new(["setting", "applied", "now", "result"]);
        for check in &t.checks {
            let value = |value: &Option<String>| value.as_deref().map_or("–".to_owned(), shown);
            table.add_row([
                name(&check.setting, usize::MAX - 1),
                value(&check.applied),
                value(&check.now),
                name(&result(&check.verdict), usize::MAX - 1),
            ]);
        }
        let _ = writeln!(out, "{}", table::trimmed(&table));
    }
    out
}

fn result(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Same => "same".into(),
        Verdict::Different => "different".into(),
        Verdict::Superseded { by } => format!("changed by {by}"),
        Verdict::Ended => "task ended".into(),
        Verdict::Gone => "file gone".into(),
        Verdict::NotRead => "–".into(),
        Verdict::Unreadable { reason } => format!("unreadable: {reason}"),
        Verdict::NotMade { reason } => format!("not made: {reason}"),
        Verdict::Interrupted => "interrupted".into(),
    }
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

#[cfg(test)]
mod tests {
    use colony_tune::Check;

    use super::*;

    #[test]
    fn a_comparison_fits_80_columns_and_a_command_is_not_called_the_same() {
        let check = |setting: &str, applied: Option<&str>, now: Option<&str>, verdict| Check {
            rule: "rule".into(),
            setting: setting.into(),
            task: None,
            applied: applied.map(str::to_owned),
            now: now.map(str::to_owned),
            verdict,
        };
        let long = format!("/sys/devices/{}/enabled", "pci0000:00/".repeat(12));
        let reason = "the kernel does not let this interrupt be moved (Input/output error)".to_owned();
        let value = "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42,44,46";
        let checks = vec![
            check(&long, Some(value), Some(value), Verdict::Same),
            check(&long, Some(value), None, Verdict::Unreadable { reason }),
            check("CPUs of task 77 (rtkit)", Some("0"), None, Verdict::Ended),
            check("swapoff /dev/a", None, None, Verdict::NotRead),
        ];
        let text = verified(&[Verified { name: "hpc".into(), as_applied: false, checks }]);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(
            text.starts_with("hpc: 1 of 4 changes as applied (1 command is not read back, 1 task has ended)")
        );
        let command = text.lines().find(|line| line.starts_with("swapoff")).expect("a row");
        assert_eq!(command.split_whitespace().collect::<Vec<_>>(), ["swapoff", "/dev/a", "–", "–", "–"]);
    }
}
