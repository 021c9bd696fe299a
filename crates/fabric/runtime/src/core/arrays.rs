// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arrays and their elements: creation, insertion, removal.

use super::{ArrayState, Core, Ready, Vacant};
use crate::address::{Address, ArrayId};
use crate::broadcasts::Broadcasts;
use crate::element::Element;
use crate::ledger::Ledger;
use crate::location::Place;
use crate::message::Envelope;
use crate::parcel::{Moved, Parcel, State, System};
use crate::reduction::Reductions;
use crate::shape::{Map, Shape};
use crate::sync::Turn;
use crate::track::Hook;

/// The most elements of a dense array: more would be a mistake in its extents.
const MOST_ELEMENTS: u64 = 1 << 36;

impl Core {
    /// Creates an array on all PEs.
    pub(crate) fn create_array(
        &mut self,
        class: u16,
        shape: Shape,
        map: Map,
        balanced: bool,
        init: Vec<u8>,
    ) -> ArrayId {
        let id = ArrayId(self.next_array * self.pes() + self.pe());
        self.next_array += 1;
        if shape.elements(self.pes()) > MOST_ELEMENTS {
            self.fail_program(format!(
                "an array of {shape:?} has too many elements; {MOST_ELEMENTS} are possible"
            ));
            return id;
        }
        // due objects are under way, for all rounds
        (1..self.pes()).for_each(|_| self.balancer.sync.send(0));
        self.post_to_others(|| System::Create { array: id, class, shape, map, balanced, init: init.clone() });
        self.add_array(id, class, shape, map, balanced, &init);
        id
    }

    /// Creates this PE's part of an array.
    pub(crate) fn add_array(
        &mut self,
        id: ArrayId,
        class: u16,
        shape: Shape,
        map: Map,
        balanced: bool,
        init: &[u8],
    ) {
        let state = ArrayState {
            class,
            shape,
            map,
            here: Default::default(),
            broadcasts: Broadcasts::default(),
            reductions: Reductions::default(),
            at_root: Reductions::at_root(shape.elements(self.pes())),
            leaving: Default::default(),
            balanced,
            vacant: Default::default(),
            insertions: Default::default(),
        };
        self.arrays.insert(id, state);
        let classes = self.classes;
        let Some(info) = classes.get(class) else {
            return self.fail_program(format!("class {class} does not exist in this program"));
        };
        let mut mine = Vec::new();
        (info.for_each_at)(map, shape, id, (self.pe(), self.pes()), &mut |index| mine.push(index));
        for index in mine {
            self.create_element(Address { array: id, index }, init, 0);
            if self.failure.is_some() {
                return;
            }
        }
        let (of_this, others) =
            std::mem::take(&mut self.unknown).into_iter().partition(|(array, _)| *array == id);
        self.unknown = others;
        let of_this: Vec<_> = of_this;
        for (_, parcel) in of_this {
            self.receive(parcel);
        }
    }

    /// Keeps a parcel for an array that is not yet known here.
    pub(crate) fn keep_unknown(&mut self, array: ArrayId, parcel: Parcel) {
        self.unknown.push((array, parcel));
    }

    /// Creates an element on this PE, which is its home. It takes part in reductions from `reduction` on. Returns `false`
    /// if the element has to wait until the one before it at its index has been removed.
    fn create_element(&mut self, address: Address, init: &[u8], reduction: u64) -> bool {
        let round = self.balancer.sync.round();
        let Some(array) = self.arrays.get_mut(&address.array) else { return false };
        let (class, broadcast) = (array.class, array.broadcasts.count());
        let vacant = array.vacant.remove(&address.index);
        let here = array.here.get(&address.index).and_then(|&slot| self.slots.get(slot));
        let has_migrated = self.locations.place(address).is_some_and(|place| place.epoch > 0);
        if here.is_some() || (vacant.is_none() && has_migrated) {
            let stays = here.is_some_and(|element| !element.removing);
            let waiting = array.insertions.insert(address.index, (init.to_vec(), reduction));
            if stays || waiting.is_some() {
                let object = self.show(address);
                self.fail_program(format!(
                    "{object} is inserted, but exists: an element can be inserted again once it has called remove"
                ));
            }
            return false;
        }
        let (epoch, mut ledger) = vacant.map_or_else(
            || (0, Ledger::new(broadcast, reduction)),
            |Vacant { epoch, requests, ledger }| {
                let new = || Ledger::new(broadcast, reduction);
                let ledger = ledger.map_or_else(new, |ledger| ledger.renew(broadcast, reduction));
                (epoch, Ledger { requests, ..ledger })
            },
        );
        ledger.turn = Turn::new(round);
        let due = ledger.incoming.take_due();
        let slot = self.settle(Element {
            address,
            class,
            epoch,
            object: None,
            ledger,
            tasks: Vec::new(),
            leaving: None,
            removing: false,
        });
        let id = self.slots.id(slot);
        let Some(info) = self.classes.get(class) else { return false };
        let begin = self.track.now();
        let created = (info.create)(init, address, self, slot);
        self.track.hooked(begin, class, info.entries.len(), Hook::New);
        match created {
            Ok(object) => {
                if let Some(element) = self.slots.get_mut(slot) {
                    element.object = Some(object);
                }
                for envelope in due {
                    self.push(envelope.priority, Ready::Message(Some(id), envelope));
                }
                self.answer_all_retired(slot);
                self.release(address);
                self.after_entry(slot);
            }
            Err(error) => self.fail_program(error),
        }
        true
    }

