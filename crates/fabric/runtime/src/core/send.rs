// SPDX-License-Identifier: MIT OR Apache-2.0
//! The way of a message: from a sender, over PEs, to an object.

use rustc_hash::FxHashMap;

use super::{ArrayState, Core, Failure, Ready};
use crate::address::{Address, ArrayId};
use crate::checkpoint::part::Part;
use crate::class::{AnyObject, Classes};
use crate::location::Route;
use crate::message::{Envelope, Malformed, Payload, pack};
use crate::parcel::{Encoded, PART, Parcel, RUN, System, decode, encode};
use crate::port::Remote;
use crate::track::NO_MESSAGE;

/// The arrays that a PE knows.
type Arrays = FxHashMap<ArrayId, ArrayState>;

/// The class of an array to whose elements something is sent.
fn class_of(arrays: &Arrays, array: ArrayId) -> Result<u16, Malformed> {
    let state = arrays.get(&array).ok_or_else(|| Malformed::new("a message", "is for an unknown array"));
    state.map(|state| state.class)
}

/// Appends the bytes of a message's content.
pub(super) fn pack_payload(
    classes: &Classes<Core>,
    arrays: &Arrays,
    envelope: &Envelope,
    into: &mut Vec<u8>,
) -> Result<(), Malformed> {
    match &envelope.payload {
        Payload::Packed(bytes) => {
            into.extend_from_slice(bytes);
            Ok(())
        }
        Payload::Typed(message) => {
            let class = class_of(arrays, envelope.to.array)?;
            (classes.entry(class, envelope.entry)?.pack)(&**message, into)
        }
    }
}

impl Core {
    /// Sends a message from an object, or from this PE.
    #[inline]
    pub(crate) fn send_from(
        &mut self,
        from: Address,
        to: Address,
        entry: u16,
        payload: Payload,
        priority: i32,
        reply: u32,
    ) {
        let slot = if from.array == ArrayId::PES { None } else { self.slot_of(from) };
        self.send_from_slot(slot, from, to, entry, payload, priority, reply);
    }

    /// The same, for a sender whose slot is known.
    #[expect(clippy::too_many_arguments, reason = "one place, on the fast path")]
    #[inline]
    pub(crate) fn send_from_slot(
        &mut self,
        slot: Option<u32>,
        from: Address,
        to: Address,
        entry: u16,
        payload: Payload,
        priority: i32,
        reply: u32,
    ) {
        let pe = Address::pe(self.pe());
        let (from, outgoing) = match slot.and_then(|s| self.slots.get_mut(s)) {
            Some(element) => (from, &mut element.ledger.outgoing),
            // the object has left this PE, as a timer's may have: then the PE is the sender
            None => (pe, &mut self.outgoing),
        };
        let (number, is_due) = (outgoing.next(to), outgoing.is_due());
        if self.balancer.records_traffic {
            self.record_traffic(slot, to, entry, &payload);
        }
        let origin = self.pe();
        let id = NO_MESSAGE;
        self.deliver(Envelope { to, from, number, reply, origin, priority, entry, epoch: 0, id, payload });
        if is_due {
            self.retire_idle(slot);
        }
    }

    /// Records a message of an object for load balancing.
    fn record_traffic(&mut self, slot: Option<u32>, to: Address, entry: u16, payload: &Payload) {
        let bytes = match payload {
            Payload::Packed(bytes) => bytes.len(),
            Payload::Typed(message) => {
                let class = self.arrays.get(&to.array).map_or(u16::MAX, |array| array.class);
                self.classes.entry(class, entry).map_or(0, |info| (info.size)(&**message))
            }
        };
        self.record_bytes(slot, to, bytes);
    }

    /// The same, for a message of known size.
    pub(crate) fn record_bytes(&mut self, slot: Option<u32>, to: Address, bytes: usize) {
        if self.balancer.records_traffic
            && let Some(element) = slot.and_then(|slot| self.slots.get_mut(slot))
        {
            element.ledger.outgoing.record(to, bytes as u64);
        }
    }

    /// Queues a message for an object that is here; passes it on otherwise.
    #[inline]
    pub(crate) fn deliver(&mut self, mut envelope: Envelope) {
        match self.slot_of(envelope.to) {
            Some(slot) => {
                if self.track.is_on() && envelope.id == NO_MESSAGE {
                    let Envelope { to, entry, ref payload, .. } = envelope;
                    envelope.id = self.note_sent(self.pe(), to.array, entry, payload.bytes());
                }
                let id = self.slots.id(slot);
                self.push(envelope.priority, Ready::Message(Some(id), envelope));
            }
            None => self.pass_on(envelope),
        }
    }

