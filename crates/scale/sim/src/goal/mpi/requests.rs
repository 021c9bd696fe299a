// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests of a rank, by the address that the program keeps them at. A trace does not say which request a call completed.

use std::collections::HashMap;

use crate::goal::schedule::Kind;

/// A message that is begun later, or was begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) bytes: u64,
    pub(super) peer: u32,
    pub(super) tag: u32,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Open {
    operation: u32,
    /// The operation that stands for the last test of the request.
    tested: Option<u32>,
}

/// A test that completed an operation: the operation of the test, and the one that it waits for.
pub(super) type Completed = (u32, u32);

/// The requests of a rank.
#[derive(Debug, Default)]
pub(super) struct Requests {
    open: HashMap<u64, Open>,
    /// Persistent requests; `None` for one without a process.
    persistent: HashMap<u64, Option<Message>>,
}

impl Requests {
    /// An operation begins. Returns the request that the program kept at this address before, if its last test completed it.
    pub(super) fn begin(&mut self, address: u64, operation: u32) -> Option<Completed> {
        self.open.insert(address, Open { operation, tested: None }).and_then(completed)
    }

    /// The open operation at `address`, which ends.
    pub(super) fn take(&mut self, address: u64) -> Option<u32> {
        self.open.remove(&address).map(|open| open.operation)
    }

    /// The oldest open operation at `addresses`, which ends.
    pub(super) fn take_oldest(&mut self, addresses: &[u64]) -> Option<u32> {
        let open = addresses.iter().filter_map(|at| Some((self.open.get(at)?.operation, *at)));
        let (operation, at) = open.min()?;
        self.open.remove(&at);
        Some(operation)
    }

    pub(super) fn has_open(&self, addresses: &[u64]) -> bool {
        addresses.iter().any(|at| self.open.contains_key(at))
    }

    /// Operation `test` tests the requests at `addresses`.
    pub(super) fn test(&mut self, addresses: &[u64], test: u32) {
        for at in addresses {
            self.open.entry(*at).and_modify(|open| open.tested = Some(test));
        }
    }

    pub(super) fn keep(&mut self, address: u64, message: Option<Message>) {
        self.persistent.insert(address, message);
    }

    /// The persistent request at `address`.
    pub(super) fn kept(&self, address: u64) -> Option<Option<Message>> {
        self.persistent.get(&address).copied()
    }

    pub(super) fn free(&mut self, address: u64) {
        self.open.remove(&address);
        self.persistent.remove(&address);
    }

    /// The addresses of `count` requests in an array: a request is a pointer in Open MPI, and a number of 4 bytes in MPICH.
    pub(super) fn addresses(&self, name: &str, count: u64, first: u64) -> Result<Vec<u64>, String> {
        let known = self.open.len() + self.persistent.len();
        if count > known as u64 * 64 + 1024 {
            return Err(format!("{name} waits for {count} requests, and {} are open", self.open.len()));
        }
        let all = |size: u64| (0..count).map(move |i| first.wrapping_add(i.wrapping_mul(size)));
        let is_known = |at: &u64| self.open.contains_key(at) || self.persistent.contains_key(at);
        let found = |size: u64| all(size).filter(is_known).count();
        Ok(all(if found(4) > found(8) { 4 } else { 8 }).collect())
    }

    /// Ends the rank: the requests that were tested, and never waited for.
    pub(super) fn end(&mut self) -> Vec<Completed> {
        self.persistent.clear();
        let mut all: Vec<Completed> = self.open.drain().filter_map(|(_, open)| completed(open)).collect();
        all.sort_unstable();
        all
    }
}

fn completed(open: Open) -> Option<Completed> {
    Some((open.tested?, open.operation))
}
