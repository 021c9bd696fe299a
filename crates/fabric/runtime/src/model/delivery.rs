// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages to objects that migrate: each is delivered once, and in order for each pair of objects.

use std::collections::VecDeque;

use stateright::{Model, Property};

use super::{Channels, PES};
use crate::address::{Address, ArrayId};
use crate::index::Index;
use crate::location::{Locations, Place, Route};
use crate::order::{Arrival, Incoming, Outgoing};

const OBJECTS: usize = 2;

/// A message that crosses so many channels goes in circles, if it is not sent to newer and newer places.
const MOST_HOPS: u8 = 20;

/// A message of one object to the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Message {
    /// The receiver. The other object is the sender.
    to: usize,
    number: u64,
    /// The PE that sent it.
    origin: u32,
    /// The epoch of the place that it was sent to.
    epoch: u32,
    /// Channels between PEs that it has crossed, counted only if a fault may let it go in circles.
    hops: u8,
}

/// An object with its tables, as it migrates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Object {
    epoch: u32,
    outgoing: Outgoing,
    incoming: Incoming<Message>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Parcel {
    Message(Message),
    Moved(usize, Box<Object>),
    Located(usize, Place),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pe {
    locations: Locations,
    here: [Option<Object>; OBJECTS],
    /// Messages that are ready to run.
    queue: VecDeque<Message>,
    /// Messages for objects that will arrive or be created here.
    kept: [Vec<Message>; OBJECTS],
}

/// All PEs and the channels between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pes: [Pe; PES],
    channels: Channels<Parcel>,
    /// Migrations that may still happen.
    migrations: u8,
    /// Messages that each object may still send.
    unsent: [u64; OBJECTS],
    /// Messages that each object has been given.
    delivered: [u64; OBJECTS],
    /// Elements that are not yet created.
    absent: [bool; OBJECTS],
    /// A message was delivered twice or out of order.
    is_wrong: bool,
    /// A message was passed on to a place that is not newer than the one before.
    is_circling: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// An element is created, on its home.
    Create(usize),
    /// An object sends a message to the other one.
    Send(usize),
    /// An object leaves for a PE.
    Migrate(usize, usize),
    /// The first parcel of a channel arrives.
    Receive(usize, usize),
    /// A PE runs a message of its queue. The object leaves after this many messages, although the next ones have arrived.
    Run(usize, usize, Option<(u64, usize)>),
}

/// Something that an implementation may get wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Messages that were early and are the next ones when the object arrives are not delivered then.
    DueStay,
    /// Messages that are the next ones when the object leaves do not migrate with it.
    DueLost,
    /// A PE does not note where an object went.
    NoPointer,
    /// A PE takes any place that it is told, also an older one.
    OlderPlaces,
    /// An object's migrations are not counted.
    NoEpochs,
    /// Messages that wait for an object are not released when it arrives.
    KeptStay,
    /// Messages do not carry the epoch of the place that they are sent to.
    NoEpochInMessages,
    /// A receiver does not look at numbers.
    NoOrder,
    /// The numbers of an object's messages do not migrate with it.
    NumbersStay,
}

/// The model's parameters.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) homes: [usize; OBJECTS],
    pub(super) migrations: u8,
    pub(super) messages: [u64; OBJECTS],
    /// Elements that are inserted later, at any time.
    pub(super) absent: [bool; OBJECTS],
    /// Messages have priorities: those of a queue run in any order.
    pub(super) priorities: bool,
    pub(super) fault: Option<Fault>,
}

fn address(object: usize) -> Address {
    Address { array: ArrayId(0), index: Index::from_halves([0, object as u64]) }
}

impl Delivery {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn home(&self, object: usize) -> u32 {
        self.homes[object] as u32
    }

    /// `Core::post`
    fn post(&self, state: &mut State, from: usize, to: usize, mut parcel: Parcel) {
        if from == to {
            return self.receive(state, to, parcel);
        }
        if let Parcel::Message(message) = &mut parcel {
            message.hops += u8::from(self.has(Fault::NoEpochInMessages));
        }
        state.channels.send(from, to, parcel);
    }

    /// `Core::receive`
    fn receive(&self, state: &mut State, at: usize, parcel: Parcel) {
        match parcel {
            Parcel::Message(message) => self.deliver(state, at, message),
            Parcel::Moved(object, moved) => self.install(state, at, object, *moved),
            Parcel::Located(object, place) => {
                let locations = &mut state.pes[at].locations;
                if self.has(Fault::OlderPlaces) {
                    locations.departed(address(object), place.epoch.wrapping_sub(1), place.pe);
                } else {
                    locations.learn(address(object), place);
                }
                if place.pe as usize != at {
                    self.release(state, at, object);
                }
            }
        }
    }