    /// Gives a message a number in the time line, and records that it is sent.
    pub(crate) fn note_sent(&mut self, pe: u32, array: ArrayId, entry: u16, bytes: usize) -> u64 {
        if !self.track.is_on() {
            return NO_MESSAGE;
        }
        let id = self.track.next_message();
        let class = self.arrays.get(&array).map_or(u16::MAX, |array| array.class);
        self.track.sent(id, pe, (class, entry), bytes);
        id
    }

    /// The next step of a message whose object is not here.
    pub(crate) fn pass_on(&mut self, mut envelope: Envelope) {
        let Some(home) = self.home_of(envelope.to) else {
            self.unknown.push((envelope.to.array, Parcel::Message(envelope)));
            return;
        };
        match self.locations.pass_on(envelope.to, home, envelope.epoch) {
            Route::Keep => self.kept.entry(envelope.to).or_default().push(envelope),
            Route::To(place) => {
                envelope.epoch = place.epoch;
                if envelope.origin != self.pe() {
                    self.counts.forwarded += 1;
                    if place.epoch > 0 {
                        let object = envelope.to;
                        self.post(envelope.origin, Parcel::System(System::Located { object, place }));
                    }
                }
                self.post(place.pe, Parcel::Message(envelope));
            }
        }
    }

    /// Releases the messages that wait for an object which is here now.
    pub(crate) fn release(&mut self, object: Address) {
        for envelope in self.kept.remove(&object).unwrap_or_default() {
            self.deliver(envelope);
        }
        self.release_retirements(object);
    }

    /// Sends a parcel to a PE. A PE that has failed sends nothing more: what it would send is incomplete, and the PE that
    /// gets it would report that as an error of its own.
    pub(crate) fn post(&mut self, pe: u32, mut parcel: Parcel) {
        if self.failure.is_some() {
            return;
        }
        if pe == self.pe() {
            return self.receive(parcel);
        }
        if parcel.is_counted() {
            self.quiescence.sent += 1;
        }
        if self.port.is_here(pe) {
            if let Parcel::Message(envelope) = &mut parcel
                && envelope.id == NO_MESSAGE
            {
                envelope.id = self.note_sent(pe, envelope.to.array, envelope.entry, envelope.payload.bytes());
            }
            return self.port.give(pe, parcel);
        }
        if let Err(failure) = self.post_remote(pe, parcel) {
            self.fail(failure);
        }
    }

    /// Sends a message of the runtime to every PE, this one included.
    pub(crate) fn post_to_all(&mut self, system: impl Fn() -> System) {
        for pe in 0..self.pes() {
            self.post(pe, Parcel::System(system()));
        }
    }

    /// Sends a message of the runtime to every other PE.
    pub(crate) fn post_to_others(&mut self, system: impl Fn() -> System) {
        for pe in 0..self.pes() {
            if pe != self.pe() {
                self.post(pe, Parcel::System(system()));
            }
        }
    }

    /// At PE 0: tells the other processes the number of the run. It is not logged: a PE that runs again may tell another one.
    pub(crate) fn tell_run(&mut self) {
        if self.pe() == 0 && self.track.is_on() {
            let bytes = &self.track.run.to_le_bytes();
            for rank in 1..self.pes() / self.port.threads {
                Encoded { kind: RUN, bytes }.append_to(self.port.frame(rank));
            }
        }
    }

    fn post_remote(&mut self, pe: u32, mut parcel: Parcel) -> Result<(), Failure> {
        let noted = match &mut parcel {
            Parcel::Message(envelope) if self.track.is_on() && envelope.id == NO_MESSAGE => {
                envelope.id = self.track.next_message();
                Some((envelope.id, envelope.to.array, envelope.entry))
            }
            _ => None,
        };
        let rank = self.port.rank_of(pe);
        let local = (pe % self.port.threads) as u16;
        let Self { port, classes, arrays, track, .. } = self;
        port.mark_epoch(rank);
        let pack_payload =
            |envelope: &Envelope, into: &mut Vec<u8>| pack_payload(classes, arrays, envelope, into);
        let pack_state = |address: Address, object: &AnyObject, into: &mut Vec<u8>| {
            let class = classes.get(class_of(arrays, address.array)?);
            class.map_or(Ok(()), |class| (class.pack)(&**object, into))
        };
        let frame = port.frame(rank);
        let before = frame.len();
        encode(parcel, local, &pack_payload, &pack_state, frame)
            .map_err(|error| Failure::Program(error.to_string()))?;
        if let Some((id, array, entry)) = noted {
            let class = arrays.get(&array).map_or(u16::MAX, |array| array.class);
            track.sent(id, pe, (class, entry), frame.len() - before);
        }
        port.log_parcel(rank, before);
        port.flush_if_long(rank).map_err(Failure::from)
    }

