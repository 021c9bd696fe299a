//! Which receive a send meets, as far as that is known before the schedule runs.

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

/// Receives of all ranks, those of a rank in the order of source, tag and number.
struct Receives {
    /// Where those of each rank begin; where the last's end.
    first: Vec<u32>,
    operations: Vec<u32>,
    /// At the first of those from one rank under one tag: messages that are sent. Later: their channel.
    sends: Vec<u32>,
    /// Ranks with a receive from any rank or with any tag.
    open: Vec<bool>,
}

pub(crate) fn link(s: &mut Schedule) -> Result<(), BuildError> {
    let n = s.operations.len() - 1;
    s.links = vec![Link::NONE; n];
    let mut receives = collect(s);
    // the place of its receive, for each send
    let mut places = std::mem::take(&mut s.links);
    for rank in 0..s.ranks() {
        for i in s.range(rank) {
            let o = s.operations[i];
            if s.shapes[o.shape()].kind != Kind::Send {
                continue;
            }
            if receives.open[o.peer as usize] {
                places[i] = Link::ANY;
                continue;
            }
            match receives.place(s, o.peer, (rank, o.tag)) {
                Some(place) => {
                    receives.sends[place] += 1;
                    places[i] = Link(place as u32);
                }
                None => {
                    let fault =
                        Fault::Unmatched { from: rank, to: o.peer, tag: o.tag, sends: 1, receives: 0 };
                    let operation = (i - s.range(rank).start) as u32;
                    return Err(BuildError { rank, operation, fault });
                }
            }
        }
    }
    s.links = places;
    receives.count(s)?;
    connect(s, &receives);
    Ok(())
}

fn collect(s: &Schedule) -> Receives {
    let ranks = s.ranks();
    let mut r = Receives { first: vec![0], operations: Vec::new(), sends: Vec::new(), open: Vec::new() };
    let is_recv: Vec<bool> = s.shapes.iter().map(|s| s.kind == Kind::Recv).collect();
    for rank in 0..ranks {
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
    r.sends = vec![0; r.operations.len()];
    r
}

impl Receives {
    fn range(&self, rank: u32) -> std::ops::Range<usize> {
        self.first[rank as usize] as usize..self.first[rank as usize + 1] as usize
    }

    /// Place of the first receive of `rank` for messages of one source and tag.
    fn place(&self, s: &Schedule, rank: u32, of: (u32, u32)) -> Option<usize> {
        let (range, first) = (self.range(rank), s.range(rank).start);
        let at = |place: usize| {
            let o = &s.operations[first + self.operations[place] as usize];
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

    /// Checks that as many messages are sent as received; `sends` says afterwards which channel each
    /// receive is of, or that it is the only one ([`u32::MAX`]).
    fn count(&mut self, s: &mut Schedule) -> Result<(), BuildError> {
        for rank in 0..s.ranks() {
            let (range, first) = (self.range(rank), s.range(rank).start);
            if self.open[rank as usize] {
                for i in s.range(rank) {
                    if s.shapes[s.operations[i].shape()].kind == Kind::Recv {
                        s.links[i] = Link::ANY;
                    }
                }
            }
            let mut place = range.start;
            while place < range.end {
                let at = |p: usize| {
                    let o = &s.operations[first + self.operations[p] as usize];
                    (o.peer, o.tag)
                };
                let (from, tag) = at(place);
                let receives = (place..range.end).take_while(|&p| at(p) == (from, tag)).count();
                let sends = self.sends[place];
                if sends as usize != receives {
                    let receives = receives as u32;
                    let fault = Fault::Unmatched { from, to: rank, tag, sends, receives };
                    return Err(BuildError { rank, operation: self.operations[place], fault });
                }
                let channel = if receives == 1 { u32::MAX } else { s.channels };
                s.channels += u32::from(receives > 1);
                self.sends[place..place + receives].fill(channel);
                place += receives;
            }
        }
        Ok(())
    }
}

fn connect(s: &mut Schedule, receives: &Receives) {
    for rank in 0..s.ranks() {
        for place in receives.range(rank) {
            if receives.sends[place] != u32::MAX {
                let i = s.range(rank).start + receives.operations[place] as usize;
                s.links[i] = Link(receives.sends[place] | Link::CHANNEL);
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
            let number = receives.operations[place];
            let j = s.range(o.peer).start + number as usize;
            let (a, b) = (s.shapes[o.shape()], s.shapes[s.operations[j].shape()]);
            if receives.sends[place] != u32::MAX {
                s.links[i] = Link(receives.sends[place] | Link::CHANNEL);
            } else if (a.bytes, a.cpu, a.nic) == (b.bytes, b.cpu, b.nic) {
                s.links[i] = Link(number);
                s.links[j] = Link((i - range.start) as u32);
            } else {
                s.links[i] = Link(s.channels | Link::CHANNEL);
                s.links[j] = s.links[i];
                s.channels += 1;
            }
        }
    }
}
