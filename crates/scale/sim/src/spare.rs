// SPDX-License-Identifier: MIT OR Apache-2.0
//! The spare core: whether it can serve the noise of all cores of a node, and how long that waits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::{Deserialize, Serialize};

use crate::SimError;
use crate::layout::Core;
use crate::node;
use crate::node::Node;
use crate::rng::Key;
use crate::source::{Class, Done};

/// The load of a node's noise on one spare core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpareLoad {
    /// Share of its time that the core works.
    pub share: f64,
    /// Longest time that it would have needed at some instant for all that had come.
    pub longest_backlog_ns: u64,
    /// Mean time that a burst waits for those before it.
    pub mean_wait_ns: f64,
    /// Bursts looked at.
    pub bursts: u64,
    /// Time simulated.
    pub span_ns: u64,
}

/// Bursts that are simulated.
const BURSTS: u64 = 1 << 19;

/// The load of a spare core that takes the noise of all `cores` cores of a node in order of arrival: threads and
/// device interrupts of each, and the noise that is bound to itself. The scheduler of `node` plays no
/// part. Threads that are busy on two cores at one time wait for each other here: that is the price.
///
/// ```
/// use colony_sim::node::Node;
/// use colony_sim::scheduler::SpareCore;
/// use colony_sim::source::{Dist, Model, Source};
/// let daemon = Source::new("thread:daemon", Model::poisson(1e6, Dist::Fixed(20_000)));
/// let load = colony_sim::spare::load(&Node::new(vec![daemon], SpareCore), 12, 1)?;
/// assert!((0.23..0.25).contains(&load.share)); // 12 times 2 %
/// # Ok::<(), colony_sim::SimError>(())
/// ```
///
/// # Errors
/// [`SimError::SpareCore`] where the noise asks for all of the core's time or more, and what the sources
/// say of their parameters.
pub fn load(node: &Node, cores: u32, seed: u64) -> Result<SpareLoad, SimError> {
    node.sources.iter().try_for_each(|s| s.noise.check())?;
    // what is bound to its core stays there; the spare one is the last
    let served = |class: Class, core: u32| class != Class::Local || core + 1 == cores;
    let all = || (0..cores).flat_map(|core| node.sources.iter().enumerate().map(move |(n, s)| (core, n, s)));
    let asked: f64 = (all().filter(|(core, _, s)| served(s.class, *core)))
        .map(|(core, _, s)| node::load(s, core, cores))
        .sum();
    if asked >= 1.0 {
        return Err(SimError::SpareCore { cores, load: asked });
    }
    let seed = Key::new(seed);
    let mut queue = BinaryHeap::new();
    let mut streams = Vec::new();
    for (core, number, source) in all().filter(|(core, _, s)| served(s.class, *core)) {
        let Some(stream) = source.stream(source.keys(seed, number), Core { node: 0, core }, cores) else {
            continue;
        };
        if let Some(b) = source.first(&stream, 0) {
            queue.push(Reverse((b.arrival_ns, streams.len(), b.index, b.length_ns)));
        }
        streams.push((source, stream));
    }
    let (mut free_ns, mut busy_ns, mut waited_ns) = (0, 0u64, 0.0);
    let mut found = SpareLoad { share: 0.0, longest_backlog_ns: 0, mean_wait_ns: 0.0, bursts: 0, span_ns: 0 };
    while found.bursts < BURSTS {
        let Some(Reverse((arrival_ns, i, index, length_ns))) = queue.pop() else { break };
        let start_ns = arrival_ns.max(free_ns);
        let Some(done_ns) = start_ns.checked_add(length_ns) else { break };
        (free_ns, busy_ns, found.bursts) = (done_ns, busy_ns + length_ns, found.bursts + 1);
        waited_ns += (start_ns - arrival_ns) as f64;
        found.longest_backlog_ns = found.longest_backlog_ns.max(done_ns - arrival_ns);
        let (source, stream) = &streams[i];
        if let Some(b) = source.next(stream, Done { index, arrival_ns, done_ns }) {
            queue.push(Reverse((b.arrival_ns, i, b.index, b.length_ns)));
        }
    }
    found.span_ns = free_ns;
    found.share = busy_ns as f64 / free_ns.max(1) as f64;
    found.mean_wait_ns = waited_ns / found.bursts.max(1) as f64;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::SpareCore;
    use crate::source::{Dist, Model, Phase, Placement, Source};

    fn daemon(every_ns: u64, length_ns: u64) -> Source {
        Source::new("daemon", Model::periodic(every_ns, length_ns)).phase(Phase::Together { spread_ns: 0 })
    }

    #[test]
    fn daemons_of_two_cores_that_collide_wait_for_each_other() {
        let l = load(&Node::new(vec![daemon(1000, 100)], SpareCore), 2, 1).expect("room");
        assert_eq!((l.longest_backlog_ns, l.mean_wait_ns), (200, 50.0));
        assert!((l.share - 0.2).abs() < 1e-4, "{}", l.share);
    }

    #[test]
    fn poisson_noise_of_many_cores_waits_as_in_queueing_theory() {
        // M/D/1: mean wait = share · length / (2 (1 − share))
        let noise = Source::new("daemon", Model::poisson(1e6, Dist::Fixed(50_000)));
        let l = load(&Node::new(vec![noise], SpareCore), 12, 1).expect("room");
        let expected = 0.6 * 50_000.0 / (2.0 * 0.4);
        assert!((l.share - 0.6).abs() < 0.01 && (l.mean_wait_ns / expected - 1.0).abs() < 0.05, "{l:?}");
    }

    #[test]
    fn an_overloaded_spare_core_is_an_error_and_noise_bound_to_other_cores_does_not_count() {
        let node = |class| Node::new(vec![daemon(1000, 100).class(class)], SpareCore);
        let error = load(&node(Class::Task), 12, 1).expect_err("12 times 10 %");
        assert!(error.to_string().contains("120 % of one spare core"), "{error}");
        let own = load(&node(Class::Local), 12, 1).expect("only its own");
        assert!((own.share - 0.1).abs() < 1e-4);
        let once = Node::new(vec![daemon(1000, 100).placement(Placement::AnyCore)], SpareCore);
        assert!((load(&once, 12, 1).expect("once a node").share - 0.1).abs() < 1e-4);
    }
}
