// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the runtime keeps for an object beside its state, and what migrates with it.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::address::Address;
use crate::broadcasts::Broadcast;
use crate::order::{Incoming, Outgoing, Retirement};
use crate::sync::Turn;

/// Tables and counters of one object. `M` is the form of messages that arrived early.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ledger<M> {
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming<M>,
    /// The array's next broadcast for this object, and those that it was given and has not run.
    pub(crate) broadcast: u64,
    pub(crate) given: VecDeque<Broadcast>,
    /// The array's next reduction of this object.
    pub(crate) reduction: u64,
    /// The next reductions of sections that the object has contributed to, by the sections' ids.
    #[expect(clippy::box_collection, reason = "8 bytes in each object; few objects use them")]
    pub(crate) sections: Option<Box<BTreeMap<u64, u64>>>,
    /// Requests that the object has made.
    pub(crate) requests: u32,
    pub(crate) turn: Turn,
    /// CPU seconds since the last load balancing.
    pub(crate) load: f64,
}

impl<M> Ledger<M> {
    /// Of a new object, which takes part in broadcasts and reductions from these numbers on.
    pub(crate) fn new(broadcast: u64, reduction: u64) -> Self {
        Self {
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            broadcast,
            given: VecDeque::new(),
            reduction,
            sections: None,
            requests: 0,
            turn: Turn::default(),
            load: 0.0,
        }
    }

    /// Of the next object at the same index. Numbers of messages go on, and early messages are kept.
    pub(crate) fn renew(self, broadcast: u64, reduction: u64) -> Self {
        let Self { outgoing, incoming, requests, sections, .. } = self;
        Self { outgoing, incoming, requests, sections, ..Self::new(broadcast, reduction) }
    }

    /// Takes a step of another object to retire the pair with it. Returns the answer, if there is one.
    pub(crate) fn retire(&mut self, other: Address, step: Retirement) -> Option<Retirement> {
        match step {
            Retirement::Leave => self.outgoing.ask_one(other).map(Retirement::Ask),
            Retirement::Ask(number) => {
                self.incoming.retire(other, number).then_some(Retirement::Done(number))
            }
            Retirement::Done(number) => {
                self.outgoing.retired(other, number).then_some(Retirement::GoOn(number))
            }
            Retirement::GoOn(number) => {
                self.incoming.resume(other, number);
                None
            }
        }
    }

    /// Returns `true` if the next object at the index needs nothing of this ledger but the count of requests.
    pub(crate) fn is_spent(&self) -> bool {
        self.outgoing.pairs() == 0 && self.incoming.is_empty() && self.sections.is_none()
    }

    /// Begins an interval between two load balancings.
    pub(crate) fn begin_interval(&mut self) {
        self.load = 0.0;
        self.outgoing.forget_traffic();
    }

    /// The same ledger with early messages in another form.
    pub(crate) fn map<N>(self, f: impl FnMut(M) -> N) -> Ledger<N> {
        let Self { outgoing, incoming, broadcast, given, reduction, sections, requests, turn, load } = self;
        let incoming = incoming.map(f);
        Ledger { outgoing, incoming, broadcast, given, reduction, sections, requests, turn, load }
    }
}
