// SPDX-License-Identifier: MIT OR Apache-2.0
//! Broadcasts and reductions: the parcels around [`Broadcasts`](crate::broadcasts) and [`Reductions`](crate::reduction).

use std::sync::Arc;

use colony_timeline::ALL_PES;

use super::Core;
use crate::address::{Address, ArrayId};
use crate::broadcasts::Broadcast;
use crate::index::Index;
use crate::location::Route;
use crate::message::{Envelope, Payload};
use crate::parcel::{Parcel, System};
use crate::reduction::{Callback, Op, Partial, Reductions, Values};

/// The result of a reduction: the message that the target's entry method takes.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Reduced {
    /// The reduction's number among those of its array, from 0.
    pub number: u64,
    /// The combination of all contributions.
    pub values: Values,
}

impl Reduced {
    /// The values, if they are floating-point numbers; none otherwise.
    #[must_use]
    pub fn f64s(&self) -> &[f64] {
        if let Values::F64(values) = &self.values { values } else { &[] }
    }

    /// The values, if they are integers; none otherwise.
    #[must_use]
    pub fn i64s(&self) -> &[i64] {
        if let Values::I64(values) = &self.values { values } else { &[] }
    }
}

/// PEs that a PE passes a broadcast on to.
const BRANCHES: u32 = 4;

impl Core {
    /// Sends a message to every element of an array.
    pub(crate) fn broadcast(&mut self, array: ArrayId, entry: u16, payload: Payload) {
        match self.pack_message(array, entry, payload) {
            Ok(message) => {
                let root = self.root_of(array);
                let id = self.note_sent(ALL_PES, array, entry, message.len());
                self.post(root, Parcel::System(System::Ask { array, entry, id, message }));
            }
            Err(error) => self.fail_program(error),
        }
    }

    /// At the root: numbers a broadcast.
    pub(crate) fn begin_broadcast(&mut self, array: ArrayId, entry: (u16, u64), message: Vec<u8>) {
        let Some(state) = self.arrays.get_mut(&array) else { return };
        let number = state.broadcasts.next;
        state.broadcasts.next += 1;
        self.take_broadcast(array, number, entry, message);
    }

    /// Takes a broadcast: passes it on, and queues it for the elements here.
    pub(crate) fn take_broadcast(
        &mut self,
        array: ArrayId,
        number: u64,
        (entry, id): (u16, u64),
        message: Vec<u8>,
    ) {
        let (pes, root) = (self.pes(), self.root_of(array));
        let place = (self.pe() + pes - root) % pes;
        for child in (1..=BRANCHES).map(|b| u64::from(place) * u64::from(BRANCHES) + u64::from(b)) {
            if child < u64::from(pes) {
                let pe = ((child + u64::from(root)) % u64::from(pes)) as u32;
                let message = message.clone();
                self.post(pe, Parcel::System(System::Broadcast { array, number, entry, id, message }));
            }
        }
        let Some(state) = self.arrays.get_mut(&array) else { return };
        if state.broadcasts.count() != number {
            return self.fail_program("a broadcast arrived out of order: this is a fault of the runtime");
        }
        let broadcast = Broadcast { entry, id, message: Arc::from(message) };
        state.broadcasts.arrive(broadcast.clone());
        let slots: Vec<u32> = state.here.values().copied().collect();
        for slot in slots {
            let id = self.slots.id(slot);
            if let Some(element) = self.slots.get_mut(slot).filter(|e| e.ledger.broadcast == number) {
                element.ledger.broadcast += 1;
                element.ledger.given.push_back(broadcast.clone());
                self.push(0, super::Ready::Broadcast(id));
            }
        }
        self.acknowledge(array);
    }

    /// Acknowledges broadcasts to the root, if there are enough.
    pub(crate) fn acknowledge(&mut self, array: ArrayId) {
        let Some(state) = self.arrays.get_mut(&array) else { return };
        let leaving = state.leaving.keys().next().copied();
        let Some(below) = state.broadcasts.acknowledge(leaving) else { return };
        let (root, pe) = (self.root_of(array), self.pe());
        if root == pe {
            self.acknowledged(array, pe, below);
        } else {
            self.post(root, Parcel::System(System::Done { array, pe, below }));
        }
    }

    /// At the root: a PE has acknowledged.
    pub(crate) fn acknowledged(&mut self, array: ArrayId, pe: u32, below: u64) {
        let pes = self.pes();
        let Some(state) = self.arrays.get_mut(&array) else { return };
        let Some(below) = state.broadcasts.done(pe, pes, below) else { return };
        self.post_to_others(|| System::Trim { array, below });
        if let Some(state) = self.arrays.get_mut(&array) {
            state.broadcasts.trim(below);
        }
    }

