// SPDX-License-Identifier: MIT OR Apache-2.0
//! A schedule in memory: the operations of every rank, what waits for what, and which receive a send meets.

use super::partner::Link;

/// Any source, or any tag, of a receive.
pub const ANY: u32 = u32::MAX;

/// The work of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Sends a message to a rank.
    Send,
    /// Receives one from a rank.
    Recv,
    /// Computes.
    Calc,
}

/// An operation of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The work.
    pub kind: Kind,
    /// Bytes of the message, or nanoseconds of computing.
    pub size: u64,
    /// The other rank, or [`ANY`]; 0 where it computes.
    pub peer: u32,
    /// Tag of the message, or [`ANY`]; 0 where it computes.
    pub tag: u32,
    /// The CPU of the rank that works.
    pub cpu: u8,
    /// Its network interface; 0 where it computes.
    pub nic: u8,
}

/// An operation waits for another of its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    /// Number of the operation that waits.
    pub operation: u32,
    /// Number of the one it waits for.
    pub on: u32,
    /// Until it has begun (`irequires`), not until it is done (`requires`).
    pub start_only: bool,
}

/// Values that operations share: a few shapes stand for millions of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    pub(crate) cpu: u8,
    pub(crate) nic: u8,
    /// Bytes; 0 where it computes, as the time is with the operation.
    pub(crate) bytes: u64,
}

/// 16 bytes an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    /// Number of its shape; the highest bit says that it waits for nothing.
    pub(crate) shape: u32,
    /// The other rank; the high half of the time where it computes.
    pub(crate) peer: u32,
    /// The tag; the low half of the time where it computes.
    pub(crate) tag: u32,
    /// Its first edge; they end where those of the next operation begin.
    pub(crate) edges: u32,
}

impl Packed {
    pub(crate) const FREE: u32 = 1 << 31;

    pub(crate) const fn is_free(&self) -> bool {
        self.shape & Self::FREE != 0
    }

    pub(crate) const fn shape(&self) -> usize {
        (self.shape & !Self::FREE) as usize
    }

    /// The time it computes.
    pub(crate) const fn calc_ns(&self) -> u64 {
        (self.peer as u64) << 32 | self.tag as u64
    }
}

/// An operation or a join that waits for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge(pub(crate) u32);

impl Edge {
    const START: u32 = 1 << 31;
    const JOIN: u32 = 1 << 30;
    /// Most operations of a rank, and joins of all.
    pub(crate) const MOST: u32 = 1 << 29;

    pub(crate) const fn new(to: Waiter, start_only: bool) -> Self {
        let start = if start_only { Self::START } else { 0 };
        match to {
            Waiter::Operation(n) => Self(n | start),
            Waiter::Join(n) => Self(n | Self::JOIN | start),
        }
    }

    /// Until the operation has begun, not until it is done.
    pub(crate) const fn start_only(self) -> bool {
        self.0 & Self::START != 0
    }

    pub(crate) const fn to(self) -> Waiter {
        let n = self.0 & (Self::JOIN - 1);
        if self.0 & Self::JOIN != 0 { Waiter::Join(n) } else { Waiter::Operation(n) }
    }
}

/// The waiting side of an edge: an operation with one requirement, or the join of an operation with several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// An operation of the rank.
    Operation(u32),
    /// A join of the schedule.
    Join(u32),
}

/// An operation that waits for several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Join {
    pub(crate) operation: u32,
    pub(crate) requirements: u32,
}

