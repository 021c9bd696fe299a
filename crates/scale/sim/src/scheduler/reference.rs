// SPDX-License-Identifier: MIT OR Apache-2.0
//! The schedulers' promises, implemented again in the plainest way: nanosecond by nanosecond, with no stretch
//! computed ahead. `Cpus` must agree.

use std::sync::Arc;

use colony_time::{DutyCycle, Windows};
use proptest::prelude::*;

use super::{ClockError, Coordinated, Fair, NodeClock, Preempt, Scheduler};
use crate::Layout;
use crate::cpus::Cpus;
use crate::layout::Core;
use crate::node::Node;
use crate::rng::Key;
use crate::source::{Arrivals, Burst, Class, Dist, Done, Model, Phase, Source, Stream};

const CORE: Core = Core { node: 0, core: 0 };

/// The rule by which threads take the CPU from the job.
#[derive(Clone, Copy, Debug)]
enum Policy {
    Preempt,
    Fair(Fair),
    /// The windows, and how far the clock is ahead.
    Coordinated(Windows, i64),
}

impl Policy {
    fn scheduler(self) -> Arc<dyn Scheduler> {
        match self {
            Self::Preempt => Arc::new(Preempt),
            Self::Fair(fair) => Arc::new(fair),
            Self::Coordinated(windows, offset_ns) => Arc::new(Coordinated {
                clock: ClockError {
                    measured: vec![NodeClock { offset_ns, drift_ppm: 0.0 }],
                    ..ClockError::default()
                },
                ..Coordinated::exact(windows)
            }),
        }
    }
}

/// A source at work: the burst at its front.
struct Worker<'a> {
    source: &'a Source,
    stream: Stream,
    burst: Option<Burst>,
    left: u64,
}

impl<'a> Worker<'a> {
    fn new(source: &'a Source, number: usize, seed: Key) -> Self {
        let stream = source.stream(source.keys(seed, number), CORE, 1).expect("on this core");
        let mut w = Self { source, stream, burst: None, left: 0 };
        w.set(source.first(&stream, 0));
        w
    }

    fn set(&mut self, burst: Option<Burst>) {
        (self.burst, self.left) = (burst, burst.map_or(0, |b| b.length_ns.max(1)));
    }

    fn arrived(&self, t: u64) -> bool {
        self.burst.is_some_and(|b| b.arrival_ns <= t)
    }

    fn peek(&self, done_ns: u64) -> Option<Burst> {
        let Burst { index, arrival_ns, .. } = self.burst?;
        self.source.next(&self.stream, Done { index, arrival_ns, done_ns })
    }

    /// Works for the nanosecond from `t`; whether its burst is done.
    fn work(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }
}

