// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sources of one core, merged: who wants its time next.

use crate::layout::Core;
use crate::rng::Key;
use crate::source::{Burst, Done, Phase, Source, Stream, Trace};

/// A burst that a source waits for, or is in the middle of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// Arrival, past or future; [`Demand::NEVER`]: the source has no more bursts.
    pub(crate) arrival_ns: u64,
    /// The rest of its work; 0 once it is done and the next is not drawn.
    left_ns: u64,
    /// Its number.
    index: u64,
}

impl Demand {
    pub(crate) const NEVER: u64 = u64::MAX;

    pub(crate) fn of(burst: Option<Burst>) -> Self {
        // a burst of no length is one of the shortest: it must take its turn and end
        burst.map_or(Self { arrival_ns: Self::NEVER, left_ns: 1, index: 0 }, |b| Self {
            arrival_ns: b.arrival_ns,
            left_ns: b.length_ns.max(1),
            index: b.index,
        })
    }
}

/// A source with what its streams' keys are made of.
#[derive(Clone, Debug)]
pub(crate) struct Numbered {
    source: Source,
    keys: [Key; 2],
    cores: u32,
}

impl Numbered {
    /// Source `number` of nodes that run ranks on `cores` cores.
    pub(crate) fn new(source: Source, number: usize, seed: Key, cores: u32) -> Self {
        Self { keys: source.keys(seed, number), source, cores }
    }

    /// The trace that the source is.
    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.source.noise.trace()
    }

    pub(crate) fn stream(&self, core: Core) -> Option<Stream> {
        self.source.stream(self.keys, core, self.cores)
    }

    /// The first demands on `core`, if the job begins `begin_ns` after boot under a scheduler that needs `settle_ns`.
    /// Sources begin no sooner than they must: bursts long before the job cost time.
    pub(crate) fn first(&self, core: Core, begin_ns: u64, settle_ns: u64) -> Demand {
        let from_ns = match self.source.phase {
            Phase::Together { .. } => 0,
            _ => begin_ns.saturating_sub(self.source.memory_ns(settle_ns)),
        };
        Demand::of(self.stream(core).and_then(|s| self.source.first(&s, from_ns)))
    }

    fn after(&self, core: Core, d: Demand, done_ns: u64) -> Demand {
        let last = Done { index: d.index, arrival_ns: d.arrival_ns, done_ns };
        Demand::of(self.stream(core).and_then(|stream| self.source.next(&stream, last)))
    }
}

/// Takes the end of the last stretch back, `ns` of it: the thread it was given to has that much left again.
/// It is the one that came first: who must stop at an instant is served in order of arrival, and nothing
/// is drawn yet after a burst that is done.
pub(crate) fn give_back(demands: &mut [Demand], ns: u64) {
    if let Some(d) = demands.iter_mut().min_by_key(|d| d.arrival_ns) {
        d.left_ns += ns;
    }
}

/// The threads of one core that want its time, each source with one burst at the front.
#[derive(Debug)]
pub struct Tasks<'a> {
    demands: &'a mut [Demand],
    sources: &'a [Numbered],
    core: Core,
    /// The scheduler's own memory, 0 at first.
    pub turn: &'a mut u32,
}

impl<'a> Tasks<'a> {
    /// The sources of `core` at `now_ns`: whose burst has just ended goes on to the next.
    pub(crate) fn new(
        demands: &'a mut [Demand],
        sources: &'a [Numbered],
        core: Core,
        turn: &'a mut u32,
        now_ns: u64,
    ) -> Self {
        for (d, s) in demands.iter_mut().zip(sources).filter(|(d, _)| d.left_ns == 0) {
            *d = s.after(core, *d, now_ns);
        }
        Self { demands, sources, core, turn }
    }

    /// The core.
    #[must_use]
    pub const fn core(&self) -> Core {
        self.core
    }

    /// Sources, those without bursts included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.sources.len()
    }

    /// True if there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Arrival, past or future, of the burst at the front of source `task`; `None`: the source has no more.
    #[must_use]
    pub fn arrival_ns(&self, task: usize) -> Option<u64> {
        let at = self.demands.get(task)?.arrival_ns;
        (at != Demand::NEVER).then_some(at)
    }

    /// The source whose burst arrives first, and when; of several at one instant the first of the list.
    #[must_use]
    pub fn earliest(&self) -> Option<(usize, u64)> {
        let (task, d) = self.demands.iter().enumerate().min_by_key(|(_, d)| d.arrival_ns)?;
        (d.arrival_ns != Demand::NEVER).then_some((task, d.arrival_ns))
    }

    /// The rest of the burst at the front of source `task`.
    #[must_use]
    pub fn left_ns(&self, task: usize) -> u64 {
        self.demands.get(task).map_or(0, |d| d.left_ns)
    }

    /// Gives source `task` at most `most_ns` of CPU time; returns how much it took.
    pub fn serve(&mut self, task: usize, most_ns: u64) -> u64 {
        let Some(d) = self.demands.get_mut(task) else { return 0 };
        let taken = d.left_ns.min(most_ns);
        d.left_ns -= taken;
        taken
    }

    /// Moves the next burst to the front, if there is a single source, its burst at the front is done, and its next burst has
    /// arrived by `at_ns`. Returns `true` if the burst was moved; otherwise nothing changes.
    pub(crate) fn only_source_goes_on(&mut self, at_ns: u64) -> bool {
        let ([demand], [source]) = (&mut *self.demands, self.sources) else { return false };
        if demand.left_ns > 0 || source.source.noise.sleeps() {
            return false;
        }
        let next = source.after(self.core, *demand, at_ns);
        let waits = next.arrival_ns <= at_ns;
        if waits {
            *demand = next;
        }
        waits
    }

    /// True if source `task`, its burst done at `at_ns`, has another one waiting, which then is at the front.
    pub fn goes_on(&mut self, task: usize, at_ns: u64) -> bool {
        match (self.demands.get_mut(task), self.sources.get(task)) {
            (Some(d), Some(s)) if d.left_ns == 0 && !s.source.noise.sleeps() => {
                *d = s.after(self.core, *d, at_ns);
                d.arrival_ns <= at_ns
            }
            _ => false,
        }
    }
}
