// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advice for a node: its findings, what the noise of each costs at scale, and which change comes first.

mod textfile;

use std::collections::BTreeMap;
use std::path::Path;

use colony_doctor::{Examination, Finding, Level, Passed, ThreadSeen, TicksSeen, Undecided};
use colony_node::cpu::CpuSet;
use colony_project::Budget;
use colony_project::changes::{self, Added, Alone, Change};
use colony_sim::spec::SpecError;
use colony_trace::{Source, Trace};
use serde::{Deserialize, Serialize};

pub use textfile::textfile;

/// The result of `colony doctor`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// `colony.doctor/1`.
    pub schema: String,
    /// Version of Colony.
    pub version: String,
    /// The node's name, if its files have it.
    pub host: Option<String>,
    /// The kernel's release, if its files have it.
    pub kernel: Option<String>,
    /// CPUs of the job.
    pub cpus: CpuSet,
    /// The trace that costs are from, and the node count; `None` without a trace.
    pub noise: Option<Noise>,
    /// The findings: those that cost most first, then by severity.
    pub findings: Vec<Costed>,
    /// The changes, the best first.
    pub sequence: Vec<Step>,
    /// Rules that could not be decided.
    pub undecided: Vec<Undecided>,
    /// Rules that found nothing.
    pub passed: Vec<Passed>,
    /// Facts that limit the result.
    pub notes: Vec<String>,
}

/// The noise that costs are from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// The trace's file.
    pub trace: String,
    /// CPUs of the job that were measured.
    pub cpus: CpuSet,
    /// Seconds they were measured for.
    pub observed_s: f64,
    /// Share of their time that was stolen.
    pub stolen_share: f64,
    /// The source that stole most, and its share of the CPUs' time.
    pub worst: Option<(String, f64)>,
    /// Nodes simulated.
    pub nodes: u32,
    /// Ranks on them.
    pub ranks: u32,
    /// Time of an iteration without noise, nanoseconds.
    pub quiet_ns: f64,
    /// Time that all noise adds to an iteration.
    pub all: Added,
    /// `true` if the time for the costs ended before the sequence was known.
    #[serde(default)]
    pub stopped: bool,
}

/// A finding and its cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Costed {
    /// The finding.
    #[serde(flatten)]
    pub finding: Finding,
    /// Its cost.
    pub cost: Cost,
    /// Commands of a root shell that apply the first remedy.
    pub commands: Vec<String>,
    /// Commands of a root shell that undo it.
    pub undo: Vec<String>,
}

/// The cost of a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Cost {
    /// There is no trace.
    NoTrace,
    /// No source of noise shows this finding in a trace.
    NoSource,
    /// The trace has none of the finding's sources, or they made no difference.
    NotSeen,
    /// The time for the costs ended before.
    NotSimulated,
    /// Time that the finding's sources alone add to an iteration.
    Simulated {
        /// The time added.
        added: Added,
        /// `true` if the remedy takes only a part of these sources: the cost is an upper bound.
        at_most: bool,
        /// The sources of the trace.
        sources: Vec<String>,
    },
}

/// A step of the sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Name of the finding.
    pub finding: String,
    /// Time that the noise adds which is left after this change and those before it.
    pub left: Added,
}

impl Cost {
    /// Share of an iteration that the finding's sources add; 0 if none was seen.
    #[must_use]
    pub fn share(&self) -> f64 {
        if let Self::Simulated { added, .. } = self { added.share } else { 0.0 }
    }
}

impl Advice {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.doctor/1";

    /// The finding with this name.
    #[must_use]
    pub fn finding(&self, id: &str) -> Option<&Costed> {
        self.findings.iter().find(|f| f.finding.id == id)
    }

    /// Findings above a level.
    pub fn above_level(&self, level: Level) -> impl Iterator<Item = &Costed> {
        self.findings.iter().filter(move |f| f.finding.level > level)
    }

    /// Findings that cost more than this share of an iteration.
    pub fn above_share(&self, share: f64) -> impl Iterator<Item = &Costed> {
        self.findings.iter().filter(move |f| f.cost.share() > share)
    }

    /// An examination without a trace.
    #[must_use]
    pub fn without_trace(examination: Examination) -> Self {
        let costed = |finding: Finding| {
            let none = finding.touches.sources.is_empty();
            Costed::new(finding, if none { Cost::NoSource } else { Cost::NoTrace })
        };
        Self {
            schema: Self::SCHEMA.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            host: examination.host,
            kernel: examination.kernel,
            cpus: examination.job,
            noise: None,
            findings: examination.findings.into_iter().map(costed).collect(),
            sequence: Vec::new(),
            undecided: examination.undecided,
            passed: examination.passed,
            notes: Vec::new(),
        }
    }

