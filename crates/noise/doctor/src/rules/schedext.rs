// SPDX-License-Identifier: MIT OR Apache-2.0
//! Schedulers as BPF programs: is Colony's accepted?

use crate::finding::{Finding, Level};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::remedy::{Change, Loss, Remedy};

const STATE: &str = "/sys/kernel/sched_ext/state";
const LOADED: &str = "/sys/kernel/sched_ext/root/ops";

/// One scheduler can be loaded at a time (Linux 6.12, `CONFIG_SCHED_CLASS_EXT`; `Documentation/scheduler/sched-ext.rst`).
pub(super) fn scheduler(node: &Node) -> Checked {
    let state = match node.root.value(STATE) {
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
    Finding::new(Level::Low, format!("Another scheduler is loaded: {name}."))
        .seen(STATE, &state)
        .seen(LOADED, &name)
        .remedy(
            Remedy::new(
                [Change::command(
                    &["systemctl", "stop", "scx_loader"],
                    &["systemctl", "start", "scx_loader"],
                )],
                "the node is scheduled by the kernel's own scheduler again",
            )
            .loses(Loss::Service)
            .keep("systemctl disable scx_loader"),
        )
        .advice("If a program started it by hand, end that program; the unit may also be named `scx`.")
        .into()
}
