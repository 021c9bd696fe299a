// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts the wake-ups of all CPUs together with what ran between the timer and the thread.

use std::collections::BTreeMap;

use super::report::{DelayPart, Distribution, Latencies, LongestWakeup, WakeupCpu, WakeupSource};
use super::sleepers::{Slept, Wakeup};
use crate::attrib::join::{Attributed, Seen, attribute_with_slack};
use crate::attrib::spans::{Span, Wake};
use colony_trace::Source;

/// Longest latencies kept.
const MAX_LONGEST: usize = 10;

/// The wake-ups of all CPUs while they come together.
#[derive(Default)]
pub(super) struct Collected {
    /// True if the kernel's events are there.
    is_attributed: bool,
    cpus: BTreeMap<usize, OfCpu>,
    sources: BTreeMap<Source, OfSource>,
    longest: Vec<LongestWakeup>,
}

/// The wake-ups of one CPU so far.
#[derive(Default)]
struct OfCpu {
    thread: Distribution,
    interrupt: Distribution,
    own: u64,
    last_is_own: bool,
    /// The spans of the last two steps: what ran before a wake-up that ends the measurement.
    recent: [Vec<Span>; 2],
}

/// The part of one source so far.
#[derive(Clone, Copy, Default)]
struct OfSource {
    wakeups: u64,
    time_ns: u64,
    longest_ns: Option<u64>,
}

impl Collected {
    pub(super) fn new(is_attributed: bool) -> Self {
        Self { is_attributed, ..Self::default() }
    }

    /// Adds wake-ups of one CPU, what ran there until the last of them, and the instants at which its thread was made ready to
    /// run. All are in order of time.
    pub(super) fn add(&mut self, cpu: usize, wakeups: &[Wakeup], spans: Vec<Span>, wakes: &[Wake]) {
        let of_cpu = self.cpus.entry(cpu).or_default();
        let main = attribute_wakeups(wakeups, &spans).main;
        let mut counted = Vec::with_capacity(wakeups.len());
        for (&wakeup, main) in wakeups.iter().zip(main) {
            of_cpu.last_is_own = main == Source::Observer;
            if of_cpu.last_is_own {
                of_cpu.own += 1;
                continue;
            }
            counted.push(wakeup);
            let interrupt_ns = interrupt_ns(wakeup, wakes);
            of_cpu.thread.add(wakeup.latency_ns);
            interrupt_ns.into_iter().for_each(|ns| of_cpu.interrupt.add(ns));
            if self.is_attributed {
                let sum = self.sources.entry(main).or_default();
                sum.wakeups += 1;
                sum.longest_ns = sum.longest_ns.max(Some(wakeup.latency_ns));
            }
            let parts = || if self.is_attributed { parts_of(wakeup, &spans) } else { Vec::new() };
            keep_if_long(&mut self.longest, cpu, wakeup, interrupt_ns, parts);
        }
        if self.is_attributed {
            for (source, cause) in attribute_wakeups(&counted, &spans).causes {
                self.sources.entry(source).or_default().time_ns += cause.stolen_ns;
            }
        }
        if !spans.is_empty() {
            of_cpu.recent.swap(0, 1);
            of_cpu.recent[1] = spans;
        }
    }

    /// True if threads of the measuring program took the largest part of the last wake-up of a CPU.
    pub(super) fn is_last_own(&self, cpu: usize) -> bool {
        self.cpus.get(&cpu).is_some_and(|of_cpu| of_cpu.last_is_own)
    }

    /// Spans of a CPU from the last two steps, in order of time.
    pub(super) fn recent_spans(&self, cpu: usize) -> Vec<Span> {
        let recent = self.cpus.get(&cpu).map(|c| c.recent.as_slice()).unwrap_or_default();
        let mut spans: Vec<Span> = recent.concat();
        // a span that reaches beyond a step is in both
        spans.sort_by_key(|s| (s.start_ns, s.end_ns));
        spans.dedup_by(|b, a| a.start_ns == b.start_ns && a.origin == b.origin);
        spans
    }

    /// The report of one CPU.
    pub(super) fn cpu(&self, slept: &Slept) -> WakeupCpu {
        let of_cpu = self.cpus.get(&slept.cpu);
        let thread = of_cpu.and_then(|c| Latencies::of(&c.thread));
        WakeupCpu {
            cpu: slept.cpu,
            observed_s: (slept.end_ns - slept.start_ns) as f64 / 1e9,
            wakeups: thread.map_or(0, |l| l.count),
            missed: slept.missed,
            dropped: slept.dropped,
            measuring_itself: self.is_attributed.then(|| of_cpu.map_or(0, |c| c.own)),
            interrupt: of_cpu.and_then(|c| Latencies::of(&c.interrupt)),
            thread,
            histogram: of_cpu.map(|c| c.thread.pairs()).unwrap_or_default(),
        }
    }

