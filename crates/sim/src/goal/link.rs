//! Which receive a send meets, as far as that is known before the schedule runs.

use std::collections::HashMap;

use rayon::prelude::*;

use super::build::{BuildError, Fault};
use super::schedule::{ANY, Kind, Schedule};

/// How a send and its receive find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link(u32);

/// A link, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partner {
    /// It computes.
    None,
    /// The only one there can be: number of the operation on the other rank. Both are of one size, CPU
    /// number and interface number.
    Operation(u32),
    /// First come, first served among the messages from one rank to another under one tag.
    Channel(u32),
    /// The receiver has receives from any rank or with any tag: decided when the message comes.
    Any,
}

impl Link {
    const CHANNEL: u32 = 1 << 31;
    const NONE: Self = Self(u32::MAX);
    const ANY: Self = Self(u32::MAX - 1);

    pub(crate) const fn partner(self) -> Partner {
        match self {
            Self::NONE => Partner::None,
            Self::ANY => Partner::Any,
            Self(n) if n & Self::CHANNEL != 0 => Partner::Channel(n & !Self::CHANNEL),
            Self(n) => Partner::Operation(n),
        }
    }
}

/// Ranks whose links are found as one piece of work.
const PIECE: u32 = 1024;

/// What a piece of work finds: the links of its receives and of the sends to them, by number among all operations.
/// Channels are numbered from 0 in each piece.
#[derive(Default)]
struct Found {
    links: Vec<(u32, Link)>,
    channels: u32,
    mixed: bool,
    /// The first by rank and operation.
    fault: Option<BuildError>,
}

/// A send to a rank, or a receive of it: the sender, the tag, and its number among all operations.
type End = (u32, u32, u32);

pub(crate) fn link(s: &mut Schedule) -> Result<(), BuildError> {
    let kinds: Vec<Kind> = s.shapes.iter().map(|s| s.kind).collect();
    let sends = Sends::collect(s, &kinds);
    let pieces: Vec<u32> = (0..s.ranks()).step_by(PIECE as usize).collect();
    let schedule = &*s;
    let found: Vec<Found> = pieces
        .into_par_iter()
        .map(|first| {
            let mut found = Found::default();
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for rank in first..schedule.ranks().min(first + PIECE) {
                ours.clear();
                theirs.clear();
                theirs.extend_from_slice(sends.to(rank));
                receives(schedule, &kinds, rank, &mut ours);
                found.rank(schedule, rank, &mut theirs, &mut ours);
            }
            found
        })
        .collect();
    if let Some(fault) = found.iter().filter_map(|f| f.fault.as_ref()).min_by_key(|e| (e.rank, e.operation)) {
        return Err(fault.clone());
    }
    s.links = vec![Link::NONE; s.operations.len() - 1];
    for piece in &found {
        for &(operation, link) in &piece.links {
            s.links[operation as usize] = match link.partner() {
                Partner::Channel(n) => Link(Link::CHANNEL | (n + s.channels)),
                _ => link,
            };
        }
        s.channels += piece.channels;
        s.mixed |= piece.mixed;
    }
    Ok(())
}

/// The sends of all ranks, by receiver; to each in the order of their senders.
struct Sends {
    /// Where those to each rank end; one more in front.
    end: Vec<u32>,
    sends: Vec<End>,
}

impl Sends {
    fn collect(s: &Schedule, kinds: &[Kind]) -> Self {
        let mut end = vec![0u32; s.ranks() as usize + 1];
        for o in &s.operations[..s.operations.len() - 1] {
            if kinds[o.shape()] == Kind::Send {
                end[o.peer as usize + 1] += 1;
            }
        }
        // where each begins, until it is filled
        let mut sum = 0;
        for n in &mut end[1..] {
            (sum, *n) = (sum + *n, sum);
        }
        let mut sends = vec![(0, 0, 0); sum as usize];
        for from in 0..s.ranks() {
            let range = s.range(from);
            for (i, o) in (range.start as u32..).zip(&s.operations[range]) {
                if kinds[o.shape()] == Kind::Send {
                    let at = &mut end[o.peer as usize + 1];
                    sends[*at as usize] = (from, o.tag, i);
                    *at += 1;
                }
            }
        }
        Self { end, sends }
    }

    fn to(&self, rank: u32) -> &[End] {
        &self.sends[self.end[rank as usize] as usize..self.end[rank as usize + 1] as usize]
    }
}

