// SPDX-License-Identifier: MIT OR Apache-2.0
//! One PE: its objects, its queue, and the rules by which messages find objects.

mod arrays;
mod balance;
mod broadcast;
mod capture;
mod checkpoint;
mod epoch;
mod evacuate;
mod image;
mod migrate;
mod quiet;
mod repeat;
mod retire;
mod run;
mod sections;
mod send;
mod system;
mod tasks;

use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Instant;

use rustc_hash::FxHashMap;

use crate::address::{Address, ArrayId};
use crate::broadcasts::Broadcasts;
use crate::class::Classes;
use crate::element::{SlotId, Slots};
use crate::index::Index;
use crate::ledger::Ledger;
use crate::load::LoadClock;
use crate::location::Locations;
use crate::logging::determinants::Determinant;
use crate::message::{Envelope, Payload};
use crate::order::{Outgoing, Retirement};
use crate::port::Port;
use crate::queued::Queued;
use crate::quiescence::Quiescence;
use crate::reduction::{Callback, Partial, Reductions};
use crate::section::SectionName;
use crate::shape::{Map, Shape};
use crate::track::Track;

pub use broadcast::Reduced;
pub use checkpoint::CheckpointReport;
pub(crate) use checkpoint::Checkpoints;
pub(crate) use image::describe_program;
pub use quiet::Quiet;

/// Entries of the queue whose memory an idle PE keeps.
const QUEUE: usize = 4096;

/// Why a PE cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// The program or its input is wrong; the text says how.
    #[error("{0}")]
    Program(String),
    /// Another process has failed and reported it.
    #[error("{0}")]
    Lost(String),
    /// Another process has died without a word, and is replaced.
    #[error("{0}")]
    Died(String),
    /// This process has to be replaced.
    #[error("the process begins anew")]
    Again,
}

impl From<crate::transport::TransportError> for Failure {
    /// Only a rank that is lost has a failure of its own to report.
    fn from(error: crate::transport::TransportError) -> Self {
        match error {
            crate::transport::TransportError::Lost(text) => Self::Lost(text),
            crate::transport::TransportError::Died(text) => Self::Died(text),
            error => Self::Program(error.to_string()),
        }
    }
}

/// Something to run.
pub(crate) enum Ready {
    /// A message, to the object that was in the slot when it was queued.
    Message(Option<SlotId>, Envelope),
    /// The next broadcast that the object was given.
    Broadcast(SlotId),
    /// `Object::resume`.
    Resume(SlotId),
    /// `Object::arrived`.
    Arrived(SlotId),
}

/// A message that is sent later.
struct Timer {
    from: Address,
    to: Address,
    entry: u16,
    payload: Payload,
}

/// An array, on this PE.
pub(crate) struct ArrayState {
    pub(crate) class: u16,
    pub(crate) shape: Shape,
    pub(crate) map: Map,
    /// Its elements here.
    pub(crate) here: FxHashMap<Index, u32>,
    pub(crate) broadcasts: Broadcasts,
    pub(crate) reductions: Reductions,
    /// At the root: the parts of reductions that PEs have passed on.
    pub(crate) at_root: Reductions,
    /// Elements that left this PE and whose arrival is not yet known, by the next broadcast that they are given.
    pub(crate) leaving: BTreeMap<u64, u64>,
    /// The elements take part in load balancing.
    pub(crate) balanced: bool,
    /// At their home: elements that have been removed.
    pub(crate) vacant: FxHashMap<Index, Vacant>,
    /// At their home: elements to be created once one at the same index has been removed, with the first reduction in
    /// which they take part.
    pub(crate) insertions: FxHashMap<Index, (Vec<u8>, u64)>,
}

/// What the runtime keeps of a removed element for the next one at its index.
pub(crate) struct Vacant {
    pub(crate) epoch: u32,
    /// Requests that elements of the index have made.
    pub(crate) requests: u32,
    /// Nothing, once the element's last pair has been retired.
    pub(crate) ledger: Option<Box<Ledger<Envelope>>>,
}

