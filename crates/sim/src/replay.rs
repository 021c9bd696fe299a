//! The noise of a trace, looked up instead of gone through: what a piece of work loses to it is a difference of
//! two sums that are kept, however many detours it meets. To the nanosecond what going from detour to detour says.

use crate::layout::Layout;
use crate::noise::CpuNoise;
use crate::scheduler::Numbered;

/// A detour, and the time free before it since the trace began.
#[derive(Clone, Copy, Debug)]
struct Mark {
    start_ns: u64,
    end_ns: u64,
    free_ns: u64,
}

/// The noise of one CPU measured, ready to be asked at any instant.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    span_ns: u64,
    /// Time of a lap that is free.
    free_ns: u64,
    marks: Vec<Mark>,
    by_end: Index,
    by_free: Index,
}

/// Where in a rising list to look for a value: about as many entries as the list has.
#[derive(Clone, Debug)]
struct Index {
    shift: u32,
    /// For each 2^`shift`: how many of the list are below it.
    below: Vec<u32>,
}

impl Index {
    fn new(most: u64, len: usize, values: impl Fn(usize) -> u64) -> Self {
        let shift = (most / (len as u64 + 1)).max(1).ilog2();
        let mut below = Vec::with_capacity((most >> shift) as usize + 2);
        let mut k = 0;
        for bucket in 0..=(most >> shift) + 1 {
            while k < len && values(k) < bucket << shift {
                k += 1;
            }
            below.push(k as u32);
        }
        Self { shift, below }
    }

    /// The places among which the first one is that is not below `value`, which is no more than the most.
    #[inline]
    fn range(&self, value: u64) -> std::ops::Range<usize> {
        let bucket = (value >> self.shift) as usize;
        self.below[bucket] as usize..self.below[bucket + 1] as usize
    }
}

impl Profile {
    pub(crate) fn new(noise: &CpuNoise) -> Self {
        let mut stolen_ns = 0;
        let mark = |d: &crate::noise::Detour| {
            let free_ns = d.start_ns - stolen_ns;
            stolen_ns += d.duration_ns;
            Mark { start_ns: d.start_ns, end_ns: d.start_ns + d.duration_ns, free_ns }
        };
        let marks: Vec<Mark> = noise.detours().iter().map(mark).collect();
        let (span_ns, free_ns) = (noise.span_ns(), noise.span_ns() - noise.stolen_ns());
        Self {
            by_end: Index::new(span_ns, marks.len(), |k| marks[k].end_ns),
            by_free: Index::new(free_ns, marks.len(), |k| marks[k].free_ns),
            span_ns,
            free_ns,
            marks,
        }
    }

    /// The first detour that ends after `at_ns` of the lap.
    #[inline]
    fn ends_after(&self, at_ns: u64) -> usize {
        let near = self.by_end.range(at_ns + 1);
        near.start + self.marks[near].partition_point(|m| m.end_ns <= at_ns)
    }

    /// The first detour before which at least `free_ns` of the lap are free.
    #[inline]
    fn free_before(&self, free_ns: u64) -> usize {
        let near = self.by_free.range(free_ns);
        near.start + self.marks[near].partition_point(|m| m.free_ns < free_ns)
    }
}

/// Where a rank is in its trace.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Instant of the trace when the node boots.
    offset_ns: u64,
    /// Which of the traces' CPUs.
    profile: u32,
}

/// The traces of a range of ranks.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    source: Numbered,
    places: Vec<Place>,
}

/// The next detour of a rank, by its start and its end.
pub(crate) type Stretch = (u64, u64);

impl Replay {
    /// The replay of `source` on `ranks`; `None` where it is no trace.
    pub(crate) fn new(source: &Numbered, layout: Layout, ranks: std::ops::Range<u32>) -> Option<Self> {
        let trace = source.trace()?;
        let place = |rank| {
            let stream = source.stream(layout.core(rank))?;
            let profile = trace.profile_number(&stream);
            let offset_ns = stream.replay_from_ns(trace.profiles()[profile].span_ns);
            Some(Place { offset_ns, profile: profile as u32 })
        };
        let places = ranks.map(place).collect::<Option<_>>()?;
        Some(Self { source: source.clone(), places })
    }

    #[inline]
    fn at(&self, i: usize) -> (&Profile, u64) {
        let Place { offset_ns, profile } = self.places[i];
        // a replay is made of traces only
        let profiles = self.source.trace().map_or(&[][..], |t| t.profiles());
        (&profiles[profile as usize], offset_ns)
    }

