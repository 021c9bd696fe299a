// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts a trace together, detour by detour.

use std::collections::HashMap;

use colony_node::cpu::CpuSet;
use colony_node::memory;

use super::{Detour, Lane, Lengths, MAX_DETOURS, MAX_SOURCES, Problem, Stated, Trace, TraceMeta};
use crate::Source;

/// Bytes of memory that a detour takes while a trace is built, measured with 100 million: itself, its copy as the list grows and is
/// sorted, and the list's spare room.
const BYTES_OF_DETOUR: u64 = 60;

/// Up to this number of detours, the free memory is not checked.
const FEW: usize = 1 << 20;

/// Collects detours in any order and gives each source its index. It refuses more of them than the memory of the process can hold.
#[derive(Debug)]
pub struct TraceBuilder {
    sources: Vec<Source>,
    index: HashMap<Source, u16>,
    detours: Vec<Detour>,
    notes: Vec<String>,
    /// Number of detours at which the free memory is checked next: the list doubles its room there.
    next_check: usize,
    /// Free memory in bytes; `None` if the kernel does not report it. Tests replace this function.
    left: fn() -> Option<u64>,
}

/// Free memory for this process in bytes: that of the node, or of the tightest of its cgroups if that is less.
fn left() -> Option<u64> {
    let pid = i32::try_from(std::process::id()).ok()?;
    memory::limits_of(pid).iter().map(memory::Limit::left).min()
}

