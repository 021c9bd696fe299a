// SPDX-License-Identifier: MIT OR Apache-2.0
//! Noise under a time line: which detours hit an interval of a PE.
//!
//! A noise trace and a time line have one clock, TAI. A PE knows the CPU that it ran on, so an execution and a detour meet if they are of
//! one host and one CPU, and their intervals overlap.

use std::collections::{BTreeMap, HashMap};

/// The detours of one CPU.
#[derive(Clone, Debug, Default)]
struct Lane {
    /// By begin.
    detours: Vec<Detour>,
    /// For each detour the latest end of it and all before it: ascending, so that it can be searched.
    latest_end: Vec<i64>,
}

/// A detour of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detour {
    /// Begin, TAI nanoseconds.
    pub begin_ns: i64,
    /// End, TAI nanoseconds.
    pub end_ns: i64,
    /// Its source, an index into [`Noise::sources`].
    pub source: u16,
}

/// The observation of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Begin, TAI nanoseconds.
    pub begin_ns: i64,
    /// End, TAI nanoseconds.
    pub end_ns: i64,
}

/// Noise of the hosts of a run.
#[derive(Clone, Debug, Default)]
pub struct Noise {
    sources: Vec<String>,
    indexes: HashMap<String, u16>,
    lanes: BTreeMap<(String, u16), Lane>,
    observed: BTreeMap<String, Observed>,
}

impl Noise {
    /// Adds the observation of a host: detours as CPU, begin and end (TAI nanoseconds) and name of the source. A host that is
    /// added twice has the detours of both.
    pub fn add<'a>(
        &mut self,
        host: &str,
        observed: Observed,
        detours: impl IntoIterator<Item = (u16, i64, i64, &'a str)>,
    ) {
        let all = self.observed.entry(host.to_owned()).or_insert(observed);
        all.begin_ns = all.begin_ns.min(observed.begin_ns);
        all.end_ns = all.end_ns.max(observed.end_ns);
        for (cpu, begin_ns, end_ns, source) in detours {
            let source = self.source(source);
            let lane = self.lanes.entry((host.to_owned(), cpu)).or_default();
            lane.detours.push(Detour { begin_ns, end_ns: end_ns.max(begin_ns), source });
        }
        for lane in self.lanes.iter_mut().filter(|((h, _), _)| h == host).map(|(_, lane)| lane) {
            lane.detours.sort_by_key(|d| (d.begin_ns, d.end_ns));
            let mut latest = i64::MIN;
            let ends = lane.detours.iter().map(|d| {
                latest = latest.max(d.end_ns);
                latest
            });
            lane.latest_end = ends.collect();
        }
    }

    /// The number of a source; the last number is shared by all that have none left.
    fn source(&mut self, name: &str) -> u16 {
        if let Some(&index) = self.indexes.get(name) {
            return index;
        }
        let index = self.sources.len().min(usize::from(u16::MAX)) as u16;
        if usize::from(index) == self.sources.len() {
            self.sources.push(name.to_owned());
        }
        self.indexes.insert(name.to_owned(), index);
        index
    }

    /// Names of the sources.
    #[must_use]
    pub fn sources(&self) -> &[String] {
        &self.sources
    }

    /// The hosts that were observed, and when.
    #[must_use]
    pub fn observed(&self) -> &BTreeMap<String, Observed> {
        &self.observed
    }

    /// The CPUs of a host that have detours.
    pub fn cpus(&self, host: &str) -> impl Iterator<Item = u16> {
        let lanes = self.lanes.range((host.to_owned(), 0)..=(host.to_owned(), u16::MAX));
        lanes.map(|((_, cpu), _)| *cpu)
    }

    /// The detours of a CPU that share time with the interval from `begin_ns` to `end_ns`, by begin. They may reach over its ends.
    pub fn hits(&self, host: &str, cpu: u16, begin_ns: i64, end_ns: i64) -> impl Iterator<Item = Detour> {
        let lane = self.lanes.get(&(host.to_owned(), cpu));
        let detours = lane.map_or(&[][..], |lane| {
            let first = lane.latest_end.partition_point(|&end| end <= begin_ns);
            lane.detours.get(first..).unwrap_or(&[])
        });
        let until = detours.iter().take_while(move |d| d.begin_ns < end_ns);
        until.filter(move |d| d.end_ns > begin_ns).copied()
    }
}