    /// The first detour of rank number `i` that ends after `at_ns`, nanoseconds since boot. What began before
    /// the boot is none.
    pub(crate) fn next(&self, i: usize, at_ns: u64) -> Stretch {
        let (profile, offset_ns) = self.at(i);
        let (lap, p) = lap_of(profile, at_ns + offset_ns);
        let mut k = profile.ends_after(p);
        if lap == 0 && profile.marks.get(k).is_some_and(|m| m.start_ns < offset_ns) {
            k += 1;
        }
        stretch(profile, lap, k, offset_ns)
    }

    /// When rank number `i` has done `work_ns` that may begin at `at_ns`, and its next detour then.
    #[inline]
    pub(crate) fn done(&self, i: usize, at_ns: u64, mut work_ns: u64) -> (u64, Stretch) {
        let (profile, offset_ns) = self.at(i);
        let (mut lap, p) = lap_of(profile, at_ns + offset_ns);
        let k = profile.ends_after(p);
        // time of the lap that was free before the work may begin
        let mut free_ns = match profile.marks.get(k) {
            Some(m) if m.start_ns > p => m.free_ns - (m.start_ns - p),
            Some(m) if lap == 0 && m.start_ns < offset_ns => {
                // it began before the boot: there is none
                let room_ns = m.end_ns - p;
                if work_ns <= room_ns {
                    return (at_ns + work_ns, stretch(profile, lap, k + 1, offset_ns));
                }
                work_ns -= room_ns;
                m.free_ns
            }
            Some(m) => m.free_ns,
            None => profile.free_ns - (profile.span_ns - p),
        };
        free_ns += work_ns;
        if free_ns > profile.free_ns {
            let laps = (free_ns - 1) / profile.free_ns;
            lap += laps;
            free_ns -= laps * profile.free_ns;
        }
        let k = profile.free_before(free_ns);
        let before_ns = match profile.marks.get(k) {
            Some(m) => m.start_ns - m.free_ns,
            None => profile.span_ns - profile.free_ns,
        };
        // after the boot, for the work was
        let done_ns = (lap * profile.span_ns + free_ns + before_ns) - offset_ns;
        (done_ns, stretch(profile, lap, k, offset_ns))
    }
}

/// The lap that instant `at_ns` of a trace is in, and where in it.
#[inline]
fn lap_of(profile: &Profile, at_ns: u64) -> (u64, u64) {
    // most runs are shorter than a trace
    if at_ns < profile.span_ns { (0, at_ns) } else { (at_ns / profile.span_ns, at_ns % profile.span_ns) }
}

/// Detour `k` of a lap, or the first of the next one.
#[inline]
fn stretch(profile: &Profile, lap: u64, k: usize, offset_ns: u64) -> Stretch {
    let (lap, k) = if k < profile.marks.len() { (lap, k) } else { (lap + 1, 0) };
    match profile.marks.get(k) {
        Some(m) => {
            let lap_ns = lap * profile.span_ns;
            ((lap_ns + m.start_ns).saturating_sub(offset_ns), (lap_ns + m.end_ns).saturating_sub(offset_ns))
        }
        None => (u64::MAX, u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::cpus::{Cpus, Node};
    use crate::noise::{CpuNoise, Detour, NodeNoise};
    use crate::rng::Key;
    use crate::scheduler::Preempt;
    use crate::source::{Burst, Done, Noise, Phase, Source, Stream, Trace};
    use crate::{Layout, SimError};

    /// A trace that is gone through burst by burst.
    #[derive(Debug)]
    struct Stepped(Trace);

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
        fn what_is_looked_up_is_what_was_gone_through(
            nodes in prop::collection::vec(prop::collection::vec(a_cpu(1000), 2), 1..3),
            phase in a_phase(), seed in any::<u64>(), begin_ns in 0..3000u64,
            calls in prop::collection::vec((0..4usize, 0..500u64, 0..3000u64), 1..40),
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
            for (rank, wait_ns, work_ns) in calls {
                let at = now[rank] + wait_ns;
                now[rank] = looked_up.done(rank, at, work_ns);
                prop_assert_eq!(now[rank], stepped.done(rank, at, work_ns), "{} of {}", work_ns, rank);
                prop_assert_eq!(looked_up.quiet_until(&now), stepped.quiet_until(&now));
            }
        }
    }
}
