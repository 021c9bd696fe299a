// SPDX-License-Identifier: MIT OR Apache-2.0
//! The noise of traces that waits for regular windows, looked up instead of gone through.
//!
//! In a favored window a CPU has the time that interrupts leave. What threads would have taken there waits. In a
//! regular window the CPU has the time that all noise leaves, except for the first part, which the waiting threads
//! take. Threads' time is counted as it was measured, nanosecond by nanosecond: as nothing is lost, it makes no
//! difference to the job which of the threads that wait runs first.

use std::hint::black_box;
use std::sync::Arc;

use colony_time::Windows;

use crate::kernels::PART;
use crate::layout::Layout;
use crate::node::Node;
use crate::noise::CpuNoise;
use crate::profile::{Entry, Profile, Stretch};
use crate::rng::Key;
use crate::scheduler::Numbered;
use crate::source::{Class, Placement, Source};

/// The noise of one CPU measured.
#[derive(Clone, Debug)]
struct Pair {
    /// Of what never waits.
    interrupts: Profile,
    /// Of threads, too.
    all: Profile,
}

/// The noise of a node under windows, the same for all ranks.
#[derive(Clone, Debug)]
pub(crate) struct Merged {
    windows: Windows,
    pairs: Arc<[Pair]>,
    /// A source of the traces: all are at the same place.
    one: Source,
}

impl Merged {
    /// The noise of `node`; `None` where it is not that of traces measured together, under windows kept exactly.
    pub(crate) fn new(node: &Node) -> Option<Self> {
        let windows = node.scheduler.exact_windows().filter(|w| w.epoch_ns() == 0)?;
        let one = node.sources.first()?;
        let together = |s: &Source| {
            s.group.is_some()
                && s.group == one.group
                && s.phase == one.phase
                && s.placement == Placement::EachCore
        };
        // the class of each source, and its CPUs
        let sources: Vec<(Class, Vec<&CpuNoise>)> = (node.sources.iter())
            .map(|s| Some((s.class, s.noise.trace().filter(|_| together(s))?.cpus().collect())))
            .collect::<Option<_>>()?;
        let spans = |cpus: &[&CpuNoise]| cpus.iter().map(|cpu| cpu.span_ns()).collect::<Vec<_>>();
        let spans_ns = spans(&sources.first()?.1);
        if sources.iter().all(|(class, _)| *class != Class::Task)
            || sources.iter().any(|(_, cpus)| spans(cpus) != spans_ns)
        {
            return None;
        }
        let pair = |(c, &span_ns): (usize, &u64)| {
            let profile = |of: &dyn Fn(Class) -> bool| {
                let cpus = sources.iter().filter(|(class, _)| of(*class)).map(|(_, cpus)| cpus[c]);
                let detours = cpus.flat_map(|cpu| cpu.detours().iter().copied());
                CpuNoise::new(span_ns, detours).ok().map(|noise| Profile::new(&noise))
            };
            Some(Pair { interrupts: profile(&|c| c != Class::Task)?, all: profile(&|_| true)? })
        };
        let pairs = spans_ns.iter().enumerate().map(pair).collect::<Option<Vec<_>>>()?;
        Some(Self { windows, pairs: pairs.into(), one: one.clone() })
    }
}

/// The place of a rank in its trace and in the windows.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Instant of the trace when the node boots.
    offset_ns: u64,
    /// Period of the windows.
    period: u64,
    /// Threads' time that still waits when it ends.
    left_ns: u64,
    /// The instant at which the threads of its regular window have caught up, not before it opens; else its end.
    caught_up_ns: u64,
    pair: u32,
}

/// The noise of a range of ranks.
#[derive(Clone, Debug)]
pub(crate) struct Windowed {
    period_ns: u64,
    favored_ns: u64,
    pairs: Arc<[Pair]>,
    places: Vec<Place>,
}

