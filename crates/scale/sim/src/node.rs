// SPDX-License-Identifier: MIT OR Apache-2.0
//! A node: its noise and its scheduler, what the noise asks for, and whether that makes sense.

use std::sync::Arc;

use crate::scheduler::Scheduler;
use crate::source::{Dist, Placement, Source};
use crate::{Layout, SimError};

/// A node: its noise, and the scheduler that deals with it.
#[derive(Clone, Debug)]
pub struct Node {
    /// Sources of noise on every node.
    pub sources: Vec<Source>,
    /// The scheduler, which shares the CPUs among the noise and the job.
    pub scheduler: Arc<dyn Scheduler>,
}

impl Node {
    /// `sources` under `scheduler`.
    #[must_use]
    pub fn new(sources: Vec<Source>, scheduler: impl Scheduler + 'static) -> Self {
        Self { sources, scheduler: Arc::new(scheduler) }
    }

    /// A node nothing disturbs.
    #[must_use]
    pub fn quiet() -> Self {
        Self::new(Vec::new(), crate::scheduler::Quiet)
    }

    /// The longest mean cycle of the sources: a job that begins a few of these after boot meets daemons
    /// that have found their rhythm.
    #[must_use]
    pub fn longest_cycle_ns(&self) -> u64 {
        let cycles = self.sources.iter().map(|s| s.noise.cycle_ns()).filter(|c| c.is_finite());
        cycles.fold(0.0, f64::max) as u64
    }

    /// The share of its time that noise asks of each of `cores` cores, that of it which the scheduler lets
    /// come to the job.
    #[must_use]
    pub fn loads(&self, cores: u32) -> Vec<f64> {
        let admitted = || self.sources.iter().filter(|s| self.scheduler.admits(s.class));
        (0..cores).map(|core| admitted().map(|s| load(s, core, cores)).sum()).collect()
    }

    /// True if any of the noise reaches the job's CPUs.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        self.sources.iter().any(|s| self.scheduler.admits(s.class))
    }

    /// The reason for no interval from the means of runs of a job that takes `cores` cores for `ns` in all, if there is one: a
    /// source whose few longest bursts decide how long the job takes. Runs then differ by whether they meet these, and
    /// intervals cover too rarely.
    #[must_use]
    pub fn no_interval(&self, cores: f64, ns: f64) -> Option<String> {
        let decides = |s: &&Source| {
            let bursts = cores * ns / s.noise.cycle_ns().max(1.0);
            let share = |lengths: &Dist| lengths.share_of_longest(bursts);
            self.scheduler.admits(s.class) && s.noise.lengths().map_or(0.0, share) > HALF
        };
        let source = &self.sources.iter().find(decides)?.name;
        Some(format!(
            "no 95 % interval: the lengths of {source} vary so much that its ten longest detours decide the mean, which is \
             more likely too low than too high; more iterations or repetitions help"
        ))
    }

    /// Time after the boot from which a job meets the same noise as after weeks.
    #[must_use]
    pub fn settle_ns(&self) -> u64 {
        let scheduler_ns = self.scheduler.settle_ns();
        let sources = self.sources.iter().map(|s| s.settle_ns(scheduler_ns)).filter(|&ns| ns < u64::MAX);
        sources.max().unwrap_or(scheduler_ns)
    }

    /// # Errors
    /// [`SimError::Load`] where noise asks for all of a core, what sources and scheduler say of their
    /// parameters, [`SimError::NoCore`] for noise on a core that does not exist.
    pub fn check(&self, layout: Layout) -> Result<(), SimError> {
        self.sources.iter().try_for_each(|s| s.noise.check())?;
        self.scheduler.check()?;
        let cores = layout.ranks_per_node();
        for s in &self.sources {
            match s.placement {
                Placement::Core(core) if core >= cores => {
                    return Err(SimError::NoCore { source_name: s.name.clone(), core, cores });
                }
                _ => {}
            }
        }
        match self.loads(cores).into_iter().fold(0.0, f64::max) {
            load if load < 1.0 => Ok(()),
            load => Err(SimError::Load { load }),
        }
    }
}

/// The longest bursts decide if they have more than this share of the mean square.
const HALF: f64 = 0.5;

/// The share of its time that `source` asks of `core`.
pub(crate) fn load(source: &Source, core: u32, cores: u32) -> f64 {
    match source.placement {
        Placement::EachCore => source.noise.load(),
        Placement::Core(c) if c == core => source.noise.load(),
        Placement::Core(_) => 0.0,
        Placement::AnyCore => source.noise.load() / f64::from(cores.max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::{Fair, Preempt, SpareCore};
    use crate::source::{Class, Model};

    #[test]
    fn a_core_that_noise_would_fill_is_refused() {
        let half = || Source::new("half", Model::periodic(100, 50)).class(Class::Irq);
        let layout = Layout::new(2, 4).expect("cores");
        let node = |sources| Node::new(sources, Preempt);
        assert_eq!(node(vec![half()]).check(layout), Ok(()));
        assert_eq!(node(vec![half(), half()]).check(layout), Err(SimError::Load { load: 1.0 }));
        let spread = || half().placement(Placement::AnyCore);
        assert_eq!(node(vec![half(), spread()]).loads(4), [0.625; 4]);
        assert_eq!(
            Node::new(vec![half(), half()], SpareCore).check(layout),
            Ok(()),
            "they are not the job's"
        );
        let on = |core| half().placement(Placement::Core(core));
        assert_eq!(node(vec![half(), on(2)]).loads(4), [0.5, 0.5, 1.0, 0.5]);
        assert!(matches!(node(vec![on(4)]).check(layout), Err(SimError::NoCore { core: 4, cores: 4, .. })));
    }

    #[test]
    fn senseless_parameters_are_found_wherever_they_are() {
        let layout = Layout::one_a_node(1).expect("one");
        let bad = Source::new("bad", Model::poisson(f64::NAN, Dist::Fixed(1)));
        assert!(matches!(Node::new(vec![bad], Preempt).check(layout), Err(SimError::Dist { .. })));
        let fair = Fair { noise_slice_ns: 0, job_slice_ns: 1 };
        assert!(matches!(Node::new(vec![], fair).check(layout), Err(SimError::Scheduler { .. })));
    }
}
