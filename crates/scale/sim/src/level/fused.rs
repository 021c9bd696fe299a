// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rounds in which all ranks exchange messages, the fast way: one pass over the ranks a round.
//!
//! If a send costs its CPU nothing after the message has left, and neither interface nor rendezvous delays a rank,
//! the message leaves at the instant at which the sender's CPU is free. So one array
//! holds both, and a receive and the send of the next round are one piece of work:
//! `leave' = done(max(leave, leave of the other + L) + transfer, recv + combine + overhead)`.

use super::block::{BLOCK, Block, each, each2};
use super::latency::{Latencies, Latency};
use super::op::Round;
use super::pattern::Pattern;
use crate::cpus::Cpus;
use crate::kernels::{self, CHUNK, PART};

/// Number of the first `rounds` that can be fused: exchanges among the same ranks.
pub(crate) fn fusable(rounds: &[Round]) -> usize {
    let ranks = |r: &Round| match r.pattern {
        Pattern::Shift { ranks, .. } | Pattern::Flip { ranks, .. } => Some(ranks),
        _ => None,
    };
    let Some(first) = rounds.first().and_then(ranks) else { return 0 };
    let fits = |r: &&Round| ranks(r) == Some(first) && !r.cost.rendezvous && r.cost.send_more_ns == 0;
    rounds.iter().take_while(fits).count()
}

/// Does `rounds`, which are fusable, with interfaces that are always free.
pub(crate) fn run(
    parallel: bool,
    blocks: &mut [Block],
    (now, spare): (&mut Vec<u64>, &mut Vec<u64>),
    rounds: &[Round],
    latencies: &mut Latencies<'_>,
) {
    let Some(Pattern::Shift { ranks, .. } | Pattern::Flip { ranks, .. }) = rounds.first().map(|r| r.pattern)
    else {
        return;
    };
    let ranks = ranks as usize;
    let send_ns = rounds[0].cost.overhead_ns;
    each(parallel, blocks, &mut now[..ranks], |block, now| {
        block.work(now, send_ns);
    });
    let all: Vec<(&Round, Pattern)> =
        rounds.iter().flat_map(|r| (0..r.times).map(move |k| (r, r.pattern(k)))).collect();
    all.iter().for_each(|(_, pattern)| latencies.keep(*pattern));
    let pass = |(n, (round, pattern)): (usize, &(&Round, Pattern))| Pass {
        pattern: *pattern,
        latency: latencies.of(*pattern),
        add_ns: round.cost.transfer_ns,
        work_ns: round.cost.recv_ns + round.combine_ns + if n + 1 < all.len() { send_ns } else { 0 },
    };
    let passes: Vec<Pass<'_>> = all.iter().enumerate().map(pass).collect();
    let mut odd = false;
    for passes in passes.chunk_by(|a, b| a.is_near() && b.is_near()) {
        match passes {
            [pass] => {
                each(parallel, blocks, &mut spare[..ranks], |block, out| pass.block(block, (now, 0), out));
                std::mem::swap(now, spare);
                odd = !odd;
            }
            // what stays in the blocks is done block by block, while they are in the nearest caches
            near => each2(parallel, blocks, (&mut now[..ranks], &mut spare[..ranks]), |block, now, spare| {
                let first = block.first as usize;
                for pair in near.chunks(2) {
                    pair[0].block(block, (now, first), spare);
                    match pair.get(1) {
                        Some(second) => second.block(block, (spare, first), now),
                        None => now.copy_from_slice(spare),
                    }
                }
            }),
        }
    }
    if odd {
        now[ranks..].copy_from_slice(&spare[ranks..]);
    }
}

/// One round.
struct Pass<'a> {
    pattern: Pattern,
    latency: Latency<'a>,
    add_ns: u64,
    work_ns: u64,
}

/// Neighbouring ranks whose messages come from neighbours.
struct Part<'a> {
    /// The first of them.
    rank: usize,
    /// Its number in its block.
    at: usize,
    /// The instants at which the messages to each rank left.
    from: &'a [u64],
    /// The instants at which each rank is free.
    own: &'a [u64],
}

impl Pass<'_> {
    /// True if messages stay in their block.
    fn is_near(&self) -> bool {
        matches!(self.pattern, Pattern::Flip { bit, .. } if (bit as usize) < BLOCK)
    }

    /// The ranks of `block`: `old`, whose first entry is rank `base`, says when all are free, `out` when these are after
    /// the pass.
    fn block(&self, block: &mut Block, (old, base): (&[u64], usize), out: &mut [u64]) {
        let (first, n) = (block.first as usize, out.len());
        let cpus = &mut block.cpus;
        let part = |at: usize, from: usize, len: usize| {
            let (rank, from) = (first + at, from - base);
            Part { rank, at, from: &old[from..from + len], own: &old[rank - base..rank - base + len] }
        };
        match self.pattern {
            Pattern::Flip { bit, .. } if (bit as usize) < PART => {
                self.pairs(cpus, first, bit as usize, &old[first - base..first - base + n], out);
            }
            Pattern::Flip { bit, .. } => {
                let bit = bit as usize;
                for at in (0..n).step_by(bit) {
                    self.run(cpus, &part(at, (first + at) ^ bit, bit.min(n - at)), out);
                }
            }
            Pattern::Shift { by, ranks } => {
                let (by, ranks) = (by as usize, ranks as usize);
                // those whose messages come from around the end are first
                let wrapped = by.saturating_sub(first).min(n);
                if wrapped > 0 {
                    self.run(cpus, &part(0, first + ranks - by, wrapped), out);
                }
                if wrapped < n {
                    self.run(cpus, &part(wrapped, first + wrapped - by, n - wrapped), out);
                }
            }
            _ => unreachable!("only exchanges are fused"),
        }
    }

    fn run(&self, cpus: &mut Cpus, part: &Part<'_>, out: &mut [u64]) {
        let parts = part.from.chunks(CHUNK).zip(part.own.chunks(CHUNK));
        let out = &mut out[part.at..part.at + part.from.len()];
        for (c, (out, (from, own))) in out.chunks_mut(CHUNK).zip(parts).enumerate() {
            let rank = part.rank + c * CHUNK;
            let add_ns = self.add_ns + self.work_ns;
            match self.latency {
                Latency::Uniform(ns) => kernels::arrive(out, own, from, ns, add_ns),
                Latency::Kept(all) => kernels::arrive_each(out, own, from, &all[rank..], add_ns),
                Latency::Asked(..) => {
                    for (j, (out, (&from, &own))) in out.iter_mut().zip(from.iter().zip(own)).enumerate() {
                        *out = self.end(own, from, rank + j);
                    }
                }
            }
            cpus.settle(part.at + c * CHUNK, out, self.work_ns);
        }
    }

    /// Ranks whose partners are near.
    fn pairs(&self, cpus: &mut Cpus, first: usize, bit: usize, own: &[u64], out: &mut [u64]) {
        for (c, (out, own)) in out.chunks_mut(CHUNK).zip(own.chunks(CHUNK)).enumerate() {
            for (j, out) in out.iter_mut().enumerate() {
                *out = self.end(own[j], own[j ^ bit], first + c * CHUNK + j);
            }
            cpus.settle(c * CHUNK, out, self.work_ns);
        }
    }

    #[inline]
    fn end(&self, own: u64, from: u64, rank: usize) -> u64 {
        own.max(from + self.latency.to(rank as u32)) + self.add_ns + self.work_ns
    }
}
