// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings of the node that send work to the job's CPUs, changed as a transaction of `colony tune`.

use std::path::Path;

use colony_doctor::{Level, Node};
use colony_node::cpu::CpuSet;
use colony_tune::{Action, Kept, Linux, OnFailure, Plan, Profile, Progress, Step, TuneError};

use super::report::SettingChange;

/// Rules of the doctor whose remedies move work from the job's CPUs to others, or make it rarer.
const RULES: [&str; 9] = [
    "irq-movable",
    "irq-default",
    "receive-steering",
    "workqueue-unbound",
    "workqueue-writeback",
    "workqueue-power-efficient",
    "timer-migration",
    "stat-interval",
    "writeback-interval",
];
/// Rules of work that only a kernel parameter takes away.
const BOOT_RULES: [&str; 3] = ["nohz-full", "rcu-nocbs", "irq-managed"];

/// The changes that were made, and the findings that stay.
#[derive(Debug, Default)]
pub(super) struct Changed {
    pub(super) settings: Vec<SettingChange>,
    pub(super) left: Vec<(String, String)>,
}

/// Changes the settings as the transaction `name`; settings that the kernel refuses are left out and named.
pub(super) fn change(name: &str, job: &CpuSet) -> Result<Changed, String> {
    let linux = Linux::new();
    let lock = linux.lock().map_err(|e| e.to_string())?;
    // before the examination, which would find settings as an interrupted transaction left them
    let undone = colony_tune::recover(&linux).map_err(|e| e.to_string())?;
    for transaction in undone {
        tracing::warn!("the transaction {} was interrupted; its changes are undone", transaction.name);
    }
    let node = Node::open(Path::new("/"), Some(job)).map_err(|e| e.to_string())?;
    let examination = colony_doctor::examine(&node);
    let profile = Profile {
        name: name.to_owned(),
        description: "spare cores of a run".into(),
        level: Level::Note,
        only: RULES.iter().map(|r| (*r).to_owned()).collect(),
        except: Vec::new(),
        also: Vec::new(),
        accept: Vec::new(),
        set: Vec::new(),
    };
    let plan = Plan::new(&examination, &profile);
    let applied =
        colony_tune::apply(&linux, name, plan.steps, OnFailure::KeepGoing).map_err(|e| e.to_string())?;
    drop(lock);
    let left = examination.findings.iter().filter(|f| BOOT_RULES.contains(&f.id.as_str()));
    Ok(Changed {
        settings: applied.transaction.steps.iter().chain(&applied.refused).map(setting).collect(),
        left: left.map(|f| (f.id.clone(), f.title.clone())).collect(),
    })
}

fn setting(step: &Step) -> SettingChange {
    let refused = match &step.progress {
        Progress::Failed { reason } => Some(reason.clone()),
        _ => None,
    };
    let setting = match &step.action {
        Action::Write { file, .. } => file.clone(),
        Action::Affinity { .. } => step.action.describe(),
        Action::Command { apply, .. } => apply.join(" "),
    };
    SettingChange { rule: step.reason.clone(), setting, refused }
}

fn left_alone(kept: &Kept) -> String {
    format!(
        "{} is left at {}: another program has changed it since ({} was written)",
        kept.file, kept.now, kept.written
    )
}

/// Restores the settings of the transaction `name`; returns what could not be restored.
pub(super) fn restore(name: &str) -> Vec<String> {
    let linux = Linux::new();
    let _lock = match linux.lock() {
        Ok(lock) => lock,
        Err(e) => return vec![e.to_string()],
    };
    let recovered = colony_tune::recover(&linux).err().map(|e| e.to_string());
    let reverted = match colony_tune::revert(&linux, name, false) {
        Ok(reverted) => reverted.changed_since.iter().map(left_alone).collect(),
        // nothing was needed, or somebody has reverted it by name
        Err(TuneError::Unknown { .. }) => Vec::new(),
        Err(e) => vec![e.to_string()],
    };
    recovered.into_iter().chain(reverted).collect()
}

/// Interrupts and workqueues that the doctor finds on the job's CPUs again.
pub(super) fn found_again(job: &CpuSet) -> Vec<String> {
    let Ok(node) = Node::open(Path::new("/"), Some(job)) else { return Vec::new() };
    let findings = colony_doctor::examine(&node).findings;
    findings.into_iter().map(|f| f.id).filter(|id| RULES.contains(&id.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobTask;
    use crate::spare::changes::Changes;
    use crate::undo::{Tasks, UndoFile};
    use colony_node::class::Class;
    use colony_node::task::TaskId;
    use serde::Serialize;

    /// The tasks that the doctor reads from an undo file with this content.
    fn read_by_the_doctor<T: Serialize>(what: &T) -> Vec<TaskId> {
        let file = UndoFile::new("doctor").expect("a folder");
        file.save(what).expect("writable");
        let text = std::fs::read_to_string(file.path()).expect("ours");
        let name = file.path().file_name().and_then(|n| n.to_str()).expect("a name");
        let tasks = colony_doctor::undo_file_tasks(name, &text).expect("an undo file");
        file.remove();
        tasks
    }

    #[test]
    fn the_doctor_finds_the_tasks_of_a_job_in_undo_files() {
        if !colony_testing::machine::has_undo_folder() {
            return;
        }
        let me = TaskId::of(std::process::id().cast_signed()).expect("alive");
        let task = TaskId { tid: 5, start_ticks: 6 };
        let (tid, start_ticks) = (task.tid, task.start_ticks);
        let own = Class::Other(0);
        let member = JobTask { tid, pid: tid, start_ticks, cpu: 0, own, own_reset: false, runnable: false };
        let agents = Tasks { tasks: vec![member], ..Tasks::default() };
        let spare = Changes { members: vec![task], ..Changes::default() };
        for tasks in [read_by_the_doctor(&agents), read_by_the_doctor(&spare)] {
            assert_eq!(tasks, [me, task]);
        }
    }

    #[test]
    fn the_rules_exist() {
        for rule in RULES.iter().chain(&BOOT_RULES) {
            assert!(colony_doctor::RULES.iter().any(|r| r.id == *rule), "{rule}");
        }
    }
}