impl Windowed {
    /// The noise of `ranks`, whose job begins `begin_ns` after boot.
    pub(crate) fn new(
        merged: &Merged,
        layout: Layout,
        ranks: std::ops::Range<u32>,
        seed: Key,
        begin_ns: u64,
    ) -> Option<Self> {
        let source = Numbered::new(merged.one.clone(), 0, seed, layout.ranks_per_node());
        let trace = source.trace()?;
        let (period_ns, favored_ns) = (merged.windows.period_ns(), merged.windows.favored_ns());
        let place = |rank| {
            let stream = source.stream(layout.core(rank))?;
            let pair = trace.profile_number(&stream);
            let offset_ns = stream.replay_from_ns(merged.pairs[pair].all.span_ns());
            // what was left over long before has been caught up with
            let period = (begin_ns / period_ns).saturating_sub(1);
            Some(Place { offset_ns, period, left_ns: 0, caught_up_ns: 0, pair: pair as u32 })
        };
        let places = ranks.map(place).collect::<Option<_>>()?;
        let mut windowed = Self { period_ns, favored_ns, pairs: Arc::clone(&merged.pairs), places };
        for i in 0..windowed.places.len() {
            windowed.enter(i);
        }
        Some(windowed)
    }

    /// Looks up the period that rank number `i` is in now.
    fn enter(&mut self, i: usize) {
        let place = &mut self.places[i];
        let Pair { interrupts, all } = &self.pairs[place.pair as usize];
        let begin = place.period * self.period_ns + place.offset_ns;
        let (opens, end) = (begin + self.favored_ns, begin + self.period_ns);
        let (free_begin, free_opens, free_end) = (all.free_at(begin), all.free_at(opens), all.free_at(end));
        let waited =
            (interrupts.free_at(opens) - interrupts.free_at(begin)).saturating_sub(free_opens - free_begin);
        let waiting = place.left_ns + waited;
        let gaps = free_end - free_opens;
        place.caught_up_ns = if waiting >= gaps {
            end - place.offset_ns
        } else {
            all.when_free(free_opens + waiting).max(opens) - place.offset_ns
        };
        place.left_ns = waiting.saturating_sub(gaps);
    }

    /// Goes on to the period that `at_ns` is in.
    #[inline]
    fn go_to(&mut self, i: usize, at_ns: u64) {
        while (self.places[i].period + 1) * self.period_ns <= at_ns {
            self.places[i].period += 1;
            self.enter(i);
        }
    }

    /// The instant at which rank number `i` has done `work_ns` that may begin at `at_ns`, and its next detour then.
    pub(crate) fn done(&mut self, i: usize, at_ns: u64, work_ns: u64) -> (u64, Stretch) {
        let (mut at_ns, mut left_ns) = (at_ns, work_ns);
        loop {
            self.go_to(i, at_ns);
            let Place { offset_ns, period, caught_up_ns, pair, .. } = self.places[i];
            let Pair { interrupts, all } = &self.pairs[pair as usize];
            let (opens_ns, end_ns) =
                (period * self.period_ns + self.favored_ns, (period + 1) * self.period_ns);
            let stretches = [(interrupts, at_ns, opens_ns), (all, at_ns.max(caught_up_ns), end_ns)];
            for (profile, from_ns, until_ns) in stretches.into_iter().filter(|s| s.1 < s.2) {
                let (done, (next, _)) = profile.done(from_ns + offset_ns, left_ns);
                if done <= until_ns + offset_ns {
                    let next_ns = next.saturating_sub(offset_ns).min(until_ns);
                    return (done - offset_ns, (next_ns, next_ns + 1));
                }
                left_ns -= profile.free_at(until_ns + offset_ns) - profile.free_at(from_ns + offset_ns);
            }
            at_ns = end_ns;
        }
    }

    /// Delays the `ends` of work of `work_ns` of the ranks from number `first` on that are after their `starts`, no
    /// more than a part. The memory of all their look-ups is asked for first.
    pub(crate) fn settle(
        &mut self,
        first: usize,
        ends: &mut [u64],
        starts: &mut [u64],
        stops: &mut [u64],
        work_ns: u64,
    ) {
        let mut entries = [Entry::default(); PART];
        for ((entry, end), place) in entries.iter_mut().zip(&*ends).zip(&self.places[first..]) {
            *entry = self.profile(place, end - work_ns).enter(end - work_ns + place.offset_ns);
        }
        let touched = entries.iter().zip(&*ends).zip(&self.places[first..]);
        black_box(
            touched
                .fold(0, |sum, ((entry, end), place)| sum ^ self.profile(place, end - work_ns).touch(entry)),
        );
        for (j, end) in ends.iter_mut().enumerate() {
            if *end > starts[j] {
                (*end, (starts[j], stops[j])) = self.done(first + j, *end - work_ns, work_ns);
            }
        }
    }