/// Counts of one PE, for reports and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Entry methods that ran.
    pub executed: u64,
    /// Messages that this PE passed on to another.
    pub forwarded: u64,
    /// Objects that left this PE.
    pub departed: u64,
    /// Messages that arrived before one sent earlier.
    pub early: u64,
    /// Requests for objects of other PEs of the process.
    pub steals: u64,
    /// Of the entry methods that ran: those that the PE had run before its process was replaced.
    pub repeated: u64,
    /// Pairs of objects, once at the sender and once at the receiver, whose message numbers the PE keeps at the end.
    pub pairs: u64,
    /// Removed elements that the PE keeps something of at the end.
    pub removed: u64,
}

/// One PE.
pub(crate) struct Core {
    pub(crate) port: Port,
    pub(crate) classes: &'static Classes<Core>,
    pub(crate) slots: Slots,
    pub(crate) arrays: FxHashMap<ArrayId, ArrayState>,
    /// Parcels for arrays that are not yet known here.
    unknown: Vec<(ArrayId, crate::parcel::Parcel)>,
    pub(crate) locations: Locations,
    /// Messages for objects that will arrive or be created here.
    kept: FxHashMap<Address, Vec<Envelope>>,
    /// Steps to retire pairs with objects that will arrive or be created here, and the other objects of the pairs.
    kept_retirements: FxHashMap<Address, Vec<(Address, Retirement)>>,
    queue: VecDeque<Ready>,
    /// Ready items of another priority than 0, by priority and number.
    prior: BinaryHeap<Queued<(i32, u64), Ready>>,
    /// By when they are due and number.
    timers: BinaryHeap<Queued<(Instant, u64), Timer>>,
    /// Numbers things that have to keep their order.
    number: u64,
    /// Numbers of messages that no object sends.
    outgoing: Outgoing,
    next_array: u32,
    /// Contributions to reductions of sections that have not been passed on.
    pub(crate) section_parts: FxHashMap<(SectionName, u64), Partial>,
    /// At a section's root: its reductions.
    sections: FxHashMap<SectionName, Reductions>,
    pub(crate) evacuation: evacuate::Evacuation,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) running: Option<run::Running>,
    pub(crate) quiescence: Quiescence,
    pub(crate) balancer: crate::balancer::Balancer,
    pub(crate) load: LoadClock,
    pub(crate) track: Track,
    pub(crate) counts: Counts,
    pub(crate) exit: Option<u8>,
    /// The processes end so that the job goes on with another number of ranks.
    pub(crate) has_left: bool,
    pub(crate) failure: Option<Failure>,
    /// Another process has died, and this PE may go on after its replacement.
    pub(crate) has_lost: bool,
    /// Work stealing inside the process.
    pub(crate) steals: bool,
}

impl Core {
    pub(crate) fn new(
        port: Port,
        classes: &'static Classes<Core>,
        options: &crate::options::Options,
        checkpoints: Checkpoints,
        track: Track,
    ) -> Self {
        let pe = port.pe;
        Self {
            balancer: crate::balancer::Balancer::new(options.balance.clone(), port.pes),
            quiescence: Quiescence::new(port.pes),
            port,
            classes,
            slots: Slots::default(),
            arrays: FxHashMap::default(),
            unknown: Vec::new(),
            locations: Locations::new(pe),
            kept: FxHashMap::default(),
            kept_retirements: FxHashMap::default(),
            queue: VecDeque::new(),
            prior: BinaryHeap::new(),
            timers: BinaryHeap::new(),
            number: 0,
            outgoing: Outgoing::default(),
            next_array: 0,
            evacuation: evacuate::Evacuation::default(),
            checkpoints,
            section_parts: FxHashMap::default(),
            sections: FxHashMap::default(),
            running: None,
            load: LoadClock::default(),
            track,
            counts: Counts::default(),
            exit: None,
            has_left: false,
            failure: None,
            has_lost: false,
            steals: options.steal,
        }
    }

    #[inline]
    pub(crate) fn pe(&self) -> u32 {
        self.port.pe
    }

    #[inline]
    pub(crate) fn pes(&self) -> u32 {
        self.port.pes
    }

    /// Keeps the first failure: the others follow from it. With a log of messages, the death of another process
    /// does not end this PE.
    pub(crate) fn fail(&mut self, failure: Failure) {
        if self.port.log.is_some() && matches!(failure, Failure::Died(_)) {
            self.has_lost = true;
        } else {
            self.failure.get_or_insert(failure);
        }
    }

