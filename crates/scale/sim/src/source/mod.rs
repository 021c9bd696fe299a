// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources of noise: they want a CPU's time, each as a stream of bursts.
//!
//! A source says when it wants how much; a [`Scheduler`](crate::scheduler::Scheduler) says when it gets
//! it, and that is what the job sees as detours. One stream is one source on one core (or node); it needs
//! no state but the number and the time of its last burst, so a million ranks cost little.

mod dist;
mod model;
mod trace;

use std::fmt::Debug;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use colony_source::Class;
pub use dist::Dist;
pub(crate) use dist::normal;
pub use model::{Arrivals, Model};
pub use trace::{MeasuredSource, Trace, sources_of, sources_of_nodes};

use crate::SimError;
use crate::layout::Core;
use crate::rng::Key;

/// Cycles after which most sources have found their rhythm.
const CYCLES: f64 = 4.0;

/// CPU time wanted by a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Its number in the stream, rising by one from burst to burst; the first has any number.
    pub index: u64,
    /// Arrival, nanoseconds since the nodes booted.
    pub arrival_ns: u64,
    /// The CPU time wanted.
    pub length_ns: u64,
}

/// A burst that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its number.
    pub index: u64,
    /// Arrival.
    pub arrival_ns: u64,
    /// End of its work: a daemon that sleeps between bursts begins its sleep then.
    pub done_ns: u64,
}

/// A source of noise: how its bursts follow one another. `Model` and `Trace` are those that come with
/// the crate; others may be written.
///
/// ```
/// use colony_sim::source::{Burst, Done, Noise, Stream};
/// /// A burst of 1 µs after 1, 2, 4, 8 … µs of sleep.
/// #[derive(Debug)]
/// struct BackOff;
/// impl Noise for BackOff {
///     fn first(&self, stream: &Stream) -> Option<Burst> {
///         Some(Burst { index: 0, arrival_ns: stream.phase_ns(1000), length_ns: 1000 })
///     }
///     fn next(&self, _: &Stream, last: Done) -> Option<Burst> {
///         let index = last.index + 1;
///         let sleep_ns = 1000u64.checked_shl(index as u32)?;
///         Some(Burst { index, arrival_ns: last.done_ns.checked_add(sleep_ns)?, length_ns: 1000 })
///     }
///     fn cycle_ns(&self) -> f64 { f64::INFINITY }
///     fn load(&self) -> f64 { 0.0 }
/// }
/// ```
pub trait Noise: Debug + Send + Sync {
    /// The first burst of a stream; `None`: there never is one.
    fn first(&self, stream: &Stream) -> Option<Burst>;

    /// The burst after `last`; arrivals never go back. `None`: there are no more.
    fn next(&self, stream: &Stream, last: Done) -> Option<Burst>;

    /// Mean time from one burst to the next, nanoseconds: how far phases are spread.
    fn cycle_ns(&self) -> f64;

    /// CPU time wanted over time, when nothing holds it back.
    fn load(&self) -> f64;

    /// True if the arrival of a burst depends on the end of the burst before: a thread that sleeps after its work.
    /// Such a thread never has two bursts waiting.
    fn sleeps(&self) -> bool {
        true
    }

    /// Time after its first burst from which a stream is like at any later time: a job that begins then meets the same
    /// noise as after weeks.
    fn settle_ns(&self) -> u64 {
        // at random phases most models need less than one cycle; some gaps vary much
        (CYCLES * self.cycle_ns()) as u64
    }

    /// Time before an instant at which the stream has to begin in order to be right at that instant.
    fn memory_ns(&self) -> u64 {
        self.settle_ns()
    }

    /// The distribution of its bursts' lengths, if it has one.
    fn lengths(&self) -> Option<&Dist> {
        None
    }

    /// The trace that it is: what work loses to that is looked up, not gone through burst by burst.
    fn trace(&self) -> Option<&Trace> {
        None
    }

    /// # Errors
    /// If its parameters make no sense.
    fn check(&self) -> Result<(), SimError> {
        Ok(())
    }
}

/// Phase of the streams of different nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Each core anywhere, independent of all others (in a trace: each node).
    #[default]
    Random,
    /// The same bursts at the same instants on all cores of all nodes (in a trace: each node as it was
    /// measured, all from one instant on).
    Aligned,
    /// As aligned, each node late by up to `spread_ns`: aligned by clocks that err.
    Skewed {
        /// Largest lateness.
        spread_ns: u64,
    },
    /// All begin within `spread_ns` of the boot, then each goes its own way: daemons started by the
    /// boot of a partition.
    Together {
        /// Latest beginning.
        spread_ns: u64,
    },
}

