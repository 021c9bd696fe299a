// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of control groups that a job inside meets. A resource manager, an administrator or a user has set them: a finding
//! names the owner, and its remedy says that it changes a limit ([`Loss::Limit`]).

use std::collections::BTreeMap;

use crate::finding::{Finding, Level};
use crate::holders;
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::remedy::{Change, Loss, Remedy};
use crate::root::Unread;

/// The tree of control groups of version 2.
pub(super) const ROOT: &str = "/sys/fs/cgroup";
/// Most groups that are read. With more, a rule is undecided.
const MOST: usize = 1 << 13;
/// Most levels of groups; a task of a Slurm job is at the sixth. With more, a rule is undecided.
const DEEPEST: usize = 32;
/// Groups that are named as evidence.
const SHOWN: usize = 6;
/// Files below these names are controllers of version 1.
const VERSION_1: &str = "/sys/fs/cgroup/memory/memory.limit_in_bytes";

/// Directories of control groups, the root's children first. Version 2 only.
fn groups(node: &Node) -> Result<Vec<String>, Unread> {
    if !node.root.exists(&format!("{ROOT}/cgroup.controllers")) {
        let hybrid = node.root.exists(VERSION_1);
        let reason = match (hybrid, node.is_live()) {
            (true, _) => "control groups of version 1; only version 2 is read",
            (false, true) => "control groups: no version 2 is mounted",
            (false, false) => "control groups: no version 2 is mounted, or its files were not collected",
        };
        return Err(Unread::Other { file: ROOT.into(), reason: reason.into() });
    }
    groups_below(node, ROOT)
}

/// Directories of the control groups below `top`, the nearest first.
pub(super) fn groups_below(node: &Node, top: &str) -> Result<Vec<String>, Unread> {
    let mut found: Vec<String> = Vec::new();
    let mut level = vec![top.to_owned()];
    for _ in 0..DEEPEST {
        let mut below = Vec::new();
        for dir in &level {
            let children = node.root.list(dir).unwrap_or_default();
            // files of the controllers have a dot behind their controller's name; groups have a file of their own
            let is_group = |child: &String| node.root.exists(&format!("{child}/cgroup.procs"));
            below.extend(children.into_iter().map(|c| format!("{dir}/{c}")).filter(is_group));
            if found.len() + below.len() > MOST {
                return Err(Unread::too_many(top, MOST));
            }
        }
        found.append(&mut level);
        level = below;
    }
    if !level.is_empty() {
        let reason = format!("control groups have more than {DEEPEST} levels, the most that are read");
        return Err(Unread::Other { file: top.to_owned(), reason });
    }
    found.retain(|dir| dir != top);
    Ok(found)
}

/// The count behind `name` in a flat keyed file with this text; 0 if the kernel does not count it.
fn counted(file: &str, text: &str, name: &str) -> Result<u64, Unread> {
    let count = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
    count.map_or(Ok(0), |count| count.trim().parse().map_err(|_| Unread::value(file, count)))
}

/// A group that reached a limit.
struct Limited {
    dir: String,
    /// The file that shows it, and the value.
    seen: (String, String),
    /// The limits, each with its file, its value now, and the value without a limit.
    limits: Vec<(String, String, String)>,
}

impl Limited {
    fn owner(&self) -> String {
        holders::owner(self.dir.strip_prefix(ROOT).unwrap_or(&self.dir))
    }
}

/// A finding about groups at their limits, with the owners of these.
fn finding(title: &str, groups: &[Limited], risk: &str, keep: &str) -> Finding {
    let mut finding = Finding::new(Level::Medium, title);
    for group in groups.iter().take(SHOWN) {
        let (file, value) = &group.seen;
        finding = finding.seen(file, format!("{value} (limit of {})", group.owner()));
    }
    // one change for all files that get the same value
    let mut by_value: BTreeMap<&str, Vec<(String, String)>> = BTreeMap::new();
    for (file, now, unlimited) in groups.iter().flat_map(|g| &g.limits) {
        by_value.entry(unlimited).or_default().push((file.clone(), now.clone()));
    }
    let changes = by_value.into_iter().map(|(unlimited, files)| Change::writes(files, unlimited));
    let remedy = Remedy::new(changes, risk).loses(Loss::Limit).keep(keep);
    finding.owned_by(groups.iter().map(Limited::owner)).remedy(remedy)
}

/// A group that reached `memory.high` or `memory.max` reclaims in its own tasks' time: milliseconds
/// (`Documentation/admin-guide/cgroup-v2.rst`).
pub(super) fn reclaim(node: &Node) -> Checked {
    let (mut hit, mut read) = (Vec::new(), 0);
    for dir in groups(node)? {
        let file = format!("{dir}/memory.events");
        let Ok(events) = node.root.read(&file) else { continue };
        read += 1;
        let mut limits = Vec::new();
        let (high, max) = (counted(&file, &events, "high")?, counted(&file, &events, "max")?);
        for (times, limit) in [(high, "memory.high"), (max, "memory.max")] {
            let file = format!("{dir}/{limit}");
            if times > 0
                && let Ok(now) = node.root.value(&file)
                && now != "max"
            {
                limits.push((file, now, "max".to_owned()));
            }
        }
        if !limits.is_empty() {
            let value = format!("high {high}, max {max}");
            hit.push(Limited { dir, seen: (file, value), limits });
        }
    }
    if read == 0 && !node.is_live() {
        return Err(Unread::Missing(format!("{ROOT}/*/memory.events")));
    }
    if hit.is_empty() {
        return Outcome::passed(format!("{ROOT}/*/memory.events"), "no group reached its limit");
    }
    finding(
        "Control groups have reached their memory limit and reclaim while they compute.",
        &hit,
        "the group may take all memory of the node, and the kernel then kills processes of others",
        "MemoryHigh= and MemoryMax= of the unit, or the memory that the batch system gives the job",
    )
    .into()
}

/// A group with `cpu.max` stops all its tasks until its next period. The file has the quota and the period, and the kernel
/// prints both again if only one was written.
pub(super) fn quota(node: &Node) -> Checked {
    let (mut throttled, mut read) = (Vec::new(), 0);
    for dir in groups(node)? {
        let stat = format!("{dir}/cpu.stat");
        let Ok(text) = node.root.read(&stat) else { continue };
        read += 1;
        let times = counted(&stat, &text, "nr_throttled")?;
        let file = format!("{dir}/cpu.max");
        if times > 0
            && let Ok(now) = node.root.value(&file)
            && let Some((quota, period)) = now.split_once(' ')
            && quota != "max"
        {
            let unlimited = format!("max {period}");
            let limits = vec![(file, now, unlimited)];
            throttled.push(Limited { dir, seen: (stat, format!("nr_throttled {times}")), limits });
        }
    }
    if read == 0 && !node.is_live() {
        return Err(Unread::Missing(format!("{ROOT}/*/cpu.stat")));
    }
    if throttled.is_empty() {
        return Outcome::passed(format!("{ROOT}/*/cpu.stat"), "no group with a limit was throttled");
    }
    finding(
        "Control groups are throttled by their CPU quota.",
        &throttled,
        "the group may take all time of its CPUs",
        "CPUQuota= of the unit",
    )
    .into()
}