    /// An examination with the costs of a trace on `nodes` nodes; `file` is the trace's. `step` is called after each
    /// simulation with how many there are at most. Costs that `budget` does not reach are not simulated.
    ///
    /// # Errors
    /// [`SpecError`] if the simulation refuses the noise or the node count.
    pub fn with_trace(
        examination: Examination,
        (file, trace): (&Path, &Trace),
        nodes: u32,
        budget: Budget,
        step: impl Fn(u64),
    ) -> Result<Self, SpecError> {
        let mut advice = Self::without_trace(examination);
        advice.note_other_node(trace);
        let trace = of_job(trace, &advice.cpus);
        if trace.meta.cpus.is_empty() {
            advice.notes.push("the trace has no CPU of the job: costs are unknown".into());
            return Ok(advice);
        }
        let measured = colony_project::measured(&trace)?;
        let names: Vec<&String> = measured.sources.iter().map(|s| &s.name).collect();
        let sources = |f: &Costed| -> Vec<String> {
            names.iter().filter(|n| f.finding.touches.has(n)).map(|n| (*n).clone()).collect()
        };
        let all: Vec<Change> = (advice.findings.iter())
            .map(|f| Change { sources: sources(f), in_sequence: f.is_whole() })
            .collect();
        let most = changes::most_steps(all.len());
        let costs = changes::costs(&measured, &all, nodes, budget, || step(most))?;
        let ids: Vec<String> = advice.findings.iter().map(|f| f.finding.id.clone()).collect();
        advice.sequence =
            (costs.sequence.iter()).map(|s| Step { finding: ids[s.change].clone(), left: s.left }).collect();
        for ((f, change), added) in advice.findings.iter_mut().zip(all).zip(&costs.alone) {
            f.cost = match added {
                _ if f.finding.touches.sources.is_empty() => Cost::NoSource,
                Alone::NotSeen => Cost::NotSeen,
                Alone::NotSimulated => Cost::NotSimulated,
                Alone::Added(added) => Cost::Simulated {
                    added: *added,
                    at_most: f.finding.touches.partly,
                    sources: change.sources,
                },
            };
        }
        let share = |f: &Costed| f.cost.share();
        advice.findings.sort_by(|a, b| share(b).total_cmp(&share(a)));
        let worst =
            measured.sources.iter().max_by(|a, b| a.noise.stolen_share().total_cmp(&b.noise.stolen_share()));
        advice.noise = Some(Noise {
            trace: file.display().to_string(),
            cpus: trace.meta.cpus.clone(),
            observed_s: trace.meta.observed_s,
            stolen_share: measured.sources.iter().map(|s| s.noise.stolen_share()).sum(),
            worst: worst.map(|s| (s.name.clone(), s.noise.stolen_share())),
            nodes: costs.nodes,
            ranks: costs.ranks,
            quiet_ns: costs.quiet_ns,
            all: costs.all,
            stopped: costs.stopped,
        });
        Ok(advice)
    }

    /// A trace from elsewhere says little about this node.
    fn note_other_node(&mut self, trace: &Trace) {
        if let (Some(here), Some(there)) = (&self.host, trace.meta.node.as_ref().map(|n| &n.host))
            && here != there
        {
            self.notes.push(format!("the trace is from the node {there}, the settings are from {here}"));
        }
    }
}

impl Costed {
    fn new(finding: Finding, cost: Cost) -> Self {
        let first = finding.remedies.first();
        let (commands, undo) = first.map(|r| (r.commands(), r.undo_commands())).unwrap_or_default();
        Self { finding, cost, commands, undo }
    }

    /// Returns `true` if a remedy takes all of its sources away.
    fn is_whole(&self) -> bool {
        !self.finding.touches.partly && !self.finding.remedies.is_empty()
    }
}

/// The part of a trace that was measured on the job's CPUs.
#[must_use]
pub fn of_job(trace: &Trace, job: &CpuSet) -> Trace {
    let mut meta = trace.meta.clone();
    meta.cpus = meta.cpus.and(job);
    let detours = trace.detours.iter().filter(|d| meta.cpus.contains(d.cpu.into())).copied().collect();
    Trace { meta, sources: trace.sources.clone(), detours }
}

/// The threads that a trace has on the job's CPUs.
#[must_use]
pub fn threads(trace: &Trace, job: &CpuSet) -> Vec<ThreadSeen> {
    let trace = of_job(trace, job);
    let observed_ns = trace.meta.observed_s * 1e9 * trace.meta.cpus.len() as f64;
    if observed_ns <= 0.0 {
        return Vec::new();
    }
    let mut by_source: BTreeMap<&Source, (u64, u64)> = BTreeMap::new();
    for detour in &trace.detours {
        let (count, ns) = by_source.entry(trace.source(detour)).or_default();
        *count += 1;
        *ns = ns.saturating_add(detour.duration_ns);
    }
    let threads = by_source.into_iter().filter(|(source, _)| matches!(source, Source::Thread(_)));
    threads
        .map(|(source, (count, ns))| ThreadSeen {
            source: source.to_string(),
            per_second: count as f64 * 1e9 / observed_ns,
            share: ns as f64 / observed_ns,
        })
        .collect()
}

/// The timer interrupts of each CPU of the job, for the doctor: a setting that should have stopped them did not if they are there.
#[must_use]
pub fn ticks(trace: &Trace, job: &CpuSet) -> Vec<TicksSeen> {
    const TIMER: &str = "irq:local_timer";
    let trace = of_job(trace, job);
    let observed_s = trace.meta.observed_s;
    if observed_s <= 0.0 {
        return Vec::new();
    }
    let mut by_cpu: BTreeMap<usize, u64> = BTreeMap::new();
    for detour in trace.detours.iter().filter(|d| trace.source(d).to_string() == TIMER) {
        *by_cpu.entry(usize::from(detour.cpu)).or_default() += 1;
    }
    by_cpu.into_iter().map(|(cpu, count)| TicksSeen { cpu, per_second: count as f64 / observed_s }).collect()
}
