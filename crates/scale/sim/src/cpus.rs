// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPUs of all ranks under noise: work goes in, the instant it is done comes out.

use std::sync::Arc;

use crate::kernels;
use crate::layout::Layout;
use crate::node::Node;
use crate::profile::Stretch;
use crate::replay::Replay;
use crate::rng::Key;
use crate::scheduler::{Cpu, Demand, Numbered, Preempt, Scheduler, Tasks, give_back};
use crate::source::{Class, Source};
use crate::windowed::{Merged, Windowed};

/// Part of the noise with its own order of service: interrupts, or threads.
#[derive(Clone, Debug)]
struct Lane {
    sources: Vec<Numbered>,
    scheduler: Arc<dyn Scheduler>,
    /// Rank-major: all sources of a rank side by side.
    demands: Vec<Demand>,
    /// One a rank, once the scheduler has remembered one.
    turns: Vec<u32>,
}

/// Noise that is looked up.
#[derive(Clone, Debug)]
enum Known {
    /// A single trace that goes first.
    Trace(Replay),
    /// Traces that wait for windows.
    Windowed(Windowed),
}

impl Known {
    /// The instant at which rank number `i` has done `work_ns` that may begin at `at_ns`, and its next detour then.
    fn done(&mut self, i: usize, at_ns: u64, work_ns: u64) -> (u64, Stretch) {
        match self {
            Self::Trace(replay) => replay.done(i, at_ns, work_ns),
            Self::Windowed(windowed) => windowed.done(i, at_ns, work_ns),
        }
    }

    /// The first detour of rank number `i` that ends after `at_ns`.
    fn next(&mut self, i: usize, at_ns: u64) -> Stretch {
        match self {
            Self::Trace(replay) => replay.next(i, at_ns),
            Self::Windowed(windowed) => windowed.next(i, at_ns),
        }
    }
}

/// The CPUs of a range of ranks.
///
/// A rank's calls go forward in time. Work is extended by every detour it meets, those met in the
/// extension included; what begins in a detour begins after it; work of no length is done at once.
/// Memory: 16 bytes a rank, and 24 for each source (32 more where both interrupts and threads disturb, 4
/// more where a scheduler remembers whose turn it is; 16 for a trace that goes first, 40 for traces that wait for
/// windows); nothing where nothing disturbs.
#[derive(Clone, Debug)]
pub struct Cpus {
    layout: Layout,
    seed: Key,
    first_rank: u32,
    /// Start of the next detour of each rank: the only thing looked at while none is met.
    start: Vec<u64>,
    /// Its end.
    end: Vec<u64>,
    lanes: Vec<Lane>,
    /// Noise that is known in advance, in place of lanes.
    known: Option<Known>,
    /// The next detour of each lane if two lanes are merged, rank-major.
    pending: Vec<[(u64, u64); 2]>,
    starved: Option<u32>,
}

/// Detours that one piece of work may meet; more mean that the job never gets the CPU.
const MOST_DETOURS: u32 = 50_000_000;
const NEVER: (u64, u64) = (u64::MAX, u64::MAX);

impl Cpus {
    /// The end of work that never gets its CPU.
    const LOST_NS: u64 = u64::MAX / 4;

    /// The CPUs of `ranks`, which begin their job `begin_ns` after boot.
    #[must_use]
    pub fn new(node: &Node, layout: Layout, ranks: std::ops::Range<u32>, seed: Key, begin_ns: u64) -> Self {
        Self::with(node, Merged::new(node).as_ref(), layout, ranks, (seed, begin_ns))
    }