/// Detours inside an interval: the time they took from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stolen {
    /// Time taken by all of them, nanoseconds; time that two detours share counts once.
    pub all_ns: u64,
    /// Detours.
    pub detours: u64,
    /// Time by source, nanoseconds; the sum is `all_ns`. Time that two detours share belongs to the earlier one.
    pub by_source: Vec<(u16, u64)>,
}

impl Stolen {
    /// The time that these detours (by begin) took from the interval.
    #[must_use]
    pub fn of(hits: impl Iterator<Item = Detour>, begin_ns: i64, end_ns: i64) -> Self {
        let mut stolen = Self::default();
        let mut at = begin_ns;
        for d in hits {
            stolen.detours += 1;
            let ns = d.end_ns.min(end_ns).saturating_sub(d.begin_ns.max(at)).max(0) as u64;
            at = at.max(d.end_ns.min(end_ns));
            stolen.all_ns += ns;
            match stolen.by_source.iter_mut().find(|(source, _)| *source == d.source) {
                Some((_, sum)) => *sum += ns,
                None => stolen.by_source.push((d.source, ns)),
            }
        }
        stolen.by_source.sort_by_key(|&(source, ns)| (std::cmp::Reverse(ns), source));
        stolen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALWAYS: Observed = Observed { begin_ns: 0, end_ns: 1000 };

    #[test]
    fn a_detour_hits_what_runs_on_its_cpu_meanwhile() {
        let mut noise = Noise::default();
        noise.add("a", ALWAYS, [(0, 10, 20, "irq:timer"), (1, 10, 20, "nmi"), (0, 50, 90, "thread:kworker")]);
        noise.add("b", ALWAYS, [(0, 15, 16, "nmi")]);
        let found = |host, cpu, from, to| -> Vec<i64> {
            noise.hits(host, cpu, from, to).map(|d| d.begin_ns).collect()
        };
        assert_eq!(found("a", 0, 0, 100), [10, 50]);
        assert_eq!(found("a", 0, 19, 51), [10, 50]);
        assert!(found("a", 0, 20, 50).is_empty());
        assert_eq!(found("a", 1, 0, 15), [10]);
        assert_eq!(found("b", 0, 0, 100), [15]);
        assert!(found("c", 0, 0, 100).is_empty());
        assert_eq!(noise.sources(), ["irq:timer", "nmi", "thread:kworker"]);
        assert_eq!(noise.cpus("a").collect::<Vec<_>>(), [0, 1]);
        let stolen = Stolen::of(noise.hits("a", 0, 15, 60), 15, 60);
        assert_eq!(stolen, Stolen { all_ns: 15, detours: 2, by_source: vec![(2, 10), (0, 5)] });
    }

    proptest! {
        #[test]
        fn the_search_finds_what_a_walk_finds(
            rows in prop::collection::vec((0i64..1000, 0i64..300, 0u16..3), 0..60), from in 0i64..1000, length in 0i64..200,
        ) {
            let names = ["a", "b", "c"];
            let mut noise = Noise::default();
            noise.add("h", ALWAYS, rows.iter().map(|&(at, n, s)| (0, at, at + n, names[usize::from(s)])));
            let to = from + length;
            let mut walked: Vec<_> = rows.iter().filter(|r| r.0 < to && r.0 + r.1 > from).map(|r| (r.0, r.0 + r.1)).collect();
            walked.sort_unstable();
            let found: Vec<_> = noise.hits("h", 0, from, to).map(|d| (d.begin_ns, d.end_ns)).collect();
            prop_assert_eq!(&found, &walked);
            let stolen = Stolen::of(noise.hits("h", 0, from, to), from, to);
            let covered = (from..to).filter(|t| walked.iter().any(|w| w.0 <= *t && *t < w.1)).count() as u64;
            prop_assert_eq!(stolen.all_ns, covered);
            prop_assert_eq!(stolen.by_source.iter().map(|s| s.1).sum::<u64>(), covered);
        }
    }
}
