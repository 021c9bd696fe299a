//! The noise of a trace, looked up instead of gone through: what a piece of work loses to it is a difference of
//! two sums that are kept, however many detours it meets. To the nanosecond what going from detour to detour says.

use std::sync::Arc;

use crate::kernels::PART;
use crate::layout::Layout;
use crate::noise::CpuNoise;
use crate::scheduler::Numbered;

/// Where a detour starts in a lap, and the time of the lap that is free before it.
#[derive(Clone, Copy, Debug)]
struct Mark {
    start_ns: u64,
    free_ns: u64,
}

/// The noise of one CPU measured, ready to be asked at any instant.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    span_ns: u64,
    /// Time of a lap that is free.
    free_ns: u64,
    /// One a detour, and one at the end of the lap: what is taken before the next is the detour's length.
    marks: Vec<Mark>,
    by_start: Index,
    by_free: Index,
    busy: Busy,
}

/// A coarse picture of a lap, small enough to stay near: a bit for each 2^`shift` nanoseconds that a detour is in.
#[derive(Clone, Debug)]
struct Busy {
    shift: u32,
    words: Vec<u64>,
}

/// Bits of the picture from one detour to the next, about.
const BITS: u64 = 16;

impl Busy {
    fn new(noise: &CpuNoise) -> Self {
        let span_ns = noise.span_ns();
        let shift = (span_ns / (noise.detours().len() as u64 + 1) / BITS).max(1).ilog2();
        let mut words = vec![0; (span_ns >> shift >> 6) as usize + 1];
        for d in noise.detours() {
            for bit in d.start_ns >> shift..=(d.start_ns + d.duration_ns - 1) >> shift {
                words[(bit >> 6) as usize] |= 1 << (bit & 63);
            }
        }
        Self { shift, words }
    }

    /// No detour is in the lap from `at_ns` until then.
    #[inline]
    fn quiet_until(&self, at_ns: u64) -> u64 {
        let bit = at_ns >> self.shift;
        let ahead = self.words[(bit >> 6) as usize] >> (bit & 63);
        let clear = u64::from(ahead.trailing_zeros()).min(64 - (bit & 63));
        (bit + clear) << self.shift
    }
}

/// Detours that are tried one after the other before the index is asked.
const NEAR: usize = 3;

/// Where in a rising list to look for a value: about as many entries as the list has.
#[derive(Clone, Debug)]
struct Index {
    shift: u32,
    /// For each 2^`shift`: how many of the list are below it.
    below: Vec<u32>,
}

impl Index {
    fn new(most: u64, marks: &[Mark], value: impl Fn(&Mark) -> u64) -> Self {
        let shift = (most / (marks.len() as u64 + 1)).max(1).ilog2();
        let mut below = Vec::with_capacity((most >> shift) as usize + 3);
        let mut k = 0;
        for bucket in 0..=(most >> shift) + 2 {
            while k < marks.len() && value(&marks[k]) < bucket << shift {
                k += 1;
            }
            below.push(k as u32);
        }
        Self { shift, below }
    }

    /// How many of the list are below the part of it that has `value`.
    #[inline]
    fn before(&self, value: u64) -> usize {
        self.below[(value >> self.shift) as usize] as usize
    }

    /// The same of the next part.
    #[inline]
    fn after(&self, value: u64) -> usize {
        self.below[(value >> self.shift) as usize + 1] as usize
    }
}

impl Profile {
    pub(crate) fn new(noise: &CpuNoise) -> Self {
        let mut stolen_ns = 0;
        let mark = |d: &crate::noise::Detour| {
            let free_ns = d.start_ns - stolen_ns;
            stolen_ns += d.duration_ns;
            Mark { start_ns: d.start_ns, free_ns }
        };
        let mut marks: Vec<Mark> = noise.detours().iter().map(mark).collect();
        let (span_ns, free_ns) = (noise.span_ns(), noise.span_ns() - noise.stolen_ns());
        let (by_start, by_free) =
            (Index::new(span_ns, &marks, |m| m.start_ns), Index::new(free_ns, &marks, |m| m.free_ns));
        marks.push(Mark { start_ns: span_ns, free_ns });
        Self { span_ns, free_ns, marks, by_start, by_free, busy: Busy::new(noise) }
    }

    /// Detours of a lap.
    #[inline]
    fn detours(&self) -> usize {
        self.marks.len() - 1
    }

