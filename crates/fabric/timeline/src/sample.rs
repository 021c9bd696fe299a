// SPDX-License-Identifier: MIT OR Apache-2.0
//! A time line to try tools with: a stencil of 16 blocks on 4 PEs, computed from a model and always the same. No program ran.
//!
//! PE 3 has the heaviest blocks until load balancing after half of the iterations moves two of them. A kernel thread takes CPU 2 now and then; a
//! tick takes every CPU 250 times a second.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::names::Names;
use crate::record::{ALL_PES, Event, MessageId, Migration, Timed};
use crate::timeline::{Meta, Process, Timeline, Track};

/// Begin of the sample run: 2026-01-01T00:00:37 TAI, nanoseconds.
pub const BEGIN_NS: i64 = 1_767_225_637_000_000_000;

/// Name of the host that the sample run names.
pub const HOST: &str = "sample";

/// PEs of the sample run, one on each of the first CPUs.
pub const PES: u32 = 4;
const BLOCKS: u32 = 16;
const ITERATIONS: u64 = 40;
const LATENCY_NS: i64 = 2_000;
const GHOST_BYTES: u32 = 8 * 1024;
const BLOCK_BYTES: u32 = 512 * 1024;
const SCHEDULE_NS: i64 = 450;

/// A detour: CPU, begin, end (TAI nanoseconds), source.
pub type Row = (u16, i64, i64, &'static str);

/// Kind of a message to a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Start,
    Resume,
    Ghost(u32),
    Compute(u32),
    Reduce,
}

/// A message on its way: arrival and number order the queue.
type Flying = Reverse<(i64, u64, u32, Work, MessageId, u32)>;

struct Pe {
    free_ns: i64,
    sequence: u64,
    events: Vec<Timed>,
}

struct Model {
    pes: Vec<Pe>,
    queue: BinaryHeap<Flying>,
    sent: u64,
    /// The PE of each block.
    place: Vec<u32>,
    /// Ghosts that each block has.
    ghosts: Vec<u32>,
    done: u32,
    iteration: u64,
    noise: Vec<Row>,
    random: u64,
}

/// Entry methods by number.
mod entry {
    pub(super) const START: u16 = 0;
    pub(super) const RESUME: u16 = 1;
    pub(super) const GHOST: u16 = 2;
    pub(super) const COMPUTE: u16 = 3;
    pub(super) const REDUCE: u16 = 4;
}

fn names() -> Names {
    let entry = |class, name: &str| crate::names::EntryName { class, name: name.into() };
    Names {
        classes: vec!["Main".into(), "Block".into()],
        entries: vec![
            entry(0, "start"),
            entry(1, "resume"),
            entry(1, "ghost"),
            entry(1, "compute"),
            entry(0, "reduce"),
        ],
        events: vec!["iteration".into()],
    }
}

/// The sample run as the files of two processes with two PEs each, and the noise of its node.
#[must_use]
pub fn stencil() -> ([Timeline; 2], Vec<Row>) {
    let mut model = Model::new();
    model.run();
    let end_ns = model.pes.iter().map(|pe| pe.free_ns).max().unwrap_or(BEGIN_NS);
    let noise = std::mem::take(&mut model.noise).into_iter().filter(|row| row.2 < end_ns).collect();
    let tracks: Vec<Track> =
        model.pes.into_iter().zip(0..).map(|(pe, number)| track(pe, number, end_ns)).collect();
    let part = |rank: u32| {
        let meta = Meta {
            program: "stencil".into(),
            build: "sample".into(),
            run: "sample".into(),
            pes: PES,
            seeds: vec![1],
            command: vec!["stencil".into(), "--blocks".into(), "16".into()],
            notes: Vec::new(),
        };
        let process =
            Process { rank, host: HOST.into(), pid: 4000 + rank, counter_hz: 1e9, tai_offset_s: 37 };
        let tracks = tracks.iter().filter(|t| t.process == rank).cloned().collect();
        (meta, process, tracks)
    };
    let file = |rank| {
        let (meta, process, tracks) = part(rank);
        Timeline::of_parts(meta, vec![process], names(), tracks)
    };
    ([file(0), file(1)], noise)
}

fn track(mut pe: Pe, number: u32, end_ns: i64) -> Track {
    if pe.free_ns < end_ns {
        pe.events.push(Timed {
            begin_ns: pe.free_ns,
            duration_ns: (end_ns - pe.free_ns) as u64,
            cpu: number as u16,
            event: Event::Idle,
        });
    }
    let records = crate::recording::sorted(pe.events.into_iter().map(Into::into).collect());
    let process = number / 2;
    Track { pe: number, process, begin_ns: BEGIN_NS, kept_from_ns: BEGIN_NS, end_ns, dropped: 0, records }
}

