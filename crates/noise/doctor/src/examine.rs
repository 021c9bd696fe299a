// SPDX-License-Identifier: MIT OR Apache-2.0
//! All rules over one node.

use std::collections::BTreeMap;

use colony_node::cpu::CpuSet;
use serde::{Deserialize, Serialize};

use crate::contradiction;
use crate::finding::{Finding, Passed, Undecided};
use crate::mobility::Threads;
use crate::node::Node;
use crate::outcome::Outcome;
use crate::root::Unread;
use crate::rules::{RULES, Rule};

/// The result of all rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Examination {
    /// The node's name, if its files have it.
    pub host: Option<String>,
    /// The kernel's release, if its files have it.
    pub kernel: Option<String>,
    /// The job's CPUs.
    pub job: CpuSet,
    /// The findings, the most severe first.
    pub findings: Vec<Finding>,
    /// Rules that could not be decided.
    pub undecided: Vec<Undecided>,
    /// Rules that found nothing.
    pub passed: Vec<Passed>,
    /// Sources of the trace that nothing moves from the job's CPUs, and the reason; empty without a trace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stays: BTreeMap<String, String>,
}

/// Goes through all rules.
#[must_use]
pub fn examine(node: &Node) -> Examination {
    let mut examination = Examination {
        host: node.host(),
        kernel: node.release(),
        job: node.job.clone(),
        findings: Vec::new(),
        undecided: Vec::new(),
        passed: Vec::new(),
        // a rule says so if the tasks cannot be read
        stays: Threads::read(node).ok().flatten().map(Threads::reasons_to_stay).unwrap_or_default(),
    };
    let container = in_container(node);
    for Rule { id, subject, check } in RULES {
        let (id, subject) = ((*id).to_owned(), *subject);
        match check(node) {
            Ok(Outcome::Found(findings)) => {
                let named = |f: Finding| {
                    // a rule with several findings has named what each is about
                    let id = if f.id.is_empty() { id.clone() } else { format!("{id}:{}", f.id) };
                    Finding { id, subject, ..f }
                };
                examination.findings.extend(findings.into_iter().map(named));
            }
            Ok(Outcome::Passed(evidence)) => match contradiction::find(node, &id, &evidence) {
                Some(finding) => examination.findings.push(Finding { id, subject, ..finding }),
                None => examination.passed.push(Passed { id, subject, evidence }),
            },
            Ok(Outcome::Undecided(reason)) => examination.undecided.push(Undecided { id, subject, reason }),
            Err(unread) => {
                let is_hidden = matches!(unread, Unread::Missing(_) | Unread::Denied(_));
                let hint =
                    if container && is_hidden { " (this is a container: examine its host)" } else { "" };
                examination.undecided.push(Undecided { id, subject, reason: format!("{unread}{hint}") });
            }
        }
    }
    // stable: the order of the table within a level
    examination.findings.sort_by_key(|f| std::cmp::Reverse(f.level));
    examination
}

/// Returns `true` if the files are a container's view: Docker and Podman leave a mark.
fn in_container(node: &Node) -> bool {
    ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| node.root.exists(mark))
}
