// SPDX-License-Identifier: MIT OR Apache-2.0
//! The members of a job, as `/proc` shows them.

use std::collections::{BTreeMap, BTreeSet};

use colony_node::class::{self, Class};
use colony_node::privilege::may_be_real_time;
use colony_node::task::{self, TaskId};

use super::job_task::JobTask;
use crate::undo::JobGroup;

#[derive(Debug, Default)]
pub(super) struct Members {
    /// Live processes by number, with their start.
    pub(super) processes: BTreeMap<i32, u64>,
    pub(super) tasks: BTreeMap<i32, JobTask>,
    /// Processes that were registered, not found.
    pub(super) roots: BTreeSet<i32>,
    /// The own class of the first task.
    pub(super) first_own: Option<Own>,
    /// True if tasks may be in a class that the agent gave them, and pass it on to their children.
    pub(super) switching: bool,
    /// True if a real-time class counts as a task's own only if the task could set it itself: any user may own the job.
    pub(super) strict: bool,
    /// The process whose new children are the job's orphans.
    pub(super) subreaper: Option<i32>,
    /// Processes that are never part of the job.
    pub(super) strangers: BTreeSet<i32>,
    /// The control group of the processes that the job forks, orphans included.
    pub(super) group: Option<JobGroup>,
}

/// A class of a task's own, and whether its children start in `SCHED_OTHER` instead.
type Own = (Class, bool);

impl Members {
    pub(super) fn insert(&mut self, pid: i32, start_ticks: u64) {
        self.processes.insert(pid, start_ticks);
        self.roots.insert(pid);
        self.refresh();
    }

    /// Looks at `/proc`; whether there are tasks that were not known.
    pub(super) fn refresh(&mut self) -> bool {
        self.find_processes();
        let mut found = BTreeMap::new();
        let mut news = false;
        let processes: Vec<i32> = self.processes.keys().copied().collect();
        for pid in processes {
            let threads = match task::list_threads(pid) {
                Ok(threads) => threads,
                Err(e) if e.is_no_task() => continue,
                // not told: they are there as far as is known
                Err(_) => self.tasks.values().filter(|t| t.pid == pid).map(|t| t.tid).collect(),
            };
            for tid in threads {
                let Some((task, is_new)) = self.look_at(&found, tid, pid) else { continue };
                self.first_own.get_or_insert((task.own, task.own_reset));
                news |= is_new;
                found.insert(tid, task);
            }
        }
        self.tasks = found;
        news
    }

    /// One thread as it is now, and whether it is new; nothing for one that has ended.
    fn look_at(&self, found: &BTreeMap<i32, JobTask>, tid: i32, pid: i32) -> Option<(JobTask, bool)> {
        let known = self.tasks.get(&tid);
        let stat = match task::stat_of_thread(pid, tid) {
            Ok(stat) if !stat.has_ended() => stat,
            Err(e) if !e.is_no_task() => return known.filter(|t| t.pid == pid).map(|&t| (t, false)),
            _ => return None,
        };
        let known = known.filter(|t| t.start_ticks == stat.start_ticks);
        let (own, own_reset) = match known {
            Some(t) => (t.own, t.own_reset),
            None => self.own_class(found, tid, pid, stat.parent)?,
        };
        let runnable = stat.state == b'R';
        let task =
            JobTask { tid, pid, start_ticks: stat.start_ticks, cpu: stat.cpu, own, own_reset, runnable };
        Some((task, known.is_none()))
    }

