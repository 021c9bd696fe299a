// SPDX-License-Identifier: MIT OR Apache-2.0
//! A range of ranks: their CPUs and interfaces, and what all of them do at a time.

use rayon::prelude::*;

use crate::MessageCost;
use crate::cpus::Cpus;
use crate::kernels::{self, CHUNK};

/// Ranks whose state is worked on together: small enough for a processor's caches (and for tests to have
/// many).
pub(crate) const BLOCK: usize = if cfg!(test) { CHUNK / 4 } else { 1 << 13 };

/// A range of ranks.
#[derive(Clone)]
pub(crate) struct Block {
    /// The first of them.
    pub(crate) first: u32,
    /// Their CPUs.
    pub(crate) cpus: Cpus,
    /// The instants at which the interface is free to send and to receive; empty if it is always free.
    pub(super) send_free: Vec<u64>,
    pub(super) recv_free: Vec<u64>,
}

impl Block {
    /// `ns` of CPU work of each rank.
    pub(crate) fn work(&mut self, now: &mut [u64], ns: u64) {
        for (c, now) in now.chunks_mut(CHUNK).enumerate() {
            kernels::add(now, ns);
            self.cpus.settle(c * CHUNK, now, ns);
        }
    }

    /// Sends from rank number `i`; returns when the message leaves.
    #[inline]
    pub(super) fn send(&mut self, i: usize, now: &mut u64, cost: &MessageCost) -> u64 {
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
    pub(super) fn receive(
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

/// `f` with each block and its part of `x`.
pub(crate) fn each(
    parallel: bool,
    blocks: &mut [Block],
    x: &mut [u64],
    f: impl Fn(&mut Block, &mut [u64]) + Sync,
) {
    if parallel {
        blocks.par_iter_mut().zip(x.par_chunks_mut(BLOCK)).for_each(|(b, x)| f(b, x));
    } else {
        blocks.iter_mut().zip(x.chunks_mut(BLOCK)).for_each(|(b, x)| f(b, x));
    }
}

/// `f` with each block and its parts of `x` and `y`.
pub(crate) fn each2(
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