    /// `Core::deliver`
    fn deliver(&self, state: &mut State, at: usize, mut message: Message) {
        if state.pes[at].here[message.to].is_some() {
            // the PE knows this place or a newer one: to forget it here makes fewer states
            let known = state.pes[at].locations.place(address(message.to)).map_or(0, |place| place.epoch);
            state.is_circling |= message.epoch > known;
            message.epoch = 0;
            state.pes[at].queue.push_back(message);
        } else {
            self.pass_on(state, at, message);
        }
    }

    /// `Core::pass_on`
    fn pass_on(&self, state: &mut State, at: usize, mut message: Message) {
        let object = message.to;
        let pe = &mut state.pes[at];
        match pe.locations.pass_on(address(object), self.home(object), message.epoch) {
            Route::Keep => pe.kept[object].push(message),
            Route::To(place) => {
                state.is_circling |= message.epoch > 0 && place.epoch <= message.epoch;
                message.epoch = if self.has(Fault::NoEpochInMessages) { 0 } else { place.epoch };
                if message.origin != at as u32 && place.epoch > 0 {
                    self.post(state, at, message.origin as usize, Parcel::Located(object, place));
                }
                self.post(state, at, place.pe as usize, Parcel::Message(message));
            }
        }
    }

    /// `Core::release`
    fn release(&self, state: &mut State, at: usize, object: usize) {
        for message in std::mem::take(&mut state.pes[at].kept[object]) {
            self.deliver(state, at, message);
        }
    }

    /// `Core::migrate`
    fn migrate(&self, state: &mut State, at: usize, object: usize, to: usize) {
        let Some(mut moved) = state.pes[at].here[object].take() else { return };
        let epoch = moved.epoch;
        moved.epoch += u32::from(!self.has(Fault::NoEpochs));
        if self.has(Fault::DueLost) {
            moved.incoming.take_due();
        }
        if self.has(Fault::NumbersStay) {
            moved.outgoing = Outgoing::default();
        }
        if self.has(Fault::NoEpochs) {
            state.pes[at].locations.learn(address(object), Place { pe: to as u32, epoch });
        } else if !self.has(Fault::NoPointer) {
            let place = state.pes[at].locations.departed(address(object), epoch, to as u32);
            assert_eq!(place.epoch, moved.epoch);
        }
        state.migrations -= 1;
        self.post(state, at, to, Parcel::Moved(object, Box::new(moved)));
    }

    /// `Core::install`
    fn install(&self, state: &mut State, at: usize, object: usize, moved: Object) {
        let epoch = moved.epoch;
        let pe = &mut state.pes[at];
        let here = pe.here[object].insert(moved);
        let due = if self.has(Fault::DueStay) { Vec::new() } else { here.incoming.take_due() };
        if let Some(home) = pe.locations.arrived(address(object), epoch, self.home(object))
            && let Some(place) = pe.locations.place(address(object))
        {
            self.post(state, at, home as usize, Parcel::Located(object, place));
        }
        state.pes[at].queue.extend(due);
        if !self.has(Fault::KeptStay) {
            self.release(state, at, object);
        }
    }

    /// `Core::dispatch`, for an object that leaves after some messages. `None` if it would not run so many, or would
    /// have run all that have arrived: then it leaves in an action of its own.
    fn dispatch(
        &self,
        state: &mut State,
        at: usize,
        message: Message,
        leave: Option<(u64, usize)>,
    ) -> Option<()> {
        let object = message.to;
        let from = address(1 - object);
        let Some(element) = &mut state.pes[at].here[object] else {
            self.pass_on(state, at, message);
            return leave.is_none().then_some(());
        };
        if self.has(Fault::NoOrder) {
            execute(state, &message);
            return leave.is_none().then_some(());
        }
        let Arrival::Deliver(first) = element.incoming.arrive(from, message.number, message) else {
            // a message that arrives twice ends the program: only a fault of the protocol leads there
            return leave.is_none().then_some(());
        };
        let mut next = Some(first);
        let mut ran = 0;
        while let Some(message) = next {
            execute(state, &message);
            ran += 1;
            if let Some((after, to)) = leave
                && ran == after
            {
                let mut incoming = state.pes[at].here[object].as_ref()?.incoming.clone();
                incoming.next_early(from)?;
                self.migrate(state, at, object, to);
                return Some(());
            }
            next = state.pes[at].here[object].as_mut()?.incoming.next_early(from);
        }
        leave.is_none().then_some(())
    }

    /// A notice of a place that is first in its channel and changes nothing. It can be received before anything else:
    /// no order of other actions leads to another result.
    fn idle_notice(&self, state: &State) -> Option<Action> {
        if self.fault.is_some() {
            return None;
        }
        for from in 0..PES {
            for to in 0..PES {
                let first = state.channels.between(from, to).front();
                let Some(Parcel::Located(object, place)) = first else { continue };
                let pe = &state.pes[to];
                let known = pe.locations.place(address(*object));
                if known.is_some_and(|known| known.epoch >= place.epoch) && pe.kept[*object].is_empty() {
                    return Some(Action::Receive(from, to));
                }
            }
        }
        None
    }