    /// Sends a message to some elements: one parcel a PE.
    pub(crate) fn multicast(
        &mut self,
        slot: Option<u32>,
        from: Address,
        array: ArrayId,
        to: &[Index],
        entry: u16,
        payload: Payload,
    ) {
        let message = match self.pack_message(array, entry, payload) {
            Ok(message) => message,
            Err(error) => return self.fail_program(error),
        };
        let mut by_pe: std::collections::BTreeMap<u32, Vec<(Index, u64)>> = std::collections::BTreeMap::new();
        let mut is_due = false;
        for &index in to {
            let address = Address { array, index };
            let outgoing = match slot.and_then(|s| self.slots.get_mut(s)) {
                Some(element) => &mut element.ledger.outgoing,
                None => &mut self.outgoing,
            };
            let number = outgoing.next(address);
            is_due |= outgoing.is_due();
            self.record_bytes(slot, address, message.len());
            let pe = match (self.slot_of(address), self.home_of(address)) {
                (None, Some(home)) => match self.locations.route(address, home) {
                    Route::To(place) => place.pe,
                    Route::Keep => self.pe(),
                },
                _ => self.pe(),
            };
            by_pe.entry(pe).or_default().push((index, number));
        }
        let origin = self.pe();
        for (pe, to) in by_pe {
            let message = message.clone();
            let id = self.note_sent(pe, array, entry, message.len());
            self.post(pe, Parcel::System(System::Multicast { array, to, from, origin, entry, id, message }));
        }
        if is_due {
            self.retire_idle(slot);
        }
    }

    /// Takes a message to some elements, and makes one to each of it.
    pub(crate) fn take_multicast(
        &mut self,
        array: ArrayId,
        to: Vec<(Index, u64)>,
        (from, origin): (Address, u32),
        (entry, id): (u16, u64),
        message: &[u8],
    ) {
        for (index, number) in to {
            self.deliver(Envelope {
                to: Address { array, index },
                from,
                number,
                reply: 0,
                origin,
                priority: 0,
                entry,
                epoch: 0,
                id,
                payload: Payload::Packed(message.to_vec()),
            });
        }
    }

    /// An element contributes to its next reduction.
    pub(crate) fn contribute(&mut self, slot: u32, values: Values, op: Op, callback: Callback) {
        let Some(element) = self.slots.get_mut(slot) else { return };
        let (address, number) = (element.address, element.ledger.reduction);
        element.ledger.reduction += 1;
        let part = Partial::of(address, values, op, callback);
        let Some(array) = self.arrays.get_mut(&address.array) else { return };
        if let Err(mismatch) = array.reductions.contribute(number, part) {
            let object = self.show(address);
            return self.fail_program(format!("{object}: {mismatch}"));
        }
        self.pass_complete(address.array);
    }

    /// Passes on what is complete on this PE.
    pub(crate) fn pass_complete(&mut self, array: ArrayId) {
        let root = self.root_of(array);
        while let Some((number, part)) =
            self.arrays.get_mut(&array).and_then(|a| a.reductions.take_complete())
        {
            self.post(root, Parcel::System(System::Partial { array, number, part }));
        }
    }

    /// At the root: a part of a reduction, and the result once all elements have contributed.
    pub(crate) fn take_partial(&mut self, array: ArrayId, number: u64, part: Partial) {
        let add = |a: &mut Reductions| a.add(number, part);
        if let Some(Err(mismatch)) = self.arrays.get_mut(&array).map(|a| add(&mut a.at_root)) {
            return self.fail_program(mismatch);
        }
        self.finish_reductions(array);
    }

    /// At the root: calls back with the results that are complete.
    pub(crate) fn finish_reductions(&mut self, array: ArrayId) {
        let whole = |a: &mut super::ArrayState| a.at_root.take_whole();
        while let Some((number, part)) = self.arrays.get_mut(&array).and_then(whole) {
            self.finish_reduction(number, part);
        }
    }

    /// Calls back with a result.
    pub(crate) fn finish_reduction(&mut self, number: u64, part: Partial) {
        let result = Reduced { number, values: part.values };
        self.call_back(part.callback, Payload::Typed(Box::new(result)));
    }

    /// Asks to be called back at quiescence.
    pub(crate) fn when_quiet(&mut self, callback: Callback) {
        self.post(0, Parcel::System(System::WhenQuiet { callback }));
    }
}
