// SPDX-License-Identifier: MIT OR Apache-2.0
//! Making a schedule, rank by rank.

use std::collections::HashMap;

use super::fault::{BuildError, Fault};
use super::link;
use super::schedule::{Edge, Kind, Operation, Packed, Requirement, Schedule, Shape, Waiter};
use crate::large::reserved;

/// Makes a schedule: the operations of rank 0 with their requirements, then [`Builder::next_rank`], and so on.
///
/// ```
/// use colony_sim::goal::{Builder, Kind, Operation};
/// let message = |kind, peer| Operation { kind, size: 8, peer, tag: 0, cpu: 0, nic: 0 };
/// let mut b = Builder::new(2);
/// b.add(message(Kind::Send, 1))?;
/// b.next_rank()?;
/// let received = b.add(message(Kind::Recv, 0))?;
/// let computed = b.add(Operation { kind: Kind::Calc, size: 1000, peer: 0, tag: 0, cpu: 0, nic: 0 })?;
/// b.require(computed, received, false)?;
/// assert_eq!(b.finish()?.operations(), 3);
/// # Ok::<(), colony_sim::goal::BuildError>(())
/// ```
#[derive(Debug)]
pub struct Builder {
    pub(super) ranks: u32,
    pub(super) made: Schedule,
    /// The first rank of it: 0, unless this is a part.
    base: u32,
    numbers: HashMap<Shape, u32>,
    /// Shapes looked up before, each in the place that its size says.
    recent: [Option<(Shape, u32)>; 64],
    requirements: Vec<Requirement>,
    /// Of each operation of a rank: how many it requires.
    pub(super) waits: Vec<u32>,
}

impl Builder {
    /// Most operations of all ranks.
    pub(super) const MOST: u32 = (1 << 30) - 1;

    /// Begins rank 0 of a schedule of `ranks` ranks.
    #[must_use]
    pub fn new(ranks: u32) -> Self {
        Self::part(ranks, 0)
    }

    /// Begins with a later rank: a part that [`append`](Self::append) puts behind the others.
    pub(super) fn part(ranks: u32, base: u32) -> Self {
        let made = Schedule {
            first: vec![0],
            operations: Vec::new(),
            edges: Vec::new(),
            joins: Vec::new(),
            shapes: Vec::new(),
            links: Vec::new(),
            channels: 0,
            mixed: false,
            notes: Vec::new(),
        };
        let (requirements, waits) = Default::default();
        Self { ranks, made, base, numbers: HashMap::new(), recent: [None; 64], requirements, waits }
    }

    /// Begins again with rank `base`; the shapes keep their numbers.
    pub(super) fn restart(&mut self, base: u32) {
        self.base = base;
        self.made.first.truncate(1);
        self.made.operations.clear();
        self.made.edges.clear();
        self.made.joins.clear();
        self.requirements.clear();
    }

    /// Makes room for operations: all that there will be, if possible.
    pub(super) fn reserve(&mut self, operations: usize) {
        self.made.operations = reserved(operations);
    }

    /// Its first rank.
    pub(super) const fn base(&self) -> u32 {
        self.base
    }

    /// Ranks of the whole schedule.
    pub(super) const fn ranks(&self) -> u32 {
        self.ranks
    }

