// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rank of a binary file in the form that `txt2bin` writes, put straight into a schedule's arrays.

use super::binary::{OPERATION, Record};
use super::build::Builder;
use super::schedule::{ANY, Edge, Join, Kind, Packed, Shape, Waiter};

/// An operation as it is in the file.
pub(super) type Bytes = [u8; OPERATION as usize];

impl Builder {
    /// Adds a rank: its operations, and the list of those that require others. `None`, with nothing added, where the list
    /// is not in the order of its operations, an operation requires a later one, or anything is wrong: what
    /// [`add`](Self::add) and [`require`](Self::require) are for.
    pub(super) fn add_rank(&mut self, operations: &[Bytes], list: &[[u8; 4]]) -> Option<()> {
        let begin = self.made.operations.len();
        let (edges, joins) = (self.made.edges.len(), self.made.joins.len());
        if begin + operations.len() > Self::MOST as usize
            || operations.len() >= Edge::MOST as usize
            || edges + list.len() >= u32::MAX as usize
            || joins + operations.len() > Edge::MOST as usize
        {
            return None;
        }
        let mut waits = std::mem::take(&mut self.waits);
        let added = count_waits(operations, list, &mut waits).and_then(|()| {
            self.made.operations.reserve(operations.len());
            self.made.edges.reserve(list.len());
            self.add_all(operations, list, &mut waits)
        });
        self.waits = waits;
        if added.is_none() {
            self.made.operations.truncate(begin);
            self.made.edges.truncate(edges);
            self.made.joins.truncate(joins);
            return None;
        }
        self.made.first.push(self.made.operations.len() as u32);
        Some(())
    }

    fn add_all(&mut self, operations: &[Bytes], mut list: &[[u8; 4]], waits: &mut [u32]) -> Option<()> {
        for (number, bytes) in operations.iter().enumerate() {
            let Record { operation, require, require_start } = Record::new(bytes);
            let o = operation?;
            let edges = self.made.edges.len() as u32;
            // before the edges, which put the numbers of joins there
            let free = if waits[number] == 0 { Packed::FREE } else { 0 };
            let (bytes, nic, peer, tag) = if o.kind == Kind::Calc {
                (0, 0, (o.size >> 32) as u32, o.size as u32)
            } else {
                let open = o.peer == ANY || o.tag == ANY;
                let there = o.peer < self.ranks || o.peer == ANY;
                if !there || (open && o.kind == Kind::Send) {
                    return None;
                }
                (o.size, o.nic, o.peer, o.tag)
            };
            let shape = self.shape(Shape { kind: o.kind, cpu: o.cpu, nic, bytes });
            self.made.operations.push(Packed { shape: shape | free, peer, tag, edges });
            for ((count, _), start_only) in [(require, false), (require_start, true)] {
                let (here, others) = list.split_at_checked(count as usize)?;
                list = others;
                for operation in here {
                    let waiter = self.waiter(u32::from_le_bytes(*operation), waits);
                    self.made.edges.push(Edge::new(waiter, start_only));
                }
            }
        }
        Some(())
    }

    /// The waiter for the requirements of `operation`; `waits` has their number, and keeps the numbers of joins.
    pub(super) fn waiter(&mut self, operation: u32, waits: &mut [u32]) -> Waiter {
        const JOIN: u32 = 1 << 31;
        let requirements = &mut waits[operation as usize];
        if *requirements & JOIN != 0 {
            return Waiter::Join(*requirements & !JOIN);
        }
        if *requirements == 1 {
            return Waiter::Operation(operation);
        }
        let join = self.made.joins.len() as u32;
        self.made.joins.push(Join { operation, requirements: *requirements });
        *requirements = JOIN | join;
        Waiter::Join(join)
    }
}

/// Counts what each operation requires; `None` where `add_rank` must not go on.
fn count_waits(operations: &[Bytes], list: &[[u8; 4]], waits: &mut Vec<u32>) -> Option<()> {
    waits.clear();
    waits.resize(operations.len(), 0);
    let mut at = 0;
    for (number, bytes) in operations.iter().enumerate() {
        let Record { require, require_start, .. } = Record::new(bytes);
        for (count, first) in [require, require_start] {
            if count == 0 {
                continue;
            }
            if first as usize != at {
                return None;
            }
            let end = at + count as usize;
            for operation in list.get(at..end)? {
                let operation = u32::from_le_bytes(*operation) as usize;
                if operation <= number {
                    return None;
                }
                *waits.get_mut(operation)? += 1;
            }
            at = end;
        }
    }
    (at == list.len()).then_some(())
}