    /// When detour `k`, one of the lap, ends.
    #[inline]
    fn end_ns(&self, k: usize) -> u64 {
        let (this, next) = (self.marks[k], self.marks[k + 1]);
        this.start_ns + ((next.start_ns - next.free_ns) - (this.start_ns - this.free_ns))
    }

    /// The first detour that ends after `at_ns` of the lap; those before number `near` start no later.
    #[inline]
    fn ends_after(&self, at_ns: u64, near: usize) -> usize {
        let rest = &self.marks[near..self.by_start.after(at_ns)];
        let started = near + rest.partition_point(|m| m.start_ns <= at_ns);
        if started > 0 && self.end_ns(started - 1) > at_ns { started - 1 } else { started }
    }

    /// The first detour, not before number `from`, before which at least `free_ns` of the lap are free.
    #[inline]
    fn free_before(&self, free_ns: u64, from: usize) -> usize {
        // short work ends near where it began
        for k in from..from + NEAR {
            if self.marks.get(k).is_none_or(|m| m.free_ns >= free_ns) {
                return k;
            }
        }
        let near = self.by_free.before(free_ns);
        near + self.marks[near..self.by_free.after(free_ns)].partition_point(|m| m.free_ns < free_ns)
    }

    /// The lap that instant `at_ns` of the trace is in, and where in it.
    #[inline]
    fn lap(&self, at_ns: u64) -> (u64, u64) {
        // most runs are shorter than a trace
        if at_ns < self.span_ns { (0, at_ns) } else { (at_ns / self.span_ns, at_ns % self.span_ns) }
    }

    /// How long it was observed.
    pub(crate) const fn span_ns(&self) -> u64 {
        self.span_ns
    }

    /// Time free from the beginning of the trace to `at_ns`, all laps counted.
    pub(crate) fn free_at(&self, at_ns: u64) -> u64 {
        let (lap, p) = self.lap(at_ns);
        let k = self.ends_after(p, self.by_start.before(p));
        let Mark { start_ns, free_ns } = self.marks[k];
        lap * self.free_ns + free_ns - start_ns.saturating_sub(p)
    }

    /// The first instant by which `free_ns` were free, all laps counted.
    pub(crate) fn when_free(&self, free_ns: u64) -> u64 {
        let (lap, free_ns) = match free_ns {
            0 => return 0,
            all => ((all - 1) / self.free_ns, (all - 1) % self.free_ns + 1),
        };
        let k = self.free_before(free_ns, self.by_free.before(free_ns)).min(self.detours());
        lap * self.span_ns + free_ns + (self.marks[k].start_ns - self.marks[k].free_ns)
    }

    /// The first start of a detour at or after `at_ns`, all laps counted.
    pub(crate) fn starts_from(&self, at_ns: u64) -> u64 {
        let (lap, p) = self.lap(at_ns);
        let near = self.by_start.before(p);
        let k = near + self.marks[near..self.by_start.after(p)].partition_point(|m| m.start_ns < p);
        self.start_of(lap, k)
    }

    /// The first instant from `at_ns` on that is in a detour.
    pub(crate) fn busy_from(&self, at_ns: u64) -> u64 {
        let (lap, p) = self.lap(at_ns);
        let k = self.ends_after(p, self.by_start.before(p));
        self.start_of(lap, k).max(at_ns)
    }

    fn start_of(&self, lap: u64, k: usize) -> u64 {
        let (lap, k) = if k < self.detours() { (lap, k) } else { (lap + 1, 0) };
        if self.detours() == 0 { u64::MAX } else { lap * self.span_ns + self.marks[k].start_ns }
    }

    /// Detour `k` of a lap, or the first of the next one, `offset_ns` of the trace being over at the boot.
    #[inline]
    fn stretch(&self, lap: u64, k: usize, offset_ns: u64) -> Stretch {
        if self.detours() == 0 {
            return (u64::MAX, u64::MAX);
        }
        let (lap, k) = if k < self.detours() { (lap, k) } else { (lap + 1, 0) };
        let since_boot = |ns: u64| (lap * self.span_ns + ns).saturating_sub(offset_ns);
        (since_boot(self.marks[k].start_ns), since_boot(self.end_ns(k)))
    }