impl Default for TraceBuilder {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            index: HashMap::new(),
            detours: Vec::new(),
            notes: Vec::new(),
            next_check: FEW,
            left,
        }
    }
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

    /// Refuses `more` further detours if the free memory cannot hold them. Up to a million detours in all are never refused.
    ///
    /// # Errors
    /// [`Problem::TooManyDetours`], [`Problem::Memory`].
    pub fn expect(&mut self, more: usize) -> Result<(), Problem> {
        let all = self.detours.len().saturating_add(more);
        if all > MAX_DETOURS {
            return Err(Problem::TooManyDetours);
        }
        let needed = (more as u64).saturating_mul(BYTES_OF_DETOUR);
        match (self.left)() {
            Some(left) if all > FEW && needed > left => Err(Problem::Memory { detours: all, needed, left }),
            _ => Ok(()),
        }
    }

    /// Adds a detour whose `source` came from [`TraceBuilder::source`].
    ///
    /// # Errors
    /// [`Problem::TooManyDetours`], [`Problem::Memory`], [`Problem::Cpu`].
    pub fn push(&mut self, detour: Detour) -> Result<(), Problem> {
        if self.detours.len() >= self.next_check {
            let len = self.detours.len();
            self.expect(len.min(MAX_DETOURS - len).max(1))?;
            self.next_check = len.saturating_mul(2).min(MAX_DETOURS);
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

    /// Start of the first detour, TAI nanoseconds.
    pub(crate) fn first_ns(&self) -> Option<i64> {
        self.detours.iter().map(|d| d.start_ns).min()
    }

    /// End of the last detour, TAI nanoseconds.
    pub(crate) fn last_ns(&self) -> Option<i64> {
        self.detours.iter().map(Detour::end_ns).max()
    }

    /// Moves every start by `by_ns` (saturating); what a format with relative times needs.
    pub(crate) fn shift(&mut self, by_ns: i64) {
        for d in &mut self.detours {
            d.start_ns = d.start_ns.saturating_add(by_ns);
        }
    }

    /// The trace. The builder's notes follow those of `meta`.
    ///
    /// # Errors
    /// [`Problem::Row`] for a row that contradicts `meta`, else as [`Trace::from_parts`].
    pub fn build(self, mut meta: TraceMeta) -> Result<Trace, Problem> {
        meta.notes.extend(self.notes);
        super::rows::check(&meta, &self.detours)?;
        Trace::from_parts(meta, self.sources, self.detours)
    }

    /// Adds a note for the reader of the trace: see [`TraceMeta::notes`].
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// Keeps the detours for which `keep` is true.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Detour, &Source) -> bool) {
        let sources = &self.sources;
        self.detours.retain(|d| sources.get(usize::from(d.source)).is_none_or(|source| keep(d, source)));
    }

    /// Moves each detour to another CPU, and removes those for which there is `None`.
    pub(crate) fn move_lanes(&mut self, to: impl Fn(Lane) -> Option<Lane>) {
        self.detours.retain_mut(|d| {
            let lane = to(d.lane());
            if let Some(Lane { node, cpu }) = lane {
                (d.node, d.cpu) = (node, cpu);
            }
            lane.is_some()
        });
    }

    /// Removes copies of rows, with a note, and refuses rows that take more than all of a CPU's time.
    fn check_net_lengths(&mut self, observed_s: f64) -> Result<(), Problem> {
        let rows = self.detours.len();
        self.detours.sort_by_key(|d| (d.start_ns, d.node, d.cpu, d.duration_ns, d.source));
        self.detours.dedup();
        let copies = rows - self.detours.len();
        if copies > 0 {
            self.note(format!("{copies} of {rows} rows are copies of others and count once"));
        }
        let mut stolen_ns: HashMap<Lane, u64> = HashMap::new();
        for d in &self.detours {
            let sum = stolen_ns.entry(d.lane()).or_default();
            *sum = sum.saturating_add(d.duration_ns);
        }
        let most = stolen_ns.into_iter().max_by_key(|(lane, ns)| (*ns, std::cmp::Reverse(*lane)));
        match most.map(|(lane, ns)| (lane, ns as f64 / 1e9)).filter(|(_, s)| *s > observed_s * (1.0 + 1e-9)) {
            None => Ok(()),
            Some((lane, s)) => Err(Problem::Meta(format!(
                "the detours of {lane} take {s} s of {observed_s} s; are there the traces of two nodes in the file? Read each by itself"
            ))),
        }
    }

    /// The trace of another tool. Values that the file does not state about its observation are derived from the detours, with a note. The
    /// lengths of detours that overlap on one CPU are gross: the time counts once.
    ///
    /// # Errors
    /// As [`TraceBuilder::build`].
    pub(crate) fn build_foreign(mut self, stated: Stated) -> Result<Trace, Problem> {
        let first = self.first_ns();
        let last = self.last_ns();
        let start_ns = stated.start_ns.or(first).unwrap_or(0);
        let end_ns = last.unwrap_or(start_ns);
        match (stated.observed_s, &stated.cpus) {
            (None, None) => self.note(
                "the file does not state the length and the CPUs of its observation: both are derived from its detours",
            ),
            (None, Some(_)) => self.note(
                "the file does not state the length of its observation: it is the time from the first to the last detour",
            ),
            (Some(_), None) => self.note(
                "the file does not state which CPUs were observed: those with a detour are shown",
            ),
            (Some(_), Some(_)) => {}
        }
        let mut meta = TraceMeta {
            threshold_ns: stated.threshold_ns.unwrap_or(0),
            cpus: stated.cpus.unwrap_or_else(|| self.detours.iter().map(|d| d.cpu.into()).collect()),
            observed_s: stated.observed_s.unwrap_or_else(|| end_ns.abs_diff(start_ns) as f64 / 1e9),
            start_ns,
            lost_events: stated.lost_events,
            dropped: stated.dropped,
            classes: stated.classes,
            has_random_instants: stated.has_random_instants,
            ..TraceMeta::default()
        };
        super::rows::check(&meta, &self.detours)?;
        match stated.lengths {
            Lengths::Net => self.check_net_lengths(meta.observed_s)?,
            Lengths::Gross | Lengths::Nested => {
                let rows = self.detours.len();
                let (parts, inside) = super::overlap::cut(self.detours);
                self.detours = parts;
                if inside > 0 && stated.lengths == Lengths::Gross {
                    self.notes.push(format!(
                        "{inside} of {rows} rows begin inside another row of their CPU: their time counts once, for the row that began last"
                    ));
                }
            }
        }
        meta.notes = self.notes;
        Trace::from_parts(meta, self.sources, self.detours)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn with(left: fn() -> Option<u64>) -> TraceBuilder {
        TraceBuilder { left, ..TraceBuilder::default() }
    }

    #[test]
    fn detours_that_the_memory_cannot_hold_are_refused_before_they_are_read() {
        let mut small = with(|| Some(100 << 20));
        small.expect(1_000_000).expect("few are never refused");
        small.expect(1_700_000).expect("they fit");
        let refused = small.expect(10_000_000).expect_err("572 MiB").to_string();
        assert!(
            refused.contains("10000000 detours need 572 MiB") && refused.contains("100 MiB are left"),
            "{refused}"
        );
        let mut unknown = with(|| None);
        unknown.expect(MAX_DETOURS).expect("nothing is known");
        assert!(matches!(unknown.expect(MAX_DETOURS + 1), Err(Problem::TooManyDetours)));
        assert!(matches!(unknown.expect(usize::MAX), Err(Problem::TooManyDetours)));
    }

    #[test]
    fn a_list_that_grows_is_refused_when_there_is_no_memory_for_as_many_again() {
        let mut trace = with(|| Some(1 << 20));
        let detour = Detour { node: 0, cpu: 0, start_ns: 0, duration_ns: 1, source: 0 };
        let taken = (0..2 * FEW).take_while(|_| trace.push(detour).is_ok()).count();
        assert_eq!(taken, FEW);
        assert!(matches!(trace.push(detour), Err(Problem::Memory { .. })));
    }
}