/// The operations of every rank: sends, receives and computing, each as soon as its requirements are done.
///
/// About 20 bytes an operation and 4 a requirement (12 more for an operation with several). Made by the
/// readers of GOAL ([`read`](super::read)), by [`lower`](super::lower) and by [`Builder`](super::Builder);
/// every send has its receive in it, and nothing waits for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The place at which the operations of each rank begin, and the end of the last rank's.
    pub(crate) first: Vec<u32>,
    /// One more than there are operations: the last only ends the edges.
    pub(crate) operations: Vec<Packed>,
    pub(crate) edges: Vec<Edge>,
    pub(crate) joins: Vec<Join>,
    pub(crate) shapes: Vec<Shape>,
    /// One an operation.
    pub(crate) links: Vec<Link>,
    /// Pairs of ranks with a tag that have more than one message, or unlike ends.
    pub(crate) channels: u32,
    /// True if a message may meet a receive of another size: a rank has open receives, or a channel has several sizes.
    pub(crate) mixed: bool,
    /// Assumptions about calls of which a trace does not say enough.
    pub(crate) notes: Vec<String>,
}

impl Schedule {
    /// Ranks.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        (self.first.len() - 1) as u32
    }

    /// Assumptions of the reader, one a line for the user: the calls of which a trace does not say enough.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Operations of all ranks.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.links.len() as u64
    }

    /// Messages of all ranks.
    #[must_use]
    pub fn messages(&self) -> u64 {
        let sends: Vec<bool> = self.shapes.iter().map(|s| s.kind == Kind::Send).collect();
        self.operations[..self.links.len()].iter().filter(|o| sends[o.shape()]).count() as u64
    }

    /// Bytes that it takes in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let of = |n: usize, each: usize| (n * each) as u64;
        of(self.first.len(), 4)
            + of(self.operations.len(), size_of::<Packed>())
            + of(self.edges.len(), 4)
            + of(self.joins.len(), size_of::<Join>())
            + of(self.shapes.len(), size_of::<Shape>())
            + of(self.links.len(), 4)
    }

    /// Operations of `rank` (none, if there is no such rank), in the order of their numbers.
    pub fn of_rank(&self, rank: u32) -> impl ExactSizeIterator<Item = Operation> + '_ {
        let range = if rank < self.ranks() { self.range(rank) } else { 0..0 };
        self.operations[range].iter().map(|o| self.unpack(o))
    }

    /// The requirements of the operations of `rank`, in the order of the operations required.
    pub fn requirements(&self, rank: u32) -> impl Iterator<Item = Requirement> + '_ {
        let range = if rank < self.ranks() { self.range(rank) } else { 0..0 };
        let first = range.start;
        range.flat_map(move |i| {
            self.edges(i).iter().map(move |e| Requirement {
                operation: self.waiting(e.to()),
                on: (i - first) as u32,
                start_only: e.start_only(),
            })
        })
    }

    pub(crate) fn range(&self, rank: u32) -> std::ops::Range<usize> {
        self.first[rank as usize] as usize..self.first[rank as usize + 1] as usize
    }

    /// The rank of an operation, by its number among those of all ranks.
    pub(crate) fn rank_of(&self, operation: u32) -> u32 {
        self.first.partition_point(|&first| first <= operation) as u32 - 1
    }

    pub(crate) fn edges(&self, operation: usize) -> &[Edge] {
        let (a, b) = (self.operations[operation].edges, self.operations[operation + 1].edges);
        &self.edges[a as usize..b as usize]
    }

    pub(crate) fn waiting(&self, waiter: Waiter) -> u32 {
        match waiter {
            Waiter::Operation(n) => n,
            Waiter::Join(j) => self.joins[j as usize].operation,
        }
    }

    pub(crate) fn unpack(&self, o: &Packed) -> Operation {
        let Shape { kind, cpu, nic, bytes } = self.shapes[o.shape()];
        match kind {
            Kind::Calc => Operation { kind, size: o.calc_ns(), peer: 0, tag: 0, cpu, nic },
            _ => Operation { kind, size: bytes, peer: o.peer, tag: o.tag, cpu, nic },
        }
    }

    /// CPUs and network interfaces that a rank needs.
    #[must_use]
    pub fn cpus_and_nics(&self) -> (u32, u32) {
        let most = |f: fn(&Shape) -> u8| self.shapes.iter().map(f).max().map_or(1, |n| u32::from(n) + 1);
        (most(|s| s.cpu), most(|s| s.nic))
    }
}