    /// The noise at `at_ns`, about.
    #[inline]
    fn profile(&self, place: &Place, at_ns: u64) -> &Profile {
        let Pair { interrupts, all } = &self.pairs[place.pair as usize];
        if at_ns < place.period * self.period_ns + self.favored_ns { interrupts } else { all }
    }

    /// Until when rank number `i` meets nothing, being at `at_ns`.
    pub(crate) fn next(&mut self, i: usize, at_ns: u64) -> Stretch {
        self.go_to(i, at_ns);
        let Place { offset_ns, period, caught_up_ns, pair, .. } = self.places[i];
        let Pair { interrupts, all } = &self.pairs[pair as usize];
        let opens_ns = period * self.period_ns + self.favored_ns;
        let next_ns = if at_ns < opens_ns {
            interrupts.busy_from(at_ns + offset_ns).saturating_sub(offset_ns).min(opens_ns)
        } else if at_ns < caught_up_ns {
            at_ns
        } else {
            all.busy_from(at_ns + offset_ns).saturating_sub(offset_ns).min((period + 1) * self.period_ns)
        };
        (next_ns, next_ns + 1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::NodeNoise;
    use crate::cpus::Cpus;
    use crate::noise::Detour;
    use crate::replay::tests::Stepped;
    use crate::scheduler::Coordinated;
    use crate::source::Trace;
    use colony_time::DutyCycle;

    const SPAN_NS: u64 = 1000;

    /// Interrupts and threads of a CPU, few enough for threads to catch up in every regular window.
    fn a_cpu() -> impl Strategy<Value = [CpuNoise; 2]> {
        let detour = (0..SPAN_NS - 20, 1..15u64, any::<bool>());
        prop::collection::vec(detour, 0..6).prop_map(|mut all| {
            all.sort_unstable();
            all.dedup_by(|b, a| b.0 <= a.0 + a.1);
            [false, true].map(|task| {
                let of = all.iter().filter(|d| d.2 == task);
                let detours = of.map(|&(start_ns, duration_ns, _)| Detour { start_ns, duration_ns });
                CpuNoise::new(SPAN_NS, detours).expect("time is left")
            })
        })
    }

    proptest! {
        #[test]
        fn a_look_up_gives_the_times_of_the_windows_one_by_one(
            cpus in prop::collection::vec(a_cpu(), 2), seed in any::<u64>(), begin_ns in 1000..5000u64,
            favored_ns in 50..250u64,
            calls in prop::collection::vec((0..4usize, 0..500u64, 1..900u64), 1..40),
        ) {
            let trace = |task: usize| {
                Trace::new(NodeNoise::new(cpus.iter().map(|c| c[task].clone()).collect()).expect("one span"))
            };
            let windows = Windows::new(400, DutyCycle::Ns(favored_ns), 0).expect("possible");
            let node = |[irq, thread]: [Source; 2]| {
                let sources = vec![irq.class(Class::Irq).group(0), thread.class(Class::Task).group(0)];
                Node::new(sources, Coordinated::exact(windows))
            };
            let layout = Layout::new(2, 2).expect("ranks");
            let cpus = |node: &Node| Cpus::new(node, layout, 0..4, Key::new(seed), begin_ns);
            let looked_up = node([Source::new("i", trace(0)), Source::new("t", trace(1))]);
            prop_assert!(Merged::new(&looked_up).is_some());
            let mut looked_up = cpus(&looked_up);
            let mut stepped =
                cpus(&node([Source::new("i", Stepped(trace(0))), Source::new("t", Stepped(trace(1)))]));
            let mut now = [begin_ns + 800; 4];
            for (rank, wait_ns, work_ns) in calls {
                let at = now[rank] + wait_ns;
                now[rank] = looked_up.done(rank, at, work_ns);
                prop_assert_eq!(now[rank], stepped.done(rank, at, work_ns), "{} of {} at {}", work_ns, rank, at);
                prop_assert!(looked_up.starts()[rank] >= now[rank]);
            }
        }
    }
}
