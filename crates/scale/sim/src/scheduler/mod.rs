// SPDX-License-Identifier: MIT OR Apache-2.0
//! Schedulers: they decide which noise of a node reaches the CPUs of the job, and when.

mod coordinated;
mod fair;
#[cfg(test)]
mod reference;
mod tasks;
#[cfg(test)]
mod tests;

use std::fmt::Debug;

use colony_time::Windows;
pub use coordinated::{ClockError, Coordinated, NodeClock};
pub use fair::Fair;
pub use tasks::Tasks;
pub(crate) use tasks::{Demand, Numbered, give_back};

use crate::SimError;
use crate::layout::Core;
use crate::noise::Detour;
use crate::rng::Key;
use crate::source::Class;

/// A core as a scheduler sees it.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    /// The core.
    pub core: Core,
    nodes: Key,
}

impl Cpu {
    pub(crate) const fn new(core: Core, seed: Key) -> Self {
        Self { core, nodes: seed.part(u64::MAX) }
    }

    /// Random numbers of its node, for clocks and edges.
    #[must_use]
    pub const fn node_key(&self) -> Key {
        self.nodes.part(self.core.node as u64)
    }
}

/// A scheduler decides when the threads among the noise run on the job's CPUs.
///
/// The job always has work or polls for messages: it takes any time the noise does not.
pub trait Scheduler: Debug + Send + Sync {
    /// Name in results.
    fn name(&self) -> &'static str;

    /// True if sources of `class` reach the job's CPUs at all.
    fn admits(&self, _class: Class) -> bool {
        true
    }

    /// The next stretch of time that threads take from the job on `cpu`, all before `now_ns` being done
    /// with. It begins at `now_ns` or later. Interrupts are not its business: they come on top, and make
    /// a stretch longer that they fall into. `None`: never again.
    fn next(&self, cpu: &Cpu, now_ns: u64, tasks: &mut Tasks<'_>) -> Option<Detour>;

    /// The instant at which a stretch that holds `at_ns` has to end, even if interrupts have made it longer; the rest of
    /// its work waits. A scheduler with such an instant serves threads in order of arrival.
    fn until_ns(&self, _cpu: &Cpu, _at_ns: u64) -> u64 {
        u64::MAX
    }

    /// True if threads run as soon as they come, one after the other: then noise that is known in advance can be looked
    /// up.
    fn goes_first(&self) -> bool {
        false
    }

    /// Windows that every node keeps to the nanosecond, in which threads run in regular windows only and then go
    /// first.
    fn exact_windows(&self) -> Option<Windows> {
        None
    }

    /// Time after the start of the noise from which as many threads wait as later on.
    fn settle_ns(&self) -> u64 {
        0
    }

    /// # Errors
    /// [`SimError::Scheduler`] where a parameter makes no sense.
    fn check(&self) -> Result<(), SimError> {
        Ok(())
    }
}

/// No noise at all (the compute node kernel, which "runs one process at a time" and has no daemons:
/// Colony report, section 3.1.4).
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Scheduler for Quiet {
    fn name(&self) -> &'static str {
        "none"
    }

    fn admits(&self, _: Class) -> bool {
        false
    }

    fn next(&self, _: &Cpu, _: u64, _: &mut Tasks<'_>) -> Option<Detour> {
        None
    }
}

/// Noise first, as soon as it comes, in order of arrival.
#[derive(Clone, Copy, Debug, Default)]
pub struct Preempt;

impl Scheduler for Preempt {
    fn name(&self) -> &'static str {
        "preempt"
    }

    fn goes_first(&self) -> bool {
        true
    }

    fn next(&self, _: &Cpu, now_ns: u64, tasks: &mut Tasks<'_>) -> Option<Detour> {
        let (task, arrival_ns) = tasks.earliest()?;
        let duration_ns = tasks.serve(task, u64::MAX);
        Some(Detour { start_ns: arrival_ns.max(now_ns), duration_ns })
    }
}

/// Core specialization: one core of each node runs the noise of all (Jaguar, CUG 2010). The job's cores
/// keep what is bound to them. Whether that core can is what [`crate::spare::load`] says.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpareCore;

impl Scheduler for SpareCore {
    fn name(&self) -> &'static str {
        "spare-core"
    }

    fn admits(&self, class: Class) -> bool {
        class == Class::Local
    }

    fn next(&self, _: &Cpu, _: u64, _: &mut Tasks<'_>) -> Option<Detour> {
        None
    }
}
