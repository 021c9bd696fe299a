// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules that pass although a trace saw the threads which their setting should keep away. The trace wins.

use crate::finding::{Evidence, Finding, Level};
use crate::node::Node;
use crate::touches::{Pattern, Touches};

/// Runs each second of each CPU from which a thread counts. A rarer one may have run when the setting was made.
const OFTEN: f64 = 0.1;

/// The finding in place of what a rule has passed; `None` if the trace does not contradict it. Ticks are contradicted by their rule.
pub(crate) fn find(node: &Node, rule: &str, passed: &Evidence) -> Option<Finding> {
    let pattern = match rule {
        "workqueue-unbound" => Pattern::Begins("thread:kworker/u".into()),
        "ksm" => Pattern::thread("ksmd"),
        "khugepaged" => Pattern::thread("khugepaged"),
        "compaction" => Pattern::Begins("thread:kcompactd".into()),
        "kdamond" => Pattern::Begins("thread:kdamond".into()),
        _ => return None,
    };
    let of_rule = node.threads.iter().flatten().filter(|t| pattern.matches(&t.source));
    let most = of_rule.max_by(|a, b| a.per_second.total_cmp(&b.per_second))?;
    let per_second: f64 =
        node.threads.iter().flatten().filter(|t| pattern.matches(&t.source)).map(|t| t.per_second).sum();
    if per_second < OFTEN {
        return None;
    }
    let name = most.source.trim_start_matches("thread:");
    let mut finding = Finding::new(
        Level::Low,
        format!("The trace saw {name} on the job's CPUs, although the setting keeps it away."),
    )
    .seen("trace", format!("{}: {per_second:.3} times a second on each CPU of the job", most.source))
    .touches(Touches::all([pattern]))
    .advice("The setting is newer than the trace, or another program starts this work: measure again, and trace sched:sched_waking for the thread that wakes it.");
    finding.evidence.insert(0, passed.clone());
    Some(finding)
}
