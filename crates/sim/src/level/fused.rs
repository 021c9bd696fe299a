//! Rounds in which all ranks exchange messages, the fast way: one pass over the ranks a round.
//!
//! Where a send costs its CPU nothing after the message has left, and neither interface nor rendezvous
//! holds anyone up, the instant the message leaves is also when the sender's CPU is free. So one array
//! holds both, and a receive and the send of the next round are one piece of work:
//! `leave' = done(max(leave, leave of the other + L) + transfer, recv + combine + overhead)`.

use super::job::{Block, CHUNK, each};
use super::pattern::Pattern;
use super::plan::Round;
use crate::cpus::Cpus;

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

/// Does `rounds`, which are fusable, on a network of uniform latency and interfaces that are always free.
pub(crate) fn run(
    parallel: bool,
    blocks: &mut [Block],
    (now, spare): (&mut Vec<u64>, &mut Vec<u64>),
    rounds: &[Round],
    latency_ns: u64,
) {
    let Some(Pattern::Shift { ranks, .. } | Pattern::Flip { ranks, .. }) = rounds.first().map(|r| r.pattern)
    else {
        return;
    };
    let ranks = ranks as usize;
    let send_ns = rounds[0].cost.overhead_ns;
    each(parallel, blocks, &mut now[..ranks], |block, now| {
        now.iter_mut().for_each(|t| *t += send_ns);
        block.cpus.settle(0, now, send_ns);
    });
    let mut all = rounds.iter().flat_map(|r| (0..r.times).map(move |k| (r, k))).peekable();
    let mut odd = false;
    while let Some((round, k)) = all.next() {
        let pass = Pass {
            pattern: round.pattern(k),
            latency_ns,
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
struct Pass {
    pattern: Pattern,
    latency_ns: u64,
    add_ns: u64,
    work_ns: u64,
}

impl Pass {
    /// The ranks from `first` on: what `old` says of all ranks goes in, theirs comes `out`.
    fn block(&self, cpus: &mut Cpus, first: usize, old: &[u64], out: &mut [u64]) {
        match self.pattern {
            Pattern::Flip { bit, .. } if (bit as usize) < CHUNK => {
                self.pairs(cpus, first, bit as usize, old, out);
            }
            Pattern::Flip { bit, .. } => {
                let bit = bit as usize;
                for at in (0..out.len()).step_by(bit) {
                    let len = bit.min(out.len() - at);
                    self.run(cpus, at, &old[(first + at) ^ bit..][..len], &old[first + at..], &mut out[at..]);
                }
            }
            Pattern::Shift { by, ranks } => {
                let (by, ranks) = (by as usize, ranks as usize);
                // those whose messages come from around the end are first
                let wrapped = by.saturating_sub(first).min(out.len());
                let own = &old[first..];
                self.run(cpus, 0, &old[(first + ranks - by) % ranks..][..wrapped], own, out);
                let rest = out.len() - wrapped;
                let from = &old[(first + wrapped).saturating_sub(by)..][..rest];
                self.run(cpus, wrapped, from, &own[wrapped..], &mut out[wrapped..]);
            }
            _ => unreachable!("only exchanges are fused"),
        }
    }

    /// Ranks whose messages come from neighbours: `from[j]` sends to `own[j]`, number `at + j` of its block.
    fn run(&self, cpus: &mut Cpus, at: usize, from: &[u64], own: &[u64], out: &mut [u64]) {
        let n = from.len();
        let parts = out[..n].chunks_mut(CHUNK).zip(from.chunks(CHUNK).zip(own[..n].chunks(CHUNK)));
        for (c, (out, (from, own))) in parts.enumerate() {
            for (out, (&from, &own)) in out.iter_mut().zip(from.iter().zip(own)) {
                *out = self.end(own, from);
            }
            cpus.settle(at + c * CHUNK, out, self.work_ns);
        }
    }

    /// Ranks whose partners are in the same chunk.
    fn pairs(&self, cpus: &mut Cpus, first: usize, bit: usize, old: &[u64], out: &mut [u64]) {
        let old = &old[first..];
        for (c, out) in out.chunks_mut(CHUNK).enumerate() {
            let old = &old[c * CHUNK..][..out.len()];
            for (j, out) in out.iter_mut().enumerate() {
                *out = self.end(old[j], old[j ^ bit]);
            }
            cpus.settle(c * CHUNK, out, self.work_ns);
        }
    }

    #[inline(always)]
    fn end(&self, own: u64, from: u64) -> u64 {
        own.max(from + self.latency_ns) + self.add_ns + self.work_ns
    }
}
