// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pairs of objects that no longer talk are retired: the parcels around [`order`](crate::order), whose page has the protocol.
//!
//! A parcel of it finds its object as messages do, but is taken at once, also by what is kept of a removed element at its home. Such an
//! element is forgotten with its last pair.

use super::{Core, Vacant};
use crate::address::{Address, ArrayId};
use crate::ledger::Ledger;
use crate::location::Route;
use crate::order::Retirement;
use crate::parcel::{Parcel, System};

impl Core {
    /// Looks for idle pairs of a sender, an object or this PE.
    #[cold]
    pub(super) fn retire_idle(&mut self, slot: Option<u32>) {
        let (from, idle) = match slot.and_then(|slot| self.slots.get_mut(slot)) {
            Some(element) => (element.address, element.ledger.outgoing.sweep()),
            None => (Address::pe(self.pe()), self.outgoing.sweep()),
        };
        self.pass_retirements(from, idle, Retirement::Ask);
    }

    fn pass_retirements(&mut self, from: Address, all: Vec<(Address, u64)>, step: fn(u64) -> Retirement) {
        for (to, number) in all {
            self.pass_retirement(to, from, 0, step(number));
        }
    }

    /// Answers a sender whose messages up to a number have been delivered.
    #[cold]
    pub(super) fn answer_retired(&mut self, of: Address, sender: Address, number: u64) {
        self.pass_retirement(sender, of, 0, Retirement::Done(number));
    }

    /// The same for all senders of an object that has arrived.
    pub(super) fn answer_all_retired(&mut self, slot: u32) {
        let Some(element) = self.slots.get_mut(slot) else { return };
        let (of, retired) = (element.address, element.ledger.incoming.take_all_retired());
        self.pass_retirements_to_senders(of, retired);
    }

    fn pass_retirements_to_senders(&mut self, of: Address, retired: Vec<(Address, u64)>) {
        self.pass_retirements(of, retired, Retirement::Done);
    }

    /// Takes a parcel of the protocol, or passes it on.
    pub(crate) fn pass_retirement(&mut self, to: Address, from: Address, epoch: u32, step: Retirement) {
        if to.array == ArrayId::PES {
            return self.retire_of_pe(to, from, step);
        }
        if let Some(slot) = self.slot_of(to) {
            return self.retire_here(slot, from, step);
        }
        let is_vacant =
            |core: &Self| core.arrays.get(&to.array)?.vacant.contains_key(&to.index).then_some(());
        if is_vacant(self).is_some() {
            return self.retire_vacant(to, from, step);
        }
        let Some(home) = self.home_of(to) else {
            let system = System::Retire { to, from, epoch, step };
            return self.keep_unknown(to.array, Parcel::System(system));
        };
        match self.locations.pass_on(to, home, epoch) {
            Route::To(place) => {
                let epoch = place.epoch;
                self.post(place.pe, Parcel::System(System::Retire { to, from, epoch, step }));
            }
            Route::Keep if self.locations.place(to).is_some() => {
                self.kept_retirements.entry(to).or_default().push((from, step));
            }
            // no element is at this index; one that has been removed has been forgotten
            Route::Keep => match step {
                Retirement::GoOn(_) => {
                    self.add_vacant(to);
                    self.retire_vacant(to, from, step);
                }
                _ => self.keep_question(to, from, step),
            },
        }
    }

    /// Takes what waited for an object which is here now, or has been removed.
    pub(super) fn release_retirements(&mut self, object: Address) {
        for (from, step) in self.kept_retirements.remove(&object).unwrap_or_default() {
            self.pass_retirement(object, from, 0, step);
        }
    }

    /// A PE is asked for nothing: no message is for it.
    fn retire_of_pe(&mut self, to: Address, from: Address, step: Retirement) {
        let pe = to.pe_number().and_then(|pe| u32::try_from(pe).ok());
        let Some(pe) = pe.filter(|pe| *pe < self.pes()) else { return };
        if pe != self.pe() {
            return self.post(pe, Parcel::System(System::Retire { to, from, epoch: 0, step }));
        }
        let reply = match step {
            Retirement::Leave => self.outgoing.ask_one(from).map(Retirement::Ask),
            Retirement::Done(number) => {
                self.outgoing.retired(from, number).then_some(Retirement::GoOn(number))
            }
            Retirement::Ask(_) | Retirement::GoOn(_) => None,
        };
        if let Some(reply) = reply {
            self.pass_retirement(from, to, 0, reply);
        }
    }