/// The cores of a node that have a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// A stream of its own on each core.
    #[default]
    EachCore,
    /// One stream a node, always on this core.
    Core(u32),
    /// One stream a node, each burst on a random core. What holds a burst up on one core is not known on
    /// the others: a daemon that sleeps after its work may begin a little earlier there.
    AnyCore,
}

/// A source of noise on every node.
#[derive(Clone, Debug)]
pub struct Source {
    /// Name, as `thread:kworker`.
    pub name: String,
    /// The stream of its bursts.
    pub noise: Arc<dyn Noise>,
    /// Class: the remedies that can keep it away from the job.
    pub class: Class,
    /// Phase of the nodes.
    pub phase: Phase,
    /// The cores that have it.
    pub placement: Placement,
    /// Sources measured together: those of one group replay from one instant of one measured node.
    pub group: Option<u32>,
}

impl Source {
    /// A source of threads, one stream a core, at random phases.
    #[must_use]
    pub fn new(name: impl Into<String>, noise: impl Noise + 'static) -> Self {
        Self {
            name: name.into(),
            noise: Arc::new(noise),
            class: Class::default(),
            phase: Phase::default(),
            placement: Placement::default(),
            group: None,
        }
    }

    /// The same with another class.
    #[must_use]
    pub fn class(self, class: Class) -> Self {
        Self { class, ..self }
    }

    /// The same with another phase.
    #[must_use]
    pub fn phase(self, phase: Phase) -> Self {
        Self { phase, ..self }
    }

    /// The same on other cores.
    #[must_use]
    pub fn placement(self, placement: Placement) -> Self {
        Self { placement, ..self }
    }

    /// The same as part of what was measured together.
    #[must_use]
    pub fn group(self, group: u32) -> Self {
        Self { group: Some(group), ..self }
    }

    /// Time before a job at which its streams have to begin under a scheduler that needs `scheduler_ns`. A scheduler
    /// that holds noise back changes the rhythm of threads that sleep: those need some cycles to find it.
    pub(crate) fn settle_ns(&self, scheduler_ns: u64) -> u64 {
        self.before_ns(self.noise.settle_ns(), scheduler_ns)
    }

    /// Time before an instant at which its streams have to begin in order to be right there, if they have gone on for
    /// long enough.
    pub(crate) fn memory_ns(&self, scheduler_ns: u64) -> u64 {
        self.before_ns(self.noise.memory_ns(), scheduler_ns)
    }

    fn before_ns(&self, noise_ns: u64, scheduler_ns: u64) -> u64 {
        let spread_ns = match self.phase {
            Phase::Skewed { spread_ns } => spread_ns,
            _ => 0,
        };
        let held_back = scheduler_ns > 0 && self.class == Class::Task && self.noise.sleeps();
        let rhythm_ns = if held_back { (CYCLES * self.noise.cycle_ns()) as u64 } else { 0 };
        noise_ns.max(rhythm_ns).saturating_add(scheduler_ns).saturating_add(spread_ns)
    }

    /// Keys of source `number` of a node, and of what it was measured with.
    pub(crate) fn keys(&self, seed: Key, number: usize) -> [Key; 2] {
        let source = seed.part(number as u64);
        [source, self.group.map_or(source, |g| seed.part(GROUPS).part(u64::from(g)))]
    }

    /// The stream on `core` of a node that runs ranks on `cores` cores; `None` where there is none.
    pub(crate) fn stream(&self, [source, measured]: [Key; 2], core: Core, cores: u32) -> Option<Stream> {
        let own = match self.placement {
            Placement::Core(c) if c != core.core => return None,
            _ if matches!(self.phase, Phase::Aligned | Phase::Skewed { .. }) => Own::Everywhere,
            Placement::EachCore => Own::Core,
            Placement::Core(_) | Placement::AnyCore => Own::Node,
        };
        let one_of = matches!(self.placement, Placement::AnyCore).then_some(cores);
        Some(Stream { source, measured, own, core, phase: self.phase, one_of, from_ns: 0 })
    }

    /// The first burst of a stream on its core; those long before `from_ns` may be left out.
    pub(crate) fn first(&self, stream: &Stream, from_ns: u64) -> Option<Burst> {
        self.here(stream, self.noise.first(&Stream { from_ns, ..*stream })?)
    }

    /// The burst after `last` on the stream's core.
    pub(crate) fn next(&self, stream: &Stream, last: Done) -> Option<Burst> {
        self.here(stream, self.noise.next(stream, last)?)
    }