    /// The same where what all ranks have in common is known.
    pub(crate) fn with(
        node: &Node,
        merged: Option<&Merged>,
        layout: Layout,
        ranks: std::ops::Range<u32>,
        (seed, begin_ns): (Key, u64),
    ) -> Self {
        let n = ranks.len();
        let numbered =
            |(number, s): (usize, &Source)| Numbered::new(s.clone(), number, seed, layout.ranks_per_node());
        let admitted = || node.sources.iter().enumerate().filter(|(_, s)| node.scheduler.admits(s.class));
        let replay = match (admitted().next(), admitted().count()) {
            (Some(one), 1) if one.1.class != Class::Task || node.scheduler.goes_first() => {
                Replay::new(&numbered(one), layout, ranks.clone()).map(Known::Trace)
            }
            _ => None,
        };
        let windowed = || Windowed::new(merged?, layout, ranks.clone(), seed, begin_ns).map(Known::Windowed);
        let known = replay.or_else(windowed);
        let lane = |interrupts: bool| {
            let scheduler: Arc<dyn Scheduler> =
                if interrupts { Arc::new(Preempt) } else { Arc::clone(&node.scheduler) };
            let sources: Vec<Numbered> = admitted()
                .filter(|(_, s)| known.is_none() && interrupts == (s.class != Class::Task))
                .map(numbered)
                .collect();
            let settle_ns = scheduler.settle_ns();
            let first = |(rank, s): (u32, &Numbered)| s.first(layout.core(rank), begin_ns, settle_ns);
            let demands =
                ranks.clone().flat_map(|r| sources.iter().map(move |s| (r, s))).map(first).collect();
            (!sources.is_empty()).then_some(Lane { sources, scheduler, demands, turns: Vec::new() })
        };
        let lanes: Vec<Lane> = [lane(true), lane(false)].into_iter().flatten().collect();
        let disturbed = if lanes.is_empty() && known.is_none() { 0 } else { n };
        let mut cpus = Self {
            layout,
            seed,
            first_rank: ranks.start,
            start: vec![0; disturbed],
            end: vec![0; disturbed],
            known,
            pending: Vec::new(),
            starved: None,
            lanes,
        };
        cpus.begin(begin_ns);
        cpus
    }

    fn begin(&mut self, begin_ns: u64) {
        let n = self.start.len();
        if self.lanes.len() == 2 {
            self.pending = (0..n).map(|i| [0, 1].map(|lane| self.next_of(lane, i, 0))).collect();
        }
        for i in 0..n {
            self.pass(i, begin_ns);
        }
    }

    /// The instant at which the CPU of rank number `i` of the range has done `work_ns` that may begin at `at_ns`.
    #[inline]
    pub fn done(&mut self, i: usize, at_ns: u64, work_ns: u64) -> u64 {
        let done = at_ns + work_ns;
        match self.start.get(i) {
            Some(&start) if done > start => self.extend(i, at_ns, work_ns),
            _ => done,
        }
    }

    /// Puts off the `ends` of work of `work_ns` of the ranks from number `first` on, as if by
    /// [`done`](Self::done) of each: they are given as they would be without noise, no more than a chunk.
    #[inline]
    pub(crate) fn settle(&mut self, first: usize, ends: &mut [u64], work_ns: u64) {
        let mut late = match self.start.get(first..first + ends.len()) {
            Some(starts) if work_ns > 0 => kernels::late(ends, starts),
            _ => return,
        };
        while late != 0 {
            let at = late.trailing_zeros() as usize * kernels::PART;
            let end = ends.len().min(at + kernels::PART);
            self.settle_each(first + at, &mut ends[at..end], work_ns);
            late &= late - 1;
        }
    }

    #[inline(never)]
    fn settle_each(&mut self, first: usize, ends: &mut [u64], work_ns: u64) {
        if let Some(known) = &mut self.known {
            let range = first..first + ends.len();
            let (starts, stops) = (&mut self.start[range.clone()], &mut self.end[range]);
            match known {
                Known::Trace(replay) => replay.settle(first, ends, starts, stops, work_ns),
                Known::Windowed(windowed) => windowed.settle(first, ends, starts, stops, work_ns),
            }
            if let Some(i) = ends.iter().position(|&end| end > Self::LOST_NS) {
                self.starved.get_or_insert(self.first_rank + (first + i) as u32);
            }
            return;
        }
        for (i, end) in (first..).zip(ends) {
            *end = self.done(i, *end - work_ns, work_ns);
        }
    }

    /// Start of the next detour of each rank, as far as it was looked for: work that is done before meets
    /// none. Empty where nothing ever disturbs.
    #[must_use]
    pub fn starts(&self) -> &[u64] {
        &self.start
    }