    pub(crate) fn fail_program(&mut self, reason: impl ToString) {
        self.fail(Failure::Program(reason.to_string()));
    }

    #[inline]
    pub(crate) fn push(&mut self, priority: i32, ready: Ready) {
        if priority == 0 {
            self.queue.push_back(ready);
        } else {
            self.number += 1;
            self.prior.push(Queued { key: (priority, self.number), item: ready });
        }
    }

    /// The next thing to run: negative priorities first, then the usual, then positive ones.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Ready> {
        if !self.prior.is_empty() {
            let urgent = self.prior.peek().is_some_and(|p| p.key.0 < 0);
            if urgent || self.queue.is_empty() {
                return self.prior.pop().map(|p| p.item);
            }
        }
        self.queue.pop_front()
    }

    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        !self.queue.is_empty() || !self.prior.is_empty()
    }

    /// Gives the memory of a long queue back.
    pub(crate) fn trim_queue(&mut self) {
        if self.queue.capacity() > QUEUE {
            self.queue.shrink_to(QUEUE);
        }
    }

    pub(crate) fn ready(&self) -> usize {
        self.queue.len() + self.prior.len()
    }

    /// The slot of an object, if it is here.
    #[inline]
    pub(crate) fn slot_of(&self, address: Address) -> Option<u32> {
        self.arrays.get(&address.array)?.here.get(&address.index).copied()
    }

    /// The PE that an object's home is on, if its array is known.
    #[inline]
    pub(crate) fn home_of(&self, address: Address) -> Option<u32> {
        let array = self.arrays.get(&address.array)?;
        let class = self.classes.get(array.class)?;
        Some((class.home)(array.map, array.shape, address, self.pes()))
    }

    /// The PE that numbers an array's broadcasts and combines its reductions.
    pub(crate) fn root_of(&self, array: ArrayId) -> u32 {
        array.0 % self.pes()
    }

    /// An object as people read it, such as `Cell [3, 4]`.
    pub(crate) fn show(&self, address: Address) -> String {
        if address.array == ArrayId::PES {
            return format!("PE {}", address.index.halves()[1]);
        }
        let class = self.arrays.get(&address.array).and_then(|a| self.classes.get(a.class));
        class.map_or_else(
            || format!("an element of the unknown array {}", address.array.0),
            |class| format!("{} {}", class.name, (class.show)(address.index)),
        )
    }

    /// Moves the timers that are due into messages. Returns when the next one is.
    pub(crate) fn run_timers(&mut self) -> Option<Instant> {
        if self.timers.is_empty() {
            return None;
        }
        let now = Instant::now();
        while self.timers.peek().is_some_and(|t| t.key.0 <= now) {
            let Some(Queued { key: (_, number), item: timer }) = self.timers.pop() else { break };
            self.note(|pass| Determinant::Timer { pass, number });
            self.fire(timer);
        }
        self.timers.peek().map(|t| t.key.0)
    }

    fn fire(&mut self, timer: Timer) {
        self.send_from(timer.from, timer.to, timer.entry, timer.payload, 0, 0);
    }

    /// Takes a timer by its number, whether or not it is due.
    fn take_timer(&mut self, number: u64) -> Option<Timer> {
        let mut timers = std::mem::take(&mut self.timers).into_vec();
        let at = timers.iter().position(|timer| timer.key.1 == number);
        let timer = at.map(|at| timers.swap_remove(at).item);
        self.timers = timers.into();
        timer
    }

    pub(crate) fn has_timers(&self) -> bool {
        !self.timers.is_empty()
    }

    pub(crate) fn add_timer(
        &mut self,
        due: Instant,
        from: Address,
        to: Address,
        entry: u16,
        payload: Payload,
    ) {
        self.number += 1;
        self.timers.push(Queued { key: (due, self.number), item: Timer { from, to, entry, payload } });
    }

    /// Sends the result of a reduction, or a quiescence, where it belongs.
    pub(crate) fn call_back(&mut self, callback: Callback, payload: Payload) {
        match callback {
            Callback::Element { to, entry } => {
                let from = Address::pe(self.pe());
                self.send_from(from, to, entry, payload, 0, 0);
            }
            Callback::Array { array, entry } => self.broadcast(array, entry, payload),
            Callback::Exit => self.exit_all(0),
        }
    }
}
