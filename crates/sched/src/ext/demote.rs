//! Real-time tasks put into an ordinary class while the scheduler runs, as the user asked.

use std::time::Duration;

use colony_node::class::{self, Class};
use colony_node::task;

use super::rt::RtTask;
use crate::guardian::{Guardian, Message, Starter};
use crate::job::JobTask;

/// Real-time priority of the guardian: above those it puts back would be above everything.
const PRIORITY: u8 = 60;
/// How long the guardian waits for a sign of life before it puts the tasks back.
const SILENCE: Duration = Duration::from_secs(10);

/// The demoted tasks; they are in their own class again when this is dropped, or this process dies.
#[derive(Debug, Default)]
pub(super) struct Demoted {
    pub(super) tasks: Vec<RtTask>,
    /// Why a task that was named could not be demoted.
    pub(super) problem: Option<String>,
    guardian: Option<(Starter, Guardian)>,
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
        let known = JobTask {
            tid: task.tid,
            pid: task::process_of(task.tid).unwrap_or(task.tid),
            start_ticks: task.start_ticks,
            cpu: 0,
            own: task.class,
        };
        if matches!(task.class, Class::Foreign(_)) {
            return Err("a deadline task cannot be put back".into());
        }
        // told before it is done: whatever happens in between is undone
        self.guardian()?.tell(Message::Joined(known)).map_err(|e| format!("its guardian: {e}"))?;
        class::set(task.tid, Class::Other(0)).map_err(|e| e.to_string())
    }

    fn guardian(&mut self) -> Result<&mut Guardian, String> {
        if self.guardian.is_none() {
            let starter = Starter::new(PRIORITY, SILENCE).map_err(|e| e.to_string())?;
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
        for task in &self.tasks {
            if task::stat(task.tid).is_ok_and(|s| s.start_ticks == task.start_ticks) {
                let _ = class::set(task.tid, task.class);
            }
        }
        if let Some((_, guardian)) = &mut self.guardian {
            let _ = guardian.tell(Message::Done);
        }
    }
}
