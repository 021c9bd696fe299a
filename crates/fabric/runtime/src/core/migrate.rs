// SPDX-License-Identifier: MIT OR Apache-2.0
//! Objects leave for other PEs and arrive from them.

use std::collections::btree_map::Entry;

use super::{Core, Ready};
use crate::address::Address;
use crate::class::AnyObject;
use crate::element::Element;
use crate::parcel::{Moved, Parcel, State, System};

impl Core {
    /// Sends an object to another PE.
    pub(crate) fn migrate(&mut self, slot: u32, to: u32, balanced: bool) {
        if to == self.pe() {
            return;
        }
        let Some(element) = self.unsettle(slot) else { return };
        let Some(object) = element.object else { return };
        let (address, array) = (element.address, element.address.array);
        let place = self.locations.departed(address, element.epoch, to);
        self.counts.departed += 1;
        self.note_migration(true, element.class, address, (to, &object));
        let mut due = None;
        if let Some(state) = self.arrays.get_mut(&array) {
            *state.leaving.entry(element.ledger.broadcast).or_default() += 1;
            due = state.balanced.then(|| element.ledger.turn.due(self.balancer.sync.round()));
        }
        if let Some(due) = due {
            self.balancer.sync.send(due);
        }
        let moved = Moved {
            address,
            epoch: place.epoch,
            from: self.pe(),
            state: State::Object(object),
            ledger: element.ledger,
            balanced,
            due,
        };
        self.post(to, Parcel::Moved(Box::new(moved)));
        self.pass_complete(array);
    }

    /// Records a migration in the time line.
    fn note_migration(&mut self, leaves: bool, class: u16, of: Address, (peer, object): (u32, &AnyObject)) {
        if self.track.is_on() {
            let bytes = self.classes.get(class).map_or(0, |info| (info.bytes)(&**object));
            let number = of.index.halves()[1];
            self.track.migrated(leaves, class, number, peer, usize::try_from(bytes).unwrap_or(usize::MAX));
        }
    }

    /// Takes an object that arrives.
    pub(crate) fn install(&mut self, mut moved: Moved) {
        let (address, array) = (moved.address, moved.address.array);
        let Some(class) = self.arrays.get(&array).map(|a| a.class) else {
            return self.keep_unknown(array, Parcel::Moved(Box::new(moved)));
        };
        let object = match moved.state {
            State::Object(object) => object,
            State::Packed(bytes) => {
                let unpack = self.classes.get(class).map(|info| info.unpack);
                match unpack.map(|unpack| unpack(&bytes)) {
                    Some(Ok(object)) => object,
                    Some(Err(error)) => {
                        let object = self.show(address);
                        return self.fail_program(format!("{object} migrated: {error}"));
                    }
                    None => return,
                }
            }
            State::Removed => return self.vacate(address, moved.epoch, moved.ledger),
        };
        if let Some(due) = moved.due {
            self.balancer.sync.receive(due);
        }
        self.note_migration(false, class, address, (moved.from, &object));
        // the round may have ended while the object was under way
        if moved.ledger.turn.end_wait(self.balancer.sync.round()) {
            moved.ledger.begin_interval();
        }
        let (broadcast, is_resuming) = (moved.ledger.broadcast, moved.ledger.turn.is_resuming());
        let slot = self.settle(Element {
            address,
            class,
            epoch: moved.epoch,
            object: Some(object),
            ledger: moved.ledger,
            tasks: Vec::new(),
            leaving: None,
            removing: false,
        });
        if let Some(home) = self.home_of(address)
            && let Some(home) = self.locations.arrived(address, moved.epoch, home)
            && let Some(place) = self.locations.place(address)
        {
            self.post(home, Parcel::System(System::Located { object: address, place }));
        }
        self.post(moved.from, Parcel::System(System::Installed { array, broadcast }));
        let id = self.slots.id(slot);
        // before any message, however urgent
        self.push(i32::MIN, Ready::Arrived(id));
        if is_resuming {
            self.push(0, Ready::Resume(id));
        }
        self.give_broadcasts(slot);
        self.answer_all_retired(slot);
        let due = self.slots.get_mut(slot).map(|e| e.ledger.incoming.take_due()).unwrap_or_default();
        for envelope in due {
            self.push(envelope.priority, Ready::Message(Some(id), envelope));
        }
        self.release(address);
        if moved.balanced {
            self.balancer.arrived += 1;
            self.check_migrated();
        }
    }

    /// An object that left this PE has arrived.
    pub(crate) fn installed(&mut self, array: crate::address::ArrayId, broadcast: u64) {
        if let Some(state) = self.arrays.get_mut(&array)
            && let Entry::Occupied(mut count) = state.leaving.entry(broadcast)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        self.acknowledge(array);
    }

    /// Gives objects away to an idle PE of this process: those that wait in the queue, up to half of them.
    pub(crate) fn give_to(&mut self, thief: u32) {
        let ready = self.ready();
        if ready < 2 {
            return;
        }
        let mut seen = std::collections::BTreeSet::new();
        let mut give = Vec::new();
        for ready in &self.queue {
            let Ready::Message(Some(id), _) = ready else { continue };
            let fixed = |e: &Element| {
                !e.tasks.is_empty()
                    || e.object.is_none()
                    || self.arrays.get(&e.address.array).is_none_or(|a| a.shape == crate::shape::Shape::Group)
            };
            if seen.insert(id.at)
                && self.slots.id(id.at) == *id
                && self.slots.get(id.at).is_some_and(|e| !fixed(e))
            {
                give.push(id.at);
            }
        }
        // the object at the head of the queue stays: it runs next
        let half = give.len() / 2;
        for slot in give.into_iter().rev().take(half) {
            self.migrate(slot, thief, false);
        }
    }
}
