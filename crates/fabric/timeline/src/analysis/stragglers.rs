// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stragglers: executions that took much longer than is usual for their entry method, and the detours that hit them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use serde::Serialize;

use crate::analysis::entries::quantile;
use crate::noise::{Noise, Stolen};
use crate::record::{Event, NO_CPU, Timed};
use crate::timeline::{Timeline, Track};

/// An execution that took longer than is usual.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Straggler {
    /// The PE.
    pub pe: u32,
    /// Name of its host.
    pub host: String,
    /// The CPU it ran on; `None` if unknown.
    pub cpu: Option<u16>,
    /// The entry method.
    pub entry: String,
    /// Begin, TAI nanoseconds.
    pub begin_ns: i64,
    /// Length, nanoseconds.
    pub duration_ns: u64,
    /// Median length of this entry method in the run, nanoseconds.
    pub median_ns: u64,
    /// Length beyond the median, nanoseconds.
    pub excess_ns: u64,
    /// Time that detours took from it, nanoseconds; `None` if its CPU was not observed meanwhile.
    pub stolen_ns: Option<u64>,
    /// Detours that hit it.
    pub detours: u64,
    /// Time that each source took, the largest first.
    pub sources: Vec<SourceTime>,
}

/// Time of a source of noise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceTime {
    /// Name of the source.
    pub source: String,
    /// Nanoseconds.
    pub ns: u64,
}

/// The time that noise took from all executions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NoiseTotals {
    /// Executions whose CPU was observed all the time.
    pub observed: u64,
    /// Of these, executions that a detour hit.
    pub hit: u64,
    /// Time that detours took from them, nanoseconds.
    pub stolen_ns: u64,
    /// Time that each source took from executions, the largest first.
    pub sources: Vec<SourceTime>,
}

/// The stragglers of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stragglers {
    /// The executions with the largest excess, the largest first.
    pub list: Vec<Straggler>,
    /// Executions of the run.
    pub executions: u64,
    /// Time that noise took from executions; `None` without a noise trace.
    pub noise: Option<NoiseTotals>,
}

/// An execution of the run.
#[derive(Clone, Copy, Debug)]
pub struct Execution<'a> {
    /// Its track.
    pub track: &'a Track,
    /// Name of its host.
    pub host: &'a str,
    /// The event.
    pub timed: Timed,
    /// The entry method.
    pub entry: u16,
}

impl Execution<'_> {
    /// The detours that hit the execution; `None` if its CPU is unknown, or its host was not observed from begin to end.
    #[must_use]
    pub fn stolen(&self, noise: &Noise) -> Option<Stolen> {
        let (begin, end) = (self.timed.begin_ns, self.timed.end_ns());
        let observed = noise.observed().get(self.host)?;
        if self.timed.cpu == NO_CPU || begin < observed.begin_ns || end > observed.end_ns {
            return None;
        }
        Some(Stolen::of(noise.hits(self.host, self.timed.cpu, begin, end), begin, end))
    }
}

/// The executions of a run, by PE and begin.
pub fn executions(timeline: &Timeline) -> impl Iterator<Item = Execution<'_>> {
    timeline.tracks().iter().flat_map(move |track| {
        let host = timeline.process(track.process).map_or("", |p| p.host.as_str());
        track.events().filter_map(move |timed| match timed.event {
            Event::Executed { entry, .. } => Some(Execution { track, host, timed, entry }),
            _ => None,
        })
    })
}

impl Stragglers {
    /// The `most` stragglers of a run, with the detours that hit them.
    #[must_use]
    pub fn of(timeline: &Timeline, noise: Option<&Noise>, most: usize) -> Self {
        let medians = medians(timeline);
        let mut worst: BinaryHeap<Reverse<(u64, Reverse<usize>)>> = BinaryHeap::new();
        let mut count = 0;
        let mut totals = noise.map(|_| Totals::default());
        for (number, e) in executions(timeline).enumerate() {
            count += 1;
            let excess = e.timed.duration_ns.saturating_sub(medians.get(&e.entry).copied().unwrap_or(0));
            if excess > 0 {
                worst.push(Reverse((excess, Reverse(number))));
                if worst.len() > most {
                    worst.pop();
                }
            }
            if let Some((totals, noise)) = totals.as_mut().zip(noise) {
                totals.add(e.stolen(noise));
            }
        }
        let chosen: BTreeMap<usize, u64> =
            worst.into_iter().map(|Reverse((ns, Reverse(n)))| (n, ns)).collect();
        let mut list: Vec<Straggler> = executions(timeline)
            .enumerate()
            .filter_map(|(n, e)| Some((chosen.get(&n)?, e)))
            .map(|(&excess_ns, e)| straggler(timeline, noise, &e, excess_ns))
            .collect();
        list.sort_by_key(|s| (Reverse(s.excess_ns), s.begin_ns, s.pe));
        Self { list, executions: count, noise: totals.zip(noise).map(|(t, noise)| t.finish(noise)) }
    }
}

/// The median length of each entry method.
fn medians(timeline: &Timeline) -> BTreeMap<u16, u64> {
    let mut lengths: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    for e in executions(timeline) {
        lengths.entry(e.entry).or_default().push(e.timed.duration_ns);
    }
    let median = |(entry, mut all): (u16, Vec<u64>)| {
        all.sort_unstable();
        (entry, quantile(&all, 0.5))
    };
    lengths.into_iter().map(median).collect()
}

