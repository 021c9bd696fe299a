// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arrays and their elements: creation, insertion, removal.

use super::{ArrayState, Core, Ready};
use crate::address::{Address, ArrayId};
use crate::broadcasts::Broadcasts;
use crate::element::Element;
use crate::ledger::Ledger;
use crate::parcel::{Parcel, System};
use crate::reduction::Reductions;
use crate::shape::{Map, Shape};

/// The most elements of a dense array: more would be a mistake in its extents.
const MOST_ELEMENTS: u64 = 1 << 36;

impl Core {
    /// Creates an array on all PEs.
    pub(crate) fn create_array(&mut self, class: u16, shape: Shape, map: Map, init: Vec<u8>) -> ArrayId {
        let id = ArrayId(self.next_array * self.pes() + self.pe());
        self.next_array += 1;
        if shape.elements(self.pes()) > MOST_ELEMENTS {
            self.fail_program(format!(
                "an array of {shape:?} has too many elements; {MOST_ELEMENTS} are possible"
            ));
            return id;
        }
        self.post_to_others(|| System::Create { array: id, class, shape, map, init: init.clone() });
        self.add_array(id, class, shape, map, &init);
        id
    }

    /// Creates this PE's part of an array.
    pub(crate) fn add_array(&mut self, id: ArrayId, class: u16, shape: Shape, map: Map, init: &[u8]) {
        let state = ArrayState {
            class,
            shape,
            map,
            here: Default::default(),
            broadcasts: Broadcasts::default(),
            reductions: Reductions::default(),
            elements: shape.elements(self.pes()),
            at_root: Reductions::default(),
            leaving: 0,
        };
        self.arrays.insert(id, state);
        let classes = self.classes;
        let Some(info) = classes.get(class) else {
            return self.fail_program(format!("class {class} does not exist in this program"));
        };
        let mut mine = Vec::new();
        (info.for_each_at)(map, shape, id, (self.pe(), self.pes()), &mut |index| mine.push(index));
        for index in mine {
            self.create_element(Address { array: id, index }, init);
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

    /// Creates an element on this PE, which is its home.
    pub(crate) fn create_element(&mut self, address: Address, init: &[u8]) {
        let Some(array) = self.arrays.get(&address.array) else { return };
        if array.here.contains_key(&address.index)
            || self.locations.place(address).is_some_and(|p| p.epoch > 0)
        {
            let object = self.show(address);
            return self.fail_program(format!("{object} is inserted twice"));
        }
        let class = array.class;
        let slot = self.settle(Element {
            address,
            class,
            epoch: 0,
            object: None,
            ledger: Ledger::new(array.broadcasts.count()),
            tasks: Vec::new(),
            leaving: None,
            removing: false,
        });
        let classes = self.classes;
        let Some(info) = classes.get(class) else { return };
        match (info.create)(init, address, self, slot) {
            Ok(object) => {
                if let Some(element) = self.slots.get_mut(slot) {
                    element.object = Some(object);
                }
                self.after_entry(slot);
                self.release(address);
            }
            Err(error) => self.fail_program(error),
        }
    }

    /// Gives an element a slot, and makes it known on this PE.
    pub(crate) fn settle(&mut self, element: Element) -> u32 {
        let (address, reduction, synced) = (element.address, element.ledger.reduction, element.ledger.synced);
        let id = self.slots.insert(Box::new(element));
        if let Some(array) = self.arrays.get_mut(&address.array) {
            array.here.insert(address.index, id.at);
            array.reductions.enter(reduction);
            if array.shape != Shape::Group {
                self.balancer.participants += 1;
                self.balancer.synced += u64::from(synced);
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
            if array.shape != Shape::Group {
                self.balancer.participants -= 1;
                self.balancer.synced -= u64::from(element.ledger.synced);
            }
        }
        Some(element)
    }

    /// Inserts an element into an array: on its home PE.
    pub(crate) fn insert(&mut self, object: Address, init: Vec<u8>) {
        match self.home_of(object) {
            Some(home) => self.post(home, Parcel::System(System::Insert { object, init })),
            None => self.keep_unknown(object.array, Parcel::System(System::Insert { object, init })),
        }
    }

    /// An element is inserted here.
    pub(crate) fn insert_here(&mut self, object: Address, init: &[u8]) {
        self.create_element(object, init);
        let root = self.root_of(object.array);
        self.post(root, Parcel::System(System::Count { array: object.array, change: 1 }));
    }

    /// Removes an element whose entry method has ended.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Some(element) = self.unsettle(slot) else { return };
        let array = element.address.array;
        let root = self.root_of(array);
        self.post(root, Parcel::System(System::Count { array, change: -1 }));
        self.pass_complete(array);
        self.check_sync();
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
