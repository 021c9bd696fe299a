// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a job: when each rank's CPU and interface are free, and what a step makes of it.
//!
//! A message costs what [`MessageCost`] says. Within a round a rank sends, then receives; a send that
//! waits for its receive (rendezvous) holds the rank up at the end of the round, or of the burst, not
//! before its own receive: a program that did that would wait for ever.

use rayon::prelude::*;

use super::block::{BLOCK, Block, each, each2};
use super::fused;
use super::latency::Latencies;
use super::op::{Burst, Op, Round};
use super::pattern::Pattern;
use super::plan::Plan;
use crate::cpus::Cpus;
use crate::kernels;
use crate::network::{MachineNetwork, Network};
use crate::node::Node;
use crate::rng::Key;
use crate::source::normal;
use crate::windowed::Merged;
use crate::{Layout, MessageCost};

/// Number of the key that imbalance is drawn with; sources have small ones.
pub(crate) const IMBALANCE: u64 = 1 << 40;

/// A job in the middle of its program.
pub(crate) struct Job<'a> {
    plan: &'a Plan,
    network: &'a MachineNetwork,
    latencies: Latencies<'a>,
    blocks: Vec<Block>,
    /// The instant at which each rank's CPU is free.
    now: Vec<u64>,
    /// The instant at which the message of each rank left.
    leave: Vec<u64>,
    /// The instant at which the receive of each rank began; empty without rendezvous.
    begun: Vec<u64>,
    key: Key,
    computes: u64,
    parallel: bool,
}

/// A state that a job repeats.
pub(crate) struct Cycle {
    /// Time from one repetition to the next.
    pub(crate) shift_ns: u64,
    /// Number of ranks by which each rank's state has moved up: messages that all go up by this number carry it there.
    turn: u32,
}

/// The instants at which CPUs and interfaces are free.
pub(crate) struct Snapshot {
    now: Vec<u64>,
    send_free: Vec<u64>,
    recv_free: Vec<u64>,
}

impl<'a> Job<'a> {
    /// A job whose ranks all begin at `begin_ns`; `parallel`: on all cores.
    pub(crate) fn new(
        plan: &'a Plan,
        network: &'a MachineNetwork,
        node: &Node,
        layout: Layout,
        (key, begin_ns): (Key, u64),
        parallel: bool,
    ) -> Self {
        let ranks = layout.ranks() as usize;
        let merged = Merged::new(node);
        let block = |first: usize| {
            let end = (first + BLOCK).min(ranks);
            let free = if plan.interfaces { vec![0; end - first] } else { Vec::new() };
            Block {
                first: first as u32,
                cpus: Cpus::with(node, merged.as_ref(), layout, first as u32..end as u32, (key, begin_ns)),
                send_free: free.clone(),
                recv_free: free,
            }
        };
        let firsts: Vec<usize> = (0..ranks).step_by(BLOCK).collect();
        let blocks = if parallel {
            firsts.into_par_iter().map(block).collect()
        } else {
            firsts.into_iter().map(block).collect()
        };
        Self {
            plan,
            network,
            latencies: Latencies::new(network, layout.ranks()),
            blocks,
            now: vec![begin_ns; ranks],
            leave: vec![0; ranks],
            begun: if plan.rendezvous { vec![0; ranks] } else { Vec::new() },
            key: key.part(IMBALANCE),
            computes: 0,
            parallel,
        }
    }

    /// One pass through the program's body.
    pub(crate) fn iterate(&mut self) {
        let plan = self.plan;
        self.run(&plan.body);
    }

    /// The instant at which the last rank is done.
    pub(crate) fn last_ns(&self) -> u64 {
        kernels::latest(&self.now)
    }

