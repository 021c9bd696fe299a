// SPDX-License-Identifier: MIT OR Apache-2.0
//! Running entry methods.

use super::{Core, Ready};
use crate::address::Address;
use crate::broadcasts::Broadcast;
use crate::class::AnyObject;
use crate::element::{Element, SlotId};
use crate::message::{Envelope, Payload};
use crate::order::Arrival;
use crate::parcel::{Parcel, System};
use crate::track::Hook;

/// The entry method that runs, for the report if it panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Running {
    /// An entry method, by its class and number.
    Entry(Address, u16, u16),
    /// A function of the object that the runtime calls, by its name.
    Hook(Address, &'static str),
}

impl Core {
    /// Runs the next thing that is ready. Returns `false` if there is none.
    #[inline]
    pub(crate) fn run_one(&mut self) -> bool {
        let Some(ready) = self.pop() else { return false };
        match ready {
            Ready::Message(id, envelope) => self.dispatch(id, envelope),
            Ready::Broadcast(id) => self.run_broadcast(id),
            Ready::Resume(id) => self.run_resume(id),
            Ready::Arrived(id) => self.run_hook(id, Hook::Arrived, |class| class.arrived),
        }
        true
    }

    /// Runs a message's entry method, if it is the next of its sender; then those that came early.
    #[inline]
    fn dispatch(&mut self, id: Option<SlotId>, envelope: Envelope) {
        let queued = id.filter(|&id| self.slots.current(id).is_some()).map(|id| id.at);
        let Some(slot) = queued.or_else(|| self.slot_of(envelope.to)) else {
            return self.pass_on(envelope);
        };
        let (id, from, to) = (self.slots.id(slot), envelope.from, envelope.to);
        let Some(element) = self.slots.get_mut(slot) else { return };
        match element.ledger.incoming.arrive(from, envelope.number, envelope) {
            Arrival::Deliver(envelope) => {
                self.execute(slot, envelope);
                while let Some(element) = self.slots.current(id) {
                    let Some(next) = element.ledger.incoming.next_early(from) else {
                        if let Some(number) = element.ledger.incoming.take_retired(from) {
                            self.answer_retired(to, from, number);
                        }
                        break;
                    };
                    self.execute(slot, next);
                }
            }
            Arrival::Early => self.counts.early += 1,
            Arrival::Duplicate => {
                self.fail_program("a message arrived twice: this is a fault of the runtime")
            }
        }
    }

    /// Takes an object out of its slot while one of its functions runs.
    #[inline]
    pub(crate) fn take_object(&mut self, slot: u32) -> Option<(u16, AnyObject)> {
        let element = self.slots.get_mut(slot)?;
        element.object.take().map(|object| (element.class, object))
    }

    /// Puts it back, with the CPU time that it used.
    #[inline]
    pub(crate) fn put_object(&mut self, slot: u32, object: AnyObject) {
        let cpu = self.load.lap();
        if let Some(element) = self.slots.get_mut(slot) {
            element.object = Some(object);
            element.ledger.load += cpu;
        }
    }

    #[inline]
    fn execute(&mut self, slot: u32, envelope: Envelope) {
        let Envelope { to, entry, reply, origin, from, id, payload, .. } = envelope;
        let Some((class, mut object)) = self.take_object(slot) else { return };
        let bytes = if self.track.is_on() { payload.bytes() } else { 0 };
        let begin = self.track.now();
        let result = match self.classes.entry(class, entry) {
            Ok(info) => {
                self.running = Some(Running::Entry(to, class, entry));
                (info.call)(&mut *object, payload, self, slot)
            }
            Err(error) => Err(error),
        };
        self.running = None;
        self.track.executed(begin, (class, entry), id, bytes);
        self.put_object(slot, object);
        self.counts.executed += 1;
        match result {
            Ok(Some(answer)) if reply != 0 => self.reply(slot, (from, origin), reply, (class, entry), answer),
            Ok(_) => {}
            Err(error) => {
                let object = self.show(to);
                self.fail_program(format!("a message to {object}: {error}"));
            }
        }
        self.after_entry(slot);
    }

