// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remedies that can move the threads of a trace off the job's CPUs, decided by the kernel's facts about the tasks with these
//! names.
//!
//! `isolcpus=` keeps tasks away that have not chosen their CPUs. A task whose affinity names only CPUs of the job stays
//! (`sched_setaffinity(2)`). A cpuset partition moves such a task too: the kernel gives a task the CPUs of its cpuset if none
//! of its affinity is left (`kernel/cgroup/cpuset.c`, Linux 6.1). Nothing moves a kernel thread with `PF_NO_SETAFFINITY`.

use std::collections::{BTreeMap, BTreeSet};

use crate::holders::Holders;
use crate::node::Node;
use crate::process::{self, Process};
use crate::root::Unread;
use crate::touches::{Pattern, Touches};

/// Whether a task can be moved off the job's CPUs, the most movable first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mobility {
    /// The task may run on other CPUs than the job's.
    Free,
    /// The task's affinity names only CPUs of the job.
    Pinned,
    /// The kernel has bound the thread to its CPU.
    Bound,
    /// The task belongs to a job, or to Colony.
    Held(String),
}

/// The threads of a trace.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    /// If several tasks have one name, the least movable task decides. A name without a task is [`Mobility::Free`], because
    /// the scheduler may place the next program of this name anywhere.
    by_source: BTreeMap<String, Mobility>,
    /// `false` if the node's files were collected without its tasks: nothing is known then but the names of the trace.
    has_tasks: bool,
}

impl Threads {
    /// Looks up the tasks with the names of the trace. `None` without a trace.
    pub(crate) fn read(node: &Node) -> Result<Option<Self>, Unread> {
        let Some(seen) = &node.threads else { return Ok(None) };
        let tasks: Vec<Process> = match process::threads(node) {
            Ok(all) => all.collect(),
            // collected files may have no processes
            Err(e) if e.is_missing() => Vec::new(),
            Err(e) => return Err(e),
        };
        let holders = Holders::read(node);
        let wanted: BTreeSet<&str> = seen.iter().map(|t| t.source.as_str()).collect();
        // a trace without the node's tasks has only names
        let by_name = |source: &str| match Pattern::UnboundThreads.matches(source) {
            true => Mobility::Free,
            false => Mobility::Bound,
        };
        let mut by_source: BTreeMap<String, Mobility> =
            wanted.iter().map(|source| ((*source).to_owned(), by_name(source))).collect();
        let mut known = BTreeSet::new();
        for task in &tasks {
            let source = task.source();
            let Some(mobility) = by_source.get_mut(&source) else { continue };
            let of_task = of_task(node, &holders, task);
            *mobility = if known.insert(source) { of_task } else { of_task.max(mobility.clone()) };
        }
        Ok(Some(Self { by_source, has_tasks: !tasks.is_empty() }))
    }

    /// Threads that the scheduler may place elsewhere: `isolcpus=` keeps them off the job's CPUs.
    fn free(&self) -> Touches {
        self.touches(|m| *m == Mobility::Free)
    }

    /// Threads that a partition or a new affinity moves, including those that are pinned to the job's CPUs.
    fn movable(&self) -> Touches {
        self.touches(|m| matches!(m, Mobility::Free | Mobility::Pinned))
    }

    fn touches(&self, is: impl Fn(&Mobility) -> bool) -> Touches {
        let sources = self.by_source.iter().filter(|(_, mobility)| is(mobility));
        let sources = sources.map(|(source, _)| Pattern::Is(source.clone()));
        // a task whose affinity nobody collected may be one that stays
        if self.has_tasks { Touches::all(sources) } else { Touches::part_of(sources) }
    }

    /// Returns `true` if the trace has threads, and the node's files have no tasks at all.
    pub(crate) fn are_only_names(&self) -> bool {
        !self.has_tasks && !self.by_source.is_empty()
    }

    /// Threads that are pinned to the job's CPUs.
    pub(crate) fn pinned(&self) -> Vec<&str> {
        let pinned = self.by_source.iter().filter(|(_, mobility)| **mobility == Mobility::Pinned);
        pinned.map(|(source, _)| source.trim_start_matches("thread:")).collect()
    }

    /// Why no remedy moves a thread, by source.
    pub(crate) fn reasons_to_stay(self) -> BTreeMap<String, String> {
        let reason = |(source, mobility)| match mobility {
            Mobility::Bound => Some((source, "the kernel binds this thread to its CPU".to_owned())),
            Mobility::Held(owner) => Some((source, format!("it belongs to {owner}"))),
            Mobility::Free | Mobility::Pinned => None,
        };
        self.by_source.into_iter().filter_map(reason).collect()
    }
}

/// Threads that `isolcpus=` keeps off the job's CPUs; without a trace, all that no kernel code binds to their CPUs.
pub(crate) fn free(threads: Option<&Threads>) -> Touches {
    threads.map_or_else(any_unbound, Threads::free)
}

/// Threads that a partition moves off the job's CPUs; without a trace as [`free`].
pub(crate) fn movable(threads: Option<&Threads>) -> Touches {
    threads.map_or_else(any_unbound, Threads::movable)
}

fn any_unbound() -> Touches {
    Touches::all([Pattern::UnboundThreads])
}

fn of_task(node: &Node, holders: &Holders, task: &Process) -> Mobility {
    if task.is_bound() {
        return Mobility::Bound;
    }
    if let Some(owner) = holders.owner_of(node, task) {
        return Mobility::Held(owner);
    }
    match task.allowed(node) {
        Some(cpus) if cpus.without(&node.job).is_empty() => Mobility::Pinned,
        _ => Mobility::Free,
    }
}