impl Model {
    fn new() -> Self {
        let pe = || Pe { free_ns: BEGIN_NS, sequence: 0, events: Vec::new() };
        let mut model = Self {
            pes: (0..PES).map(|_| pe()).collect(),
            queue: BinaryHeap::new(),
            sent: 0,
            place: (0..BLOCKS).map(|b| b / (BLOCKS / PES)).collect(),
            ghosts: vec![0; BLOCKS as usize],
            done: 0,
            iteration: 0,
            noise: noise(),
            random: 1,
        };
        model.queue.push(Reverse((BEGIN_NS + 5_000, 0, 0, Work::Start, MessageId::NONE, 0)));
        model
    }

    /// A number from 0 to `below` - 1 (SplitMix64).
    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn run(&mut self) {
        while let Some(Reverse((arrival, _, pe, work, message, bytes))) = self.queue.pop() {
            let p = &mut self.pes[pe as usize];
            if arrival > p.free_ns {
                let idle = p.free_ns;
                self.push(pe, idle, arrival, Event::Idle);
            }
            let from = self.pes[pe as usize].free_ns;
            let begin = self.take(pe, from, SCHEDULE_NS);
            self.push(pe, from, begin, Event::Overhead);
            self.execute(pe, begin, work, message, bytes);
        }
    }

    /// The end of `work_ns` of work from `begin` on the PE's CPU, with the detours that hit it.
    fn take(&self, pe: u32, begin: i64, work_ns: i64) -> i64 {
        let mut end = begin + work_ns;
        for &(_, from, to, _) in self.noise.iter().filter(|row| u32::from(row.0) == pe) {
            if to > begin && from < end {
                end += to - from.max(begin);
            }
        }
        end
    }

    fn push(&mut self, pe: u32, begin_ns: i64, end_ns: i64, event: Event) {
        let p = &mut self.pes[pe as usize];
        let duration_ns = (end_ns - begin_ns).max(0) as u64;
        p.events.push(Timed { begin_ns, duration_ns, cpu: pe as u16, event });
        p.free_ns = p.free_ns.max(end_ns);
    }

    /// Sends a message at `at_ns`, which is inside an execution of `pe`.
    fn send(&mut self, pe: u32, at_ns: i64, to: &[u32], work: Work, entry: u16, bytes: u32) {
        let p = &mut self.pes[pe as usize];
        p.sequence += 1;
        let message = MessageId::new(pe, p.sequence);
        let target = if let [one] = to { *one } else { ALL_PES };
        let event = Event::Sent { entry, message, to: target, bytes };
        p.events.push(Timed { begin_ns: at_ns, duration_ns: 0, cpu: pe as u16, event });
        for &to in to {
            self.sent += 1;
            let latency = if to == pe { 100 } else { LATENCY_NS + i64::from(bytes) / 10 };
            self.queue.push(Reverse((at_ns + latency, self.sent, to, work, message, bytes)));
        }
    }

    fn execute(&mut self, pe: u32, begin: i64, work: Work, message: MessageId, bytes: u32) {
        let (entry, work_ns) = match work {
            Work::Start => (entry::START, 40_000),
            Work::Resume => (entry::RESUME, 6_000),
            Work::Ghost(_) => (entry::GHOST, 3_000 + self.random(400) as i64),
            Work::Compute(block) => {
                let heavy = if block >= 12 { 160_000 } else { 0 };
                (entry::COMPUTE, 200_000 + heavy + self.random(12_000) as i64)
            }
            Work::Reduce => (entry::REDUCE, 1_500),
        };
        let end = self.take(pe, begin, work_ns);
        let everywhere: Vec<u32> = (0..PES).collect();
        match work {
            Work::Start => self.send(pe, end - 1_000, &everywhere, Work::Resume, entry::RESUME, 64),
            Work::Resume => self.resume(pe, begin),
            Work::Ghost(block) => {
                self.ghosts[block as usize] += 1;
                if self.ghosts[block as usize] == 2 {
                    self.ghosts[block as usize] = 0;
                    self.send(pe, end - 200, &[pe], Work::Compute(block), entry::COMPUTE, 32);
                }
            }
            Work::Compute(_) => self.send(pe, end - 500, &[0], Work::Reduce, entry::REDUCE, 16),
            Work::Reduce => self.done += 1,
        }
        self.push(pe, begin, end, Event::Executed { entry, message, bytes });
        if work == Work::Reduce && self.done == BLOCKS {
            self.next_iteration(pe, begin);
        }
    }

