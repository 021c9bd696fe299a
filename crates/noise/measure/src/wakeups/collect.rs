// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts the wake-ups of all CPUs together with what ran between the timer and the thread.

use std::collections::BTreeMap;

use colony_trace::Source;
use hdrhistogram::Histogram;

use super::report::{DelayPart, Latencies, LongestWakeup, WakeupCpu, WakeupSource};
use super::sleepers::{Slept, Wakeup};
use crate::attrib::join::{Attributed, Seen, attribute_with_slack};
use crate::attrib::spans::Span;
use crate::selfish::recorder;

/// Longest latencies kept.
const MAX_LONGEST: usize = 10;

/// The wake-ups of all CPUs while they come together.
pub(super) struct Collected {
    /// True if the kernel's events are there.
    is_attributed: bool,
    /// True if the kernel has an event of its own for the interrupt of a CPU's timer; else any interrupt may be the timer's.
    names_timer: bool,
    cpus: BTreeMap<usize, OfCpu>,
    sources: BTreeMap<Source, OfSource>,
    longest: Vec<LongestWakeup>,
}

/// The wake-ups of one CPU so far.
struct OfCpu {
    thread: Histogram<u64>,
    interrupt: Histogram<u64>,
    own: u64,
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
    pub(super) fn new(is_attributed: bool, names_timer: bool) -> Self {
        let (cpus, sources) = (BTreeMap::new(), BTreeMap::new());
        Self { is_attributed, names_timer, cpus, sources, longest: Vec::new() }
    }

    /// Adds wake-ups of one CPU, and what ran there until the last of them. Both are in order of time.
    pub(super) fn add(&mut self, cpu: usize, wakeups: &[Wakeup], spans: Vec<Span>) {
        let of_cpu = self.cpus.entry(cpu).or_insert_with(|| OfCpu {
            thread: recorder::histogram(),
            interrupt: recorder::histogram(),
            own: 0,
            recent: [Vec::new(), Vec::new()],
        });
        let attributed = attribute_wakeups(wakeups, &spans);
        for (wakeup, main) in wakeups.iter().zip(&attributed.main) {
            if *main == Source::Observer {
                of_cpu.own += 1;
                continue;
            }
            let interrupt_ns = interrupt_ns(*wakeup, &spans, self.names_timer);
            of_cpu.thread.saturating_record(wakeup.latency_ns);
            interrupt_ns.into_iter().for_each(|ns| of_cpu.interrupt.saturating_record(ns));
            if self.is_attributed {
                let sum = self.sources.entry(main.clone()).or_default();
                sum.wakeups += 1;
                sum.longest_ns = sum.longest_ns.max(Some(wakeup.latency_ns));
            }
            if self.longest.len() < MAX_LONGEST
                || self.longest.last().is_some_and(|l| l.latency_ns < wakeup.latency_ns)
            {
                let parts = if self.is_attributed { parts_of(*wakeup, &spans) } else { Vec::new() };
                let longest = LongestWakeup {
                    cpu,
                    timer_ns: wakeup.timer_ns,
                    after_ns: 0,
                    latency_ns: wakeup.latency_ns,
                    interrupt_ns,
                    parts,
                };
                let place = self.longest.partition_point(|l| l.latency_ns >= wakeup.latency_ns);
                self.longest.insert(place, longest);
                self.longest.truncate(MAX_LONGEST);
            }
        }
        if self.is_attributed {
            for (source, cause) in attributed.causes {
                self.sources.entry(source).or_default().time_ns += cause.stolen_ns;
            }
        }
        if !spans.is_empty() {
            of_cpu.recent.swap(0, 1);
            of_cpu.recent[1] = spans;
        }
    }

