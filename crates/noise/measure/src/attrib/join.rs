// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lays what was on a CPU over the detours its observer saw.

use std::collections::{BTreeMap, HashMap};

use super::spans::Span;
use colony_trace::{Class, Source};

/// A detour as the observer saw it, on the events' clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Begin, `CLOCK_MONOTONIC` nanoseconds.
    pub start_ns: i64,
    /// Length, the smallest loop taken off.
    pub duration_ns: u64,
}

/// The time that one source took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// Its time, with what was nested in it taken out.
    pub stolen_ns: u64,
    /// Detours of which it is the largest part.
    pub detours: u64,
}

/// The detours of one CPU with their causes.
#[derive(Clone, Debug, Default)]
pub struct Attributed {
    /// The largest part of each detour, in the order given.
    pub main: Vec<Source>,
    /// The time that each source took in all.
    pub causes: BTreeMap<Source, Cause>,
    /// The class of every source in `causes`.
    pub classes: BTreeMap<Source, Class>,
    /// Entry and exit of the kernel around the events: part of the causes above, told apart here.
    pub residue_ns: u64,
    /// Detours explained for at least half of their time.
    pub explained: u64,
}

/// The largest difference between the events' clock and the observer's.
const SLACK_NS: i64 = 500;
/// Most time the kernel's entry and exit may take beside each event: interrupt delivery, register
/// saving, mitigations, and the BPF programs themselves (0.1–0.6 µs each). More than that is unexplained.
pub const RESIDUE_NS: u64 = 1_500;

/// One detour's parts while they are put together.
struct Parts {
    by_source: Vec<(Source, u64)>,
    unexplained_ns: u64,
    duration_ns: u64,
}

/// Says what each detour consists of. Both lists are in order of time; `stolen_ns` is what the hypervisor
/// took from this CPU in the whole run: so much of the unexplained time, longest first, is its doing.
#[must_use]
pub fn attribute(detours: &[Seen], spans: &[Span], steal_ns: u64) -> Attributed {
    attribute_with_slack(detours, spans, steal_ns, SLACK_NS)
}

/// As [`attribute`], for detours whose clock differs from that of the events by `slack_ns` at most.
#[must_use]
pub fn attribute_with_slack(detours: &[Seen], spans: &[Span], steal_ns: u64, slack_ns: i64) -> Attributed {
    let mut out = Attributed { classes: classes_of(spans), ..Attributed::default() };
    let mut next = 0;
    let mut all: Vec<Parts> = detours
        .iter()
        .map(|d| {
            let (parts, residue_ns) = parts_of(d, spans, &mut next, slack_ns);
            out.residue_ns += residue_ns;
            parts
        })
        .collect();
    take_steal(&mut all, steal_ns);
    let mut causes: HashMap<Source, Cause> = HashMap::new();
    for parts in all {
        let main = parts.main();
        causes.entry(main.clone()).or_default().detours += 1;
        out.explained +=
            u64::from(2 * parts.unexplained_ns <= parts.duration_ns && main != Source::Unexplained);
        out.main.push(main);
        for (source, ns) in parts.by_source {
            causes.entry(source).or_default().stolen_ns += ns;
        }
        if parts.unexplained_ns > 0 {
            causes.entry(Source::Unexplained).or_default().stolen_ns += parts.unexplained_ns;
        }
    }
    out.causes = causes.into_iter().collect();
    out
}

/// The classes of the sources of `spans`, and of the two that no event names.
fn classes_of(spans: &[Span]) -> BTreeMap<Source, Class> {
    let unseen = [Source::Unexplained, Source::Hypervisor].map(|source| (source, Class::Local));
    let mut classes = BTreeMap::from(unseen);
    for Span { origin, .. } in spans {
        if !classes.contains_key(&origin.source) {
            classes.insert(origin.source.clone(), origin.class);
        }
    }
    classes
}

impl Parts {
    fn add(&mut self, source: &Source, ns: u64) {
        match self.by_source.iter_mut().find(|(s, _)| s == source) {
            Some((_, sum)) => *sum += ns,
            None => self.by_source.push((source.clone(), ns)),
        }
    }

    fn main(&self) -> Source {
        let largest = self.by_source.iter().max_by_key(|(_, ns)| *ns);
        largest.filter(|(_, ns)| *ns >= self.unexplained_ns).map_or(Source::Unexplained, |(s, _)| s.clone())
    }
}

/// The spans of one detour, and the residue around them. `next` is the first span not yet used up.
fn parts_of(detour: &Seen, spans: &[Span], next: &mut usize, slack_ns: i64) -> (Parts, u64) {
    let end_ns = detour.start_ns.saturating_add_unsigned(detour.duration_ns);
    let (from_ns, to_ns) = (detour.start_ns - slack_ns, end_ns + slack_ns);
    while spans.get(*next).is_some_and(|s| s.end_ns <= from_ns) {
        *next += 1;
    }
    let mut parts = Parts { by_source: Vec::new(), unexplained_ns: 0, duration_ns: detour.duration_ns };
    let (mut left_ns, mut count) = (detour.duration_ns, 0);
    while let Some(span) = spans.get(*next).filter(|s| s.start_ns < to_ns) {
        // a fault's end is not told: it counts only in the detour it began in
        let began_before = matches!(span.origin.source, Source::Fault(_)) && span.start_ns < from_ns;
        let ns = (span.end_ns.min(to_ns) - span.start_ns.max(from_ns)).max(0) as u64;
        if ns > 0 && !began_before {
            parts.add(&span.origin.source, ns.min(left_ns));
            left_ns -= ns.min(left_ns);
            count += 1;
        }
        if span.end_ns > to_ns {
            break;
        }
        *next += 1;
    }
    if count == 0 {
        parts.unexplained_ns = left_ns;
        return (parts, 0);
    }
    let residue_ns = left_ns.min(RESIDUE_NS * (count + 1));
    let outermost = parts.by_source.iter().max_by_key(|(_, ns)| *ns).map(|(s, _)| s.clone());
    if let Some(source) = outermost {
        parts.add(&source, residue_ns);
    }
    parts.unexplained_ns = left_ns - residue_ns;
    (parts, residue_ns)
}