fn receives(s: &Schedule, kinds: &[Kind], rank: u32, ends: &mut Vec<End>) {
    let range = s.range(rank);
    let all = (range.start as u32..).zip(&s.operations[range]);
    ends.extend(all.filter(|(_, o)| kinds[o.shape()] == Kind::Recv).map(|(i, o)| (o.peer, o.tag, i)));
}

impl Found {
    fn rank(&mut self, s: &Schedule, rank: u32, sends: &mut [End], receives: &mut [End]) {
        if receives.iter().any(|&(from, tag, _)| from == ANY || tag == ANY) {
            self.mixed = true;
            self.links.extend(sends.iter().chain(&*receives).map(|&(.., i)| (i, Link::ANY)));
            return;
        }
        sends.sort_unstable();
        receives.sort_unstable();
        let (mut sends, mut receives) = (&*sends, &*receives);
        // one group of messages, with one sender and tag, after the other
        loop {
            let of = |ends: &[End]| ends.first().map(|&(from, tag, _)| (from, tag));
            let Some(group) = of(sends).into_iter().chain(of(receives)).min() else { return };
            let length = |ends: &[End]| ends.iter().take_while(|&&(f, t, _)| (f, t) == group).count();
            let (ours, theirs);
            (theirs, sends) = sends.split_at(length(sends));
            (ours, receives) = receives.split_at(length(receives));
            if let Err(fault) = self.group(s, rank, group, theirs, ours) {
                let place = |e: &BuildError| (e.rank, e.operation);
                if self.fault.as_ref().is_none_or(|other| place(&fault) < place(other)) {
                    self.fault = Some(fault);
                }
            }
        }
    }

    /// The messages from one rank to another under one tag.
    fn group(
        &mut self,
        s: &Schedule,
        to: u32,
        (from, tag): (u32, u32),
        sends: &[End],
        receives: &[End],
    ) -> Result<(), BuildError> {
        let local = |rank: u32, i: u32| i - s.first[rank as usize];
        if sends.len() != receives.len() {
            let (n, m) = (sends.len() as u32, receives.len() as u32);
            let (rank, i) = receives.first().map_or_else(|| (from, sends[0].2), |r| (to, r.2));
            let fault = Fault::Unmatched { from, to, tag, sends: n, receives: m };
            return Err(BuildError { rank, operation: local(rank, i), fault });
        }
        let shape = |&(.., i): &End| s.shapes[s.operations[i as usize].shape()];
        let is_free = |&(.., i): &End| s.operations[i as usize].is_free();
        let bytes = |e: &End| shape(e).bytes;
        if sends.iter().zip(receives).any(|(a, b)| bytes(a) != bytes(b))
            && let Some((sent, received)) = unlike(sends.iter().map(bytes), receives.iter().map(bytes))
        {
            let receive = receives.iter().find(|r| bytes(r) == received).unwrap_or(&receives[0]);
            let fault = Fault::Sizes { from, to, tag, sent, received };
            return Err(BuildError { rank: to, operation: local(to, receive.2), fault });
        }
        let place = |e: &End| (shape(e).cpu, shape(e).nic);
        let last = sends.len() - 1;
        // the order is known if each is issued before the next: all but the last require nothing, so that they go
        // first, in the order of their numbers
        let ordered = sends[..last].iter().chain(&receives[..last]).all(is_free)
            && (sends.iter().zip(receives)).all(|(a, b)| (bytes(a), place(a)) == (bytes(b), place(b)))
            && receives.iter().all(|r| place(r) == place(&receives[0]));
        if ordered {
            for (send, receive) in sends.iter().zip(receives) {
                self.links.push((send.2, Link(local(to, receive.2))));
                self.links.push((receive.2, Link(local(from, send.2))));
            }
        } else {
            self.mixed |= sends.iter().chain(receives).any(|e| bytes(e) != bytes(&sends[0]));
            let channel = Link(Link::CHANNEL | self.channels);
            self.links.extend(sends.iter().chain(receives).map(|e| (e.2, channel)));
            self.channels += 1;
        }
        Ok(())
    }
}

/// The least length that is sent too often and the least that is received too often, if they differ.
fn unlike(sent: impl Iterator<Item = u64>, received: impl Iterator<Item = u64>) -> Option<(u64, u64)> {
    let mut more: HashMap<u64, i64> = HashMap::new();
    sent.for_each(|b| *more.entry(b).or_default() += 1);
    received.for_each(|b| *more.entry(b).or_default() -= 1);
    let least = |is: fn(i64) -> bool| more.iter().filter(|(_, n)| is(**n)).map(|(&b, _)| b).min();
    Some((least(|n| n > 0)?, least(|n| n < 0)?))
}
