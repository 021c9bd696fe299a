// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of control groups that a job inside meets.

use crate::finding::{Finding, Level};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::remedy::{Change, Remedy};
use crate::root::Unread;

const ROOT: &str = "/sys/fs/cgroup";
/// Groups that are looked at, and how deep.
const MOST: usize = 512;
const DEEPEST: usize = 5;
/// Files below these names are controllers of version 1.
const VERSION_1: &str = "/sys/fs/cgroup/memory/memory.limit_in_bytes";

/// Directories of control groups, the root's children first. Version 2 only.
fn groups(node: &Node) -> Result<Vec<String>, Unread> {
    if !node.root.exists(&format!("{ROOT}/cgroup.controllers")) {
        let hybrid = node.root.exists(VERSION_1);
        let reason = if hybrid { "version 1; only version 2 is read" } else { "no version 2 is mounted" };
        return Err(Unread::Other { file: ROOT.into(), reason: format!("control groups of {reason}") });
    }
    let mut found: Vec<String> = Vec::new();
    let mut level = vec![ROOT.to_owned()];
    for _ in 0..DEEPEST {
        let mut below = Vec::new();
        for dir in &level {
            let children = node.root.list(dir).unwrap_or_default();
            // files of the controllers have a dot behind their controller's name; groups have a file of their own
            for child in children.into_iter().map(|c| format!("{dir}/{c}")) {
                if found.len() + below.len() < MOST && node.root.exists(&format!("{child}/cgroup.procs")) {
                    below.push(child);
                }
            }
        }
        found.append(&mut level);
        level = below;
    }
    found.append(&mut level);
    found.retain(|dir| dir != ROOT);
    Ok(found)
}

/// The count behind `name` in a flat keyed file.
fn counted(text: &str, name: &str) -> u64 {
    text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok()).unwrap_or(0)
}

/// A group that reached `memory.high` or `memory.max` reclaims in its own tasks' time: milliseconds
/// (`Documentation/admin-guide/cgroup-v2.rst`).
pub(super) fn reclaim(node: &Node) -> Checked {
    let mut hit: Vec<(String, Vec<(String, String)>)> = Vec::new();
    for dir in groups(node)? {
        let Ok(events) = node.root.read(&format!("{dir}/memory.events")) else { continue };
        let mut limits = Vec::new();
        for (event, limit) in [("high", "memory.high"), ("max", "memory.max")] {
            let file = format!("{dir}/{limit}");
            if counted(&events, event) > 0
                && let Ok(now) = node.root.value(&file)
                && now != "max"
            {
                limits.push((file, now));
            }
        }
        if !limits.is_empty() {
            let seen = format!("high {}, max {}", counted(&events, "high"), counted(&events, "max"));
            hit.push((format!("{dir}/memory.events: {seen}"), limits));
        }
    }
    if hit.is_empty() {
        return Outcome::passed(format!("{ROOT}/*/memory.events"), "no group reached its limit");
    }
    let mut finding = Finding::new(
        Level::Medium,
        "Control groups have reached their memory limit and reclaim while they compute.",
    );
    for (seen, _) in hit.iter().take(6) {
        if let Some((file, value)) = seen.split_once(": ") {
            finding = finding.seen(file, value);
        }
    }
    let limits = hit.into_iter().flat_map(|(_, limits)| limits);
    finding
        .remedy(
            Remedy::new([Change::writes(limits, "max")], "the group may take all memory of the node").keep(
                "MemoryHigh= and MemoryMax= of the unit, or the memory that the batch system gives the job",
            ),
        )
        .into()
}

/// A group with `cpu.max` stops all its tasks until its next period.
pub(super) fn quota(node: &Node) -> Checked {
    let mut throttled = Vec::new();
    for dir in groups(node)? {
        let Ok(stat) = node.root.read(&format!("{dir}/cpu.stat")) else { continue };
        let times = counted(&stat, "nr_throttled");
        let file = format!("{dir}/cpu.max");
        if times > 0
            && let Ok(now) = node.root.value(&file)
            && !now.starts_with("max")
        {
            throttled.push((file, now, format!("{dir}/cpu.stat"), times));
        }
    }
    let Some((_, _, seen, times)) = throttled.first().cloned() else {
        return Outcome::passed(format!("{ROOT}/*/cpu.stat"), "no group with a limit was throttled");
    };
    let limits = throttled.into_iter().map(|(file, now, ..)| (file, now));
    Finding::new(Level::Medium, "Control groups are throttled by their CPU quota.")
        .seen(seen, format!("nr_throttled {times}"))
        .remedy(
            Remedy::new([Change::writes(limits, "max")], "the group may take all time of its CPUs")
                .keep("CPUQuota= of the unit"),
        )
        .into()
}