    /// Passes over the bursts that run on other cores.
    fn here(&self, stream: &Stream, mut burst: Burst) -> Option<Burst> {
        while !stream.is_here(burst.index) {
            let Burst { index, arrival_ns, length_ns } = burst;
            let done_ns = arrival_ns.saturating_add(length_ns);
            burst = self.noise.next(stream, Done { index, arrival_ns, done_ns })?;
        }
        Some(burst)
    }
}

/// The reach of a stream's random numbers.
#[derive(Clone, Copy, Debug)]
enum Own {
    Core,
    Node,
    Everywhere,
}

/// One source on one core.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    source: Key,
    /// Of the source, or of the group it was measured in.
    measured: Key,
    own: Own,
    core: Core,
    phase: Phase,
    one_of: Option<u32>,
    from_ns: u64,
}

/// Parts of a seed or a source, and numbers of a stream, that are not its cores' or bursts'.
const EVERYWHERE: u64 = u64::MAX;
const GROUPS: u64 = u64::MAX - 1;
const PHASE: u64 = u64::MAX;
const LATE: u64 = u64::MAX - 1;
const PICK: u64 = u64::MAX - 2;
const CORE: u64 = u64::MAX - 3;
const FIRST: u64 = u64::MAX - 4;

impl Stream {
    /// The core.
    #[must_use]
    pub const fn core(&self) -> Core {
        self.core
    }

    /// Nobody asks for bursts before this instant, nanoseconds since boot: a stream may begin here.
    #[must_use]
    pub const fn from_ns(&self) -> u64 {
        self.from_ns
    }

    /// Random numbers of burst `index`: as many as are asked of the key.
    #[must_use]
    pub const fn burst_key(&self, index: u64) -> Key {
        self.key().part(index)
    }

    const fn key(&self) -> Key {
        match self.own {
            Own::Core => self.source.part(self.core.node as u64).part(self.core.core as u64),
            Own::Node => self.source.part(self.core.node as u64),
            Own::Everywhere => self.source.part(EVERYWHERE),
        }
    }

    /// Random numbers to begin with anywhere in the stream's rhythm, as if it had long gone on; `None` where
    /// all begin together instead.
    #[must_use]
    pub const fn anywhere(&self) -> Option<Key> {
        match self.phase {
            Phase::Together { .. } => None,
            _ => Some(self.key().part(FIRST)),
        }
    }

    /// Lateness of the node against those it is aligned with.
    #[must_use]
    pub fn late_ns(&self) -> u64 {
        match self.phase {
            Phase::Skewed { spread_ns } => up_to(self.node(), LATE, spread_ns),
            _ => 0,
        }
    }

    /// The begin of the stream in a cycle of `cycle_ns`.
    #[must_use]
    pub fn phase_ns(&self, cycle_ns: u64) -> u64 {
        match self.phase {
            Phase::Together { spread_ns } => up_to(self.key(), PHASE, spread_ns),
            _ => up_to(self.key(), PHASE, cycle_ns).saturating_add(self.late_ns()),
        }
    }

    /// The place in a measurement of `span_ns`, which goes round, at which the node begins to replay it: the same for
    /// all of its cores, and for all sources of a group.
    #[must_use]
    pub fn replay_from_ns(&self, span_ns: u64) -> u64 {
        let late = |from_ns: u64, spread_ns| {
            let late_ns = up_to(self.node(), LATE, spread_ns) % span_ns.max(1);
            if late_ns <= from_ns { from_ns - late_ns } else { span_ns - (late_ns - from_ns) }
        };
        let everywhere = up_to(self.measured.part(EVERYWHERE), PHASE, span_ns);
        match self.phase {
            Phase::Random => up_to(self.node(), PHASE, span_ns),
            Phase::Aligned => everywhere,
            Phase::Skewed { spread_ns } => late(everywhere, spread_ns),
            Phase::Together { spread_ns } => late(0, spread_ns),
        }
    }

    /// The number, of `nodes` measured nodes, of the node that this one replays.
    #[must_use]
    pub fn replays(&self, nodes: usize) -> usize {
        if nodes < 2 { 0 } else { up_to(self.node(), PICK, nodes as u64) as usize }
    }

    fn node(&self) -> Key {
        self.measured.part(u64::from(self.core.node))
    }

    fn is_here(&self, index: u64) -> bool {
        self.one_of.is_none_or(|cores| {
            (self.key().part(CORE).uniform(index) * f64::from(cores)) as u32 == self.core.core
        })
    }
}

/// A number from 0 to below `end`.
fn up_to(key: Key, index: u64, end: u64) -> u64 {
    // the product may be rounded up to the end
    ((key.uniform(index) * end as f64) as u64).min(end.saturating_sub(1))
}

#[cfg(test)]
mod tests;