/// The thread that has waited longest at `t`.
fn first_come(workers: &[Worker<'_>], t: u64) -> Option<usize> {
    (0..workers.len())
        .filter(|&i| workers[i].arrived(t))
        .min_by_key(|&i| workers[i].burst.map(|b| b.arrival_ns))
}

enum State {
    JobAlone,
    JobUntil(u64),
    /// A thread, what is left of its slice, and the instant it would be without interrupts.
    Turn(usize, u64, u64),
}

/// One round of turns.
struct Rounds {
    fair: Fair,
    state: State,
}

impl Rounds {
    /// The thread that runs from `t` on.
    fn decide(&mut self, threads: &[Worker<'_>], t: u64) -> Option<usize> {
        let lowest = |from: usize| (from..threads.len()).find(|&i| threads[i].arrived(t));
        match self.state {
            State::Turn(i, ..) => return Some(i),
            State::JobUntil(until) if t < until => return None,
            State::JobUntil(_) | State::JobAlone => {}
        }
        let i = lowest(0)?;
        self.state = State::Turn(i, self.fair.noise_slice_ns, t);
        Some(i)
    }

    /// Thread `i` has worked from `t` to `t + 1`.
    fn worked(&mut self, threads: &mut [Worker<'_>], i: usize, t: u64) {
        let State::Turn(_, slice, at) = &mut self.state else { return };
        (*slice, *at) = (*slice - 1, *at + 1);
        let (slice, at, done) = (*slice, *at, threads[i].work());
        if done
            && slice > 0
            && !threads[i].source.noise.sleeps()
            && let Some(next) = threads[i].peek(at).filter(|b| b.arrival_ns <= at)
        {
            threads[i].set(Some(next));
            return;
        }
        if done {
            let next = threads[i].peek(t + 1);
            threads[i].set(next);
        } else if slice > 0 {
            return;
        }
        let now = t + 1;
        self.state = if let Some(other) = (i + 1..threads.len()).find(|&o| threads[o].arrived(now)) {
            State::Turn(other, self.fair.noise_slice_ns, now)
        } else if now > 0 && threads.iter().any(|w| w.arrived(now - 1)) {
            State::JobUntil(now + self.fair.job_slice_ns)
        } else {
            State::JobAlone
        };
    }
}

/// For each of the first `end` nanoseconds: true if the job has the CPU.
fn timeline(sources: &[Source], policy: Policy, seed: Key, end: u64) -> Vec<bool> {
    let workers = |interrupts: bool| -> Vec<Worker<'_>> {
        (sources.iter().enumerate())
            .filter(|(_, s)| interrupts == (s.class != Class::Task))
            .map(|(n, s)| Worker::new(s, n, seed))
            .collect()
    };
    let (mut irqs, mut threads) = (workers(true), workers(false));
    let mut rounds = match policy {
        Policy::Fair(fair) => Some(Rounds { fair, state: State::JobAlone }),
        _ => None,
    };
    let simple = |workers: &mut [Worker<'_>], i: usize, t: u64| {
        if workers[i].work() {
            let next = workers[i].peek(t + 1);
            workers[i].set(next);
        }
    };
    let mut free = Vec::new();
    for t in 0..end {
        let thread = match (&mut rounds, policy) {
            (Some(rounds), _) => rounds.decide(&threads, t),
            (None, Policy::Coordinated(w, ahead)) if w.is_favored(t as i64 + ahead) => None,
            (None, _) => first_come(&threads, t),
        };
        free.push(match (first_come(&irqs, t), thread) {
            (Some(i), _) => {
                simple(&mut irqs, i, t);
                false
            }
            (None, Some(i)) => {
                match &mut rounds {
                    Some(rounds) => rounds.worked(&mut threads, i, t),
                    None => simple(&mut threads, i, t),
                }
                false
            }
            (None, None) => true,
        });
    }
    free
}

/// The end of `work` that begins at `at`; `None`: not in this timeline.
fn done(free: &[bool], at: u64, work: u64) -> Option<u64> {
    match work {
        0 => Some(at),
        _ => {
            let mine = (at as usize..free.len()).filter(|&t| free[t]);
            mine.take(work as usize)
                .enumerate()
                .last()
                .filter(|(i, _)| i + 1 == work as usize)
                .map(|(_, t)| t as u64 + 1)
        }
    }
}

fn times(most: u64) -> impl Strategy<Value = Dist> {
    prop_oneof![
        (1..=most).prop_map(Dist::Fixed),
        (0..=most / 2, 1..=most / 2)
            .prop_map(|(from_ns, room)| Dist::Uniform { from_ns, to_ns: from_ns + room }),
        (1..=most).prop_map(|mean| Dist::Exponential { mean_ns: mean as f64 }),
    ]
}

fn source() -> impl Strategy<Value = Source> {
    let arrivals =
        prop_oneof![times(200).prop_map(Arrivals::Every), times(200).prop_map(Arrivals::AfterSleep)];
    let class = prop_oneof![Just(Class::Task), Just(Class::Task), Just(Class::Irq), Just(Class::Local)];
    let phase =
        prop_oneof![Just(Phase::Random), (0u64..100).prop_map(|spread_ns| Phase::Together { spread_ns })];
    (arrivals, times(40), class, phase).prop_map(|(arrivals, length, class, phase)| {
        Source::new("any", Model { arrivals, length }).class(class).phase(phase)
    })
}

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(Policy::Preempt),
        (1u64..30, 0u64..30)
            .prop_map(|(noise_slice_ns, job_slice_ns)| Policy::Fair(Fair { noise_slice_ns, job_slice_ns })),
        (2u64..150, 0.0..1.0f64, -500i64..500, -500i64..500).prop_map(|(period, share, epoch, ahead)| {
            let favored = ((period as f64 * share) as u64).clamp(1, period - 1);
            let windows = Windows::new(period, DutyCycle::Ns(favored), epoch).expect("both have time");
            Policy::Coordinated(windows, ahead)
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn work_ends_when_the_nanosecond_reference_ends_it(
        sources in prop::collection::vec(source(), 0..4),
        policy in policy(),
        seed: u64,
        calls in prop::collection::vec((0u64..150, 0u64..120), 1..25),
    ) {
        let seed = Key::new(seed);
        let free = timeline(&sources, policy, seed, 5000);
        let node = Node { sources, scheduler: policy.scheduler() };
        let layout = Layout::one_a_node(1).expect("one");
        let mut cpus = Cpus::new(&node, layout, 0..1, seed, 0);
        let mut at = 0;
        for (idle, work) in calls {
            let Some(expected) = done(&free, at + idle, work) else { break };
            prop_assert_eq!(cpus.done(0, at + idle, work), expected, "at {} for {}", at + idle, work);
            at = expected;
        }
    }
}
