// SPDX-License-Identifier: MIT OR Apache-2.0
//! A profile of TuneD, and the script that the profile calls.
//!
//! The rules are those of TuneD 2.20 (Debian 12) and later: `[sysctl]` replaces every dot of a name by a slash, `[sysfs]` writes below `/sys`
//! only and expands wildcards, and `[bootloader]` appends to the kernel command line and removes nothing that another program
//! has put there. Values lose quotes and comments, and variables in them are expanded.

use std::fmt::Write;

use colony_doctor::remedy::quote;

use super::script::{self, ScriptChange};
use super::{kernel_command_line, parameters_to_remove};
use crate::plan::Plan;
use crate::profile::Profile;
use crate::transaction::{Action, Step};

/// A plan as a profile of TuneD.
#[derive(Clone, Debug, Default)]
pub struct TunedProfile {
    summary: String,
    /// Lines of `[sysctl]`.
    sysctl: Vec<String>,
    /// Lines of `[sysfs]`.
    sysfs: Vec<String>,
    /// Changes that no plug-in of every TuneD makes.
    script: Vec<ScriptChange>,
    /// The parameters appended to the kernel command line.
    parameters: String,
    /// Parameters that keep those from taking effect.
    to_remove: Vec<String>,
    /// Steps that end with the boot, each with the reason.
    left_out: Vec<String>,
}

/// The place of a setting in the profile.
enum Section {
    Sysctl(String),
    Sysfs(String),
    Script(ScriptChange),
    LeftOut(&'static str),
}

impl TunedProfile {
    /// The profile of a plan. `handlers`: names of the handlers of an interrupt; `command_line`: the kernel command line now.
    #[must_use]
    pub fn new(
        plan: &Plan,
        profile: &Profile,
        handlers: impl Fn(u32) -> Vec<String>,
        command_line: &str,
    ) -> Self {
        let mut tuned = Self {
            summary: format!("Colony, profile {}", profile.name),
            parameters: kernel_command_line(plan),
            to_remove: parameters_to_remove(plan, command_line),
            ..Self::default()
        };
        plan.steps.iter().for_each(|step| tuned.add(step, &handlers));
        tuned
    }

    fn add(&mut self, step: &Step, handlers: &impl Fn(u32) -> Vec<String>) {
        let section = match &step.action {
            Action::Write { file, value } => section(file, value, handlers),
            Action::Affinity { .. } => Section::LeftOut("a task has another number after a boot"),
            Action::Command { .. } => {
                Section::LeftOut("a command has no value that TuneD can save and verify")
            }
        };
        let reason = match section {
            Section::Sysctl(line) => return self.sysctl.push(line),
            Section::Sysfs(line) => return self.sysfs.push(line),
            Section::Script(change) if self.script.iter().all(|c| !c.contradicts(&change)) => {
                if !self.script.contains(&change) {
                    self.script.push(change);
                }
                return;
            }
            Section::Script(_) => "another change writes another value there",
            Section::LeftOut(reason) => reason,
        };
        let text = match &step.action {
            Action::Command { apply, .. } => {
                apply.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
            }
            action => plain(&action.describe()),
        };
        self.left_out.push(format!("{}: {text} ({reason})", step.reason));
    }

    /// The text of `tuned.conf`.
    #[must_use]
    pub fn configuration(&self) -> String {
        let mut out = format!("# written by colony tune export\n[main]\nsummary={}\n", self.summary);
        let script = if self.script.is_empty() { Vec::new() } else { vec![script::SECTION.to_owned()] };
        let bootloader = if self.parameters.is_empty() { Vec::new() } else { self.bootloader() };
        // writing to a String cannot fail
        for (section, lines) in [
            ("sysctl", &self.sysctl),
            ("sysfs", &self.sysfs),
            ("script", &script),
            ("bootloader", &bootloader),
        ] {
            if !lines.is_empty() {
                let _ = writeln!(out, "\n[{section}]\n{}", lines.join("\n"));
            }
        }
        if !self.left_out.is_empty() {
            let _ = writeln!(out, "\n# left out, since TuneD cannot make these changes at a boot:");
            self.left_out.iter().for_each(|text| out.extend(["# ", text, "\n"]));
        }
        out
    }

    fn bootloader(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.to_remove.is_empty() {
            lines.push(format!("# Remove from the kernel command line: {}", self.to_remove.join(" ")));
            lines.push(
                "# TuneD only appends, and the kernel keeps the first isolcpus= and nohz_full=.".into(),
            );
        }
        lines.push(format!("cmdline_colony={}", self.parameters));
        lines
    }

    /// The text of the script that the profile calls; `None` if the profile calls none.
    #[must_use]
    pub fn script(&self) -> Option<String> {
        (!self.script.is_empty()).then(|| script::text(&self.script))
    }
}

/// Chooses the place of a setting.
fn section(file: &str, value: &str, handlers: &impl Fn(u32) -> Vec<String>) -> Section {
    if file.contains(char::is_control) || value.contains(char::is_control) {
        return Section::LeftOut("a value with line ends");
    }
    let parts: Vec<&str> = file.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let is_plain = is_plain_name(file) && is_plain_value(value);
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    match parts[..] {
        ["proc", "irq", number, name] if is_number(number) => interrupt(number, name, value, handlers),
        ["proc", "self" | "thread-self", ..] => Section::LeftOut("a process has another number after a boot"),
        ["proc", number, ..] if is_number(number) => {
            Section::LeftOut("a process has another number after a boot")
        }
        ["sys", "fs", "cgroup", ..] => Section::LeftOut("a limit ends with its control group"),
        // TuneD replaces each dot by a slash, so a name with a dot would be another file
        ["proc", "sys", ref name @ ..] if is_plain && name.iter().all(|part| !part.contains('.')) => {
            Section::Sysctl(format!("{}={value}", name.join(".")))
        }
        ["sys", ..] if is_plain => Section::Sysfs(format!("/{}={value}", parts.join("/"))),
        _ => Section::Script(ScriptChange::Setting { file: file.into(), value: value.into() }),
    }
}

fn interrupt(number: &str, name: &str, value: &str, handlers: &impl Fn(u32) -> Vec<String>) -> Section {
    if !matches!(name, "smp_affinity" | "smp_affinity_list") {
        return Section::LeftOut("an interrupt has another number after a boot");
    }
    let handler = number.parse().ok().and_then(|number| handlers(number).into_iter().next());
    match handler {
        Some(handler) if !handler.contains(char::is_control) => {
            Section::Script(ScriptChange::Interrupt { handler, file: name.into(), value: value.into() })
        }
        _ => Section::LeftOut("the interrupt has no handler by which to find it after a boot"),
    }
}

/// A name that TuneD's parser and wildcards leave as it is.
fn is_plain_name(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_alphanumeric() || "/._-:,@+".contains(c))
}

/// A value that TuneD writes as it is: without comments, quotes, variables, operators and spaces at its ends.
fn is_plain_value(value: &str) -> bool {
    let is_kept = value.trim() == value && !value.is_empty() && !value.starts_with(['<', '>']);
    is_kept && !value.contains(['#', '"', '$', '\\'])
}

/// A text that ends no comment.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '_' } else { c }).collect()
}