    /// The first instant at which any CPU of the range is in a detour that its rank has not passed, each
    /// rank being at its `now_ns`; `u64::MAX`: never.
    pub fn quiet_until(&mut self, now_ns: &[u64]) -> u64 {
        let mut quiet = u64::MAX;
        for (i, &now_ns) in now_ns.iter().enumerate().take(self.start.len()) {
            self.pass(i, now_ns);
            quiet = quiet.min(self.start[i]);
        }
        quiet
    }

    /// The instant before which rank number `i` of the range, being at `at_ns`, meets no detour; `None`: it never meets one.
    /// Where noise is looked up, there may be no detour at that instant either.
    pub(crate) fn next_detour_ns(&mut self, i: usize, at_ns: u64) -> Option<u64> {
        if i >= self.start.len() {
            return None;
        }
        self.pass(i, at_ns);
        Some(self.start[i]).filter(|&start_ns| start_ns != NEVER.0)
    }

    /// A rank that noise leaves no time to, when there was one.
    #[must_use]
    pub const fn starved(&self) -> Option<u32> {
        self.starved
    }

    #[cold]
    #[inline(never)]
    fn extend(&mut self, i: usize, at_ns: u64, work_ns: u64) -> u64 {
        if work_ns == 0 {
            return at_ns;
        }
        if self.starved.is_some() {
            return at_ns.max(Self::LOST_NS);
        }
        if let Some(known) = &mut self.known {
            let (done_ns, (start, end)) = known.done(i, at_ns, work_ns);
            if done_ns <= Self::LOST_NS {
                (self.start[i], self.end[i]) = (start, end);
                return done_ns;
            }
            self.starved = Some(self.first_rank + i as u32);
            return at_ns.max(Self::LOST_NS);
        }
        let (mut at, mut left) = (at_ns, work_ns);
        for _ in 0..MOST_DETOURS {
            let room = self.start[i].saturating_sub(at);
            if left <= room {
                return at + left;
            }
            left -= room;
            at = at.max(self.end[i]);
            if at > Self::LOST_NS {
                break;
            }
            self.step(i);
        }
        self.starved = Some(self.first_rank + i as u32);
        at_ns.max(Self::LOST_NS)
    }

    /// Forgets the detours of a rank that are over at `at_ns`.
    fn pass(&mut self, i: usize, at_ns: u64) {
        if self.end[i] > at_ns && self.start[i] < self.end[i] {
            return;
        }
        if let Some(known) = &mut self.known {
            (self.start[i], self.end[i]) = known.next(i, at_ns);
            return;
        }
        while self.end[i] <= at_ns {
            self.step(i);
        }
    }

    /// Goes on to the next detour of a rank.
    fn step(&mut self, i: usize) {
        (self.start[i], self.end[i]) = match self.lanes.len() {
            0 => NEVER,
            1 => self.next_of(0, i, self.end[i]),
            _ => self.merged(i),
        };
    }

    /// The next detour where interrupts and threads disturb: a thread's is put off, or interrupted, by the
    /// interrupts that come in it, and is longer by their time.
    fn merged(&mut self, i: usize) -> (u64, u64) {
        let [(a, b), (c, d)] = self.pending[i];
        if (a, c) == (u64::MAX, u64::MAX) {
            NEVER
        } else if a <= c {
            if c < b {
                self.pending[i][1] = self.put_off(i, (c, d), b);
            }
            self.pending[i][0] = self.next_of(0, i, b);
            (a, b)
        } else if d <= a {
            self.pending[i][1] = self.next_of(1, i, d);
            (c, d)
        } else {
            self.pending[i][1].0 = a;
            (c, a)
        }
    }

    /// The threads' stretch from `start` to `end`, which interrupts let go on at `at_ns` only.
    fn put_off(&mut self, i: usize, (start, end): (u64, u64), at_ns: u64) -> (u64, u64) {
        let end = end.saturating_add(at_ns - start);
        let cpu = Cpu::new(self.layout.core(self.first_rank + i as u32), self.seed);
        let lane = &mut self.lanes[1];
        let until = lane.scheduler.until_ns(&cpu, start).max(at_ns);
        if end <= until {
            return (at_ns, end);
        }
        let k = lane.sources.len();
        give_back(&mut lane.demands[i * k..(i + 1) * k], end - until);
        if until > at_ns { (at_ns, until) } else { self.next_of(1, i, at_ns) }
    }