    /// Gives an element a slot, and makes it known on this PE.
    pub(crate) fn settle(&mut self, element: Element) -> u32 {
        let (address, reduction) = (element.address, element.ledger.reduction);
        let waits = element.ledger.turn.waits();
        let id = self.slots.insert(Box::new(element));
        if let Some(array) = self.arrays.get_mut(&address.array) {
            array.here.insert(address.index, id.at);
            array.reductions.enter(reduction);
            self.evacuation.look_again();
            if array.balanced {
                self.balancer.sync.enter(waits);
            }
        }
        id.at
    }

    /// Takes an element out of its slot.
    pub(crate) fn unsettle(&mut self, slot: u32) -> Option<Box<Element>> {
        let element = self.slots.remove(slot)?;
        if let Some(array) = self.arrays.get_mut(&element.address.array) {
            array.here.remove(&element.address.index);
            array.reductions.leave(element.ledger.reduction);
            if array.balanced {
                self.balancer.sync.leave(element.ledger.turn.waits());
            }
        }
        Some(element)
    }

    /// Inserts an element into an array. The root counts it before it counts a later contribution of the inserter.
    pub(crate) fn insert(&mut self, inserter: Option<u32>, object: Address, init: Vec<u8>) {
        let inserter = inserter.and_then(|slot| self.slots.get(slot));
        let reduction =
            inserter.filter(|e| e.address.array == object.array).map(|element| element.ledger.reduction);
        self.balancer.sync.send(0);
        let root = self.root_of(object.array);
        self.post(root, Parcel::System(System::Insert { object, init, reduction }));
    }

    /// At the root: counts an element that is to be created, and passes it on to its home.
    pub(crate) fn place(&mut self, object: Address, init: Vec<u8>, reduction: Option<u64>) {
        let Some(home) = self.home_of(object) else { return };
        let Some(array) = self.arrays.get_mut(&object.array) else { return };
        let reduction = array.at_root.change_elements(reduction.unwrap_or(0), 1);
        self.post(home, Parcel::System(System::Place { object, init, reduction }));
    }

    /// An element is inserted here.
    pub(crate) fn insert_here(&mut self, object: Address, init: Vec<u8>, reduction: u64) {
        if self.create_element(object, &init, reduction) {
            self.balancer.sync.receive(0);
        }
    }

    /// Removes an element whose entry method has ended. What the runtime keeps for it goes to its home.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Some(element) = self.unsettle(slot) else { return };
        let Element { address, epoch, ledger, .. } = *element;
        let (array, reduction) = (address.array, ledger.reduction);
        let (root, pe) = (self.root_of(array), self.pe());
        self.post(root, Parcel::System(System::Leave { array, reduction }));
        if let Some(home) = self.home_of(address) {
            // no PE knows a place of an element that never left its home
            let is_known = epoch > 0 || home != pe;
            let epoch = if is_known { self.locations.departed(address, epoch, home).epoch } else { 0 };
            let state = State::Removed;
            let moved = Moved { address, epoch, from: pe, state, ledger, balanced: false, due: None };
            self.post(home, Parcel::Moved(Box::new(moved)));
        }
        self.pass_complete(array);
    }

    /// At the home: an element has been removed. Messages to it are kept here from now on.
    pub(crate) fn vacate(&mut self, address: Address, epoch: u32, ledger: Ledger<Envelope>) {
        if epoch > 0 {
            self.locations.learn(address, Place { pe: self.pe(), epoch });
        }
        let Some(array) = self.arrays.get_mut(&address.array) else { return };
        let vacant = Vacant { epoch, requests: ledger.requests, ledger: Some(Box::new(ledger)) };
        array.vacant.insert(address.index, vacant);
        match array.insertions.remove(&address.index) {
            Some((init, reduction)) => self.insert_here(address, init, reduction),
            None => self.retire_removed(address),
        }
    }

    /// Gives an element that has arrived the broadcasts that it missed, and queues all that it has not run.
    pub(crate) fn give_broadcasts(&mut self, slot: u32) {
        let id = self.slots.id(slot);
        let Some(element) = self.slots.get_mut(slot) else { return };
        let Some(array) = self.arrays.get(&element.address.array) else { return };
        while let Some(missed) = array.broadcasts.get(element.ledger.broadcast) {
            element.ledger.given.push_back(missed.clone());
            element.ledger.broadcast += 1;
        }
        for _ in 0..element.ledger.given.len() {
            self.push(0, Ready::Broadcast(id));
        }
    }
}
