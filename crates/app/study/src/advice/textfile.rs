// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advice for a monitor: text that the textfile collector of node_exporter reads.

use std::collections::BTreeMap;
use std::fmt::Write;

use colony_doctor::{Level, RULES};

use super::result::Advice;

/// The metrics, in the Prometheus text format 0.0.4. Labels are names of rules, a fixed set; daemons share the rule
/// `daemon`. `now_s` is the time of the examination, seconds since 1970.
#[must_use]
pub fn textfile(advice: &Advice, now_s: u64) -> String {
    let mut levels: BTreeMap<&str, usize> = RULES.iter().map(|r| (r.id, 0)).collect();
    let mut costs: BTreeMap<&str, f64> = BTreeMap::new();
    for f in &advice.findings {
        let rule = f.finding.id.split(':').next().unwrap_or_default();
        let Some((&rule, level)) = levels.get_key_value(rule).map(|(r, l)| (r, *l)) else { continue };
        let place = Level::ALL.iter().position(|l| *l == f.finding.level).map_or(0, |p| p + 1);
        levels.insert(rule, level.max(place));
        if f.cost.share() > 0.0 {
            let cost = costs.entry(rule).or_default();
            *cost = cost.max(f.cost.share());
        }
    }
    let undecided: Vec<(&str, f64)> =
        (RULES.iter()).map(|r| (r.id, f64::from(advice.undecided.iter().any(|u| u.id == r.id)))).collect();
    let mut out = String::new();
    let mut metric = |name: &str, help: &str, values: &[(&str, f64)]| {
        let _ = writeln!(out, "# HELP colony_doctor_{name} {help}\n# TYPE colony_doctor_{name} gauge");
        for (rule, value) in values {
            match rule.is_empty() {
                true => writeln!(out, "colony_doctor_{name} {value}"),
                false => writeln!(out, "colony_doctor_{name}{{rule=\"{rule}\"}} {value}"),
            }
            .unwrap_or_default();
        }
    };
    let found: Vec<(&str, f64)> = levels.into_iter().map(|(rule, level)| (rule, level as f64)).collect();
    metric(
        "finding_level",
        "Severity of the rule's findings: 0 none, 1 note, 2 low, 3 medium, 4 high.",
        &found,
    );
    metric("undecided", "1 if the rule could not be decided.", &undecided);
    if let Some(noise) = &advice.noise {
        let costs: Vec<(&str, f64)> = costs.into_iter().collect();
        metric(
            "cost_ratio",
            "Time that the finding's sources alone add to an iteration, as a ratio to its time without noise.",
            &costs,
        );
        metric(
            "noise_cost_ratio",
            "Time that all noise adds to an iteration, as a ratio to its time without noise.",
            &[("", noise.all.share)],
        );
        metric("nodes", "Nodes that the costs are simulated for.", &[("", f64::from(noise.nodes))]);
    }
    metric(
        "examined_timestamp_seconds",
        "Time of the examination, seconds since 1970.",
        &[("", now_s as f64)],
    );
    out
}
