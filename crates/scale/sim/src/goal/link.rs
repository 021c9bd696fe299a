// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matching of sends with receives, as far as it is known before the schedule runs.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use rayon::prelude::*;

use super::fault::{BuildError, Fault};
use super::partner::{Link, Partner};
use super::schedule::{ANY, Kind, Packed, Schedule, Shape};
use crate::large::large;

/// A send to a rank, or a receive of it, in one number: the other rank, the tag, its number among all operations, and its
/// shape with [`Packed::FREE`]. So nothing of the schedule is looked up to match two of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct End(u128);

impl End {
    fn new(peer: u32, tag: u32, operation: u32, shape: u32) -> Self {
        Self(u128::from(peer) << 96 | u128::from(tag) << 64 | u128::from(operation) << 32 | u128::from(shape))
    }

    /// The other rank and the tag.
    const fn group(self) -> u64 {
        (self.0 >> 64) as u64
    }

    const fn operation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    const fn is_free(self) -> bool {
        self.0 as u32 & Packed::FREE != 0
    }

    fn shape(self, s: &Schedule) -> Shape {
        s.shapes[(self.0 as u32 & !Packed::FREE) as usize]
    }

    const fn is_open(self) -> bool {
        (self.0 >> 96) as u32 == ANY || (self.0 >> 64) as u32 == ANY
    }
}

/// Ranks are linked in blocks: what is looked up and written for one stays in a core's cache.
#[derive(Clone, Copy)]
struct Blocks {
    ranks: u32,
    /// Ranks of a block, as a power of two.
    shift: u32,
}

impl Blocks {
    /// Most ranks of a block.
    const MOST: u32 = 1024;
    /// Half as many blocks there are at least, one for each rank if there are fewer ranks: every core has some.
    const ENOUGH: u32 = 64;

    fn new(ranks: u32) -> Self {
        let each = (ranks / Self::ENOUGH).next_power_of_two().min(Self::MOST);
        Self { ranks, shift: each.ilog2() }
    }

    const fn of(self, rank: u32) -> usize {
        (rank >> self.shift) as usize
    }

    fn count(self) -> usize {
        self.ranks.div_ceil(1 << self.shift) as usize
    }

    fn ranks(self, block: usize) -> Range<u32> {
        let first = (block as u32) << self.shift;
        first..self.ranks.min(first.saturating_add(1 << self.shift))
    }
}

/// Finds each send its receive.
///
/// # Errors
/// [`Fault::Unmatched`], [`Fault::Sizes`]: the first by rank and operation.
pub(super) fn link(s: &mut Schedule) -> Result<(), BuildError> {
    let kinds: Vec<Kind> = s.shapes.iter().map(|s| s.kind).collect();
    let blocks = Blocks::new(s.ranks());
    let sends = sends(s, &kinds, blocks);
    let links: Vec<AtomicU32> = large(s.operations.len() - 1, || AtomicU32::new(Link::NONE.0));
    let schedule = &*s;
    let found: Vec<Found<'_>> = (0..blocks.count())
        .into_par_iter()
        .map_init(Default::default, |room, block| {
            let mut found = Found::new(schedule, &links);
            let sends: Vec<&[Letter]> = sends.iter().map(|s| s.to(block)).collect();
            found.block(blocks.ranks(block), &sends, &kinds, room);
            found
        })
        .collect();
    if let Some(fault) = found.iter().filter_map(|f| f.fault.as_ref()).min_by_key(|e| (e.rank, e.operation)) {
        return Err(fault.clone());
    }
    let mixed = found.iter().any(|f| f.mixed);
    let channels: Vec<u32> = found.iter().map(|f| f.channels).collect();
    s.links = links.into_iter().map(|l| Link(l.into_inner())).collect();
    s.mixed |= mixed;
    s.channels = number_channels(s, &kinds, blocks, &channels);
    Ok(())
}

/// Numbers channels among those of all blocks; says how many there are.
fn number_channels(s: &mut Schedule, kinds: &[Kind], blocks: Blocks, channels: &[u32]) -> u32 {
    let mut all = 0;
    let before: Vec<u32> = channels.iter().map(|n| (all, all += n).0).collect();
    if before.last().is_none_or(|&before| before == 0) {
        return all;
    }
    let (operations, first) = (&s.operations, &s.first);
    let mut rest = s.links.as_mut_slice();
    let mut of_blocks = Vec::new();
    for block in 0..blocks.count() {
        let ranks = blocks.ranks(block);
        let range = first[ranks.start as usize] as usize..first[ranks.end as usize] as usize;
        let (here, others) = rest.split_at_mut(range.len());
        rest = others;
        of_blocks.push((block, here, &operations[range]));
    }
    of_blocks.into_par_iter().for_each(|(block, links, operations)| {
        for (link, o) in links.iter_mut().zip(operations) {
            if matches!(link.partner(), Partner::Channel(_)) {
                // a channel is of its receiver
                let of = if kinds[o.shape()] == Kind::Send { blocks.of(o.peer) } else { block };
                link.0 += before[of];
            }
        }
    });
    all
}