    /// When `work_ns` is done that may begin at `p` of lap `lap`, and the next detour then; detours before number
    /// `near` start no later than `p`.
    #[inline]
    fn done(&self, (lap, p): (u64, u64), near: usize, offset_ns: u64, work_ns: u64) -> (u64, Stretch) {
        let k = self.ends_after(p, near);
        let mark = self.marks[k];
        // time of the lap that was free before the work may begin
        let begin_ns = match mark.start_ns {
            start_ns if start_ns > p || k == self.detours() => mark.free_ns - (start_ns - p),
            start_ns if lap == 0 && start_ns < offset_ns => {
                // it began before the boot: there is none
                let room_ns = self.end_ns(k) - p;
                if work_ns <= room_ns {
                    return (p + work_ns - offset_ns, self.stretch(lap, k + 1, offset_ns));
                }
                return self.done_from((lap, k), mark.free_ns + work_ns - room_ns, offset_ns);
            }
            _ => mark.free_ns,
        };
        self.done_from((lap, k), begin_ns + work_ns, offset_ns)
    }

    /// The same of work that ends when `free_ns` of lap `lap` were free, not before detour `k`.
    #[inline]
    fn done_from(&self, (lap, k): (u64, usize), free_ns: u64, offset_ns: u64) -> (u64, Stretch) {
        let (lap, free_ns, k) = if free_ns > self.free_ns {
            let laps = (free_ns - 1) / self.free_ns;
            (lap + laps, free_ns - laps * self.free_ns, 0)
        } else {
            (lap, free_ns, k)
        };
        let k = self.free_before(free_ns, k).min(self.detours());
        let taken_ns = self.marks[k].start_ns - self.marks[k].free_ns;
        // after the boot, for the work was
        (lap * self.span_ns + free_ns + taken_ns - offset_ns, self.stretch(lap, k, offset_ns))
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
    profiles: Arc<[Profile]>,
    places: Vec<Place>,
}

/// A detour, by its start and its end.
pub(crate) type Stretch = (u64, u64);

impl Replay {
    /// The replay of `source` on `ranks`; `None` where it is no trace.
    pub(crate) fn new(source: &Numbered, layout: Layout, ranks: std::ops::Range<u32>) -> Option<Self> {
        let trace = source.trace()?;
        let profiles = trace.profiles();
        let place = |rank| {
            let stream = source.stream(layout.core(rank))?;
            let profile = trace.profile_number(&stream);
            let offset_ns = stream.replay_from_ns(profiles[profile].span_ns);
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
        let (lap, p) = profile.lap(at_ns + offset_ns);
        let k = profile.ends_after(p, profile.by_start.before(p));
        let before_boot = lap == 0 && k < profile.detours() && profile.marks[k].start_ns < offset_ns;
        profile.stretch(lap, k + usize::from(before_boot), offset_ns)
    }

    /// When rank number `i` has done `work_ns` that may begin at `at_ns`, and its next detour then.
    pub(crate) fn done(&self, i: usize, at_ns: u64, work_ns: u64) -> (u64, Stretch) {
        let (profile, offset_ns) = self.at(i);
        let (lap, p) = profile.lap(at_ns + offset_ns);
        profile.done((lap, p), profile.by_start.before(p), offset_ns, work_ns)
    }

    /// Puts off the `ends` of work of `work_ns` of the ranks from number `first` on that are after their `starts`,
    /// the next detours, no more than a part. Where there is no noise for long enough, the next detour is not looked
    /// for: its start is then no more than a bound, and its stop the same. What is far in memory is asked for all of
    /// them at once.
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
        let mut laps = [(0, 0); PART];
        let mut left = 0;
        for at in 0..late {
            let j = usize::from(which[at]);
            let (profile, offset_ns) = self.at(first + j);
            let (lap, p) = profile.lap(ends[j] - work_ns + offset_ns);
            let quiet_until = profile.busy.quiet_until(p).min(profile.span_ns);
            if p + work_ns <= quiet_until {
                // nothing is there: how far, is enough to know
                starts[j] = lap * profile.span_ns + quiet_until - offset_ns;
                stops[j] = starts[j];
            } else {
                (which[left], laps[left]) = (which[at], (lap, p));
                left += 1;
            }
        }
        let mut near = [0; PART];
        for (near, (&j, &(_, p))) in near.iter_mut().zip(which[..left].iter().zip(&laps)) {
            *near = self.at(first + usize::from(j)).0.by_start.before(p);
        }
        for (&j, (&lap, &near)) in which[..left].iter().zip(laps.iter().zip(&near)) {
            let j = usize::from(j);
            let (profile, offset_ns) = self.at(first + j);
            (ends[j], (starts[j], stops[j])) = profile.done(lap, near, offset_ns, work_ns);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use crate::cpus::{Cpus, Node};
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
        fn what_is_looked_up_is_what_was_gone_through(
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