    fn retire_here(&mut self, slot: u32, from: Address, step: Retirement) {
        let id = self.slots.id(slot);
        let Some(element) = self.slots.get_mut(slot) else { return };
        let (to, reply) = (element.address, element.ledger.retire(from, step));
        let due = match step {
            Retirement::GoOn(_) => element.ledger.incoming.take_due_of(from),
            _ => None,
        };
        if let Some(envelope) = due {
            self.push(envelope.priority, super::Ready::Message(Some(id), envelope));
        }
        if let Some(reply) = reply {
            self.pass_retirement(from, to, 0, reply);
        }
    }

    fn retire_vacant(&mut self, to: Address, from: Address, step: Retirement) {
        let Some(vacant) = self.arrays.get_mut(&to.array).and_then(|a| a.vacant.get_mut(&to.index)) else {
            return;
        };
        let reply = match (&mut vacant.ledger, step) {
            (Some(ledger), _) => ledger.retire(from, step),
            (none, Retirement::GoOn(_)) => none.insert(Box::new(Ledger::new(0, 0))).retire(from, step),
            (None, _) => return self.keep_question(to, from, step),
        };
        self.forget_vacant(to);
        if let Some(reply) = reply {
            self.pass_retirement(from, to, 0, reply);
        }
    }

    /// Keeps a question to an element that is not yet inserted, if messages wait for it: the sender asks once only.
    fn keep_question(&mut self, to: Address, from: Address, step: Retirement) {
        if matches!(step, Retirement::Ask(_)) && self.kept.contains_key(&to) {
            self.kept_retirements.entry(to).or_default().push((from, step));
        }
    }

    fn add_vacant(&mut self, address: Address) {
        if let Some(array) = self.arrays.get_mut(&address.array) {
            array.vacant.insert(address.index, Vacant { epoch: 0, requests: 0, ledger: None });
        }
    }

    /// Retires all pairs of an element that has been removed, at its home.
    pub(super) fn retire_removed(&mut self, address: Address) {
        let vacant = self.arrays.get_mut(&address.array).and_then(|a| a.vacant.get_mut(&address.index));
        if let Some(ledger) = vacant.and_then(|vacant| vacant.ledger.as_mut()) {
            let (asked, retired) = (ledger.outgoing.retire_all(), ledger.incoming.take_all_retired());
            let senders = ledger.incoming.senders();
            self.pass_retirements_to_senders(address, retired);
            self.pass_retirements(address, asked, Retirement::Ask);
            for sender in senders {
                self.pass_retirement(sender, address, 0, Retirement::Leave);
            }
        }
        self.release_retirements(address);
        self.forget_vacant(address);
    }

    /// Forgets what is of no use of a removed element: its ledger without pairs, and all of it if it never left its home, since then no PE
    /// knows a place of it.
    fn forget_vacant(&mut self, address: Address) {
        let Some(array) = self.arrays.get_mut(&address.array) else { return };
        let Some(vacant) = array.vacant.get_mut(&address.index) else { return };
        if vacant.ledger.as_ref().is_some_and(|ledger| ledger.is_spent()) {
            vacant.ledger = None;
        }
        if vacant.ledger.is_none() && vacant.epoch == 0 && vacant.requests == 0 {
            array.vacant.remove(&address.index);
            if array.vacant.capacity() > 64 && array.vacant.capacity() > 8 * array.vacant.len() {
                array.vacant.shrink_to(2 * array.vacant.len());
            }
        }
    }

    /// Counts what the PE keeps for pairs of objects, and for removed elements.
    pub(crate) fn count_tables(&mut self) {
        let elements = self.slots.iter().map(|(_, element)| &element.ledger);
        let removed = self.arrays.values().flat_map(|array| array.vacant.values());
        self.counts.removed = removed.clone().count() as u64;
        let ledgers = elements.chain(removed.filter_map(|vacant| vacant.ledger.as_deref()));
        let pairs = ledgers.map(|ledger| ledger.outgoing.pairs() + ledger.incoming.pairs()).sum::<usize>();
        self.counts.pairs = (pairs + self.outgoing.pairs()) as u64;
    }
}