fn straggler(timeline: &Timeline, noise: Option<&Noise>, e: &Execution<'_>, excess_ns: u64) -> Straggler {
    let stolen = noise.and_then(|noise| e.stolen(noise));
    let sources = stolen.as_ref().zip(noise).map(|(s, noise)| named(noise, s.by_source.iter().copied()));
    Straggler {
        pe: e.track.pe,
        host: e.host.to_owned(),
        cpu: Some(e.timed.cpu).filter(|&cpu| cpu != NO_CPU),
        entry: timeline.names().of_entry(e.entry),
        begin_ns: e.timed.begin_ns,
        duration_ns: e.timed.duration_ns,
        median_ns: e.timed.duration_ns - excess_ns,
        excess_ns,
        stolen_ns: stolen.as_ref().map(|s| s.all_ns),
        detours: stolen.as_ref().map_or(0, |s| s.detours),
        sources: sources.unwrap_or_default(),
    }
}

fn named(noise: &Noise, times: impl Iterator<Item = (u16, u64)>) -> Vec<SourceTime> {
    let name = |source: u16| noise.sources().get(usize::from(source)).cloned().unwrap_or_default();
    times.map(|(source, ns)| SourceTime { source: name(source), ns }).collect()
}

#[derive(Default)]
struct Totals {
    observed: u64,
    hit: u64,
    stolen_ns: u64,
    by_source: BTreeMap<u16, u64>,
}

impl Totals {
    fn add(&mut self, stolen: Option<Stolen>) {
        let Some(stolen) = stolen else { return };
        self.observed += 1;
        self.hit += u64::from(stolen.detours > 0);
        self.stolen_ns = self.stolen_ns.saturating_add(stolen.all_ns);
        for (source, ns) in stolen.by_source {
            *self.by_source.entry(source).or_default() += ns;
        }
    }

    fn finish(self, noise: &Noise) -> NoiseTotals {
        let mut times: Vec<(u16, u64)> = self.by_source.into_iter().collect();
        times.sort_by_key(|&(source, ns)| (Reverse(ns), source));
        let sources = named(noise, times.into_iter());
        NoiseTotals { observed: self.observed, hit: self.hit, stolen_ns: self.stolen_ns, sources }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise::Observed;
    use crate::record::MessageId;
    use crate::synthetic::{any_timeline, executed, of, track};
    use proptest::prelude::*;

    /// Ten executions of 100 ns each on two PEs; the last of PE 1 takes 5 µs, of which a worker took 4.
    fn run() -> (Timeline, Noise) {
        let e = executed(2, MessageId::NONE);
        let at = |n: i64| (n * 1000, n * 1000 + 100, e);
        let even: Vec<_> = (0..10).map(at).collect();
        let odd: Vec<_> = (0..9).map(at).chain([(9000, 14_000, e)]).collect();
        let t = of(vec![track(0, 0, 20_000, &even), track(1, 0, 20_000, &odd)]);
        let mut noise = Noise::default();
        let rows =
            [(1, 9500, 13_500, "thread:backup"), (0, 9500, 13_500, "nmi"), (1, 3050, 3060, "irq:timer")];
        noise.add("node0", Observed { begin_ns: 0, end_ns: 20_000 }, rows);
        (t, noise)
    }

    #[test]
    fn a_straggler_is_listed_with_the_detour_that_hit_it() {
        let (t, noise) = run();
        let s = Stragglers::of(&t, Some(&noise), 5);
        assert_eq!((s.executions, s.list.len()), (20, 1), "{s:?}");
        let worst = &s.list[0];
        assert_eq!((worst.pe, worst.cpu, worst.entry.as_str()), (1, Some(1), "Block::step"));
        assert_eq!((worst.duration_ns, worst.median_ns, worst.excess_ns), (5000, 100, 4900));
        assert_eq!((worst.stolen_ns, worst.detours), (Some(4000), 1));
        assert_eq!(worst.sources, [SourceTime { source: "thread:backup".into(), ns: 4000 }]);
        let noise = s.noise.expect("observed");
        assert_eq!((noise.observed, noise.hit, noise.stolen_ns), (20, 2, 4010));
        assert_eq!(noise.sources[1], SourceTime { source: "irq:timer".into(), ns: 10 });
    }

    #[test]
    fn what_was_not_observed_is_not_called_free_of_noise() {
        let (t, _) = run();
        let mut late = Noise::default();
        late.add("node0", Observed { begin_ns: 9001, end_ns: 20_000 }, [(1, 9500, 13_500, "nmi")]);
        let s = Stragglers::of(&t, Some(&late), 5);
        assert_eq!(s.list[0].stolen_ns, None);
        assert_eq!(s.noise.expect("a trace").observed, 0);
        assert_eq!(Stragglers::of(&t, None, 5).noise, None);
    }

    proptest! {
        #[test]
        fn the_list_has_the_largest_excesses(t in any_timeline(), most in 0usize..8) {
            let all = Stragglers::of(&t, None, usize::MAX);
            let some = Stragglers::of(&t, None, most);
            prop_assert!(all.list.iter().all(|s| s.excess_ns > 0 && s.duration_ns == s.median_ns + s.excess_ns));
            prop_assert_eq!(some.list.len(), most.min(all.list.len()));
            let excesses = |s: &Stragglers| s.list.iter().map(|s| s.excess_ns).collect::<Vec<_>>();
            prop_assert_eq!(&excesses(&some)[..], &excesses(&all)[..some.list.len()]);
        }
    }
}
