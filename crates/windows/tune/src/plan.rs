// SPDX-License-Identifier: MIT OR Apache-2.0
//! From findings to steps.

use colony_doctor::remedy::{Change, Remedy};
use colony_doctor::{Examination, Finding};
use serde::Serialize;

use crate::profile::Profile;
use crate::transaction::{Action, Step};

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
    /// Selects the remedies of an examination. Of each finding, the first remedy that the running node can take is used.
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

    /// Adds the steps of a finding; returns the reason if there are none.
    fn add(&mut self, finding: &Finding, profile: &Profile) -> Option<String> {
        if let Some(reason) = profile.leaves_out(finding) {
            return Some(reason);
        }
        if let Some(remedy) = finding.remedies.iter().find(|r| can_be_made_now(r)) {
            let actions = remedy.changes.iter().flat_map(actions);
            self.steps.extend(actions.map(|action| Step::new(&finding.id, action)));
            return None;
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
        let reason = match (self.parameters.len() > before, finding.remedies.is_empty()) {
            (true, _) => "needs a kernel parameter and a boot",
            (false, true) => "nothing on this node helps",
            (false, false) => "needs a change of a configuration file: see colony doctor",
        };
        Some(reason.into())
    }
}

/// Returns `true` if every change of the remedy is one of the running node.
fn can_be_made_now(remedy: &Remedy) -> bool {
    let now = |change: &Change| matches!(change, Change::Write { .. } | Change::Command { .. });
    !remedy.changes.is_empty() && remedy.changes.iter().all(now)
}

fn actions(change: &Change) -> Vec<Action> {
    match change {
        Change::Write { files, value } => {
            files.iter().map(|f| Action::Write { file: f.file.clone(), value: value.clone() }).collect()
        }
        Change::Command { apply, undo } => vec![Action::Command { apply: apply.clone(), undo: undo.clone() }],
        _ => Vec::new(),
    }
}
