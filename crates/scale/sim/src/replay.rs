// SPDX-License-Identifier: MIT OR Apache-2.0
//! The traces of a range of ranks, each rank at a place of its own: when work is done, by look-ups.

use std::hint::black_box;
use std::sync::Arc;

use crate::kernels::PART;
use crate::layout::Layout;
use crate::profile::{Entry, Goal, Profile, Stretch};
use crate::scheduler::Numbered;

/// The place of a rank in its trace.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Instant of the trace when the node boots.
    offset_ns: u64,
    /// The number of its CPU among those of all traces.
    profile: u32,
}

/// The traces of a range of ranks.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    profiles: Arc<[Profile]>,
    places: Vec<Place>,
}

impl Replay {
    /// The replay of `source` on `ranks`; `None` where it is no trace.
    pub(crate) fn new(source: &Numbered, layout: Layout, ranks: std::ops::Range<u32>) -> Option<Self> {
        let trace = source.trace()?;
        let profiles = trace.profiles();
        let place = |rank| {
            let stream = source.stream(layout.core(rank))?;
            let profile = trace.profile_number(&stream);
            let offset_ns = stream.replay_from_ns(profiles[profile].span_ns());
            Some(Place { offset_ns, profile: profile as u32 })
        };
        let places = ranks.map(place).collect::<Option<_>>()?;
        Some(Self { profiles, places })
    }

    #[inline]
    fn at(&self, i: usize) -> (&Profile, u64) {
        let Place { offset_ns, profile } = self.places[i];
        (&self.profiles[profile as usize], offset_ns)
    }

    /// The first detour of rank number `i` that ends after `at_ns`, nanoseconds since boot. What began before
    /// the boot is none.
    pub(crate) fn next(&self, i: usize, at_ns: u64) -> Stretch {
        let (profile, offset_ns) = self.at(i);
        profile.next(at_ns + offset_ns, offset_ns)
    }

    /// The instant at which rank number `i` has done `work_ns` that may begin at `at_ns`, and its next detour then.
    pub(crate) fn done(&self, i: usize, at_ns: u64, work_ns: u64) -> (u64, Stretch) {
        let (profile, offset_ns) = self.at(i);
        profile.end(profile.goal(&profile.enter(at_ns + offset_ns), offset_ns, work_ns), offset_ns)
    }

    /// Delays the `ends` of work of `work_ns` of the ranks from number `first` on that are after their `starts`,
    /// the next detours, no more than a part. If there is no noise for long enough, the next detour is not looked
    /// up: its start is then only a bound, and its stop the same.
    ///
    /// Look-ups go to memory that is in no near cache. So each step is done for all ranks before the next, without
    /// branches that wait for its result: the processor then has many accesses under way at a time.
    pub(crate) fn settle(
        &self,
        first: usize,
        ends: &mut [u64],
        starts: &mut [u64],
        stops: &mut [u64],
        work_ns: u64,
    ) {
        let mut which = [0u8; PART];
        let mut late = 0;
        for (j, (end, start)) in ends.iter().zip(starts.iter()).enumerate() {
            which[late] = j as u8;
            late += usize::from(end > start);
        }
        let mut entries = [Entry::default(); PART];
        for (entry, &j) in entries.iter_mut().zip(&which[..late]) {
            let j = usize::from(j);
            let (profile, offset_ns) = self.at(first + j);
            *entry = profile.enter(ends[j] - work_ns + offset_ns);
        }
        let mut left = 0;
        for at in 0..late {
            let (entry, j) = (entries[at], usize::from(which[at]));
            let (profile, _) = self.at(first + j);
            let room_ns = profile.room_ns(&entry);
            if work_ns <= room_ns {
                starts[j] = ends[j] - work_ns + room_ns;
                stops[j] = starts[j];
            }
            (which[left], entries[left]) = (which[at], entry);
            left += usize::from(work_ns > room_ns);
        }
        self.settle_disturbed(first, (&which[..left], &entries[..left]), (ends, starts, stops), work_ns);
    }

