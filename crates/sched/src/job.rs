//! The job class: registered processes and all that descends from them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use colony_node::class::{self, Class};
use colony_node::task;

use crate::SchedError;
use crate::agent::{can_be_put_back, put_back};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
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

    /// Children of the [subreaper](Self::adopt_orphans_of) that are, or were, the job's.
    pub(crate) fn orphans(&self) -> Vec<i32> {
        let members = self.lock();
        let children = members.subreaper.map(task::children).unwrap_or_default();
        children.into_iter().filter(|c| !members.strangers.contains(c)).collect()
    }

    /// Keeps process `pid` out of the job, whoever its parent is.
    pub fn exclude(&self, pid: i32) {
        self.lock().strangers.insert(pid);
    }

    /// Looks at `/proc` for tasks that joined or left.
    pub fn refresh(&self) {
        self.lock().refresh();
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

    /// Learns of a task from somebody who has scanned.
    pub(crate) fn know(&self, task: JobTask) {
        let mut members = self.lock();
        if let Ok(stat) = task::stat(task.pid) {
            members.processes.insert(task.pid, stat.start_ticks);
        }
        members.tasks.insert(task.tid, task);
    }

    /// Forgets a task that has ended.
    pub(crate) fn forget(&self, tid: i32) {
        self.lock().tasks.remove(&tid);
    }

    /// Puts every task into its own class: those known, and those that descend from them.
    pub(crate) fn restore(&self) {
        // A task that was forked from one not yet put back is found by the next look; what is forked from
        // those put back needs nothing. So few rounds suffice; the bound is for a job that forks wildly.
        for _ in 0..20 {
            for task in self.tasks() {
                let same = task::stat(task.tid).is_ok_and(|s| s.start_ticks == task.start_ticks);
                if same && can_be_put_back(task.own) {
                    // it may have ended just now
                    let _ = put_back(task.tid, task.own);
                }
            }
            if !self.lock().refresh() {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Members {
    /// Looks at `/proc`; whether there are tasks that were not known.
    fn refresh(&mut self) -> bool {
        self.find_processes();
        let mut found = BTreeMap::new();
        let mut news = false;
        for &pid in self.processes.keys() {
            for tid in task::threads(pid) {
                let Ok(stat) = task::stat(tid) else { continue };
                let known = self.tasks.get(&tid).filter(|t| t.start_ticks == stat.start_ticks);
                let own = match known {
                    Some(t) => Some(t.own),
                    None => self.own_class(tid, pid, stat.parent),
                };
                let Some(own) = own else { continue };
                news |= known.is_none();
                found.insert(tid, JobTask { tid, pid, start_ticks: stat.start_ticks, cpu: stat.cpu, own });
            }
        }
        self.tasks = found;
        news
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
