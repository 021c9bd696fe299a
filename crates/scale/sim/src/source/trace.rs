// SPDX-License-Identifier: MIT OR Apache-2.0
//! Noise as it was measured.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::{Burst, Class, Done, Noise, Source, Stream};
use crate::noise::Detour;
use crate::profile::Profile;
use crate::{CpuNoise, NodeNoise, SimError};

/// Detours measured on the CPUs of one node or of several, over and over: every simulated node replays one
/// of those measured, its cores together. Core *c* has the noise of CPU *c* (and again from the first,
/// where more cores are simulated than were measured).
#[derive(Clone, Debug)]
pub struct Trace {
    /// At least one.
    nodes: Vec<NodeNoise>,
    /// The same to be looked up in, CPU after CPU, once that is asked for.
    profiles: OnceLock<Arc<[Profile]>>,
}

impl Trace {
    /// Replays `noise` on every node, at random phases each from an instant of its own.
    #[must_use]
    pub fn new(noise: NodeNoise) -> Self {
        Self { nodes: vec![noise], profiles: OnceLock::new() }
    }

    /// Replays one of `nodes` on every node, any with equal probability. They were best observed for one
    /// span: where spans differ, aligned nodes are so in the first lap only.
    ///
    /// # Errors
    /// [`SimError::NoTrace`] without any.
    pub fn of_nodes(nodes: Vec<NodeNoise>) -> Result<Self, SimError> {
        if nodes.is_empty() { Err(SimError::NoTrace) } else { Ok(Self { nodes, profiles: OnceLock::new() }) }
    }

    fn cpu(&self, stream: &Stream) -> &CpuNoise {
        let cpus = self.nodes[stream.replays(self.nodes.len())].cpus();
        &cpus[stream.core().core as usize % cpus.len()]
    }

    /// The CPUs measured, those of the first node first.
    pub(crate) fn cpus(&self) -> impl Iterator<Item = &CpuNoise> {
        self.nodes.iter().flat_map(NodeNoise::cpus)
    }

    /// The same to be looked up in.
    pub(crate) fn profiles(&self) -> Arc<[Profile]> {
        Arc::clone(self.profiles.get_or_init(|| self.cpus().map(Profile::new).collect()))
    }

    /// The number of the CPU among them that `stream` replays.
    pub(crate) fn profile_number(&self, stream: &Stream) -> usize {
        let node = stream.replays(self.nodes.len());
        let before: usize = self.nodes[..node].iter().map(|n| n.cpus().len()).sum();
        before + stream.core().core as usize % self.nodes[node].cpus().len()
    }
}

/// A source of a measured node.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredSource {
    /// Its name, as `thread:kworker`.
    pub name: String,
    /// Its class, as the measurement stated it.
    pub class: Class,
    /// Its detours on the node's CPUs.
    pub noise: NodeNoise,
}

impl MeasuredSource {
    /// A source of unstated class: it gets the default class of its name.
    #[must_use]
    pub fn named(name: impl Into<String>, noise: NodeNoise) -> Self {
        let name = name.into();
        Self { class: default_class(&name), name, noise }
    }

    /// True if the class is not the default class of the name.
    pub(crate) fn overrules_name(&self) -> bool {
        self.class != default_class(&self.name)
    }
}

fn default_class(name: &str) -> Class {
    colony_source::Source::from(name).class()
}

/// The sources of one measured node, each with its own detours. They keep their places in time to one another:
/// together they are the whole measurement, and one can be taken away.
#[must_use]
pub fn sources_of(measured: &[MeasuredSource]) -> Vec<Source> {
    let source =
        |s: &MeasuredSource| Source::new(&s.name, Trace::new(s.noise.clone())).class(s.class).group(0);
    measured.iter().map(source).collect()
}

