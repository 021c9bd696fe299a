// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages to objects that migrate: each is delivered once, and in order for each pair of objects. Pairs are retired at any time, and
//! talk again. PEs die at any time: all go back to a checkpoint.

mod deaths;
mod ending;
mod state;

use stateright::{Model, Property};

use self::state::{Action, Fault, Message, OBJECTS, Object, Parcel, Pe, Program, State, address};
use super::{Channels, PES};
use crate::location::{Locations, Place, Route};
use crate::order::{Arrival, Incoming, Outgoing, Retirement};

/// A message that crosses so many channels goes in circles, if it is not sent to newer and newer places.
const MOST_HOPS: u8 = 20;

/// The model's parameters.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) homes: [usize; OBJECTS],
    pub(super) migrations: u8,
    pub(super) messages: [u64; OBJECTS],
    /// Elements that are inserted later, at any time.
    pub(super) absent: [bool; OBJECTS],
    /// Times that each object may ask to retire its pair as a sender.
    pub(super) asks: [u8; OBJECTS],
    /// Messages have priorities: those of a queue run in any order.
    pub(super) priorities: bool,
    /// Deaths of PEs, and checkpoints after the beginning, to which they go back otherwise.
    pub(super) deaths: u8,
    pub(super) checkpoints: u8,
    pub(super) fault: Option<Fault>,
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
            Parcel::Retire(object, step, epoch) => self.pass_retirement(state, at, object, (step, epoch)),
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
        for step in std::mem::take(&mut state.pes[at].kept_retirements[object]) {
            self.pass_retirement(state, at, object, (step, 0));
        }
    }

    /// `Core::pass_retirement`
    fn pass_retirement(&self, state: &mut State, at: usize, object: usize, (step, epoch): (Retirement, u32)) {
        if state.pes[at].here[object].is_some() {
            return self.retire(state, at, object, step);
        }
        let pe = &mut state.pes[at];
        match pe.locations.pass_on(address(object), self.home(object), epoch) {
            Route::Keep if pe.locations.place(address(object)).is_some() || !pe.kept[object].is_empty() => {
                pe.kept_retirements[object].push(step);
            }
            // no object is at this index
            Route::Keep => {
                assert!(matches!(step, Retirement::Ask(_)), "only a receiver that is created late")
            }
            Route::To(place) => {
                self.post(state, at, place.pe as usize, Parcel::Retire(object, step, place.epoch));
            }
        }
    }

    /// `Core::retire_here`, `Ledger::retire`
    fn retire(&self, state: &mut State, at: usize, object: usize, step: Retirement) {
        let other = address(1 - object);
        let Some(element) = &mut state.pes[at].here[object] else { return };
        let mut reply = None;
        match step {
            Retirement::Leave => reply = element.outgoing.ask_one(other).map(Retirement::Ask),
            Retirement::Ask(number) => {
                let is_done = element.incoming.retire(other, number);
                if self.has(Fault::ForgottenEarly) && !is_done {
                    element.incoming = Incoming::default();
                    reply = Some(Retirement::Done(number));
                }
                reply = reply.or(is_done.then_some(Retirement::Done(number)));
            }
            Retirement::Done(number) => {
                if element.outgoing.retired(other, number) {
                    reply = Some(Retirement::GoOn(number));
                    if self.has(Fault::ForgottenAnyway) {
                        element.outgoing = Outgoing::default();
                    }
                }
            }
            Retirement::GoOn(number) => {
                state.has_gone_on = true;
                element.incoming.resume(other, number);
                if !self.has(Fault::ResumedWithoutDue) {
                    let due = element.incoming.take_due_of(other);
                    state.pes[at].queue.extend(due);
                }
            }
        }
        if let Some(reply) =
            reply.filter(|reply| !self.has(Fault::NotResumed) || !matches!(reply, Retirement::GoOn(_)))
        {
            self.pass_retirement(state, at, 1 - object, (reply, 0));
        }
    }

    /// `Core::answer_all_retired`, and the end of `Core::dispatch`
    fn answer_retired(&self, state: &mut State, at: usize, object: usize) {
        let Some(element) = &mut state.pes[at].here[object] else { return };
        for (_, number) in element.incoming.take_all_retired() {
            self.pass_retirement(state, at, 1 - object, (Retirement::Done(number), 0));
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
        state.program.migrations -= 1;
        self.post(state, at, to, Parcel::Moved(object, Box::new(moved)));
    }

    /// `Core::install`
    fn install(&self, state: &mut State, at: usize, object: usize, moved: Object) {
        let epoch = moved.epoch;
        let pe = &mut state.pes[at];
        pe.here[object] = Some(moved);
        self.answer_retired(state, at, object);
        let pe = &mut state.pes[at];
        let Some(here) = &mut pe.here[object] else { return };
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
        let first = match element.incoming.arrive(from, message.number, message) {
            Arrival::Deliver(first) => first,
            arrival => {
                // a message that arrives twice ends the program
                state.is_wrong |= arrival == Arrival::Duplicate;
                return leave.is_none().then_some(());
            }
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
        self.answer_retired(state, at, object);
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
        actions.iter().all(|action| matches!(action, Action::Save | Action::Die(_)))
    }
}

/// Runs an entry method: checks that the message is the next one.
fn execute(state: &mut State, message: &Message) {
    let delivered = &mut state.program.delivered[message.to];
    state.is_wrong |= message.serial != *delivered;
    *delivered += 1;
}

impl Model for Delivery {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let object = || Object { epoch: 0, outgoing: Outgoing::default(), incoming: Incoming::default() };
        let is_at = |pe: usize, o: usize| self.homes[o] == pe && !self.absent[o];
        let here = |pe: usize| std::array::from_fn(|o| is_at(pe, o).then(object));
        let mut state = State {
            pes: std::array::from_fn(|pe| Pe::new(Locations::new(pe as u32), here(pe))),
            channels: Channels::default(),
            program: Program {
                migrations: self.migrations,
                unsent: self.messages,
                asks: self.asks,
                delivered: [0; OBJECTS],
                absent: self.absent,
            },
            checkpoint: None,
            deaths: self.deaths,
            checkpoints: self.checkpoints,
            has_renewed: [false; OBJECTS],
            has_gone_on: false,
            is_wrong: false,
            is_circling: false,
        };
        if self.deaths > 0 {
            // without a checkpoint, the program begins anew
            deaths::save(&mut state);
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.is_wrong || state.is_circling {
            return;
        }
        if let Some(action) = self.idle_notice(state) {
            return actions.push(action);
        }
        if state.deaths > 0 {
            // whoever dies, all go back
            let dead = if self.has(Fault::OthersStay) { PES } else { 1 };
            actions.extend((0..dead).map(Action::Die));
            if state.checkpoints > 0 && deaths::is_quiet(state) {
                actions.push(Action::Save);
            }
        }
        for object in (0..OBJECTS).filter(|&o| state.program.absent[o]) {
            actions.push(Action::Create(object));
        }
        for (at, pe) in state.pes.iter().enumerate() {
            for object in (0..OBJECTS).filter(|&o| pe.here[o].is_some()) {
                if state.program.unsent[object] > 0 {
                    actions.push(Action::Send(object));
                }
                if state.program.asks[object] > 0
                    && pe.here[object].as_ref().is_some_and(|o| o.outgoing.pairs() > 0)
                {
                    actions.push(Action::Retire(object));
                }
                if state.program.migrations > 0 {
                    actions.extend((0..PES).filter(|&to| to != at).map(|to| Action::Migrate(object, to)));
                }
            }
            let choices = if self.priorities { pe.queue.len() } else { pe.queue.len().min(1) };
            for (place, message) in pe.queue.iter().take(choices).enumerate() {
                actions.push(Action::Run(at, place, None));
                let early = pe.here[message.to].as_ref().map_or(0, |o| o.incoming.early() as u64);
                if state.program.migrations > 0 {
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
                state.program.absent[object] = false;
                state.pes[self.homes[object]].here[object] = Some(object_here);
                self.release(&mut state, self.homes[object], object);
            }
            Action::Send(object) => {
                let at = place_of(object)?;
                let number = state.pes[at].here[object].as_mut()?.outgoing.next(address(1 - object));
                let serial = self.messages[object] - state.program.unsent[object];
                state.program.unsent[object] -= 1;
                state.has_renewed[object] |= number < serial;
                self.deliver(
                    &mut state,
                    at,
                    Message { to: 1 - object, number, serial, origin: at as u32, epoch: 0, hops: 0 },
                );
            }
            Action::Retire(object) => {
                let at = place_of(object)?;
                let element = state.pes[at].here[object].as_mut()?;
                let asked = element.outgoing.retire_all();
                if self.has(Fault::ForgottenUnasked) {
                    element.outgoing = Outgoing::default();
                }
                state.program.asks[object] -= 1;
                // a pair that has been asked for and not used since is not asked for again
                let (_, number) = *asked.first()?;
                self.pass_retirement(&mut state, at, 1 - object, (Retirement::Ask(number), 0));
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
            Action::Save => {
                deaths::save(&mut state);
                state.checkpoints -= 1;
            }
            Action::Die(pe) => deaths::die(&mut state, pe, self.fault)?,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("once and in order", |_, state| !state.is_wrong),
            Property::<Self>::always("complete at the end", |model, state| {
                !model.is_done(state) || ending::is_complete(state, model.homes, model.messages)
            }),
            Property::<Self>::always("no circles", |_, state| {
                !state.is_circling && ending::messages(state).all(|message| message.hops <= MOST_HOPS)
            }),
            Property::<Self>::always("images lack nothing", |model, state| {
                model.fault.is_some() || !deaths::is_quiet(state) || deaths::is_whole(state)
            }),
            Property::<Self>::sometimes("all is delivered after the last death", |model, state| {
                state.deaths == 0 && model.is_done(state)
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
                model.migrations < 3
                    || ending::messages(state).any(|message| message.epoch > 1 && message.origin != 0)
            }),
            Property::<Self>::sometimes("a retired pair talks again", |model, state| {
                model.asks == [0; OBJECTS] || state.has_renewed.iter().any(|has| *has)
            }),
            Property::<Self>::sometimes("a retired pair has to go on", |model, state| {
                model.asks == [0; OBJECTS] || state.has_gone_on
            }),
            Property::<Self>::sometimes("both objects forget the pair", |model, state| {
                model.asks == [0; OBJECTS]
                    || model.is_done(state)
                        && (0..OBJECTS)
                            .all(|o| ending::object(state, o).is_some_and(|o| o.incoming.pairs() == 0))
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
        ending::messages(state).all(|message| message.hops <= MOST_HOPS + 1)
    }
}

#[cfg(test)]
mod tests;