    fn is_done(&self, state: &State) -> bool {
        let mut actions = Vec::new();
        self.actions(state, &mut actions);
        actions.is_empty()
    }

    /// At the end every message has been delivered, and from every PE the known places lead to the object, each newer
    /// than the one before.
    fn is_complete(&self, state: &State) -> bool {
        let delivered = (0..OBJECTS).all(|o| state.delivered[o] == self.messages[1 - o]);
        delivered && (0..OBJECTS).all(|object| (0..PES).all(|pe| self.finds(state, pe, object)))
    }

    fn finds(&self, state: &State, from: usize, object: usize) -> bool {
        let mut at = from;
        let mut epoch = None;
        while state.pes[at].here[object].is_none() {
            let locations = &state.pes[at].locations;
            let known = locations.place(address(object)).map(|p| p.epoch);
            if at != from && (known.is_none() || known <= epoch) {
                return false;
            }
            match locations.route(address(object), self.home(object)) {
                Route::To(place) => at = place.pe as usize,
                Route::Keep => return false,
            }
            epoch = known;
        }
        true
    }

    fn messages<'a>(&self, state: &'a State) -> impl Iterator<Item = &'a Message> + use<'a> {
        let under_way = state.channels.parcels().filter_map(|p| match p {
            Parcel::Message(message) => Some(message),
            _ => None,
        });
        under_way.chain(state.pes.iter().flat_map(|pe| pe.queue.iter().chain(pe.kept.iter().flatten())))
    }
}

/// Runs an entry method: checks that the message is the next one.
fn execute(state: &mut State, message: &Message) {
    let delivered = &mut state.delivered[message.to];
    state.is_wrong |= message.number != *delivered;
    *delivered += 1;
}

