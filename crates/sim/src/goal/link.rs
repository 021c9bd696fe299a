//! Which receive a send meets, as far as that is known before the schedule runs.

use std::collections::HashMap;

use super::build::{BuildError, Fault};
use super::schedule::{ANY, Kind, Packed, Schedule};

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

/// Receives of all ranks, those of a rank in the order of source, tag and number: those of one source and
/// tag are a group.
struct Receives {
    /// Where those of each rank begin; where the last's end.
    first: Vec<u32>,
    operations: Vec<u32>,
    /// At the first place of a group: how many messages are sent, and whether their order is known.
    sends: Vec<Sends>,
    /// Ranks with a receive from any rank or with any tag.
    open: Vec<bool>,
    /// Groups in which a send is not as long as the receive of its number: how often each length is sent more often
    /// than received.
    unlike: HashMap<usize, HashMap<u64, i64>>,
}

/// Messages of a group: a count, and what is known of their order. It is known if each is issued before the
/// next: all but the last require nothing, so that they go first, in the order of their numbers. The same
/// holds for receives.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sends(u32);

impl Sends {
    /// Not known: a channel.
    const UNORDERED: u32 = 1 << 31;
    /// The last one counted requires something.
    const WAITS: u32 = 1 << 30;

    const fn count(self) -> u32 {
        self.0 & (Self::WAITS - 1)
    }

    const fn is(self, flag: u32) -> bool {
        self.0 & flag != 0
    }
}

pub(crate) fn link(s: &mut Schedule) -> Result<(), BuildError> {
    s.links = vec![Link::NONE; s.operations.len() - 1];
    let mut receives = Receives::collect(s);
    // for each send the place of its group; later its partner
    let mut links = std::mem::take(&mut s.links);
    for rank in 0..s.ranks() {
        for i in s.range(rank) {
            let o = s.operations[i];
            if s.shapes[o.shape()].kind != Kind::Send {
                continue;
            }
            if receives.open[o.peer as usize] {
                links[i] = Link::ANY;
                continue;
            }
            let Some(place) = receives.place(s, o.peer, (rank, o.tag)) else {
                let fault = Fault::Unmatched { from: rank, to: o.peer, tag: o.tag, sends: 1, receives: 0 };
                return Err(BuildError { rank, operation: (i - s.range(rank).start) as u32, fault });
            };
            receives.send(s, place, &o);
            links[i] = Link(place as u32);
        }
    }
    s.links = links;
    receives.count(s)?;
    receives.connect(s);
    Ok(())
}

/// The least length that is sent too often and the least that is received too often, if the messages of a group
/// and its receives differ.
fn unlike(more: &HashMap<u64, i64>) -> Option<(u64, u64)> {
    let least =
        |sent: bool| more.iter().filter(|(_, n)| **n != 0 && (**n > 0) == sent).map(|(&b, _)| b).min();
    Some((least(true)?, least(false)?))
}

impl Receives {
    fn collect(s: &Schedule) -> Self {
        let mut r = Self {
            first: vec![0],
            operations: Vec::new(),
            sends: Vec::new(),
            open: Vec::new(),
            unlike: HashMap::new(),
        };
        let is_recv: Vec<bool> = s.shapes.iter().map(|s| s.kind == Kind::Recv).collect();
        for rank in 0..s.ranks() {
            let from = r.operations.len();
            let range = s.range(rank);
            let mut open = false;
            for (number, o) in s.operations[range.clone()].iter().enumerate() {
                if is_recv[o.shape()] {
                    r.operations.push(number as u32);
                    open |= o.peer == ANY || o.tag == ANY;
                }
            }
            if open {
                r.operations.truncate(from);
            }
            r.operations[from..].sort_unstable_by_key(|&number| {
                let o = &s.operations[range.start + number as usize];
                (o.peer, o.tag, number)
            });
            r.open.push(open);
            r.first.push(r.operations.len() as u32);
        }
        r.sends = vec![Sends(0); r.operations.len()];
        r
    }

    fn range(&self, rank: u32) -> std::ops::Range<usize> {
        self.first[rank as usize] as usize..self.first[rank as usize + 1] as usize
    }