/// As [`sources_of`], of several nodes measured, of which every simulated node replays one. A name to which two
/// nodes give different classes becomes one source for each class.
///
/// # Errors
/// [`SimError::NoTrace`] without nodes, [`SimError::Spans`] where the sources of a node were observed for
/// different spans.
pub fn sources_of_nodes(measured: &[Vec<MeasuredSource>]) -> Result<Vec<Source>, SimError> {
    if measured.is_empty() {
        return Err(SimError::NoTrace);
    }
    let mut by_name: BTreeMap<(&str, Class), Vec<NodeNoise>> = BTreeMap::new();
    for (n, node) in measured.iter().enumerate() {
        let Some(MeasuredSource { noise: first, .. }) = node.first() else { continue };
        for MeasuredSource { name, class, noise } in node {
            if noise.span_ns() != first.span_ns() {
                return Err(SimError::Spans(first.span_ns(), noise.span_ns()));
            }
            // a source that a node does not have is quiet there
            let nodes =
                by_name.entry((name, *class)).or_insert_with(|| vec![NodeNoise::quiet(); measured.len()]);
            nodes[n] = noise.clone();
        }
    }
    let source =
        |((name, class), nodes)| Ok(Source::new(name, Trace::of_nodes(nodes)?).class(class).group(0));
    by_name.into_iter().map(source).collect()
}

/// Detour number `index`, counted on through all laps, where the trace is at `offset` when the node boots.
fn burst(cpu: &CpuNoise, index: u64, offset: u64) -> Option<Burst> {
    let n = cpu.detours().len() as u64;
    let d = cpu.detours()[(index % n) as usize];
    let at = (index / n).checked_mul(cpu.span_ns())?.checked_add(d.start_ns)?;
    Some(Burst { index, arrival_ns: at.checked_sub(offset)?, length_ns: d.duration_ns })
}

impl Noise for Trace {
    fn trace(&self) -> Option<&Trace> {
        Some(self)
    }

    fn first(&self, stream: &Stream) -> Option<Burst> {
        let cpu = self.cpu(stream);
        if cpu.detours().is_empty() {
            return None;
        }
        let offset = stream.replay_from_ns(cpu.span_ns());
        let begin = offset.checked_add(stream.from_ns())?;
        let (lap, at) = (begin / cpu.span_ns(), begin % cpu.span_ns());
        // the one that goes on at that instant is the first, if it began after the boot
        let over = |d: &Detour| d.start_ns + d.duration_ns <= at || lap == 0 && d.start_ns < offset;
        let in_lap = cpu.detours().partition_point(over) as u64;
        let index = lap.checked_mul(cpu.detours().len() as u64)?.checked_add(in_lap)?;
        burst(cpu, index, offset)
    }

    fn next(&self, stream: &Stream, last: Done) -> Option<Burst> {
        let cpu = self.cpu(stream);
        // where the trace begins is not kept: the time between the two is enough
        let detours = cpu.detours();
        let at = (last.index % detours.len() as u64) as usize;
        let (this, index) = (detours[at], last.index.checked_add(1)?);
        let (next, gap_ns) = match detours.get(at + 1) {
            Some(next) => (next, next.start_ns - this.start_ns),
            None => (detours.first()?, cpu.span_ns() - this.start_ns + detours[0].start_ns),
        };
        Some(Burst { index, arrival_ns: last.arrival_ns.checked_add(gap_ns)?, length_ns: next.duration_ns })
    }

    fn cycle_ns(&self) -> f64 {
        let cpus = || self.nodes.iter().flat_map(NodeNoise::cpus);
        let span: f64 = cpus().map(|c| c.span_ns() as f64).sum();
        span / cpus().map(|c| c.detours().len() as f64).sum::<f64>()
    }

    fn load(&self) -> f64 {
        self.nodes.iter().map(NodeNoise::stolen_share).sum::<f64>() / self.nodes.len() as f64
    }

    fn sleeps(&self) -> bool {
        false
    }

    fn settle_ns(&self) -> u64 {
        // it is as it always was, but for the detour in which it begins
        let detours = self.nodes.iter().flat_map(NodeNoise::cpus).flat_map(CpuNoise::detours);
        detours.map(|d| d.duration_ns).max().unwrap_or(0)
    }

    fn memory_ns(&self) -> u64 {
        // a detour that goes on is known to
        0
    }
}