    /// Drops processes that ended and adds descendants of the rest.
    fn find_processes(&mut self) {
        let mut todo: Vec<(i32, By)> = self.processes.keys().map(|&pid| (pid, By::Number)).collect();
        let gathered = self.group.as_ref().map(JobGroup::processes).unwrap_or_default();
        todo.extend(gathered.iter().map(|&pid| (pid, By::Kinship)));
        if let Some(reaper) = self.subreaper {
            todo.extend(task::children(reaper).into_iter().map(|pid| (pid, By::Kinship)));
        }
        self.strangers.retain(|&s| match task::stat(s) {
            Ok(stat) => !stat.has_ended(),
            Err(e) => !e.is_no_task(),
        });
        let mut seen = BTreeSet::new();
        let mut alive = BTreeMap::new();
        while let Some((pid, by)) = todo.pop() {
            if self.strangers.contains(&pid) || !seen.insert(pid) {
                continue;
            }
            let known = self.processes.get(&pid).copied();
            let mut running = running_since(pid, known);
            if running.is_none() && known.is_some_and(|start| is_another(pid, start)) {
                if by == By::Number {
                    // the number is a stranger's by now, and the stranger's children are strangers, too
                    continue;
                }
                running = running_since(pid, None);
            }
            // descendants of a process that is ending are looked for all the same
            todo.extend(task::children(pid).into_iter().map(|child| (child, By::Kinship)));
            if let Some(start) = running {
                alive.insert(pid, start);
            }
        }
        if let Some(group) = &self.group {
            let gathered: BTreeSet<i32> = gathered.into_iter().collect();
            alive.keys().filter(|pid| !gathered.contains(pid)).for_each(|&pid| group.add(pid));
        }
        self.roots.retain(|pid| alive.contains_key(pid));
        self.processes = alive;
    }

    /// The class a task new to the job has of its own. What the agent gave its parent is not its own: a child of a favored
    /// task starts in `SCHED_OTHER` (reset on fork) without its parent's nice value, which it gets here; a child of a held
    /// task starts in `SCHED_IDLE`.
    fn own_class(&self, found: &BTreeMap<i32, JobTask>, tid: i32, pid: i32, parent: i32) -> Option<Own> {
        let now = class::current(tid).ok()?;
        let privileged =
            |class: Class| !self.strict || !class.is_real_time() || may_be_real_time(tid, priority_of(class));
        if !self.switching || (privileged(now.0) && !matches!(now.0, Class::Other(0) | Class::Idle)) {
            // a real-time class that the task could not give itself is what an agent left behind
            let own =
                if privileged(now.0) { now } else { (Class::Other(class::nice(tid).unwrap_or(0)), false) };
            return Some(own);
        }
        let of = |t| found.get(&t).or_else(|| self.tasks.get(&t));
        let ancestor = if tid == pid { of(parent) } else { of(pid) };
        if let Some(ancestor) = ancestor {
            let nice = class::nice(ancestor.tid).unwrap_or(0);
            if now.0 == Class::Other(0)
                && nice != 0
                && ancestor.own.with_nice(nice) != ancestor.own.with_nice(0)
            {
                // it may have ended just now
                let _ = class::set_nice(tid, nice);
            }
            return Some((ancestor.own, ancestor.own_reset));
        }
        // an orphan's parent is not known any more: the whole job most likely is of one class
        let job = if self.roots.contains(&pid) { None } else { self.first_own };
        Some(job.unwrap_or(if privileged(now.0) { now } else { (Class::Other(0), false) }))
    }
}

/// The way by which a process was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// By the number of a process that was a member at the last look.
    Number,
    /// As a child of a member or of the subreaper, or as a process of the job's group.
    Kinship,
}

/// Returns `true` if the number of a process that was started at `start_ticks` is another process's now.
fn is_another(pid: i32, start_ticks: u64) -> bool {
    TaskId::of(pid).is_ok_and(|now| now.start_ticks != start_ticks)
}

/// The start of process `pid` if it runs. One that is known counts as running until the kernel says that it has ended.
fn running_since(pid: i32, known: Option<u64>) -> Option<u64> {
    match known {
        Some(start_ticks) => {
            TaskId { tid: pid, start_ticks }.is_running_process().unwrap_or(true).then_some(start_ticks)
        }
        None => {
            TaskId::of(pid).ok().filter(|p| p.is_running_process().unwrap_or(false)).map(|p| p.start_ticks)
        }
    }
}

pub(super) const fn priority_of(class: Class) -> u8 {
    match class {
        Class::Fifo(priority) | Class::RoundRobin(priority) => priority,
        // a deadline task is above them all
        _ => 99,
    }
}