    /// Each block of a PE sends its two borders.
    fn resume(&mut self, pe: u32, begin: i64) {
        let blocks: Vec<u32> = (0..BLOCKS).filter(|&b| self.place[b as usize] == pe).collect();
        for (block, n) in blocks.into_iter().zip(0..) {
            for (neighbour, side) in [((block + 1) % BLOCKS, 0), ((block + BLOCKS - 1) % BLOCKS, 1)] {
                let to = self.place[neighbour as usize];
                let at = begin + 1_000 + 600 * n + 300 * side;
                self.send(pe, at, &[to], Work::Ghost(neighbour), entry::GHOST, GHOST_BYTES);
            }
        }
    }

    /// The last block of an iteration is done: the next begins, at half time after load balancing.
    fn next_iteration(&mut self, pe: u32, begin: i64) {
        self.done = 0;
        self.iteration += 1;
        let value = self.iteration;
        self.pes[pe as usize].events.push(Timed {
            begin_ns: begin + 500,
            duration_ns: 0,
            cpu: pe as u16,
            event: Event::User { event: 0, value },
        });
        if self.iteration == ITERATIONS {
            return;
        }
        if self.iteration == ITERATIONS / 2 {
            self.balance();
        }
        let everywhere: Vec<u32> = (0..PES).collect();
        let at = self.pes[pe as usize].free_ns - 300;
        self.send(pe, at, &everywhere, Work::Resume, entry::RESUME, 64);
    }

    /// Two heavy blocks of PE 3 move, to PE 0 and PE 1; all PEs take part.
    fn balance(&mut self) {
        let begin = self.pes.iter().map(|pe| pe.free_ns).max().unwrap_or(BEGIN_NS);
        for pe in 0..PES {
            let idle = self.pes[pe as usize].free_ns;
            if idle < begin {
                self.push(pe, idle, begin, Event::Idle);
            }
            let end = self.take(pe, begin, 350_000);
            self.push(pe, begin, end, Event::Balancing);
        }
        for (block, to, at) in [(12u32, 0u32, 200_000), (13, 1, 240_000)] {
            self.place[block as usize] = to;
            let moved = |peer| Migration { class: 1, object: block.into(), peer, bytes: BLOCK_BYTES };
            let mut add = |pe: u32, at: i64, event| {
                let begin_ns = begin + at;
                self.pes[pe as usize].events.push(Timed { begin_ns, duration_ns: 0, cpu: pe as u16, event });
            };
            add(3, at, Event::MigratedOut(moved(to)));
            add(to, at + 60_000, Event::MigratedIn(moved(3)));
        }
    }
}

/// The detours of a second of the sample node, by CPU and begin.
fn noise() -> Vec<Row> {
    let mut rows = Vec::new();
    for cpu in 0..PES as u16 {
        let tick = (0..250).map(|n| {
            let begin = BEGIN_NS + 1_000_000 + n * 4_000_000 + i64::from(cpu) * 150_000;
            (cpu, begin, begin + 3_200, "irq:local_timer")
        });
        rows.extend(tick);
    }
    for n in 0..260 {
        let begin = BEGIN_NS + 7_350_000 + n * 3_700_000;
        rows.push((2, begin, begin + 420_000 + n % 4 * 60_000, "thread:kworker/2:1"));
    }
    rows.sort_unstable();
    // a tick that comes while the thread has the CPU is a part of its detour
    let mut apart: Vec<Row> = Vec::with_capacity(rows.len());
    for row in rows {
        if apart.last().is_none_or(|last| last.0 != row.0 || last.2 <= row.1) {
            apart.push(row);
        }
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::messages::Messages;
    use crate::analysis::stragglers::Stragglers;
    use crate::analysis::utilization::Utilization;
    use crate::noise::{Noise, Observed};

    #[test]
    fn the_sample_is_always_the_same_and_whole() {
        let ([a, b], rows) = stencil();
        assert_eq!(stencil(), ([a.clone(), b.clone()], rows.clone()));
        let t = a.merge(b).expect("one run");
        assert_eq!(t.tracks().len(), 4);
        let m = Messages::of(&t);
        assert_eq!((m.not_executed, m.not_sent), (0, 0));
        let u = Utilization::of(&t, 100);
        assert!(u.pes.iter().all(|p| p.times.busy_ns > u.all.busy_ns / 8), "{u:?}");
        let mut noise = Noise::default();
        let (begin_ns, end_ns) = t.span();
        noise.add(HOST, Observed { begin_ns, end_ns }, rows);
        let s = Stragglers::of(&t, Some(&noise), 3);
        assert!(s.list.iter().all(|s| s.pe == 2 && s.sources[0].source == "thread:kworker/2:1"), "{s:#?}");
        assert!(s.list.iter().all(|s| s.stolen_ns.is_some_and(|ns| ns > s.excess_ns / 2)), "{s:#?}");
    }
}