    /// Takes the frames that have arrived. Returns `true` if there were any.
    pub(crate) fn poll(&mut self) -> bool {
        let mut any = false;
        while let Some(mail) = self.port.mail() {
            any = true;
            self.take_mail(mail);
        }
        if !matches!(self.port.remote, Remote::Own(_)) {
            return any;
        }
        any | self.poll_transport(|core, from, frame| core.take_frame(from, frame))
    }

    /// Takes the frames that have arrived, for later.
    pub(crate) fn poll_into(&mut self, early: &mut Vec<(u32, Vec<u8>)>) {
        self.poll_transport(|_, from, frame| early.push((from, frame.to_vec())));
    }

    fn poll_transport(&mut self, mut take: impl FnMut(&mut Self, u32, &[u8])) -> bool {
        // the transport is taken out while its frames are delivered: they may be answered at once, by frames that wait
        let Some(mut transport) = self.port.take_transport() else { return false };
        self.port.is_polling = true;
        let polled = transport.poll(&mut |from, frame| take(self, from, frame));
        if transport.is_to_leave() {
            self.checkpoints.leave_soon();
        }
        self.port.is_polling = false;
        self.port.remote = Remote::Own(transport);
        polled.unwrap_or_else(|error| {
            self.fail(error.into());
            false
        })
    }

    pub(crate) fn take_mail(&mut self, mail: crate::port::Mail) {
        match mail {
            crate::port::Mail::Parcel(parcel) => self.receive_counted(parcel),
            crate::port::Mail::Encoded(kind, bytes) => {
                let from = self.pe();
                if let Err(error) = self.receive_encoded(from, Encoded { kind, bytes: &bytes }) {
                    self.fail_program(error);
                }
            }
            crate::port::Mail::Stop => {
                self.fail(Failure::Lost("another PE of this process has failed".to_owned()));
            }
        }
    }

    /// Takes a frame of another rank.
    pub(crate) fn take_frame(&mut self, from: u32, frame: &[u8]) {
        if let Err(error) = self.take_parcels(from, frame) {
            self.fail_program(format!("rank {from} sent {error}"));
        }
    }

    /// Takes encoded parcels of another rank.
    pub(super) fn take_parcels(&mut self, from: u32, mut parcels: &[u8]) -> Result<(), Malformed> {
        while !parcels.is_empty() {
            let (_, encoded, rest) = crate::parcel::split(parcels)?;
            self.receive_encoded(from, encoded)?;
            parcels = rest;
        }
        Ok(())
    }

    fn receive_encoded(&mut self, from: u32, encoded: Encoded<'_>) -> Result<(), Malformed> {
        if encoded.kind == PART {
            self.quiescence.received += 1;
            self.take_part(Part::decode(encoded.bytes)?);
            return Ok(());
        }
        if encoded.kind == RUN {
            let run = encoded.bytes.try_into().map(u64::from_le_bytes);
            self.track.run = run.map_err(|_| Malformed::new("the number of the run", "is no number"))?;
            return Ok(());
        }
        if self.port.log.is_some() && !self.log_arrival(from, encoded)? {
            return Ok(());
        }
        let parcel = decode(encoded, &|a, e, b| self.unpack_message(a, e, b))?;
        self.receive_counted(parcel);
        Ok(())
    }

    /// A message's content, if its array is known here.
    fn unpack_message(&self, to: Address, entry: u16, bytes: &[u8]) -> Result<Option<AnyObject>, Malformed> {
        let Some(array) = self.arrays.get(&to.array) else { return Ok(None) };
        (self.classes.entry(array.class, entry)?.unpack)(bytes).map(Some)
    }

    fn receive_counted(&mut self, parcel: Parcel) {
        if parcel.is_counted() {
            self.quiescence.received += 1;
        }
        self.receive(parcel);
    }

    /// Takes a parcel that is for this PE.
    pub(crate) fn receive(&mut self, parcel: Parcel) {
        match parcel {
            Parcel::Message(envelope) => self.deliver(envelope),
            Parcel::Moved(moved) => self.install(*moved),
            Parcel::System(system) => self.receive_system(system),
        }
    }

    /// Packs a message of a known array for [`System`] parcels.
    pub(crate) fn pack_message(
        &self,
        array: ArrayId,
        entry: u16,
        payload: Payload,
    ) -> Result<Vec<u8>, Malformed> {
        let message = match payload {
            Payload::Packed(bytes) => return Ok(bytes),
            Payload::Typed(message) => message,
        };
        let class = class_of(&self.arrays, array)?;
        let mut bytes = Vec::new();
        (self.classes.entry(class, entry)?.pack)(&*message, &mut bytes)?;
        Ok(bytes)
    }

    /// Packs any value. If it cannot be packed, the PE fails, and the empty bytes are sent to no other.
    pub(crate) fn packed<T: serde::Serialize>(&mut self, value: &T) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Err(error) = pack(value, &mut bytes) {
            self.fail_program(error);
        }
        bytes
    }
}