    /// Sends the reply to a request.
    fn reply(
        &mut self,
        slot: u32,
        (to, pe): (Address, u32),
        request: u32,
        (class, entry): (u16, u16),
        answer: Payload,
    ) {
        let message = match answer {
            Payload::Packed(bytes) => bytes,
            Payload::Typed(answer) => {
                let mut bytes = Vec::new();
                let pack = self.classes.entry(class, entry).map(|info| info.pack_reply);
                if let Err(error) = pack.and_then(|pack| pack(&*answer, &mut bytes)) {
                    return self.fail_program(error);
                }
                bytes
            }
        };
        self.record_bytes(Some(slot), to, message.len());
        self.post(pe, Parcel::System(System::Reply { to, request, message }));
    }

    fn run_broadcast(&mut self, id: SlotId) {
        let Some(element) = self.slots.current(id) else { return };
        let (to, class) = (element.address, element.class);
        let Some(Broadcast { entry, id: message_id, message }) = element.ledger.given.pop_front() else {
            return;
        };
        let unpacked = self.classes.entry(class, entry).and_then(|info| (info.unpack)(&message));
        let payload = match unpacked {
            Ok(message) => Payload::Typed(message),
            Err(error) => return self.fail_program(error),
        };
        let pe = self.pe();
        let (from, origin) = (Address::pe(pe), pe);
        self.execute(
            id.at,
            Envelope {
                to,
                from,
                number: 0,
                reply: 0,
                origin,
                priority: 0,
                entry,
                epoch: 0,
                id: message_id,
                payload,
            },
        );
    }

    fn run_resume(&mut self, id: SlotId) {
        let is_resuming = |element: &mut Element| element.ledger.turn.take_resuming();
        if self.slots.current(id).is_some_and(is_resuming) {
            self.run_hook(id, Hook::Resume, |class| class.resume);
        }
    }

    /// Tells all objects that they have been made from a checkpoint.
    pub(super) fn run_restored(&mut self) {
        let slots: Vec<(u32, Address)> = self.slots.iter().map(|(slot, e)| (slot, e.address)).collect();
        for (slot, address) in slots {
            let Some((class, mut object)) = self.take_object(slot) else { continue };
            self.running = Some(Running::Hook(address, "restored"));
            if let Some(info) = self.classes.get(class) {
                (info.restored)(&mut *object, self, slot);
            }
            self.running = None;
            self.put_object(slot, object);
            self.after_entry(slot);
        }
    }

    fn run_hook(
        &mut self,
        id: SlotId,
        which: Hook,
        hook: impl Fn(&crate::class::ClassInfo<Self>) -> fn(&mut (dyn std::any::Any + Send), &mut Self, u32),
    ) {
        let Some(element) = self.slots.current(id) else { return };
        self.running = Some(Running::Hook(element.address, which.name()));
        let Some((class, mut object)) = self.take_object(id.at) else { return };
        let begin = self.track.now();
        if let Some(info) = self.classes.get(class) {
            hook(info)(&mut *object, self, id.at);
            self.track.hooked(begin, class, info.entries.len(), which);
        }
        self.running = None;
        self.put_object(id.at, object);
        self.after_entry(id.at);
    }

    /// Carries out the object's requests during its entry method: to wait, to leave, to be removed.
    #[inline]
    pub(crate) fn after_entry(&mut self, slot: u32) {
        let Some(element) = self.slots.get(slot) else { return };
        if element.tasks.is_empty() && element.leaving.is_none() && !element.removing {
            return;
        }
        self.after_entry_slow(slot);
    }

    #[cold]
    fn after_entry_slow(&mut self, slot: u32) {
        self.run_tasks(slot);
        self.evacuation.look_again();
        let Some(element) = self.slots.get_mut(slot) else { return };
        if element.removing {
            return self.remove(slot);
        }
        // a future cannot migrate: the object leaves when it has none
        if element.tasks.is_empty()
            && let Some(pe) = element.leaving.take()
        {
            self.migrate(slot, pe, false);
        }
    }

    /// The running entry method or hook, for an error message.
    pub(crate) fn show_running(&self) -> Option<String> {
        Some(match self.running? {
            Running::Entry(to, class, entry) => {
                let name = self.classes.entry(class, entry).map_or("?", |info| info.name);
                format!("the entry method {name} of {}", self.show(to))
            }
            Running::Hook(of, name) => format!("{name} of {}", self.show(of)),
        })
    }
}