    /// All sources, most time first; none without attribution.
    pub(super) fn sources(&self) -> Vec<WakeupSource> {
        let all_ns: u64 = self.sources.values().map(|sum| sum.time_ns).sum();
        let of = |(source, sum): (&Source, &OfSource)| WakeupSource {
            source: source.clone(),
            wakeups: sum.wakeups,
            time_ns: sum.time_ns,
            share: sum.time_ns as f64 / all_ns.max(1) as f64,
            longest_ns: sum.longest_ns,
        };
        let mut sources: Vec<WakeupSource> = self.sources.iter().map(of).collect();
        sources.sort_by_key(|s| std::cmp::Reverse(s.time_ns));
        sources
    }

    /// The longest latencies, the longest first. `tai_ahead_ns` is TAI less `CLOCK_MONOTONIC`; the measurement began at
    /// `start_ns` of the latter.
    pub(super) fn longest(&self, start_ns: i64, tai_ahead_ns: i64) -> Vec<LongestWakeup> {
        let with_instant = |l: &LongestWakeup| LongestWakeup {
            timer_ns: l.timer_ns + tai_ahead_ns,
            after_ns: u64::try_from(l.timer_ns - start_ns).unwrap_or(0),
            ..l.clone()
        };
        self.longest.iter().map(with_instant).collect()
    }
}

/// The wait of a thread, as a detour is laid over the kernel's events.
pub(super) fn seen_of(wakeup: Wakeup) -> Seen {
    Seen { start_ns: wakeup.timer_ns, duration_ns: wakeup.latency_ns }
}

/// The sources of latencies. Threads and the kernel's events have one clock.
pub(super) fn attribute_wakeups(wakeups: &[Wakeup], spans: &[Span]) -> Attributed {
    let seen: Vec<Seen> = wakeups.iter().map(|w| seen_of(*w)).collect();
    attribute_with_slack(&seen, spans, 0, 0)
}

/// The parts of one latency by source, the longest first.
fn parts_of(wakeup: Wakeup, spans: &[Span]) -> Vec<DelayPart> {
    let causes = attribute_wakeups(&[wakeup], spans).causes;
    let part =
        |(source, cause): (Source, crate::attrib::Cause)| DelayPart { source, duration_ns: cause.stolen_ns };
    let mut parts: Vec<DelayPart> = causes.into_iter().map(part).filter(|p| p.duration_ns > 0).collect();
    parts.sort_by_key(|p| std::cmp::Reverse(p.duration_ns));
    parts
}

/// Keeps a wake-up if it is one of the longest so far.
fn keep_if_long(
    longest: &mut Vec<LongestWakeup>,
    cpu: usize,
    wakeup: Wakeup,
    interrupt_ns: Option<u64>,
    parts: impl FnOnce() -> Vec<DelayPart>,
) {
    let Wakeup { timer_ns, latency_ns } = wakeup;
    let place = longest.partition_point(|l| l.latency_ns >= latency_ns);
    if place < MAX_LONGEST {
        let parts = parts();
        longest.insert(place, LongestWakeup { cpu, timer_ns, after_ns: 0, latency_ns, interrupt_ns, parts });
        longest.truncate(MAX_LONGEST);
    }
}