    /// The rank under way.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.base + (self.made.first.len() - 1) as u32
    }

    /// Number of the next operation of the rank.
    #[must_use]
    pub fn next_operation(&self) -> u32 {
        (self.made.operations.len() - self.begin()) as u32
    }

    fn begin(&self) -> usize {
        self.made.first.last().map_or(0, |&n| n as usize)
    }

    fn error(&self, operation: u32, fault: Fault) -> BuildError {
        BuildError { rank: self.rank(), operation, fault }
    }

    /// Adds an operation to the rank; returns its number there.
    ///
    /// # Errors
    /// [`Fault::NoSuchRank`], [`Fault::OpenSend`], [`Fault::TooLarge`].
    pub fn add(&mut self, o: Operation) -> Result<u32, BuildError> {
        use super::schedule::ANY;
        let number = self.next_operation();
        let open = o.peer == ANY || o.tag == ANY;
        match o.kind {
            Kind::Send if open => return Err(self.error(number, Fault::OpenSend)),
            Kind::Send | Kind::Recv if o.peer >= self.ranks && o.peer != ANY => {
                return Err(self.error(number, Fault::NoSuchRank { peer: o.peer, ranks: self.ranks }));
            }
            _ => {}
        }
        if number >= Edge::MOST {
            return Err(
                self.error(number, Fault::TooLarge { items: "operations on a rank", most: Edge::MOST })
            );
        }
        if self.made.operations.len() >= Self::MOST as usize {
            return Err(self.error(number, Fault::TooLarge { items: "operations", most: Self::MOST }));
        }
        let calc = o.kind == Kind::Calc;
        let bytes = if calc { 0 } else { o.size };
        let nic = if calc { 0 } else { o.nic };
        let shape = self.shape(Shape { kind: o.kind, cpu: o.cpu, nic, bytes });
        let (peer, tag) = if calc { ((o.size >> 32) as u32, o.size as u32) } else { (o.peer, o.tag) };
        self.made.operations.push(Packed { shape, peer, tag, edges: 0 });
        Ok(number)
    }

    pub(super) fn shape(&mut self, shape: Shape) -> u32 {
        let mixed = shape.bytes.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58;
        let place = (mixed as usize) ^ shape.kind as usize;
        match self.recent[place] {
            Some((recent, number)) if recent == shape => number,
            _ => {
                let next = self.made.shapes.len() as u32;
                let number = *self.numbers.entry(shape).or_insert(next);
                if number == next {
                    self.made.shapes.push(shape);
                }
                self.recent[place] = Some((shape, number));
                number
            }
        }
    }

    /// Puts a part behind that begins with the rank under way; both have ended all their ranks. `shapes` has the numbers
    /// here of the shapes that the part had when it was appended before.
    ///
    /// # Errors
    /// [`Fault::TooLarge`].
    pub(super) fn append(&mut self, part: &Self, shapes: &mut Vec<u32>) -> Result<(), BuildError> {
        let (operations, edges) = (self.made.operations.len(), self.made.edges.len());
        let joins = self.made.joins.len();
        for (items, most, here, more) in [
            ("operations", Self::MOST, operations, part.made.operations.len()),
            ("requirements", u32::MAX, edges, part.made.edges.len()),
            ("joins", Edge::MOST, joins, part.made.joins.len()),
        ] {
            if here + more >= most as usize {
                return Err(self.error(0, Fault::TooLarge { items, most }));
            }
        }
        // the same numbers as if all had been added to one
        let known = shapes.len();
        shapes.extend(part.made.shapes[known..].iter().map(|&s| self.shape(s)));
        let before = edges as u32;
        if (0..).zip(&*shapes).all(|(i, &shape)| i == shape) {
            let moved = part.made.operations.iter().map(|o| Packed { edges: o.edges + before, ..*o });
            self.made.operations.extend(moved);
        } else {
            self.made.operations.extend(part.made.operations.iter().map(|o| Packed {
                shape: shapes[o.shape()] | o.shape & Packed::FREE,
                edges: o.edges + before,
                ..*o
            }));
        }
        if joins == 0 || part.made.joins.is_empty() {
            self.made.edges.extend_from_slice(&part.made.edges);
        } else {
            self.made.edges.extend(part.made.edges.iter().map(|e| match e.to() {
                Waiter::Operation(_) => *e,
                Waiter::Join(j) => Edge::new(Waiter::Join(j + joins as u32), e.start_only()),
            }));
        }
        self.made.joins.extend_from_slice(&part.made.joins);
        self.made.first.extend(part.made.first[1..].iter().map(|&f| f + operations as u32));
        Ok(())
    }

    /// Lets operation number `operation` of the rank wait until number `on` is done, or has begun.
    ///
    /// # Errors
    /// [`Fault::NoSuchOperation`], [`Fault::Cycle`] where it waits for itself.
    pub fn require(&mut self, operation: u32, on: u32, start_only: bool) -> Result<(), BuildError> {
        let n = self.next_operation();
        if let Some(&operation) = [operation, on].iter().find(|&&o| o >= n) {
            return Err(self.error(operation, Fault::NoSuchOperation { operation }));
        }
        if operation == on {
            return Err(self.error(operation, Fault::Cycle));
        }
        self.requirements.push(Requirement { operation, on, start_only });
        Ok(())
    }

    /// Ends the rank under way and begins the next.
    ///
    /// # Errors
    /// [`Fault::Cycle`], [`Fault::TooLarge`].
    pub fn next_rank(&mut self) -> Result<(), BuildError> {
        let mut waits = std::mem::take(&mut self.waits);
        waits.clear();
        waits.resize(self.next_operation() as usize, 0);
        for r in &self.requirements {
            waits[r.operation as usize] += 1;
        }
        self.check_for_cycles(&waits)?;
        self.add_edges(&mut waits)?;
        self.waits = waits;
        let end = self.made.operations.len() as u32;
        self.made.first.push(end);
        Ok(())
    }

    fn add_edges(&mut self, waits: &mut [u32]) -> Result<(), BuildError> {
        let begin = self.begin();
        if self.made.edges.len() + self.requirements.len() >= u32::MAX as usize {
            return Err(self.error(0, Fault::TooLarge { items: "requirements", most: u32::MAX }));
        }
        let mut requirements = std::mem::take(&mut self.requirements);
        // stable: the operations that require another keep their order, in which LogGOPSim frees them
        requirements.sort_by_key(|r| (r.on, r.start_only));
        for o in (0..).zip(&mut self.made.operations[begin..]).filter(|(i, _): &(usize, _)| waits[*i] == 0) {
            o.1.shape |= Packed::FREE;
        }
        let mut rest = requirements.as_slice();
        for number in 0..waits.len() {
            self.made.operations[begin + number].edges = self.made.edges.len() as u32;
            while let Some((r, others)) = rest.split_first()
                && r.on as usize == number
            {
                let to = self.waiter(r.operation, waits);
                self.made.edges.push(Edge::new(to, r.start_only));
                rest = others;
            }
        }
        requirements.clear();
        self.requirements = requirements;
        if self.made.joins.len() > Edge::MOST as usize {
            return Err(self.error(0, Fault::TooLarge { items: "joins", most: Edge::MOST }));
        }
        Ok(())
    }

    /// Kahn's algorithm, where a requirement points backwards; else there can be no circle.
    fn check_for_cycles(&self, waits: &[u32]) -> Result<(), BuildError> {
        if self.requirements.iter().all(|r| r.on < r.operation) {
            return Ok(());
        }
        let mut by_on = self.requirements.clone();
        by_on.sort_unstable_by_key(|r| r.on);
        let mut waits = waits.to_vec();
        let mut free: Vec<u32> = (0..waits.len() as u32).filter(|&i| waits[i as usize] == 0).collect();
        while let Some(on) = free.pop() {
            let from = by_on.partition_point(|r| r.on < on);
            for r in by_on[from..].iter().take_while(|r| r.on == on) {
                waits[r.operation as usize] -= 1;
                if waits[r.operation as usize] == 0 {
                    free.push(r.operation);
                }
            }
        }
        match waits.iter().position(|&w| w > 0) {
            Some(operation) => Err(self.error(on_a_cycle(&by_on, &waits, operation as u32), Fault::Cycle)),
            None => Ok(()),
        }
    }

    /// Ends the last rank (those not begun have nothing to do) and finds each send its receive.
    ///
    /// # Errors
    /// [`Fault::Cycle`], [`Fault::Unmatched`], [`Fault::Sizes`], [`Fault::TooLarge`].
    pub fn finish(mut self) -> Result<Schedule, BuildError> {
        while self.rank() < self.ranks {
            self.next_rank()?;
        }
        let edges = self.made.edges.len() as u32;
        self.made.operations.push(Packed { shape: 0, peer: 0, tag: 0, edges });
        link::link(&mut self.made)?;
        Ok(self.made)
    }
}

/// Walks from an operation that is held back along what holds it back until one comes again.
fn on_a_cycle(requirements: &[Requirement], waits: &[u32], from: u32) -> u32 {
    let mut held_by: HashMap<u32, u32> = HashMap::new();
    for r in requirements.iter().filter(|r| waits[r.on as usize] > 0) {
        held_by.insert(r.operation, r.on);
    }
    let mut seen = std::collections::HashSet::new();
    let mut at = from;
    while seen.insert(at) {
        match held_by.get(&at) {
            Some(&next) => at = next,
            None => break,
        }
    }
    at
}