impl Model for Delivery {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let object = || Object { epoch: 0, outgoing: Outgoing::default(), incoming: Incoming::default() };
        let is_at = |pe: usize, o: usize| self.homes[o] == pe && !self.absent[o];
        let pe = |pe: usize| Pe {
            locations: Locations::new(pe as u32),
            here: std::array::from_fn(|o| is_at(pe, o).then(object)),
            queue: VecDeque::new(),
            kept: Default::default(),
        };
        vec![State {
            pes: std::array::from_fn(pe),
            channels: Channels::default(),
            migrations: self.migrations,
            unsent: self.messages,
            delivered: [0; OBJECTS],
            absent: self.absent,
            is_wrong: false,
            is_circling: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.is_wrong || state.is_circling {
            return;
        }
        if let Some(action) = self.idle_notice(state) {
            return actions.push(action);
        }
        for object in (0..OBJECTS).filter(|&o| state.absent[o]) {
            actions.push(Action::Create(object));
        }
        for (at, pe) in state.pes.iter().enumerate() {
            for object in (0..OBJECTS).filter(|&o| pe.here[o].is_some()) {
                if state.unsent[object] > 0 {
                    actions.push(Action::Send(object));
                }
                if state.migrations > 0 {
                    actions.extend((0..PES).filter(|&to| to != at).map(|to| Action::Migrate(object, to)));
                }
            }
            let choices = if self.priorities { pe.queue.len() } else { pe.queue.len().min(1) };
            for (place, message) in pe.queue.iter().take(choices).enumerate() {
                actions.push(Action::Run(at, place, None));
                let early = pe.here[message.to].as_ref().map_or(0, |o| o.incoming.early() as u64);
                if state.migrations > 0 {
                    for after in 1..=early {
                        let leave = |to| Action::Run(at, place, Some((after, to)));
                        actions.extend((0..PES).filter(|&to| to != at).map(leave));
                    }
                }
            }
            actions.extend(state.channels.filled(at).map(|to| Action::Receive(at, to)));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let place_of = |object: usize| last.pes.iter().position(|pe| pe.here[object].is_some());
        match action {
            Action::Create(object) => {
                let object_here =
                    Object { epoch: 0, outgoing: Outgoing::default(), incoming: Incoming::default() };
                state.absent[object] = false;
                state.pes[self.homes[object]].here[object] = Some(object_here);
                self.release(&mut state, self.homes[object], object);
            }
            Action::Send(object) => {
                let at = place_of(object)?;
                let number = state.pes[at].here[object].as_mut()?.outgoing.next(address(1 - object));
                state.unsent[object] -= 1;
                self.deliver(
                    &mut state,
                    at,
                    Message { to: 1 - object, number, origin: at as u32, epoch: 0, hops: 0 },
                );
            }
            Action::Migrate(object, to) => self.migrate(&mut state, place_of(object)?, object, to),
            Action::Receive(from, to) => {
                let parcel = state.channels.receive(from, to)?;
                self.receive(&mut state, to, parcel);
            }
            Action::Run(at, place, leave) => {
                let message = state.pes[at].queue.remove(place)?;
                self.dispatch(&mut state, at, message, leave)?;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("once and in order", |_, state| !state.is_wrong),
            Property::<Self>::always("complete at the end", |model, state| {
                !model.is_done(state) || model.is_complete(state)
            }),
            Property::<Self>::always("no circles", |model, state| {
                !state.is_circling && model.messages(state).all(|message| message.hops <= MOST_HOPS)
            }),
            Property::<Self>::sometimes("a message is early", |_, state| {
                state.pes.iter().any(|pe| pe.here.iter().flatten().any(|o| o.incoming.early() > 0))
            }),
            Property::<Self>::sometimes("early messages migrate", |_, state| {
                let moved = |p: &Parcel| matches!(p, Parcel::Moved(_, object) if object.incoming.early() > 0);
                state.channels.parcels().any(moved)
            }),
            Property::<Self>::sometimes("a message waits", |_, state| {
                state.pes.iter().any(|pe| pe.kept.iter().any(|kept| !kept.is_empty()))
            }),
            Property::<Self>::sometimes("a message is forwarded twice", |model, state| {
                model.messages(state).any(|message| message.epoch > 1 && message.origin != 0)
            }),
            Property::<Self>::sometimes("an object returns home", |model, state| {
                (0..OBJECTS).any(|o| state.pes[model.homes[o]].here[o].as_ref().is_some_and(|o| o.epoch > 0))
            }),
            Property::<Self>::sometimes("the receiver leaves before a queued message runs", |_, state| {
                state.pes.iter().any(|pe| pe.queue.iter().any(|message| pe.here[message.to].is_none()))
            }),
        ]
    }

    // every action uses up a message, a migration, or a parcel, or moves a message over a channel
    fn within_boundary(&self, state: &State) -> bool {
        self.messages(state).all(|message| message.hops <= MOST_HOPS + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{check, finds};
    use super::*;

    const SMALL: Delivery = Delivery {
        homes: [0, 1],
        migrations: 4,
        messages: [1, 1],
        absent: [false; OBJECTS],
        priorities: false,
        fault: None,
    };

    #[test]
    fn four_migrations_of_two_objects_on_three_pes() {
        check("two messages one way, one back", Delivery { messages: [2, 1], ..SMALL }, true);
        check("three messages one way", Delivery { messages: [3, 0], ..SMALL }, true);
    }

    #[test]
    fn four_migrations_with_priorities_one_home_and_late_elements() {
        check("priorities", Delivery { messages: [2, 0], priorities: true, ..SMALL }, true);
        check("one home", Delivery { messages: [2, 0], homes: [0, 0], ..SMALL }, true);
        check("the sender's home last", Delivery { messages: [1, 1], homes: [2, 0], ..SMALL }, false);
        check(
            "the receiver is inserted late",
            Delivery { messages: [2, 0], absent: [false, true], ..SMALL },
            true,
        );
        check("both are inserted late", Delivery { absent: [true, true], ..SMALL }, false);
    }

    #[test]
    #[ignore = "tens of millions of states: run it in a release build"]
    fn four_migrations_with_two_messages_each_way() {
        check("two messages each way", Delivery { messages: [2, 2], ..SMALL }, true);
        check("two messages each way, one home", Delivery { messages: [2, 2], homes: [0, 0], ..SMALL }, true);
    }

    #[test]
    #[ignore = "tens of millions of states: run it in a release build"]
    fn four_migrations_with_three_messages_and_one_back() {
        check("three messages one way, one back", Delivery { messages: [3, 1], ..SMALL }, true);
        check(
            "three messages with priorities",
            Delivery { messages: [3, 0], priorities: true, ..SMALL },
            true,
        );
    }

    #[test]
    fn a_faulty_protocol_is_found() {
        for (fault, property) in [
            (Fault::DueStay, "complete at the end"),
            (Fault::DueLost, "complete at the end"),
            (Fault::NoPointer, "complete at the end"),
            (Fault::OlderPlaces, "complete at the end"),
            (Fault::NoEpochs, "complete at the end"),
            (Fault::KeptStay, "complete at the end"),
            (Fault::NoEpochInMessages, "no circles"),
            (Fault::NoOrder, "once and in order"),
            (Fault::NumbersStay, "complete at the end"),
        ] {
            let model = Delivery { messages: [2, 0], fault: Some(fault), ..SMALL };
            finds(&format!("{fault:?}"), model, property);
        }
    }
}