    /// What ran on a CPU in the last two steps, in order of time.
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
        let thread = of_cpu.map(|c| &c.thread);
        let pairs = |h: &Histogram<u64>| {
            h.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect()
        };
        WakeupCpu {
            cpu: slept.cpu,
            observed_s: (slept.end_ns - slept.start_ns) as f64 / 1e9,
            wakeups: thread.map_or(0, Histogram::len),
            missed: slept.missed,
            dropped: slept.dropped,
            measuring_itself: self.is_attributed.then(|| of_cpu.map_or(0, |c| c.own)),
            interrupt: of_cpu.and_then(|c| Latencies::of(&c.interrupt)),
            thread: thread.and_then(Latencies::of),
            histogram: thread.map(pairs).unwrap_or_default(),
        }
    }

    /// All sources, most time first, without the measurement's own threads; none without attribution.
    pub(super) fn sources(&self) -> Vec<WakeupSource> {
        let others = || self.sources.iter().filter(|(source, _)| **source != Source::Observer);
        let all_ns: u64 = others().map(|(_, sum)| sum.time_ns).sum();
        let of = |(source, sum): (&Source, &OfSource)| WakeupSource {
            source: source.clone(),
            wakeups: sum.wakeups,
            time_ns: sum.time_ns,
            share: sum.time_ns as f64 / all_ns.max(1) as f64,
            longest_ns: sum.longest_ns,
        };
        let mut sources: Vec<WakeupSource> = others().map(of).collect();
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

/// What one latency consists of, the longest part first.
fn parts_of(wakeup: Wakeup, spans: &[Span]) -> Vec<DelayPart> {
    let causes = attribute_wakeups(&[wakeup], spans).causes;
    let part =
        |(source, cause): (Source, crate::attrib::Cause)| DelayPart { source, duration_ns: cause.stolen_ns };
    let mut parts: Vec<DelayPart> = causes.into_iter().map(part).filter(|p| p.duration_ns > 0).collect();
    parts.sort_by_key(|p| std::cmp::Reverse(p.duration_ns));
    parts
}

/// Time from the instant of the timer to its interrupt. `None` if none was seen. It is 0 if the interrupt was already at work at that
/// instant, for an earlier timer.
fn interrupt_ns(wakeup: Wakeup, spans: &[Span], names_timer: bool) -> Option<u64> {
    let end_ns = wakeup.timer_ns.saturating_add_unsigned(wakeup.latency_ns);
    let first = spans.partition_point(|s| s.end_ns <= wakeup.timer_ns);
    let is_timer = |s: &&Span| match &s.origin.source {
        Source::Irq(name) => !names_timer || name == "local_timer",
        _ => false,
    };
    let in_wait = spans[first..].iter().take_while(|s| s.start_ns <= end_ns).filter(is_timer);
    let begun = in_wait.clone().find(|s| s.begins && s.start_ns >= wakeup.timer_ns);
    let at_work = || in_wait.clone().find(|s| s.start_ns < wakeup.timer_ns);
    let start_ns = begun.or_else(at_work)?.start_ns;
    Some((start_ns - wakeup.timer_ns).max(0).cast_unsigned())
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

    /// An idle CPU: its thread is woken at 1 ms, and once more behind a daemon at 2 ms.
    fn collected() -> Collected {
        let mut c = Collected::new(true, true);
        let first = vec![
            span(100_000, 1_040_000, "idle:C6"),
            span(1_040_000, 1_043_000, "irq:local_timer"),
            span(1_043_000, 1_050_000, "idle"),
        ];
        c.add(1, &[wakeup(1_000_000, 50_000)], first);
        let second = vec![
            span(1_990_000, 2_001_000, "thread:daemon"),
            span(2_001_000, 2_003_000, "irq:local_timer"),
            span(2_003_000, 2_203_000, "thread:daemon"),
        ];
        c.add(1, &[wakeup(2_000_000, 203_000)], second);
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
        assert_eq!((interrupt.min_ns / 100, interrupt.max_ns / 100), (10, 400));
        assert_eq!((thread.count, thread.max_ns / 1000), (2, 203));
        assert_eq!(cpu.histogram.iter().map(|(_, n)| n).sum::<u64>(), 2);
        let other = span(1_005, 1_008, "irq:virtio0");
        assert_eq!(interrupt_ns(wakeup(1_000, 20), &[other], true), None);
        let other = span(1_005, 1_008, "irq:virtio0");
        assert_eq!(interrupt_ns(wakeup(1_000, 20), &[other], false), Some(5));
        let at_work = span(100, 1_008, "irq:local_timer");
        assert_eq!(interrupt_ns(wakeup(1_000, 20), &[at_work], true), Some(0));
    }

    #[test]
    fn the_longest_latencies_come_first_with_their_parts() {
        let longest = collected().longest(500_000, 7);
        assert_eq!(longest.iter().map(|l| l.latency_ns).collect::<Vec<_>>(), [203_000, 50_000]);
        assert_eq!((longest[0].timer_ns, longest[0].after_ns), (2_000_007, 1_500_000));
        assert_eq!(longest[0].parts[0], DelayPart { source: "thread:daemon".into(), duration_ns: 201_000 });
        let mut many = Collected::new(false, true);
        let all: Vec<Wakeup> = (1..100).map(|n| wakeup(n * 1_000_000, n.unsigned_abs())).collect();
        many.add(0, &all, Vec::new());
        let lengths: Vec<u64> = many.longest(0, 0).iter().map(|l| l.latency_ns).collect();
        assert_eq!(lengths, (90..100).rev().collect::<Vec<u64>>());
        assert!(many.sources().is_empty());
    }

    #[test]
    fn a_wakeup_that_the_measurement_itself_delayed_is_in_no_latency() {
        let mut c = Collected::new(true, true);
        c.add(1, &[wakeup(1_000, 9_000)], vec![span(900, 9_900, "observer")]);
        let cpu = c.cpu(&slept());
        assert_eq!((cpu.wakeups, cpu.measuring_itself), (0, Some(1)));
        assert!(cpu.thread.is_none() && c.sources().is_empty() && c.longest(0, 0).is_empty());
    }

    #[test]
    fn what_ran_before_the_last_wakeup_is_kept_for_its_report() {
        let spans = collected().recent_spans(1);
        assert_eq!(spans.len(), 6);
        assert!(spans.is_sorted_by_key(|s| s.start_ns));
    }
}
