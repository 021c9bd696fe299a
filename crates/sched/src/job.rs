//! The job class: registered processes and all that descends from them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use colony_node::class::{self, Class};
use colony_node::task;

use crate::SchedError;

/// The tasks of the parallel job: registered processes, their threads, and all that descends from them.
///
/// A process once seen stays a member until it ends, also when its parent ends first. What forks and
/// loses its parent between two scans is found only below a [subreaper](Job::adopt_orphans_of).
#[derive(Debug, Default)]
pub struct Job {
    inner: Mutex<Members>,
}

#[derive(Debug, Default)]
struct Members {
    /// Live processes by number, with their start.
    processes: BTreeMap<i32, u64>,
    tasks: BTreeMap<i32, JobTask>,
    /// The process whose new children are the job's orphans.
    subreaper: Option<i32>,
    /// Processes that are never part of the job.
    strangers: BTreeSet<i32>,
}

/// A task (thread) of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobTask {
    /// Its number.
    pub tid: i32,
    /// The process it belongs to.
    pub pid: i32,
    /// Its start in clock ticks since boot: with the number it names the task for good.
    pub start_ticks: u64,
    /// The CPU it ran on last.
    pub cpu: usize,
    /// The class it has of its own, and gets back.
    pub own: Class,
}

/// What a scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Tasks new to the job.
    pub joined: Vec<JobTask>,
    /// Tasks that have ended.
    pub left: Vec<JobTask>,
}

impl Job {
    /// A job without members.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes process `pid`, and all that descends from it, part of the job.
    ///
    /// # Errors
    /// [`SchedError::NoProcess`] where it is gone.
    pub fn add(&self, pid: i32) -> Result<(), SchedError> {
        let start = task::stat(pid)
            .ok()
            .filter(|s| s.state != b'Z' && task::process_of(pid) == Some(pid))
            .ok_or(SchedError::NoProcess(pid))?;
        self.lock().processes.insert(pid, start.start_ticks);
        self.refresh();
        Ok(())
    }

    /// Counts every new child of `pid` as the job's: `pid` is a child subreaper, and a process of the job
    /// that loses its parent becomes its child. Children it has now are not meant.
    pub fn adopt_orphans_of(&self, pid: i32) {
        let children = task::children(pid);
        let mut members = self.lock();
        members.subreaper = Some(pid);
        let strangers =
            children.into_iter().filter(|c| !members.processes.contains_key(c)).collect::<Vec<_>>();
        members.strangers.extend(strangers);
    }

    /// Keeps process `pid` out of the job, whoever its parent is.
    pub fn exclude(&self, pid: i32) {
        self.lock().strangers.insert(pid);
    }

    /// Looks at `/proc` for tasks that joined or left.
    pub fn refresh(&self) -> Changes {
        self.lock().refresh()
    }

    /// The tasks known since the last [`refresh`](Self::refresh).
    #[must_use]
    pub fn tasks(&self) -> Vec<JobTask> {
        self.lock().tasks.values().copied().collect()
    }

    /// The processes known since the last [`refresh`](Self::refresh), ascending.
    #[must_use]
    pub fn processes(&self) -> Vec<i32> {
        self.lock().processes.keys().copied().collect()
    }

    /// Whether no process of the job lives, as of the last [`refresh`](Self::refresh).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().processes.is_empty()
    }

    /// Forgets which class is whose own, so that the next refresh reads it; right only while nothing switches.
    pub(crate) fn forget_classes(&self) {
        self.lock().tasks.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Members {
    fn refresh(&mut self) -> Changes {
        self.find_processes();
        let mut found = BTreeMap::new();
        let mut changes = Changes::default();
        for &pid in self.processes.keys() {
            for tid in task::threads(pid) {
                let Ok(stat) = task::stat(tid) else { continue };
                let known = self.tasks.get(&tid).filter(|t| t.start_ticks == stat.start_ticks);
                let own = match known {
                    Some(t) => t.own,
                    None => match self.own_class(tid, pid, stat.parent) {
                        Some(own) => own,
                        None => continue,
                    },
                };
                let task = JobTask { tid, pid, start_ticks: stat.start_ticks, cpu: stat.cpu, own };
                if known.is_none() {
                    changes.joined.push(task);
                }
                found.insert(tid, task);
            }
        }
        let old = std::mem::replace(&mut self.tasks, found);
        let gone = |t: &JobTask| self.tasks.get(&t.tid).is_none_or(|n| n.start_ticks != t.start_ticks);
        changes.left = old.into_values().filter(gone).collect();
        changes
    }

    /// Drops processes that ended and adds descendants of the rest.
    fn find_processes(&mut self) {
        let lives = |pid, start: Option<u64>| {
            task::stat(pid)
                .ok()
                .filter(|s| s.state != b'Z' && s.state != b'X' && start.is_none_or(|t| t == s.start_ticks))
                .map(|s| s.start_ticks)
        };
        let mut todo: Vec<i32> = self.processes.keys().copied().collect();
        if let Some(reaper) = self.subreaper {
            todo.extend(task::children(reaper));
            self.strangers.retain(|&s| lives(s, None).is_some());
        }
        let mut seen = BTreeSet::new();
        let mut alive = BTreeMap::new();
        while let Some(pid) = todo.pop() {
            if self.strangers.contains(&pid) || !seen.insert(pid) {
                continue;
            }
            let known = self.processes.get(&pid).copied();
            // descendants of a process that is ending are looked for all the same
            todo.extend(task::children(pid));
            if let Some(start) = lives(pid, known) {
                alive.insert(pid, start);
            }
        }
        self.processes = alive;
    }

    /// The class a task new to the job has of its own. What the agent gave its parent is not its own: a
    /// child of a favored task starts in `SCHED_OTHER` (reset on fork), of a held task in `SCHED_IDLE`.
    fn own_class(&self, tid: i32, pid: i32, parent: i32) -> Option<Class> {
        let now = class::get(tid).ok()?;
        let of = |t| self.tasks.get(&t).map(|t: &JobTask| t.own);
        let inherited = if tid == pid { of(parent) } else { of(pid) };
        Some(match (now, inherited) {
            (Class::Other(0) | Class::Idle, Some(own)) => own,
            _ => now,
        })
    }
}