/// Time from the instant of the timer to the begin of the interrupt that made the thread ready to run; 0 if that interrupt was
/// already at work, for an earlier timer. `None` if no event shows it.
fn interrupt_ns(wakeup: Wakeup, wakes: &[Wake]) -> Option<u64> {
    let end_ns = wakeup.timer_ns.saturating_add_unsigned(wakeup.latency_ns);
    let first = wakes.partition_point(|w| w.at_ns < wakeup.timer_ns);
    let wake = wakes.get(first).filter(|w| w.at_ns <= end_ns)?;
    Some((wake.interrupt_ns? - wakeup.timer_ns).max(0).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attrib::event::Origin;

    fn span(start_ns: i64, end_ns: i64, source: &str) -> Span {
        let source = Source::from(source);
        Span { start_ns, end_ns, origin: Origin { class: source.class(), source }, begins: true }
    }

    fn wakeup(timer_ns: i64, latency_ns: u64) -> Wakeup {
        Wakeup { timer_ns, latency_ns }
    }

    fn wake(at_ns: i64, interrupt_ns: i64) -> Wake {
        Wake { at_ns, interrupt_ns: Some(interrupt_ns) }
    }

    /// An idle CPU: its thread is woken at 1 ms, and once more behind a daemon at 2 ms.
    fn collected() -> Collected {
        let mut c = Collected::new(true);
        let first = vec![
            span(100_000, 1_040_000, "idle:C6"),
            span(1_040_000, 1_043_000, "irq:local_timer"),
            span(1_043_000, 1_050_000, "idle"),
        ];
        c.add(1, &[wakeup(1_000_000, 50_000)], first, &[wake(1_041_000, 1_040_000)]);
        let second = vec![
            span(1_990_000, 2_001_000, "thread:daemon"),
            span(2_001_000, 2_003_000, "irq:local_timer"),
            span(2_003_000, 2_203_000, "thread:daemon"),
        ];
        c.add(1, &[wakeup(2_000_000, 203_000)], second, &[wake(2_002_000, 2_001_000)]);
        c
    }

    fn slept() -> Slept {
        Slept { cpu: 1, start_ns: 0, end_ns: 3_000_000, missed: 0, dropped: 0, over_limit: None }
    }

    #[test]
    fn a_latency_consists_of_what_ran_between_the_timer_and_the_thread() {
        let c = collected();
        let sources = c.sources();
        let told: Vec<(String, u64, u64, Option<u64>)> =
            sources.iter().map(|s| (s.source.to_string(), s.wakeups, s.time_ns, s.longest_ns)).collect();
        let expected = [
            ("thread:daemon".to_owned(), 1, 201_000, Some(203_000)),
            ("idle:C6".to_owned(), 1, 40_000, Some(50_000)),
            ("idle".to_owned(), 0, 7_000, None),
            ("irq:local_timer".to_owned(), 0, 5_000, None),
        ];
        assert_eq!(told, expected);
        assert!((sources.iter().map(|s| s.share).sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_latency_to_the_interrupt_is_told_from_that_to_the_thread() {
        let cpu = collected().cpu(&slept());
        let (interrupt, thread) = (cpu.interrupt.expect("two"), cpu.thread.expect("two"));
        assert_eq!((interrupt.min_ns, interrupt.max_ns), (1_000, 40_000));
        assert_eq!((thread.count, thread.max_ns), (2, 203_000));
        assert_eq!(cpu.histogram.iter().map(|(_, n)| n).sum::<u64>(), 2);
        // the interrupt was at work at the instant: one that comes later in the wait is another timer's
        let wakes = [wake(500, 400), wake(1_005, 900), wake(9_000, 8_900)];
        assert_eq!(interrupt_ns(wakeup(1_000, 7_000), &wakes), Some(0));
        assert_eq!(interrupt_ns(wakeup(1_500, 7_000), &wakes), None);
    }

    #[test]
    fn the_longest_latencies_come_first_with_their_parts() {
        let longest = collected().longest(500_000, 7);
        assert_eq!(longest.iter().map(|l| l.latency_ns).collect::<Vec<_>>(), [203_000, 50_000]);
        assert_eq!((longest[0].timer_ns, longest[0].after_ns), (2_000_007, 1_500_000));
        assert_eq!(longest[0].parts[0], DelayPart { source: "thread:daemon".into(), duration_ns: 201_000 });
        let mut many = Collected::new(false);
        let all: Vec<Wakeup> = (1..100).map(|n| wakeup(n * 1_000_000, n.unsigned_abs())).collect();
        many.add(0, &all, Vec::new(), &[]);
        let lengths: Vec<u64> = many.longest(0, 0).iter().map(|l| l.latency_ns).collect();
        assert_eq!(lengths, (90..100).rev().collect::<Vec<u64>>());
        assert!(many.sources().is_empty());
    }

    #[test]
    fn a_wakeup_that_the_measurement_itself_delayed_most_is_in_no_figure() {
        let mut c = Collected::new(true);
        c.add(1, &[wakeup(1_000, 9_000)], vec![span(900, 9_900, "observer")], &[]);
        assert!(c.is_last_own(1));
        let cpu = c.cpu(&slept());
        assert_eq!((cpu.wakeups, cpu.measuring_itself), (0, Some(1)));
        assert!(cpu.thread.is_none() && c.sources().is_empty() && c.longest(0, 0).is_empty());
        // a smaller part stays with the latency, so that all parts are the latency
        let spans = vec![span(20_000, 23_000, "observer"), span(23_000, 29_000, "thread:cc")];
        c.add(1, &[wakeup(20_000, 9_000)], spans, &[]);
        assert!(!c.is_last_own(1));
        let times: Vec<u64> = c.sources().iter().map(|s| s.time_ns).collect();
        assert_eq!(times, [6_000, 3_000]);
    }

    #[test]
    fn what_ran_before_the_last_wakeup_is_kept_for_its_report() {
        let spans = collected().recent_spans(1);
        assert_eq!(spans.len(), 6);
        assert!(spans.is_sorted_by_key(|s| s.start_ns));
    }
}
