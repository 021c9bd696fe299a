//! The state of a job: when each rank's CPU and interface are free, and what a step makes of it.
//!
//! A message costs what [`MessageCost`] says. Within a round a rank sends, then receives; a send that
//! waits for its receive (rendezvous) holds the rank up at the end of the round, or of the burst, not
//! before its own receive: a program that did that would wait for ever.

use rayon::prelude::*;

use super::pattern::Pattern;
use super::plan::{Burst, Op, Plan, Round};
use crate::cpus::{Cpus, Node};
use crate::network::{MachineNetwork, Network};
use crate::rng::Key;
use crate::{Layout, MessageCost};

/// Ranks whose state is worked on together: small enough for a processor's caches, and the same on any
/// machine.
const BLOCK: usize = 1 << 13;

/// Number of the key that imbalance is drawn with; sources have small ones.
pub(crate) const IMBALANCE: u64 = 1 << 40;

/// A range of ranks.
#[derive(Clone)]
struct Block {
    first: u32,
    cpus: Cpus,
    /// When the interface is free to send and to receive; empty where it always is.
    send_free: Vec<u64>,
    recv_free: Vec<u64>,
}

/// A job in the middle of its program.
pub(crate) struct Job<'a> {
    plan: &'a Plan,
    network: &'a MachineNetwork,
    blocks: Vec<Block>,
    /// When each rank's CPU is free.
    now: Vec<u64>,
    /// When the message of each rank left.
    leave: Vec<u64>,
    /// When the receive of each rank began; empty without rendezvous.
    begun: Vec<u64>,
    key: Key,
    computes: u64,
    parallel: bool,
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
        let block = |first: usize| {
            let end = (first + BLOCK).min(ranks);
            let free = if plan.interfaces { vec![0; end - first] } else { Vec::new() };
            Block {
                first: first as u32,
                cpus: Cpus::new(node, layout, first as u32..end as u32, key, begin_ns),
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

    /// When the last rank is done.
    pub(crate) fn last_ns(&self) -> u64 {
        self.now.iter().copied().max().unwrap_or(0)
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
            for (i, t) in now.iter_mut().enumerate() {
                let work = match imbalance {
                    0.0 => ns,
                    s => unequal(ns, s, key, u64::from(block.first) + i as u64),
                };
                *t = block.cpus.done(i, *t, work);
            }
        });
    }

    fn hardware(&mut self, cpu_ns: u64, wire_ns: u64, phases: u32) {
        let mut all = None;
        for phase in 0..=phases {
            each(self.parallel, &mut self.blocks, &mut self.now, |block, now| {
                for (i, t) in now.iter_mut().enumerate() {
                    *t = block.cpus.done(i, all.unwrap_or(*t), cpu_ns);
                }
            });
            if phase < phases {
                all = Some(self.last_ns() + wire_ns);
            }
        }
    }

    fn rounds(&mut self, rounds: &[Round]) {
        for round in rounds {
            for k in 0..round.times {
                let pattern = round.pattern(k);
                send(self.parallel, &mut self.blocks, (&mut self.now, &mut self.leave), pattern, &round.cost);
                self.receive(pattern, &round.cost, round.combine_ns);
                if round.cost.rendezvous {
                    self.wait(pattern);
                }
            }
        }
    }

    fn receive(&mut self, pattern: Pattern, cost: &MessageCost, combine_ns: u64) {
        let (leave, network) = (&self.leave, self.network);
        let uniform = network.uniform_ns();
        let one = |block: &mut Block, i: usize, t: &mut u64| {
            let rank = block.first + i as u32;
            let from = pattern.from(rank)?;
            let latency = uniform.unwrap_or_else(|| network.latency_ns(from, rank));
            Some(block.receive(i, t, leave[from as usize] + latency, cost, combine_ns))
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

impl Block {
    /// Sends from rank number `i`; returns when the message leaves.
    #[inline]
    fn send(&mut self, i: usize, now: &mut u64, cost: &MessageCost) -> u64 {
        let mut at = *now;
        if let Some(free) = self.send_free.get_mut(i) {
            at = at.max(*free);
            *free = at + cost.gap_ns;
        }
        let leave = self.cpus.done(i, at, cost.overhead_ns);
        *now = self.cpus.done(i, leave, cost.send_more_ns);
        leave
    }

    /// Receives what arrives at `arrival_ns`; returns when that begins.
    #[inline]
    fn receive(
        &mut self,
        i: usize,
        now: &mut u64,
        arrival_ns: u64,
        cost: &MessageCost,
        combine_ns: u64,
    ) -> u64 {
        let mut at = arrival_ns.max(*now);
        if let Some(free) = self.recv_free.get_mut(i) {
            at = at.max(*free);
            *free = at + cost.gap_ns;
        }
        *now = self.cpus.done(i, at + cost.transfer_ns, cost.recv_ns + combine_ns);
        at
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
    // Box and Muller
    let (a, b) = (key.uniform(2 * rank), key.uniform(2 * rank + 1));
    let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
    (ns as f64 * (1.0 + s * normal)).round().max(0.0) as u64
}

/// `f` with each block and its part of `x`.
fn each(parallel: bool, blocks: &mut [Block], x: &mut [u64], f: impl Fn(&mut Block, &mut [u64]) + Sync) {
    if parallel {
        blocks.par_iter_mut().zip(x.par_chunks_mut(BLOCK)).for_each(|(b, x)| f(b, x));
    } else {
        blocks.iter_mut().zip(x.chunks_mut(BLOCK)).for_each(|(b, x)| f(b, x));
    }
}

/// `f` with each block and its parts of `x` and `y`.
fn each2(
    parallel: bool,
    blocks: &mut [Block],
    (x, y): (&mut [u64], &mut [u64]),
    f: impl Fn(&mut Block, &mut [u64], &mut [u64]) + Sync,
) {
    if parallel {
        let parts = x.par_chunks_mut(BLOCK).zip(y.par_chunks_mut(BLOCK));
        blocks.par_iter_mut().zip(parts).for_each(|(b, (x, y))| f(b, x, y));
    } else {
        let parts = x.chunks_mut(BLOCK).zip(y.chunks_mut(BLOCK));
        blocks.iter_mut().zip(parts).for_each(|(b, (x, y))| f(b, x, y));
    }
}