    /// The state that decides what comes next; `None` where random numbers do as well.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        (!self.plan.random).then(|| {
            let free = |of: fn(&Block) -> &[u64]| self.blocks.iter().flat_map(of).copied().collect();
            Snapshot {
                now: self.now.clone(),
                send_free: free(|b| &b.send_free),
                recv_free: free(|b| &b.recv_free),
            }
        })
    }

    /// The cycle by which the job has the state `before` again, `iterations` later.
    pub(crate) fn cycle_since(&self, before: &Snapshot, iterations: u64) -> Option<Cycle> {
        let turn = self.plan.turn.filter(|_| iterations == 1);
        self.shift_ns(before, 0)
            .map(|shift_ns| Cycle { shift_ns, turn: 0 })
            .or_else(|| turn.and_then(|turn| Some(Cycle { shift_ns: self.shift_ns(before, turn)?, turn })))
    }

    /// By how much all of the job is later than `before`, each rank compared with the one `turn` below;
    /// `None` if it is not by the same.
    fn shift_ns(&self, before: &Snapshot, turn: u32) -> Option<u64> {
        let (end, begin) = before.now.split_at(self.now.len() - turn as usize);
        let was = || begin.iter().chain(end);
        let shift = self.now.first()?.checked_sub(*was().next()?)?;
        if !self.now.iter().zip(was()).all(|(now, was)| *now == was + shift) {
            return None;
        }
        // an interface that is free before the CPU might as well be free since ever
        let same = |of: fn(&Block) -> &[u64], before_free: &[u64]| {
            let free = self.blocks.iter().flat_map(of).zip(&self.now);
            free.zip(before_free.iter().zip(&before.now))
                .all(|((free, now), (was, was_now))| *free.max(now) == *was.max(was_now) + shift)
        };
        let all = same(|b| &b.send_free, &before.send_free) && same(|b| &b.recv_free, &before.recv_free);
        all.then_some(shift)
    }

    /// Lets `cycles` more of `cycle` pass.
    pub(crate) fn advance(&mut self, cycle: &Cycle, cycles: u64) {
        let ns = cycle.shift_ns * cycles;
        each(self.parallel, &mut self.blocks, &mut self.now, |block, now| {
            let times = now.iter_mut().chain(&mut block.send_free).chain(&mut block.recv_free);
            times.for_each(|t| *t += ns);
        });
        let ranks = self.now.len();
        self.now.rotate_right((u128::from(cycle.turn) * u128::from(cycles) % ranks as u128) as usize);
    }

    /// No rank meets a detour before.
    pub(crate) fn quiet_until(&mut self) -> u64 {
        let parts = self.blocks.iter_mut().zip(self.now.chunks(BLOCK));
        parts.map(|(block, now)| block.cpus.quiet_until(now)).min().unwrap_or(u64::MAX)
    }

    /// A rank that noise leaves no time to.
    pub(crate) fn starved(&self) -> Option<u32> {
        self.blocks.iter().find_map(|b| b.cpus.starved())
    }

    fn run(&mut self, body: &[Op]) {
        for op in body {
            match op {
                Op::Compute { ns, imbalance } => self.compute(*ns, *imbalance),
                Op::Hardware { cpu_ns, wire_ns, phases } => self.hardware(*cpu_ns, *wire_ns, *phases),
                Op::Rounds(rounds) => self.rounds(rounds),
                Op::Burst(burst) => self.burst(burst),
                Op::RingTrip(cost) => self.ring_trip(cost),
                Op::Repeat { times, body } => (0..*times).for_each(|_| self.run(body)),
            }
        }
    }

    fn compute(&mut self, ns: u64, imbalance: f64) {
        let key = self.key.part(self.computes);
        self.computes += 1;
        each(self.parallel, &mut self.blocks, &mut self.now, |block, now| {
            if imbalance == 0.0 {
                return block.work(now, ns);
            }
            for (i, t) in now.iter_mut().enumerate() {
                let ns = unequal(ns, imbalance, key, u64::from(block.first) + i as u64);
                *t = block.cpus.done(i, *t, ns);
            }
        });
    }

    fn hardware(&mut self, cpu_ns: u64, wire_ns: u64, phases: u32) {
        for phase in 0..=phases {
            let all = (phase > 0).then(|| self.last_ns() + wire_ns);
            each(self.parallel, &mut self.blocks, &mut self.now, |block, now| {
                if let Some(all) = all {
                    now.fill(all);
                }
                block.work(now, cpu_ns);
            });
        }
    }

    fn rounds(&mut self, rounds: &[Round]) {
        let mut rest = rounds;
        while let Some(round) = rest.first() {
            let done = match fused::fusable(rest) {
                fusable @ 1.. if !self.plan.interfaces => {
                    let arrays = (&mut self.now, &mut self.leave);
                    let rounds = &rest[..fusable];
                    fused::run(self.parallel, &mut self.blocks, arrays, rounds, &mut self.latencies);
                    fusable
                }
                _ => {
                    (0..round.times).for_each(|k| self.round(round, round.pattern(k)));
                    1
                }
            };
            rest = &rest[done..];
        }
    }

    fn round(&mut self, round: &Round, pattern: Pattern) {
        send(self.parallel, &mut self.blocks, (&mut self.now, &mut self.leave), pattern, &round.cost);
        self.receive(pattern, &round.cost, round.combine_ns);
        if round.cost.rendezvous {
            self.wait(pattern);
        }
    }

    fn receive(&mut self, pattern: Pattern, cost: &MessageCost, combine_ns: u64) {
        let leave = &self.leave;
        self.latencies.keep(pattern);
        let latency = self.latencies.of(pattern);
        let one = |block: &mut Block, i: usize, t: &mut u64| {
            let rank = block.first + i as u32;
            let from = pattern.from(rank)?;
            Some(block.receive(i, t, leave[from as usize] + latency.to(rank), cost, combine_ns))
        };
        if cost.rendezvous {
            each2(self.parallel, &mut self.blocks, (&mut self.now, &mut self.begun), |block, now, begun| {
                for (i, (t, begun)) in now.iter_mut().zip(begun).enumerate() {
                    *begun = one(block, i, t).unwrap_or(0);
                }
            });
        } else {
            each(self.parallel, &mut self.blocks, &mut self.now, |block, now| {
                for (i, t) in now.iter_mut().enumerate() {
                    one(block, i, t);
                }
            });
        }
    }

    /// Holds senders up until their receives have begun.
    fn wait(&mut self, pattern: Pattern) {
        let begun = &self.begun;
        each(self.parallel, &mut self.blocks, &mut self.now, |block, now| {
            for (i, t) in now.iter_mut().enumerate() {
                if let Some(to) = pattern.to(block.first + i as u32) {
                    *t = (*t).max(begun[to as usize]);
                }
            }
        });
    }

    /// All sends go ahead; then they are done again, on a copy, each before its receive: so no message
    /// need be kept.
    fn burst(&mut self, burst: &Burst) {
        let (n, group) = (burst.messages.len(), burst.messages.group());
        let (mut blocks, mut now) = (self.blocks.clone(), self.now.clone());
        for k in 0..n {
            let pattern = burst.messages.pattern(k);
            send(self.parallel, &mut self.blocks, (&mut self.now, &mut self.leave), pattern, &burst.cost);
        }
        let mut held = vec![0; if burst.cost.rendezvous { now.len() } else { 0 }];
        let mut others = vec![0; if group > 1 { now.len() } else { 0 }];
        for k in (0..n).step_by(group as usize) {
            send(
                self.parallel,
                &mut blocks,
                (&mut now, &mut self.leave),
                burst.messages.pattern(k),
                &burst.cost,
            );
            if group > 1 {
                let pattern = burst.messages.pattern(k + 1);
                send(self.parallel, &mut blocks, (&mut now, &mut others), pattern, &burst.cost);
                std::mem::swap(&mut self.leave, &mut others);
                self.receive_burst(burst, k + 1, &mut held);
                std::mem::swap(&mut self.leave, &mut others);
            }
            self.receive_burst(burst, k, &mut held);
        }
        for (t, held) in self.now.iter_mut().zip(held) {
            *t = (*t).max(held);
        }
    }

    fn receive_burst(&mut self, burst: &Burst, k: u32, held: &mut [u64]) {
        let pattern = burst.messages.pattern(k);
        self.receive(pattern, &burst.cost, 0);
        for (rank, held) in held.iter_mut().enumerate() {
            if let Some(to) = pattern.to(rank as u32) {
                *held = (*held).max(self.begun[to as usize]);
            }
        }
    }

    fn ring_trip(&mut self, cost: &MessageCost) {
        let ranks = self.now.len();
        if ranks == 1 {
            return;
        }
        let mut left = 0;
        for hop in 0..=ranks {
            let rank = hop % ranks;
            let (block, i) = (&mut self.blocks[rank / BLOCK], rank % BLOCK);
            if hop > 0 {
                let from = (hop - 1) as u32;
                let arrival = left + self.network.latency_ns(from, rank as u32);
                let begun = block.receive(i, &mut self.now[rank], arrival, cost, 0);
                if cost.rendezvous {
                    self.now[hop - 1] = self.now[hop - 1].max(begun);
                }
            }
            if hop < ranks {
                left = self.blocks[rank / BLOCK].send(i, &mut self.now[rank], cost);
            }
        }
    }
}

fn send(
    parallel: bool,
    blocks: &mut [Block],
    (now, leave): (&mut [u64], &mut [u64]),
    pattern: Pattern,
    cost: &MessageCost,
) {
    each2(parallel, blocks, (now, leave), |block, now, leave| {
        for (i, (t, leave)) in now.iter_mut().zip(leave).enumerate() {
            if pattern.to(block.first + i as u32).is_some() {
                *leave = block.send(i, t, cost);
            }
        }
    });
}

/// Work of mean `ns` and standard deviation `s · ns`, for one rank.
pub(crate) fn unequal(ns: u64, s: f64, key: Key, rank: u64) -> u64 {
    (ns as f64 * (1.0 + s * normal(key, 2 * rank))).round().max(0.0) as u64
}
