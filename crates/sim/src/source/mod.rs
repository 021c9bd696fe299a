//! Where noise comes from: sources that want a CPU's time, each a stream of bursts.
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

pub use dist::Dist;
pub use model::{Arrivals, Model};
pub use trace::Trace;

use crate::layout::Core;
use crate::rng::Key;

/// CPU time wanted by a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// Its number in the stream, rising by one from burst to burst; the first has any number.
    pub index: u64,
    /// When it is wanted, nanoseconds since the nodes booted.
    pub arrival_ns: u64,
    /// How much.
    pub length_ns: u64,
}

/// A burst that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its number.
    pub index: u64,
    /// When it had arrived.
    pub arrival_ns: u64,
    /// When its work was done: a daemon that sleeps between bursts begins its sleep then.
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
}

/// How much a burst is bound to its CPU, and who can hold it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Bound to its CPU and held by nothing: timer ticks, inter-processor interrupts, the hypervisor.
    Local,
    /// Device interrupts: held by nothing, but a spare core can take them.
    Irq,
    /// Threads: a scheduler decides when they run, a spare core can take them.
    #[default]
    Task,
}

/// How the streams of different nodes lie to one another in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Each core anywhere, independent of all others.
    #[default]
    Random,
    /// The same bursts at the same instants everywhere.
    Aligned,
    /// The same bursts everywhere, each node late by up to `spread_ns`: aligned by clocks that err.
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

/// On which cores of a node a source is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// A stream of its own on each core.
    #[default]
    EachCore,
    /// One stream a node, always on this core.
    Core(u32),
    /// One stream a node, each burst on a random core.
    AnyCore,
}

/// A source of noise on every node.
#[derive(Clone, Debug)]
pub struct Source {
    /// What it is, as `thread:kworker`.
    pub name: String,
    /// How its bursts follow one another.
    pub noise: Arc<dyn Noise>,
    /// Who can hold it back.
    pub class: Class,
    /// How nodes lie to one another.
    pub phase: Phase,
    /// Which cores.
    pub placement: Placement,
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

    /// The stream on `core` of a node that runs ranks on `cores` cores; `None` where there is none.
    pub(crate) fn stream(&self, seed: Key, number: usize, core: Core, cores: u32) -> Option<Stream> {
        let source = seed.part(number as u64);
        let own = match self.placement {
            Placement::EachCore => source.part(u64::from(core.node)).part(u64::from(core.core)),
            Placement::Core(c) if c != core.core => return None,
            Placement::Core(_) | Placement::AnyCore => source.part(u64::from(core.node)),
        };
        let shared = match self.placement {
            Placement::EachCore => source.part(u64::MAX).part(u64::from(core.core)),
            Placement::Core(_) | Placement::AnyCore => source.part(u64::MAX),
        };
        let one_of = matches!(self.placement, Placement::AnyCore).then_some(cores);
        let key = match self.phase {
            Phase::Random | Phase::Together { .. } => own,
            Phase::Aligned | Phase::Skewed { .. } => shared,
        };
        // cores of one node share its phase in a trace: they were measured together
        let node = source.part(u64::from(core.node)).part(u64::MAX);
        Some(Stream { key, own, node, core, phase: self.phase, one_of })
    }

    /// The first burst of a stream on its core.
    pub(crate) fn first(&self, stream: &Stream) -> Option<Burst> {
        self.here(stream, self.noise.first(stream)?)
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

/// One source on one core.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    key: Key,
    own: Key,
    node: Key,
    core: Core,
    phase: Phase,
    one_of: Option<u32>,
}

/// Numbers of a stream that are not its bursts'.
const PHASE: u64 = u64::MAX;
const CORE: u64 = u64::MAX - 1;

impl Stream {
    /// The core.
    #[must_use]
    pub const fn core(&self) -> Core {
        self.core
    }

    /// Random numbers of burst `index`: as many as are asked of the key.
    #[must_use]
    pub const fn burst_key(&self, index: u64) -> Key {
        self.key.part(index)
    }

    /// Where the stream begins in a cycle of `cycle_ns`.
    #[must_use]
    pub fn phase_ns(&self, cycle_ns: u64) -> u64 {
        let up_to = |key: Key, ns: u64| (key.uniform(PHASE) * ns as f64) as u64;
        match self.phase {
            Phase::Random | Phase::Aligned => up_to(self.key, cycle_ns),
            Phase::Skewed { spread_ns } => up_to(self.key, cycle_ns) + up_to(self.own, spread_ns),
            Phase::Together { spread_ns } => up_to(self.own, spread_ns),
        }
    }

    /// The same for all cores of a node.
    #[must_use]
    pub fn node_phase_ns(&self, cycle_ns: u64) -> u64 {
        let up_to = |key: Key, ns: u64| (key.uniform(PHASE) * ns as f64) as u64;
        match self.phase {
            Phase::Random => up_to(self.node, cycle_ns),
            _ => self.phase_ns(cycle_ns),
        }
    }

    fn is_here(&self, index: u64) -> bool {
        self.one_of.is_none_or(|cores| {
            (self.key.part(CORE).uniform(index) * f64::from(cores)) as u32 == self.core.core
        })
    }
}