/// Gives up to `steal_ns` of the unexplained time to the hypervisor, the longest stretches first.
fn take_steal(all: &mut [Parts], mut steal_ns: u64) {
    let mut order: Vec<usize> = (0..all.len()).filter(|&i| all[i].unexplained_ns > 0).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(all[i].unexplained_ns));
    for i in order {
        let ns = all[i].unexplained_ns.min(steal_ns);
        if ns == 0 {
            return;
        }
        all[i].add(&Source::Hypervisor, ns);
        all[i].unexplained_ns -= ns;
        steal_ns -= ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attrib::event::Origin;
    use proptest::prelude::*;

    fn span(start_ns: i64, end_ns: i64, source: &str) -> Span {
        let source = Source::from(source);
        let origin = Origin { class: source.class(), source };
        Span { start_ns, end_ns, origin, begins: true }
    }

    fn seen(start_ns: i64, duration_ns: u64) -> Seen {
        Seen { start_ns, duration_ns }
    }

    fn stolen(a: &Attributed, source: &str) -> u64 {
        a.causes.get(&source.into()).map_or(0, |c| c.stolen_ns)
    }

    #[test]
    fn a_tick_is_the_timers_with_its_entry_and_exit() {
        let a = attribute(&[seen(10_000, 2_000)], &[span(10_400, 11_700, "irq:local_timer")], 0);
        assert_eq!(a.main, ["irq:local_timer".into()]);
        assert_eq!(stolen(&a, "irq:local_timer"), 2_000);
        assert_eq!((a.residue_ns, a.explained), (700, 1));
    }

    #[test]
    fn time_without_an_event_stays_unexplained() {
        let spans = [span(1_000, 2_000, "irq:local_timer")];
        let a = attribute(&[seen(1_000, 1_000_000), seen(5_000_000, 300)], &spans, 0);
        assert_eq!(a.main, [Source::Unexplained, Source::Unexplained]);
        assert_eq!(stolen(&a, "irq:local_timer"), 1_000 + 2 * RESIDUE_NS);
        assert_eq!(stolen(&a, "unexplained"), 999_000 - 2 * RESIDUE_NS + 300);
        assert_eq!(a.explained, 0);
    }

    #[test]
    fn steal_time_explains_the_longest_first_and_no_more_than_itself() {
        let a = attribute(&[seen(0, 400), seen(1_000_000, 9_000_000)], &[], 8_000_000);
        assert_eq!(a.main, [Source::Unexplained, Source::Hypervisor]);
        assert_eq!(stolen(&a, "hypervisor"), 8_000_000);
        assert_eq!(stolen(&a, "unexplained"), 1_000_400);
    }

    #[test]
    fn a_preemption_is_split_by_source() {
        let spans = [
            span(10, 50_000, "thread:make"),
            span(50_000, 52_000, "softirq:RCU"),
            span(52_000, 90_000, "thread:make"),
        ];
        let a = attribute(&[seen(0, 90_100)], &spans, 0);
        assert_eq!(a.main, ["thread:make".into()]);
        assert_eq!(stolen(&a, "softirq:RCU"), 2_000);
        assert_eq!(stolen(&a, "thread:make"), 88_100);
        let classes =
            ["thread:make", "softirq:RCU", "unexplained", "hypervisor"].map(|s| a.classes[&s.into()]);
        assert_eq!(classes, [Class::Task, Class::Irq, Class::Local, Class::Local]);
    }

    proptest! {
        #[test]
        fn causes_add_up_to_the_stolen_time(
            gaps in prop::collection::vec((1i64..50_000, 1u64..20_000), 0..40),
            pieces in prop::collection::vec((0i64..30_000, 1i64..20_000), 0..60),
            steal_ns in 0u64..200_000,
        ) {
            let mut at = 0;
            let detours: Vec<_> = gaps.iter().map(|&(gap, len)| {
                let d = seen(at + gap, len);
                at += gap + len as i64;
                d
            }).collect();
            at = 0;
            let spans: Vec<_> = pieces.iter().enumerate().map(|(i, &(gap, len))| {
                let s = span(at + gap, at + gap + len, ["irq:a", "thread:b", "fault:page"][i % 3]);
                at += gap + len;
                s
            }).collect();
            let a = attribute(&detours, &spans, steal_ns);
            let total: u64 = detours.iter().map(|d| d.duration_ns).sum();
            prop_assert_eq!(a.causes.values().map(|c| c.stolen_ns).sum::<u64>(), total);
            prop_assert_eq!(a.causes.values().map(|c| c.detours).sum::<u64>(), detours.len() as u64);
            prop_assert!(stolen(&a, "hypervisor") <= steal_ns);
            prop_assert!(a.causes.keys().all(|source| a.classes.contains_key(source)));
            prop_assert!(a.explained <= detours.len() as u64);
        }
    }
}
