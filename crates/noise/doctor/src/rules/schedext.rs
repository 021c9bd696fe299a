// SPDX-License-Identifier: MIT OR Apache-2.0
//! Schedulers as BPF programs: is Colony's accepted?

use crate::finding::{Finding, Level};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::process::{Process, processes};
use crate::remedy::{Change, Loss, Remedy};
use crate::root::Unread;

const STATE: &str = "/sys/kernel/sched_ext/state";
const LOADED: &str = "/sys/kernel/sched_ext/root/ops";

/// One scheduler can be loaded at a time (Linux 6.12, `CONFIG_SCHED_CLASS_EXT`; `Documentation/scheduler/sched-ext.rst`).
pub(super) fn scheduler(node: &Node) -> Checked {
    let state = match node.root.word(STATE) {
        Err(e) if e.is_missing() && !is_known_to_lack(node) => return Err(e),
        Err(e) if e.is_missing() => {
            return Finding::new(
                Level::Note,
                "This kernel takes no scheduler: `colony run` uses its agent, which is less exact.",
            )
            .seen(STATE, "not there")
            .advice("sched_ext needs Linux 6.12 or later, built with CONFIG_SCHED_CLASS_EXT and BTF.")
            .into();
        }
        other => other?,
    };
    if state != "enabled" {
        return Outcome::passed(STATE, state);
    }
    let name = node.root.value(LOADED)?;
    // the kernel adds a version and a build to the names of some
    if name == "colony" {
        return Outcome::passed(LOADED, name);
    }
    let finding = Finding::new(Level::Low, format!("Another scheduler is loaded: {name}."))
        .seen(STATE, &state)
        .seen(LOADED, &name);
    let Some(process) = scheduler_process(node, &name)? else {
        return finding
            .advice("No process of this scheduler is known: end the program, or stop the unit, that has loaded it.")
            .into();
    };
    let finding = finding.seen(process.file("stat"), &process.name);
    let Some(unit) = process.system_unit(node) else {
        return finding
            .advice(format!(
                "Process {} ({}) has loaded it and belongs to no unit of the system: end this program.",
                process.pid, process.name
            ))
            .into();
    };
    finding
        .remedy(
            Remedy::new(
                [Change::command(&["systemctl", "stop", &unit], &["systemctl", "start", &unit])],
                "the node is scheduled by the kernel's own scheduler again",
            )
            .loses(Loss::Service)
            .keep(format!("systemctl disable {unit}")),
        )
        .into()
}

/// Returns `true` if the kernel has no sched_ext for certain. A collection of files may lack the kernel's file.
fn is_known_to_lack(node: &Node) -> bool {
    node.is_live() || node.config("CONFIG_SCHED_CLASS_EXT") == Some(false)
}

/// The process that has loaded the scheduler `name`. Programs of the scx project are called `scx_NAME`, and the scheduler's name has a
/// version behind it.
fn scheduler_process(node: &Node, name: &str) -> Result<Option<Process>, Unread> {
    let all: Vec<Process> = match processes(node) {
        Ok(all) => all.filter(|p| !p.is_kernel_thread()).collect(),
        Err(e) if e.is_missing() => return Ok(None),
        Err(e) => return Err(e),
    };
    let plain =
        name.split_once(['_', '.']).filter(|(_, version)| version.starts_with(|c: char| c.is_ascii_digit()));
    let plain = plain.map_or(name, |(plain, _)| plain);
    let is = |process: &&Process| {
        let program = process.name.strip_prefix("scx_").unwrap_or(&process.name);
        // the kernel cuts names of processes at 15 bytes
        program == plain || (process.name.len() == 15 && plain.starts_with(program))
    };
    let is_any = |process: &&Process| process.name.starts_with("scx_") && process.name != "scx_loader";
    Ok(all.iter().find(is).or_else(|| all.iter().find(is_any)).cloned())
}