/// A send: its receiver, sender, tag, number among all operations, and shape.
type Letter = [u32; 5];

/// The sends of some ranks, by block of receivers, and in each in the order of the senders.
struct Sends {
    letters: Vec<Letter>,
    /// The ends of the messages to each block; one more in front.
    end: Vec<u32>,
}

impl Sends {
    fn of(s: &Schedule, kinds: &[Kind], blocks: Blocks, senders: Range<u32>) -> Self {
        let range = s.first[senders.start as usize] as usize..s.first[senders.end as usize] as usize;
        let mut end = vec![0u32; blocks.count() + 1];
        for o in s.operations[range].iter().filter(|o| kinds[o.shape()] == Kind::Send) {
            end[blocks.of(o.peer) + 1] += 1;
        }
        let sum = begins(&mut end);
        let mut letters = large(sum, || [0; 5]);
        for from in senders {
            let range = s.range(from);
            for (i, o) in (range.start as u32..).zip(&s.operations[range]) {
                if kinds[o.shape()] == Kind::Send {
                    let at = &mut end[blocks.of(o.peer) + 1];
                    letters[*at as usize] = [o.peer, from, o.tag, i, o.shape];
                    *at += 1;
                }
            }
        }
        Self { letters, end }
    }

    fn to(&self, block: usize) -> &[Letter] {
        &self.letters[self.end[block] as usize..self.end[block + 1] as usize]
    }
}

/// From how many there are of each, behind one more in front: where each begins, until it is filled. Returns their sum.
fn begins(counts: &mut [u32]) -> usize {
    let mut sum = 0;
    for n in &mut counts[1..] {
        (sum, *n) = (sum + *n, sum);
    }
    sum as usize
}

/// The sends of all ranks, in parts.
fn sends(s: &Schedule, kinds: &[Kind], blocks: Blocks) -> Vec<Sends> {
    let parts = s.ranks().min(rayon::current_num_threads() as u32);
    let of = |part: u32| (u64::from(s.ranks()) * u64::from(part) / u64::from(parts)) as u32;
    let part = |part: u32| Sends::of(s, kinds, blocks, of(part)..of(part + 1));
    (0..parts).into_par_iter().map(part).collect()
}

/// The links that a block of ranks finds. Its channels are numbered from 0.
struct Found<'a> {
    schedule: &'a Schedule,
    /// Of all operations; each is written once, by the block of the receiver.
    links: &'a [AtomicU32],
    channels: u32,
    mixed: bool,
    /// The first by rank and operation.
    fault: Option<BuildError>,
}

impl<'a> Found<'a> {
    fn new(schedule: &'a Schedule, links: &'a [AtomicU32]) -> Self {
        Self { schedule, links, channels: 0, mixed: false, fault: None }
    }

    /// Links what is sent to some ranks. The last two are room for the sends to them, and for the receives of one.
    fn block(
        &mut self,
        ranks: Range<u32>,
        sends: &[&[Letter]],
        kinds: &[Kind],
        (theirs, ours): &mut (Vec<End>, Vec<End>),
    ) {
        // counted, then put where those to their receiver are, in their order
        let letters = || sends.iter().copied().flatten();
        let mut ends = vec![0u32; ranks.len() + 1];
        letters().for_each(|&[to, ..]| ends[(to - ranks.start) as usize + 1] += 1);
        theirs.resize(begins(&mut ends), End(0));
        for &[to, from, tag, i, shape] in letters() {
            let at = &mut ends[(to - ranks.start) as usize + 1];
            theirs[*at as usize] = End::new(from, tag, i, shape);
            *at += 1;
        }
        let s = self.schedule;
        for (rank, ends) in ranks.zip(ends.windows(2)) {
            let range = s.range(rank);
            let all = (range.start as u32..).zip(&s.operations[range]);
            let receives = all.filter(|(_, o)| kinds[o.shape()] == Kind::Recv);
            ours.clear();
            ours.extend(receives.map(|(i, o)| End::new(o.peer, o.tag, i, o.shape)));
            self.rank(rank, &mut theirs[ends[0] as usize..ends[1] as usize], ours);
        }
    }