    fn at<'a>(&self, s: &'a Schedule, rank: u32, place: usize) -> &'a Packed {
        &s.operations[s.range(rank).start + self.operations[place] as usize]
    }

    /// Place of the first receive of `rank` for messages of one source and tag.
    fn place(&self, s: &Schedule, rank: u32, of: (u32, u32)) -> Option<usize> {
        let range = self.range(rank);
        let at = |place: usize| {
            let o = self.at(s, rank, place);
            (o.peer, o.tag)
        };
        let (mut low, mut high) = (range.start, range.end);
        while low < high {
            let middle = low.midpoint(high);
            if at(middle) < of {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        (low < range.end && at(low) == of).then_some(low)
    }

    /// Counts a send of the group at `place`.
    fn send(&mut self, s: &Schedule, place: usize, send: &Packed) {
        let sends = self.sends[place];
        let shape = s.shapes[send.shape()];
        let receive = place + sends.count() as usize;
        let like_its_receive = receive < self.range(send.peer).end && {
            let r = s.shapes[self.at(s, send.peer, receive).shape()];
            if r.bytes != shape.bytes {
                let more = self.unlike.entry(place).or_default();
                *more.entry(shape.bytes).or_default() += 1;
                *more.entry(r.bytes).or_default() -= 1;
            }
            (r.bytes, r.cpu, r.nic) == (shape.bytes, shape.cpu, shape.nic)
        };
        let ordered = !sends.is(Sends::WAITS) && like_its_receive;
        let unordered = if ordered { sends.0 & Sends::UNORDERED } else { Sends::UNORDERED };
        let waits = if send.is_free() { 0 } else { Sends::WAITS };
        self.sends[place] = Sends((sends.count() + 1) | unordered | waits);
    }

    /// Checks that as many messages are sent as received, and gives groups without order their channels.
    fn count(&mut self, s: &mut Schedule) -> Result<(), BuildError> {
        for rank in 0..s.ranks() {
            if self.open[rank as usize] {
                for i in s.range(rank) {
                    if s.shapes[s.operations[i].shape()].kind == Kind::Recv {
                        s.links[i] = Link::ANY;
                    }
                }
            }
            let range = self.range(rank);
            let mut place = range.start;
            while place < range.end {
                let Packed { peer: from, tag, .. } = *self.at(s, rank, place);
                let same = |p: &usize| {
                    let o = self.at(s, rank, *p);
                    (o.peer, o.tag) == (from, tag)
                };
                let end = (place..range.end).take_while(same).last().map_or(place, |p| p) + 1;
                let (sends, receives) = (self.sends[place].count(), (end - place) as u32);
                if sends != receives {
                    let fault = Fault::Unmatched { from, to: rank, tag, sends, receives };
                    return Err(BuildError { rank, operation: self.operations[place], fault });
                }
                if let Some((sent, received)) = self.unlike.remove(&place).and_then(|more| unlike(&more)) {
                    let receive =
                        (place..end).find(|&p| s.shapes[self.at(s, rank, p).shape()].bytes == received);
                    let operation = self.operations[receive.unwrap_or(place)];
                    let fault = Fault::Sizes { from, to: rank, tag, sent, received };
                    return Err(BuildError { rank, operation, fault });
                }
                let of_one_kind = |p: usize| {
                    let (a, b) = (self.at(s, rank, place).shape(), self.at(s, rank, p).shape());
                    (s.shapes[a].cpu, s.shapes[a].nic) == (s.shapes[b].cpu, s.shapes[b].nic)
                };
                let ordered = !self.sends[place].is(Sends::UNORDERED)
                    && (place..end).all(of_one_kind)
                    && (place..end - 1).all(|p| self.at(s, rank, p).is_free());
                let channel = if ordered { Sends(0) } else { Sends(s.channels | Sends::UNORDERED) };
                s.channels += u32::from(!ordered);
                self.sends[place..end].fill(channel);
                place = end;
            }
        }
        Ok(())
    }

    fn connect(&mut self, s: &mut Schedule) {
        for rank in 0..s.ranks() {
            for place in self.range(rank) {
                if self.sends[place].is(Sends::UNORDERED) {
                    let i = s.range(rank).start + self.operations[place] as usize;
                    s.links[i] = Link(self.sends[place].0);
                }
            }
        }
        for rank in 0..s.ranks() {
            let range = s.range(rank);
            for i in range.clone() {
                let o = s.operations[i];
                if s.shapes[o.shape()].kind != Kind::Send || s.links[i] == Link::ANY {
                    continue;
                }
                let place = s.links[i].0 as usize;
                let sends = self.sends[place];
                if sends.is(Sends::UNORDERED) {
                    s.links[i] = Link(sends.0);
                    continue;
                }
                self.sends[place] = Sends(sends.0 + 1);
                let number = self.operations[place + sends.count() as usize];
                s.links[i] = Link(number);
                s.links[s.first[o.peer as usize] as usize + number as usize] = Link((i - range.start) as u32);
            }
        }
    }
}