    fn next_of(&mut self, lane: usize, i: usize, now_ns: u64) -> (u64, u64) {
        let core = self.layout.core(self.first_rank + i as u32);
        let lane = &mut self.lanes[lane];
        let k = lane.sources.len();
        let before = lane.turns.get(i).copied().unwrap_or(0);
        let mut turn = before;
        let mut tasks =
            Tasks::new(&mut lane.demands[i * k..(i + 1) * k], &lane.sources, core, &mut turn, now_ns);
        let cpu = Cpu::new(core, self.seed);
        let next = lane.scheduler.next(&cpu, now_ns, &mut tasks);
        if turn != before {
            lane.turns.resize(self.start.len(), 0);
            lane.turns[i] = turn;
        }
        match next {
            Some(d) => (d.start_ns.max(now_ns), d.start_ns.max(now_ns).saturating_add(d.duration_ns)),
            None => NEVER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::Fair;
    use crate::source::{Arrivals, Dist, Model, Phase};

    fn one(node: &Node) -> Cpus {
        let layout = Layout::one_a_node(1).expect("one");
        Cpus::new(node, layout, 0..1, Key::new(1), 0)
    }

    fn at_boot(noise: Model) -> Source {
        Source::new("test", noise).phase(Phase::Together { spread_ns: 0 })
    }

    #[test]
    fn detours_extend_work_and_those_in_the_extension_count_too() {
        // a detour of 40 from 0, 100, 200 …
        let mut c = one(&Node::new(vec![at_boot(Model::periodic(100, 40))], Preempt));
        assert_eq!(c.done(0, 0, 10), 50);
        assert_eq!(c.done(0, 60, 0), 60);
        assert_eq!(c.done(0, 60, 40), 100);
        assert_eq!(c.done(0, 110, 130), 350, "140 to 200, 240 to 300, then 10 after the third");
        assert_eq!(c.done(0, 410, 0), 410, "work of no length needs no CPU");
        assert_eq!(c.done(0, 410, 1), 441);
    }

    #[test]
    fn a_sleeping_daemon_waits_for_its_turn_and_sleeps_after_its_work() {
        let daemon = Model { arrivals: Arrivals::AfterSleep(Dist::Fixed(100)), length: Dist::Fixed(30) };
        let mut c = one(&Node::new(vec![at_boot(daemon)], Fair { noise_slice_ns: 10, job_slice_ns: 5 }));
        // 0..10 daemon, 10..15 job, 15..25 daemon, 25..30 job, 30..40 daemon, asleep until 140
        assert_eq!((c.done(0, 0, 5), c.done(0, 15, 6), c.done(0, 41, 99)), (15, 41, 140));
        assert_eq!(c.done(0, 140, 1), 151);
    }

    #[test]
    fn interrupts_come_on_top_of_threads() {
        // thread 0..50, interrupt of 10 at 20: the thread goes on to 60
        let thread = at_boot(Model::periodic(1000, 50));
        let irq = Source::new("irq", Model::periodic(1000, 10))
            .class(Class::Irq)
            .phase(Phase::Together { spread_ns: 0 });
        let mut c = one(&Node::new(vec![thread, irq], Preempt));
        assert_eq!(c.done(0, 0, 1), 61);
    }

    #[test]
    fn one_cpu_loses_its_stolen_share_under_every_scheduler_that_admits_noise() {
        let daemon = || Source::new("daemon", Model::leibniz(10_000, 500_000));
        for node in [
            Node::new(vec![daemon()], Preempt),
            Node::new(vec![daemon()], Fair { noise_slice_ns: 1000, job_slice_ns: 1000 }),
        ] {
            let mut c = one(&node);
            let (work, mut t) = (1_000_000, 0);
            for _ in 0..10_000 {
                t = c.done(0, t, work);
            }
            let stolen = 1.0 - 10_000.0 * work as f64 / t as f64;
            assert!((0.0185..0.0205).contains(&stolen), "{stolen}");
        }
    }
}
