// SPDX-License-Identifier: MIT OR Apache-2.0
//! Roles in which a program of Colony starts itself again: guardian, and release agent.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use colony_node::file::remove_unfinished;
use colony_node::task::TaskId;

use crate::guardian;
use crate::relief::above_all_jobs;
use crate::spare;
use crate::undo::{self, release};

/// If this process was started as a guardian or as the release agent, does that work and does not return. Call it first in
/// the `main` of every program that starts an [agent](crate::agent).
pub fn main_if_asked() {
    guardian::main_if_asked();
    spare::main_if_asked();
    let Some(ended) = std::env::args_os().nth(1).and_then(|a| release::released(Path::new(&a))) else {
        return;
    };
    let undo = || {
        if is_over(ended) {
            undo_left_behind(Some(ended));
        }
    };
    above_all_jobs(undo);
    std::process::exit(0);
}

/// Waits until the process whose group has become empty is dead: its last thread leaves the group before it is a zombie.
/// Returns `false` if the process lives on: another program moved it out of its group, and it still serves its job.
fn is_over(process: TaskId) -> bool {
    let since = Instant::now();
    while process.is_running_process().unwrap_or(false) {
        if since.elapsed() > Duration::from_secs(5) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Undoes the changes of dead processes of Colony, and those of process `ended`. Returns how many tasks were restored.
fn undo_left_behind(ended: Option<TaskId>) -> usize {
    let restored = undo::restore_tasks(ended);
    undo::restore_node(ended);
    spare::restore_spare(ended);
    if let Err(e) = colony_ledger::release_dead(ended) {
        tracing::error!("tasks may keep CPUs that Colony gave them: {e}");
    }
    if let Err(e) = colony_ledger::state::folder().and_then(|folder| remove_unfinished(&folder)) {
        tracing::debug!("half-written files of killed programs of Colony may stay: {e}");
    }
    let tasks = restored.tasks;
    drop(restored);
    release::clean_up(ended);
    tasks
}

/// Undoes the changes that dead processes of Colony have left on this node: `colonyd --restore`.
#[must_use]
pub fn restore() -> ExitCode {
    let restored = undo_left_behind(None);
    if restored > 0 {
        tracing::warn!("{}", restored_tasks(restored));
    }
    ExitCode::SUCCESS
}

/// The log line for `count` restored tasks.
fn restored_tasks(count: usize) -> String {
    match count {
        1 => "1 task was left behind by an agent that was killed; it is in its own class".into(),
        _ => {
            format!("{count} tasks were left behind by an agent that was killed; they are in their own class")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_task_is_not_tasks() {
        assert!(restored_tasks(1).starts_with("1 task was left"));
        assert!(restored_tasks(2).starts_with("2 tasks were left"));
    }
}