    /// The same of those of `which` ranks that may meet a detour.
    fn settle_disturbed(
        &self,
        first: usize,
        (which, entries): (&[u8], &[Entry]),
        (ends, starts, stops): (&mut [u64], &mut [u64], &mut [u64]),
        work_ns: u64,
    ) {
        let at = |j: &u8| self.at(first + usize::from(*j));
        let all = || which.iter().zip(entries);
        black_box(all().fold(0, |sum, (j, entry)| sum ^ at(j).0.touch(entry)));
        let mut goals = [Goal::Done(0, (0, 0)); PART];
        for (goal, (j, entry)) in goals.iter_mut().zip(all()) {
            let (profile, offset_ns) = at(j);
            *goal = profile.goal(entry, offset_ns, work_ns);
        }
        let goals = &mut goals[..which.len()];
        if which.first().is_some_and(|j| at(j).0.is_far(work_ns)) {
            goals.iter_mut().zip(which).for_each(|(goal, j)| at(j).0.near(goal));
            black_box(goals.iter().zip(which).fold(0, |sum, (goal, j)| sum ^ at(j).0.touch_end(goal)));
        }
        for (goal, j) in goals.iter().zip(which) {
            let (profile, offset_ns) = at(j);
            let j = usize::from(*j);
            (ends[j], (starts[j], stops[j])) = profile.end(*goal, offset_ns);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use crate::cpus::Cpus;
    use crate::node::Node;
    use crate::noise::{CpuNoise, Detour, NodeNoise};
    use crate::rng::Key;
    use crate::scheduler::Preempt;
    use crate::source::{Burst, Done, Noise, Phase, Source, Stream, Trace};
    use crate::{Layout, SimError};

    /// A trace that is gone through burst by burst.
    #[derive(Debug)]
    pub(crate) struct Stepped(pub(crate) Trace);

    impl Noise for Stepped {
        fn first(&self, stream: &Stream) -> Option<Burst> {
            self.0.first(stream)
        }
        fn next(&self, stream: &Stream, last: Done) -> Option<Burst> {
            self.0.next(stream, last)
        }
        fn cycle_ns(&self) -> f64 {
            self.0.cycle_ns()
        }
        fn load(&self) -> f64 {
            self.0.load()
        }
        fn sleeps(&self) -> bool {
            self.0.sleeps()
        }
        fn settle_ns(&self) -> u64 {
            self.0.settle_ns()
        }
        fn memory_ns(&self) -> u64 {
            self.0.memory_ns()
        }
    }

    fn a_cpu(span_ns: u64) -> impl Strategy<Value = CpuNoise> {
        let detours = prop::collection::vec((0..span_ns, 0..span_ns / 8), 0..12);
        detours.prop_filter_map("some time is left", move |all| {
            let detours = all.into_iter().map(|(start_ns, duration_ns)| Detour { start_ns, duration_ns });
            CpuNoise::new(span_ns, detours).ok()
        })
    }

    fn a_phase() -> impl Strategy<Value = Phase> {
        prop_oneof![
            Just(Phase::Random),
            Just(Phase::Aligned),
            (0..2000u64).prop_map(|spread_ns| Phase::Skewed { spread_ns }),
            (0..2000u64).prop_map(|spread_ns| Phase::Together { spread_ns }),
        ]
    }

    proptest! {
        #[test]
        fn a_look_up_gives_the_times_of_the_detours_one_by_one(
            nodes in prop::collection::vec(prop::collection::vec(a_cpu(1000), 2), 1..3),
            phase in a_phase(), seed in any::<u64>(), begin_ns in 0..3000u64,
            calls in prop::collection::vec((0..4usize, 0..500u64, 0..3000u64, any::<bool>()), 1..40),
        ) {
            let nodes: Result<Vec<NodeNoise>, SimError> = nodes.into_iter().map(NodeNoise::new).collect();
            let trace = Trace::of_nodes(nodes.expect("one span")).expect("one node");
            let layout = Layout::new(2, 2).expect("ranks");
            let cpus = |source: Source| {
                Cpus::new(&Node::new(vec![source.phase(phase)], Preempt), layout, 0..4, Key::new(seed), begin_ns)
            };
            let (mut looked_up, mut stepped) =
                (cpus(Source::new("trace", trace.clone())), cpus(Source::new("trace", Stepped(trace))));
            prop_assert_eq!(looked_up.starts(), stepped.starts());
            let mut now = [begin_ns; 4];
            for (rank, wait_ns, work_ns, together) in calls {
                if together {
                    let mut ends = now.map(|now| now + wait_ns + work_ns);
                    now = ends;
                    looked_up.settle(0, &mut now, work_ns);
                    stepped.settle(0, &mut ends, work_ns);
                    prop_assert_eq!(now, ends, "{} of all", work_ns);
                } else {
                    let at = now[rank] + wait_ns;
                    now[rank] = looked_up.done(rank, at, work_ns);
                    prop_assert_eq!(now[rank], stepped.done(rank, at, work_ns), "{} of {}", work_ns, rank);
                }
                if work_ns % 3 == 0 {
                    prop_assert_eq!(looked_up.quiet_until(&now), stepped.quiet_until(&now));
                }
            }
        }
    }
}
