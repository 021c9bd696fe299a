// SPDX-License-Identifier: MIT OR Apache-2.0
//! From findings to steps.

use colony_doctor::remedy::{Change, Effort, Remedy, TaskNow};
use colony_doctor::{Examination, Finding};
use serde::Serialize;

use crate::profile::Profile;
use crate::transaction::{Action, Progress, Step};

/// A finding without steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The finding.
    pub id: String,
    /// The reason.
    pub reason: String,
}

/// A kernel parameter that removes a finding after a boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Parameter {
    /// The parameter with its value, as `nohz_full=1-3`.
    pub parameter: String,
    /// The parameter it replaces on the command line.
    pub replaces: Option<String>,
}

/// The steps that a profile makes on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Changes of the running node.
    pub steps: Vec<Step>,
    /// Kernel parameters that remove further findings after a boot.
    pub parameters: Vec<Parameter>,
    /// Findings without steps.
    pub left_out: Vec<LeftOut>,
}

impl Plan {
    /// Selects the remedies of an examination. Of each finding, the first remedy is used that the running node can take and that costs
    /// nothing which the profile does not accept. Writes are [optional](Step::optional): the doctor cannot see what the kernel
    /// refuses, and one refusal must not keep the other remedies from being made. Commands and the settings of the profile
    /// itself are not.
    #[must_use]
    pub fn new(examination: &Examination, profile: &Profile) -> Self {
        let mut plan = Self::default();
        for finding in &examination.findings {
            if let Some(reason) = plan.add(finding, profile) {
                plan.left_out.push(LeftOut { id: finding.id.clone(), reason });
            }
        }
        let reason = format!("profile {}", profile.name);
        let set = profile.set.iter().cloned();
        plan.steps.extend(set.map(|s| Step::new(&reason, Action::Write { file: s.file, value: s.value })));
        plan
    }

    /// Moves the steps that the node has refused to the findings left out, each with the kernel's answer.
    pub fn leave_out(&mut self, refused: &[Step]) {
        for step in refused {
            let is_same = |s: &Step| s.reason == step.reason && s.action == step.action;
            self.steps.retain(|s| !is_same(s));
            let Progress::Failed { reason } = &step.progress else { continue };
            let reason = match step.action.setting() {
                Some((place, _)) => format!("{place}: {reason}"),
                None => reason.clone(),
            };
            self.left_out.push(LeftOut { id: step.reason.clone(), reason });
        }
    }

    /// Adds the steps of a finding; returns the reason if there are none.
    fn add(&mut self, finding: &Finding, profile: &Profile) -> Option<String> {
        if let Some(reason) = profile.leaves_out(finding) {
            return Some(reason);
        }
        let mut refusal = None;
        for remedy in finding.remedies.iter().filter(|r| can_be_made_now(r)) {
            match profile.refuses(finding, remedy) {
                None => {
                    self.steps.extend(remedy.changes.iter().flat_map(actions).map(|a| step(&finding.id, a)));
                    return None;
                }
                Some(reason) => refusal = refusal.or(Some(reason)),
            }
        }
        if refusal.is_some() {
            return refusal;
        }
        let changes = finding.remedies.iter().flat_map(|r| &r.changes);
        let parameters = changes.filter_map(|change| match change {
            Change::KernelParameter { parameter, replaces } => {
                Some(Parameter { parameter: parameter.clone(), replaces: replaces.clone() })
            }
            _ => None,
        });
        let before = self.parameters.len();
        for parameter in parameters {
            if !self.parameters.contains(&parameter) {
                self.parameters.push(parameter);
            }
        }
        let has = |effort| finding.remedies.iter().any(|r| r.effort == effort);
        let reason = if finding.remedies.is_empty() {
            "nothing on this node helps"
        } else if has(Effort::JobStart) {
            "the job must be started in another way: see colony doctor"
        } else if self.parameters.len() > before {
            "needs a kernel parameter and a boot"
        } else {
            "needs a change of a configuration file: see colony doctor"
        };
        Some(reason.into())
    }
}

/// Returns `true` if every change of the remedy is one of the running node.
fn can_be_made_now(remedy: &Remedy) -> bool {
    let now = |change: &Change| {
        matches!(change, Change::Write { .. } | Change::Affinity { .. } | Change::Command { .. })
    };
    !remedy.changes.is_empty() && remedy.changes.iter().all(now)
}

fn step(rule: &str, action: Action) -> Step {
    match action {
        // a command that failed may have had a part of its effect, which only its undo takes back
        Action::Command { .. } => Step::new(rule, action),
        Action::Write { .. } | Action::Affinity { .. } => Step::new(rule, action).or_left_out(),
    }
}

fn actions(change: &Change) -> Vec<Action> {
    match change {
        Change::Write { files, value } => {
            files.iter().map(|f| Action::Write { file: f.file.clone(), value: value.clone() }).collect()
        }
        Change::Affinity { tasks, cpus } => {
            let action =
                |t: &TaskNow| Action::Affinity { task: t.task, name: t.name.clone(), cpus: cpus.clone() };
            tasks.iter().map(action).collect()
        }
        Change::Command { apply, undo } => vec![Action::Command { apply: apply.clone(), undo: undo.clone() }],
        _ => Vec::new(),
    }
}