    fn set(&self, end: End, link: Link) {
        self.links[end.operation() as usize].store(link.0, Ordering::Relaxed);
    }

    fn rank(&mut self, rank: u32, sends: &mut [End], receives: &mut [End]) {
        if receives.iter().any(|r| r.is_open()) {
            self.mixed = true;
            sends.iter().chain(&*receives).for_each(|&end| self.set(end, Link::ANY));
            return;
        }
        sends.sort_unstable();
        receives.sort_unstable();
        let (mut sends, mut receives) = (&*sends, &*receives);
        // one group of messages, with one sender and tag, after the other
        loop {
            let of = |ends: &[End]| ends.first().map(|e| e.group());
            let Some(group) = of(sends).into_iter().chain(of(receives)).min() else { return };
            let length = |ends: &[End]| ends.iter().take_while(|e| e.group() == group).count();
            let (ours, theirs);
            (theirs, sends) = sends.split_at(length(sends));
            (ours, receives) = receives.split_at(length(receives));
            if let Err(fault) = self.group(rank, group, theirs, ours) {
                let place = |e: &BuildError| (e.rank, e.operation);
                if self.fault.as_ref().is_none_or(|other| place(&fault) < place(other)) {
                    self.fault = Some(fault);
                }
            }
        }
    }

    /// The messages from one rank to another under one tag.
    fn group(&mut self, to: u32, group: u64, sends: &[End], receives: &[End]) -> Result<(), BuildError> {
        let s = self.schedule;
        let (from, tag) = ((group >> 32) as u32, group as u32);
        let local = |rank: u32, end: End| end.operation() - s.first[rank as usize];
        if let ([send], [receive]) = (sends, receives) {
            let (a, b) = (send.shape(s), receive.shape(s));
            if (a.bytes, a.cpu, a.nic) == (b.bytes, b.cpu, b.nic) {
                self.set(*send, Link(local(to, *receive)));
                self.set(*receive, Link(local(from, *send)));
                return Ok(());
            }
        }
        if sends.len() != receives.len() {
            let (n, m) = (sends.len() as u32, receives.len() as u32);
            let (rank, end) = receives.first().map_or_else(|| (from, sends[0]), |r| (to, *r));
            let fault = Fault::Unmatched { from, to, tag, sends: n, receives: m };
            return Err(BuildError { rank, operation: local(rank, end), fault });
        }
        let bytes = |e: &End| e.shape(s).bytes;
        if sends.iter().zip(receives).any(|(a, b)| bytes(a) > bytes(b))
            && let Some((sent, received)) = too_long(sends.iter().map(bytes), receives.iter().map(bytes))
        {
            let receive = receives.iter().find(|r| bytes(r) == received).unwrap_or(&receives[0]);
            let fault = Fault::Sizes { from, to, tag, sent, received };
            return Err(BuildError { rank: to, operation: local(to, *receive), fault });
        }
        let place = |e: &End| (e.shape(s).cpu, e.shape(s).nic);
        let last = sends.len() - 1;
        // the order is known if each is issued before the next: all but the last require nothing, so that they go
        // first, in the order of their numbers
        let ordered = sends[..last].iter().chain(&receives[..last]).all(|e| e.is_free())
            && (sends.iter().zip(receives)).all(|(a, b)| (bytes(a), place(a)) == (bytes(b), place(b)))
            && receives.iter().all(|r| place(r) == place(&receives[0]));
        if ordered {
            for (&send, &receive) in sends.iter().zip(receives) {
                self.set(send, Link(local(to, receive)));
                self.set(receive, Link(local(from, send)));
            }
        } else {
            let mixed = sends.iter().chain(receives).any(|e| bytes(e) != bytes(&sends[0]));
            self.mixed |= mixed;
            let channel = Link(Link::CHANNEL | if mixed { Link::MIXED } else { 0 } | self.channels);
            sends.iter().chain(receives).for_each(|&end| self.set(end, channel));
            self.channels += 1;
        }
        Ok(())
    }
}

/// The lengths of a message and a receive that is too short for it, if the receives cannot take the messages in any order.
fn too_long(sent: impl Iterator<Item = u64>, received: impl Iterator<Item = u64>) -> Option<(u64, u64)> {
    let (mut sent, mut received): (Vec<u64>, Vec<u64>) = (sent.collect(), received.collect());
    sent.sort_unstable();
    received.sort_unstable();
    sent.into_iter().zip(received).find(|(sent, received)| sent > received)
}
