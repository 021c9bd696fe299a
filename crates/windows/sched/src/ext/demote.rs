// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real-time tasks put into an ordinary class while the scheduler runs, as the user asked.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use colony_client::RtTask;
use colony_node::class::{self, Class};
use colony_node::cpu::CpuSet;
use colony_node::task;

use crate::guardian::{Guardian, Message, Starter};
use crate::job::{Job, JobTask};
use crate::undo::{TASKS, Tasks, UndoFile};

/// Real-time priority of the guardian: above those it puts back would be above everything.
const PRIORITY: u8 = 60;
/// Timeout after which the guardian puts the tasks back if it has no sign of life.
const SILENCE: Duration = Duration::from_secs(10);

/// The demoted tasks; they are in their own class again when this is dropped, or this process dies.
#[derive(Debug, Default)]
pub(super) struct Demoted {
    pub(super) tasks: Vec<RtTask>,
    /// The reason for which a task that was named could not be demoted.
    pub(super) problem: Option<String>,
    /// Their processes with all that descends from these: what they make meanwhile goes back with them, and what was
    /// ordinary before stays so.
    job: Job,
    /// Tasks of these that the guardian knows of.
    guarded: BTreeSet<(i32, u64)>,
    guardian: Option<(Starter, Guardian)>,
    /// For the death of this process and the guardian.
    undo: Option<UndoFile<Tasks>>,
}

impl Demoted {
    /// Puts these tasks into `SCHED_OTHER`.
    pub(super) fn demote(&mut self, tasks: Vec<RtTask>) {
        for task in tasks {
            match self.demote_one(&task) {
                Ok(()) => self.tasks.push(task),
                Err(why) => {
                    self.problem = Some(format!("{} keeps its class {}: {why}", task.comm, task.class))
                }
            }
        }
    }

    fn demote_one(&mut self, task: &RtTask) -> Result<(), String> {
        if matches!(task.class, Class::Foreign(_)) {
            return Err("a deadline task cannot be put back".into());
        }
        let pid = task::process_of(task.tid).ok_or("it has ended")?;
        self.job.exclude(std::process::id().cast_signed());
        self.job.mind_switching();
        if !self.job.processes().contains(&pid) {
            self.job.add_in_own_class(pid).map_err(|e| e.to_string())?;
        }
        // it may have become a real-time task after its process was looked at
        let (_, own_reset) = class::current(task.tid).map_err(|e| e.to_string())?;
        let nice = class::nice(task.tid).map_err(|e| e.to_string())?;
        let own = JobTask {
            tid: task.tid,
            pid,
            start_ticks: task.start_ticks,
            cpu: 0,
            own: task.class,
            own_reset,
            runnable: false,
        };
        self.job.know(own);
        // told before it is done: whatever happens in between is undone
        self.tell_guardian(own)?;
        class::set(task.tid, Class::Other(nice)).map_err(|e| e.to_string())
    }

    /// Tells of `task`, and of those it does not know.
    fn tell_guardian(&mut self, task: JobTask) -> Result<(), String> {
        let tasks = self.job.tasks();
        self.save(&tasks).map_err(|e| format!("the undo file: {e}"))?;
        let now = tasks.iter().map(|t| (t.tid, t.start_ticks)).collect();
        let before = std::mem::replace(&mut self.guarded, now);
        let news = tasks.into_iter().filter(|t| *t == task || !before.contains(&(t.tid, t.start_ticks)));
        for task in news {
            self.guardian()?.tell(Message::Joined(task)).map_err(|e| format!("its guardian: {e}"))?;
        }
        Ok(())
    }

    /// Says in the undo file which tasks there are, where there can be one.
    fn save(&mut self, tasks: &[JobTask]) -> io::Result<()> {
        if self.undo.is_none() {
            self.undo = UndoFile::new(TASKS).ok();
        }
        let Some(undo) = &self.undo else { return Ok(()) };
        undo.save(&Tasks { tasks: tasks.to_vec(), ..Tasks::default() })
    }

    fn guardian(&mut self) -> Result<&mut Guardian, String> {
        if self.guardian.is_none() {
            let undo = self.undo.as_ref().map(|undo| undo.path().to_owned());
            let starter =
                Starter::new(PRIORITY, SILENCE, undo, CpuSet::default()).map_err(|e| e.to_string())?;
            let guardian = starter.start().map_err(|e| e.to_string())?;
            self.guardian = Some((starter, guardian));
        }
        self.guardian.as_mut().map(|(_, g)| g).ok_or_else(|| "no guardian".into())
    }

    /// Tells the guardian that all is well.
    pub(super) fn beat(&mut self) {
        if let Some((_, guardian)) = &mut self.guardian {
            let _ = guardian.tell(Message::Beat);
        }
    }
}

impl Drop for Demoted {
    fn drop(&mut self) {
        self.job.restore();
        if let Some((_, guardian)) = &mut self.guardian {
            let _ = guardian.tell(Message::Done);
        }
        if let Some(undo) = &self.undo {
            undo.remove();
        }
    }
}
