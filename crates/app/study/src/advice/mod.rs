// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advice for a node: its findings, what the noise of each costs at scale, and which change comes first.

mod questions;
mod result;
mod textfile;

use std::collections::BTreeMap;
use std::path::Path;

use colony_doctor::{Examination, ThreadSeen, TicksSeen};
use colony_node::cpu::CpuSet;
use colony_project::Budget;
use colony_project::changes::{self, Alone};
use colony_sim::spec::SpecError;
use colony_sim::what_if::doubts;
use colony_trace::{Source, Trace};

use self::questions::Questions;
pub use self::result::{Advice, Cost, Costed, Noise, Stays, Step};
pub use textfile::textfile;

impl Advice {
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
        let stays = examination.stays.clone();
        let mut advice = Self::without_trace(examination);
        advice.note_other_node(trace);
        let trace = of_job(trace, &advice.cpus);
        if trace.meta.cpus.is_empty() {
            advice.notes.push("the trace has no CPU of the job: costs are unknown".into());
            return Ok(advice);
        }
        let measured = colony_project::measured(&trace)?;
        advice.notes.extend(doubts(&measured));
        let questions = Questions::new(&advice.findings, &measured);
        let most = changes::most_steps(questions.changes.len());
        let costs = changes::costs(&measured, &questions.changes, nodes, budget, || step(most))?;
        advice.sequence = (costs.sequence.iter())
            .filter_map(|s| {
                let (finding, remedy) = questions.remedy(s.change)?;
                Some(Step { finding: advice.findings[finding].finding.id.clone(), remedy, left: s.left })
            })
            .collect();
        advice.no_remedy = questions.stay(&costs.alone, &stays);
        for (place, f) in advice.findings.iter_mut().enumerate() {
            f.cost = match &costs.alone[place] {
                _ if f.finding.touches.sources.is_empty() => Cost::NoSource,
                Alone::NotSeen => Cost::NotSeen,
                Alone::NotSimulated => Cost::NotSimulated,
                Alone::Added(added) => Cost::Simulated {
                    added: *added,
                    at_most: f.finding.touches.partly,
                    sources: questions.changes[place].sources.clone(),
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
