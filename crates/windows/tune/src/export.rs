// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans for other programs: the kernel command line, a TuneD profile.

use std::fmt::Write;

use crate::plan::Plan;
use crate::profile::Profile;
use crate::transaction::Action;

/// The kernel parameters of a plan, as they are appended to a command line.
#[must_use]
pub fn kernel_command_line(plan: &Plan) -> String {
    plan.parameters.iter().map(|p| p.parameter.as_str()).collect::<Vec<_>>().join(" ")
}

/// A TuneD profile (`tuned.conf`): settings of `/proc/sys` as `[sysctl]`, other files as `[sysfs]`, kernel parameters as
/// `[bootloader]`. Steps that a profile of TuneD cannot express are comments.
#[must_use]
pub fn tuned(plan: &Plan, profile: &Profile) -> String {
    let mut out =
        format!("# written by colony tune export\n[main]\nsummary=Colony, profile {}\n", profile.name);
    let (mut sysctl, mut sysfs, mut other) = (String::new(), String::new(), String::new());
    // writing to a String cannot fail
    for step in &plan.steps {
        let _ = match &step.action {
            Action::Write { file, value } if !is_plain(file) || !is_plain(value) => {
                writeln!(other, "# {}: a value with line ends", step.reason)
            }
            Action::Write { file, value } => match file.strip_prefix("/proc/sys/") {
                Some(name) => writeln!(sysctl, "{}={value}", name.replace('/', ".")),
                None => writeln!(sysfs, "{file}={value}"),
            },
            action @ Action::Affinity { .. } => {
                writeln!(other, "# {}: {}", step.reason, plain(&action.describe()))
            }
            Action::Command { apply, .. } => {
                let words: Vec<String> = apply.iter().map(|w| colony_doctor::remedy::quote(w)).collect();
                writeln!(other, "# {}: {}", step.reason, words.join(" "))
            }
        };
    }
    let line = kernel_command_line(plan);
    let bootloader = if line.is_empty() { line } else { format!("cmdline_colony={line}\n") };
    for (section, lines) in [("sysctl", sysctl), ("sysfs", sysfs), ("bootloader", bootloader)] {
        if !lines.is_empty() {
            let _ = write!(out, "\n[{section}]\n{lines}");
        }
    }
    if !other.is_empty() {
        let _ = write!(out, "\n# not expressible in a profile of TuneD:\n{other}");
    }
    out
}

/// A text that ends no comment.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '_' } else { c }).collect()
}

fn is_plain(text: &str) -> bool {
    !text.contains(char::is_control)
}
