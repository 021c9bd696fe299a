// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts a trace together, detour by detour.

use std::collections::HashMap;

use colony_node::cpu::CpuSet;

use super::{Detour, MAX_DETOURS, MAX_SOURCES, Problem, Trace, TraceMeta};
use crate::Source;

/// Collects detours in any order and gives each source its index.
#[derive(Debug, Default)]
pub struct TraceBuilder {
    sources: Vec<Source>,
    index: HashMap<Source, u16>,
    detours: Vec<Detour>,
}

impl TraceBuilder {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The index of `source`, new or known.
    ///
    /// # Errors
    /// [`Problem::TooManySources`].
    pub fn source(&mut self, source: &Source) -> Result<u16, Problem> {
        if let Some(&i) = self.index.get(source) {
            return Ok(i);
        }
        let i = self.sources.len();
        if i >= MAX_SOURCES {
            return Err(Problem::TooManySources);
        }
        let i = i as u16;
        self.sources.push(source.clone());
        self.index.insert(source.clone(), i);
        Ok(i)
    }

    /// Adds a detour whose `source` came from [`TraceBuilder::source`].
    ///
    /// # Errors
    /// [`Problem::TooManyDetours`], [`Problem::Cpu`].
    pub fn push(&mut self, detour: Detour) -> Result<(), Problem> {
        if self.detours.len() >= MAX_DETOURS {
            return Err(Problem::TooManyDetours);
        }
        if usize::from(detour.cpu) >= CpuSet::LIMIT {
            return Err(Problem::Cpu(detour.cpu.into()));
        }
        self.detours.push(detour);
        Ok(())
    }

    /// Detours so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.detours.len()
    }

    /// True if there is no detour yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.detours.is_empty()
    }

    /// Moves every start by `by_ns` (saturating); what a format with relative times needs.
    pub(crate) fn shift(&mut self, by_ns: i64) {
        for d in &mut self.detours {
            d.start_ns = d.start_ns.saturating_add(by_ns);
        }
    }

    /// The trace.
    ///
    /// # Errors
    /// [`Problem::Row`] for a row that contradicts `meta`, else as [`Trace::from_parts`].
    pub fn build(self, meta: TraceMeta) -> Result<Trace, Problem> {
        super::rows::check(&meta, &self.detours)?;
        Trace::from_parts(meta, self.sources, self.detours)
    }

    /// The trace of a tool that left no metadata: CPUs and time span are those of the detours.
    ///
    /// # Errors
    /// As [`TraceBuilder::build`].
    pub fn build_foreign(self) -> Result<Trace, Problem> {
        let meta = self.foreign_meta();
        self.build(meta)
    }

    /// Metadata derived from the detours alone: CPUs, start and time span.
    pub(crate) fn foreign_meta(&self) -> TraceMeta {
        let start_ns = self.detours.iter().map(|d| d.start_ns).min().unwrap_or(0);
        let end_ns = self.detours.iter().map(Detour::end_ns).max().unwrap_or(0);
        TraceMeta {
            cpus: self.detours.iter().map(|d| usize::from(d.cpu)).collect(),
            observed_s: end_ns.abs_diff(start_ns) as f64 / 1e9,
            start_ns,
            ..TraceMeta::default()
        }
    }
}

impl Trace {
    /// A trace of detours in any order, each with its source. Names beyond [`MAX_SOURCES`] become one,
    /// `other sources`.
    #[must_use]
    pub fn collect(meta: TraceMeta, rows: impl IntoIterator<Item = (Detour, Source)>) -> Self {
        let mut numbers: HashMap<Source, u16> = HashMap::new();
        let mut sources = Vec::new();
        let mut detours: Vec<Detour> = Vec::new();
        for (detour, mut source) in rows {
            if numbers.len() >= MAX_SOURCES - 1 && !numbers.contains_key(&source) {
                source = Source::Other("other sources".into());
            }
            let number = *numbers.entry(source).or_insert_with_key(|s| {
                sources.push(s.clone());
                (sources.len() - 1) as u16
            });
            detours.push(Detour { source: number, ..detour });
        }
        detours.sort_by_key(|d| (d.start_ns, d.node, d.cpu));
        Self { meta, sources, detours }
    }

    /// A trace of its parts: detours are brought into the order of their start, sources into the order of
    /// their first appearance, and sources that do not occur are left out.
    ///
    /// # Errors
    /// [`Problem::NoSuchSource`].
    pub fn from_parts(
        meta: TraceMeta,
        sources: Vec<Source>,
        mut detours: Vec<Detour>,
    ) -> Result<Self, Problem> {
        let key = |d: &Detour| (d.start_ns, d.node, d.cpu);
        if !detours.is_sorted_by_key(key) {
            detours.sort_by_key(key);
        }
        let mut names: Vec<Option<Source>> = sources.into_iter().map(Some).collect();
        let mut new_index = vec![0u16; names.len()];
        let mut kept = Vec::new();
        for d in &mut detours {
            let i = usize::from(d.source);
            let Some(name) = names.get_mut(i) else {
                return Err(Problem::NoSuchSource { index: d.source, count: names.len() });
            };
            if let Some(name) = name.take() {
                new_index[i] = kept.len() as u16;
                kept.push(name);
            }
            d.source = new_index[i];
        }
        Ok(Self { meta, sources: kept, detours })
    }
}
