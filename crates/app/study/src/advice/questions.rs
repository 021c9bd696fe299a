// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulations behind advice: the noise of each finding, of each remedy, and of sources that no remedy takes away.

use std::collections::BTreeMap;

use colony_doctor::Touches;
use colony_doctor::remedy::Effort;
use colony_project::changes::{Alone, Change};
use colony_sim::source::MeasuredSource;
use colony_sim::spec::Measured;

use super::result::{Costed, Stays};

/// Numbers of sources without a remedy that are simulated: the sources that steal most, then the sources with the longest
/// detours.
const BY_SHARE: usize = 2;
const BY_LENGTH: usize = 2;

/// The changes to simulate, with what each stands for.
pub(super) struct Questions {
    /// The findings, then the remedies, then the sources that no remedy takes away.
    pub(super) changes: Vec<Change>,
    findings: usize,
    /// Finding and place of each remedy.
    remedies: Vec<(usize, usize)>,
}

impl Questions {
    pub(super) fn new(findings: &[Costed], measured: &Measured) -> Self {
        let names: Vec<&String> = measured.sources.iter().map(|s| &s.name).collect();
        let of = |touches: &Touches| -> Vec<String> {
            names.iter().filter(|n| touches.has(n)).map(|n| (*n).clone()).collect()
        };
        let only_cost = |sources| Change { sources, effort: None };
        let mut changes: Vec<Change> = findings.iter().map(|f| only_cost(of(&f.finding.touches))).collect();
        let mut remedies = Vec::new();
        for (place, f) in findings.iter().enumerate() {
            for (number, remedy) in f.finding.remedies.iter().enumerate() {
                let touches = remedy.moves.as_ref().unwrap_or(&f.finding.touches);
                let has_harmless = || f.finding.remedies.iter().any(|r| r.losses.is_empty());
                // a part of a source may be any part of it
                if touches.partly || (!remedy.losses.is_empty() && has_harmless()) {
                    continue;
                }
                remedies.push((place, number));
                changes.push(Change { sources: of(touches), effort: Some(rank(remedy.effort)) });
            }
        }
        let is_touched = |name: &String| {
            let of_remedies = || findings.iter().flat_map(|f| f.finding.remedies.iter().map(move |r| (f, r)));
            of_remedies().any(|(f, r)| r.moves.as_ref().unwrap_or(&f.finding.touches).has(name))
        };
        let rest: Vec<&MeasuredSource> = measured.sources.iter().filter(|s| !is_touched(&s.name)).collect();
        changes.extend(most_telling(rest).into_iter().map(|name| only_cost(vec![name])));
        Self { changes, findings: findings.len(), remedies }
    }

    /// Finding and place of the remedy that a change stands for.
    pub(super) fn remedy(&self, change: usize) -> Option<(usize, usize)> {
        self.remedies.get(change.checked_sub(self.findings)?).copied()
    }

    /// The sources that no remedy takes away, with their costs. `reasons` are the kernel's, by source.
    pub(super) fn stay(&self, alone: &[Alone], reasons: &BTreeMap<String, String>) -> Vec<Stays> {
        let first = self.findings + self.remedies.len();
        let cost = |(change, alone): (&Change, &Alone)| {
            let source = change.sources.first()?.clone();
            let reason = reasons.get(&source).cloned().unwrap_or_else(|| reason(&source).to_owned());
            Some(Stays { added: alone.added()?, reason, source })
        };
        let mut stay: Vec<Stays> = self.changes.iter().zip(alone).skip(first).filter_map(cost).collect();
        stay.sort_by(|a, b| b.added.share.total_cmp(&a.added.share));
        stay
    }
}

/// Rank of an effort, the cheapest 0.
fn rank(effort: Effort) -> u8 {
    Effort::ALL.iter().take_while(|e| **e < effort).fold(0, |rank, _| rank + 1)
}

/// Names of the sources that steal most, and of those with the longest detours.
fn most_telling(mut sources: Vec<&MeasuredSource>) -> Vec<String> {
    sources.sort_by(|a, b| {
        b.noise.stolen_share().total_cmp(&a.noise.stolen_share()).then_with(|| a.name.cmp(&b.name))
    });
    if let Some(others) = sources.get_mut(BY_SHARE..) {
        others.sort_by_cached_key(|s| std::cmp::Reverse(s.noise.longest_ns()));
    }
    sources.iter().take(BY_SHARE + BY_LENGTH).map(|s| s.name.clone()).collect()
}

/// The reason why the source stays, if the kernel says nothing of it.
fn reason(source: &str) -> &'static str {
    match source.split_once(':').map_or(source, |(kind, _)| kind) {
        "hypervisor" => "the hypervisor takes the CPU: only its administrator can change that",
        "unexplained" => "no event of the kernel names its cause",
        "throttle" => "a limit of a control group stops the job",
        "nmi" => "no setting that the doctor knows keeps it away",
        "irq" => "this interrupt cannot be moved from its CPU",
        "softirq" => "it runs on the CPU that its work is queued on",
        _ => "no setting that the doctor knows keeps it away",
    }
}
