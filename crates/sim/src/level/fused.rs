//! Rounds in which all ranks exchange messages, the fast way: one pass over the ranks a round.
//!
//! Where a send costs its CPU nothing after the message has left, and neither interface nor rendezvous
//! holds anyone up, the instant the message leaves is also when the sender's CPU is free. So one array
//! holds both, and a receive and the send of the next round are one piece of work:
//! `leave' = done(max(leave, leave of the other + L) + transfer, recv + combine + overhead)`.

use super::job::{Block, each};
use super::latency::{Latencies, Latency};
use super::pattern::Pattern;
use super::plan::Round;
use crate::cpus::Cpus;
use crate::kernels::{self, CHUNK, PART};

/// How many of the first `rounds` can be fused: exchanges among the same ranks.
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
    let mut all = rounds.iter().flat_map(|r| (0..r.times).map(move |k| (r, k))).peekable();
    let mut odd = false;
    while let Some((round, k)) = all.next() {
        let pattern = round.pattern(k);
        let pass = Pass {
            pattern,
            latency: latencies.of(pattern),
            add_ns: round.cost.transfer_ns,
            work_ns: round.cost.recv_ns + round.combine_ns + if all.peek().is_some() { send_ns } else { 0 },
        };
        each(parallel, blocks, &mut spare[..ranks], |block, out| {
            pass.block(&mut block.cpus, block.first as usize, now, out);
        });
        std::mem::swap(now, spare);
        odd = !odd;
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
    /// What each receives.
    from: &'a [u64],
    /// When each is free.
    own: &'a [u64],
}

impl Pass<'_> {
    /// The ranks from `first` on: what `old` says of all ranks goes in, theirs comes `out`.
    fn block(&self, cpus: &mut Cpus, first: usize, old: &[u64], out: &mut [u64]) {
        let n = out.len();
        let part = |at: usize, from: usize, len: usize| {
            let rank = first + at;
            Part { rank, at, from: &old[from..from + len], own: &old[rank..rank + len] }
        };
        match self.pattern {
            Pattern::Flip { bit, .. } if (bit as usize) < PART => {
                self.pairs(cpus, first, bit as usize, &old[first..first + n], out);
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
