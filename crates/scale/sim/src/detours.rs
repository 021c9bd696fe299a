// SPDX-License-Identifier: MIT OR Apache-2.0
//! The detours of single ranks, for pictures of a schedule.

use crate::cpus::Cpus;
use crate::noise::Detour;
use crate::rng::Key;
use crate::simulation::Simulation;
use crate::{Layout, SimError};

/// The detours of `ranks` of `simulation` in its first repetition: times in which a rank's CPU runs something else than
/// the job. Instants are nanoseconds after the begin of the job. Ranks that the simulation does not have are left out.
///
/// The detours of a rank are ascending and do not overlap. They are cut at the begin of the job and `span_ns` after it.
/// `None`: a rank has more than `most` detours.
///
/// # Errors
/// [`SimError`] where the simulation makes no sense.
pub fn detours(
    simulation: &Simulation,
    ranks: impl IntoIterator<Item = u32>,
    span_ns: u64,
    most: usize,
) -> Result<Option<Vec<Vec<Detour>>>, SimError> {
    let Simulation { machine, node, nodes, seed, .. } = simulation;
    machine.check()?;
    let layout = machine.layout(*nodes)?;
    node.check(layout)?;
    let (key, begin_ns) = (Key::new(*seed).part(0), simulation.begins_ns()?);
    let ranks = ranks.into_iter().filter(|&rank| rank < layout.ranks());
    Ok(ranks.map(|rank| of_rank(simulation, layout, rank, (key, begin_ns), (span_ns, most))).collect())
}

fn of_rank(
    simulation: &Simulation,
    layout: Layout,
    rank: u32,
    (key, begin_ns): (Key, u64),
    (span_ns, most): (u64, usize),
) -> Option<Vec<Detour>> {
    let mut cpu = Cpus::new(&simulation.node, layout, rank..rank + 1, key, begin_ns);
    let end_ns = begin_ns.saturating_add(span_ns);
    let (mut all, mut at_ns) = (Vec::new(), begin_ns);
    while let Some(start_ns) = cpu.next_detour_ns(0, at_ns).filter(|&start_ns| start_ns < end_ns) {
        let from_ns = start_ns.max(at_ns);
        // a nanosecond of work that begins in a detour ends a nanosecond after the detour
        let stop_ns = cpu.done(0, from_ns, 1) - 1;
        if stop_ns > from_ns {
            if all.len() == most {
                return None;
            }
            let duration_ns = stop_ns.min(end_ns) - from_ns;
            all.push(Detour { start_ns: from_ns - begin_ns, duration_ns });
        }
        at_ns = stop_ns + 1;
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use colony_time::{DutyCycle, Windows};
    use proptest::prelude::*;

    use super::*;
    use crate::machine::Machine;
    use crate::node::Node;
    use crate::program::{Operation, Program};
    use crate::scheduler::{Coordinated, Fair, Preempt};
    use crate::source::{Class, Model, Source, Trace};
    use crate::{CpuNoise, NodeNoise};

    fn simulation(node: Node, nodes: u32, seed: u64) -> Simulation {
        Simulation {
            program: Program::collective(Operation::Barrier, 0, 1),
            machine: Machine::loggopsim(),
            node,
            nodes,
            begin_ns: None,
            repetitions: 1,
            seed,
        }
    }

    fn measured(first_ns: u64) -> NodeNoise {
        let detour = |i: u64| Detour {
            start_ns: first_ns + 130_000 * i + 7 * i * i,
            duration_ns: 1_000 + 900 * (i % 5),
        };
        let cpu = CpuNoise::new(9_000_000, (0..60).map(detour).collect::<Vec<_>>()).expect("sound");
        NodeNoise::new(vec![cpu]).expect("one CPU")
    }

    fn node(which: u8) -> Node {
        let replay = |first_ns| Source::new("trace", Trace::new(measured(first_ns))).group(0);
        let trace = |class| vec![replay(0).class(class)];
        let sources = vec![
            Source::new("daemon", Model::leibniz(300_000, 2_000_000)).class(Class::Task),
            Source::new("tick", Model::periodic(400_000, 5_000)).class(Class::Local),
        ];
        let windows = Windows::new(1_000_000, DutyCycle::Ppm(700_000), 0).expect("possible");
        match which {
            0 => Node::new(sources, Preempt),
            1 => Node::new(sources, Fair { noise_slice_ns: 100_000, job_slice_ns: 50_000 }),
            2 => Node::new(sources, Coordinated::exact(windows)),
            3 => Node::new(trace(Class::Local), Preempt),
            4 => Node::new(trace(Class::Task), Coordinated::exact(windows)),
            5 => Node::new([sources, trace(Class::Task)].concat(), Coordinated::exact(windows)),
            _ => {
                let both = vec![replay(0).class(Class::Task), replay(60_000).class(Class::Local)];
                Node::new(both, Coordinated::exact(windows))
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// The simulated job loses exactly the time of the detours.
        #[test]
        fn work_ends_as_the_detours_say(which in 0u8..7, seed in any::<u64>(), work_ns in 1_000u64..4_000_000) {
            let s = simulation(node(which), 3, seed);
            let span_ns = 40_000_000;
            let all = detours(&s, 0..4, span_ns, 10_000).expect("sound").expect("few");
            let (layout, begin_ns) = (s.machine.layout(3).expect("three"), s.begins_ns().expect("soon"));
            let mut cpus = Cpus::new(&s.node, layout, 0..3, Key::new(seed).part(0), begin_ns);
            for (rank, detours) in all.iter().enumerate() {
                prop_assert!(detours.is_sorted_by(|a, b| a.start_ns + a.duration_ns <= b.start_ns));
                let (mut at_ns, mut left_ns) = (0, work_ns);
                for d in detours {
                    let room = d.start_ns - at_ns;
                    if left_ns <= room {
                        break;
                    }
                    left_ns -= room;
                    at_ns = d.start_ns + d.duration_ns;
                }
                prop_assert_eq!(cpus.done(rank, begin_ns, work_ns), begin_ns + at_ns + left_ns);
            }
        }
    }

    #[test]
    fn detours_are_bounded_and_a_quiet_node_has_none() {
        assert_eq!(detours(&simulation(node(0), 8, 1), 0..8, 40_000_000, 3).expect("sound"), None);
        let quiet = detours(&simulation(Node::quiet(), 8, 1), [1, 7], 1_000_000, 3).expect("sound");
        assert_eq!(quiet, Some(vec![Vec::new(), Vec::new()]));
    }
}
