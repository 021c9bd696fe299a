// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program of ours may have been started as, instead of what its user wants.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use colony_node::class::{self, Class};
use colony_node::task::TaskId;

use crate::guardian;
use crate::undo::{self, release};

/// Becomes a guardian, or undoes what dead processes left behind, if this process was started for that, and then does not
/// return. Call it first thing in the `main` of every program that starts an [agent](crate::agent).
pub fn main_if_asked() {
    guardian::main_if_asked();
    let Some(ended) = std::env::args_os().nth(1).and_then(|a| release::released(Path::new(&a))) else {
        return;
    };
    // a job that spins on every CPU in a real-time class must not keep this from running
    let _ = class::set_not_inherited(0, Class::Fifo(99));
    if is_over(ended) {
        undo_left_behind(Some(ended));
    }
    std::process::exit(0);
}

/// Whether a process that the kernel called for is dead, or is soon: its last thread leaves the group before it is a zombie.
/// One that lives on was taken out of its group by somebody else, and still looks after its job.
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

/// Undoes what dead processes of Colony have left behind on this node, and what process `ended` has; how many tasks were
/// restored.
fn undo_left_behind(ended: Option<TaskId>) -> usize {
    let restored = undo::restore_tasks(ended);
    undo::restore_node(ended);
    release::clean_up(ended);
    restored
}

/// Undoes what dead processes of Colony have left behind on this node: `colonyd --restore`.
#[must_use]
pub fn restore() -> ExitCode {
    let restored = undo_left_behind(None);
    if restored > 0 {
        tracing::warn!("{}", restored_tasks(restored));
    }
    ExitCode::SUCCESS
}

/// Says how many tasks were restored.
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
