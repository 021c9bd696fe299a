// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rounds of load balancing with objects that migrate at any time: a round begins once every object waits, every object
//! goes on once after it, and the objects that a decision moves arrive or stay.

use stateright::{Model, Property};

use super::{Channels, PES};
use crate::sync::{Detector, Local, Progress, Status, Turn};

const OBJECTS: usize = 2;

/// An object: its part in load balancing, and the rounds after which it has gone on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Object {
    turn: Turn,
    resumed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Parcel {
    Report(usize, Status),
    Balance(u64),
    Confirm(u64),
    /// An answer, with the objects of the PE.
    Answer(usize, u64, Status, [bool; OBJECTS]),
    /// Objects that leave, with their new PE, and how many arrive.
    Migrate(u64, [Option<usize>; OBJECTS], u32),
    Stay(u32),
    Migrated(u64),
    Resume(u64),
    /// An object, the round in which it is due, and whether the decision moves it.
    Moved(usize, Object, u64, bool),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Pe {
    local: Local,
    here: [Option<Object>; OBJECTS],
    expected: Option<u32>,
    arrived: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pes: [Pe; PES],
    detector: Detector,
    /// At PE 0: the answers so far, and the PEs that have all their objects.
    listed: [Option<usize>; OBJECTS],
    migrated: usize,
    channels: Channels<Parcel>,
    migrations: u8,
    /// A round began while an object was due.
    is_early: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    AtSync(usize, usize),
    Resume(usize, usize),
    Step(usize),
    Migrate(usize, usize, usize),
    Receive(usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Objects under way are not counted.
    NotCounted,
    /// A waiting object that migrates is counted for the round that it waits for.
    CountedEarly,
    /// An object that arrives after the end of its round waits on.
    NoLateResume,
    /// Nobody is told that an object stays.
    NoStay,
}

#[derive(Clone, Debug)]
pub(super) struct SyncModel {
    pub(super) rounds: u64,
    pub(super) migrations: u8,
    pub(super) fault: Option<Fault>,
}

impl SyncModel {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn post(&self, state: &mut State, from: usize, to: usize, parcel: Parcel) {
        if from == to {
            return self.receive(state, to, parcel);
        }
        state.channels.send(from, to, parcel);
    }

    fn post_to_all(&self, state: &mut State, parcel: &Parcel) {
        for pe in 0..PES {
            self.post(state, 0, pe, parcel.clone());
        }
    }

    fn receive(&self, state: &mut State, at: usize, parcel: Parcel) {
        match parcel {
            Parcel::Report(pe, status) => {
                if state.detector.report(pe as u32, status) {
                    self.post_to_all(state, &Parcel::Balance(status.round));
                }
                self.ask(state);
            }
            Parcel::Balance(round) => state.pes[at].local.call(round),
            Parcel::Confirm(wave) => {
                let status = state.pes[at].local.answer();
                let here = state.pes[at].here.map(|object| object.is_some());
                self.post(state, at, 0, Parcel::Answer(at, wave, status, here));
            }
            Parcel::Answer(pe, wave, status, here) => self.take_answer(state, pe, wave, status, here),
            Parcel::Migrate(round, leave, arrive) => self.take_decision(state, at, round, leave, arrive),
            Parcel::Stay(count) => {
                state.pes[at].arrived += count;
                self.check_migrated(state, at);
            }
            Parcel::Migrated(round) => {
                state.migrated += 1;
                if state.migrated == PES {
                    state.migrated = 0;
                    state.detector.end_round();
                    self.post_to_all(state, &Parcel::Resume(round));
                }
            }
            Parcel::Resume(_) => {
                let Pe { local, here, .. } = &mut state.pes[at];
                let next = local.end_round();
                for object in here.iter_mut().flatten() {
                    if object.turn.end_wait(next) {
                        local.leave(true);
                        local.enter(false);
                    }
                }
            }
            Parcel::Moved(number, mut object, due, balanced) => {
                let pe = &mut state.pes[at];
                if !self.has(Fault::NotCounted) {
                    pe.local.receive(due);
                }
                if !self.has(Fault::NoLateResume) {
                    object.turn.end_wait(pe.local.round());
                }
                pe.local.enter(object.turn.waits());
                pe.here[number] = Some(object);
                if balanced {
                    pe.arrived += 1;
                    self.check_migrated(state, at);
                }
            }
        }
    }

    /// `Core::ask`
    fn ask(&self, state: &mut State) {
        if let Some(wave) = state.detector.next_wave() {
            self.post_to_all(state, &Parcel::Confirm(wave));
        }
    }

    /// `Core::take_answer`. The decision moves the first object to the next PE.
    fn take_answer(&self, state: &mut State, pe: usize, wave: u64, status: Status, here: [bool; OBJECTS]) {
        for (object, _) in here.iter().enumerate().filter(|(_, here)| **here) {
            state.listed[object] = Some(pe);
        }
        match state.detector.answer(wave, pe as u32, status) {
            Progress::Waiting => return,
            Progress::Changed => {
                state.listed = [None; OBJECTS];
                return self.ask(state);
            }
            Progress::Complete => {}
        }
        let round = state.pes[0].local.round();
        let is_due = |object: &Object| object.turn.due(0) <= round;
        let under_way = state
            .channels
            .parcels()
            .any(|parcel| matches!(parcel, Parcel::Moved(_, object, ..) if is_due(object)));
        state.is_early |= under_way || state.pes.iter().any(|pe| pe.here.iter().flatten().any(is_due));
        let from = std::mem::take(&mut state.listed)[0];
        for pe in 0..PES {
            let to = from.map(|from| (from + 1) % PES);
            let leave = [to.filter(|_| from == Some(pe)), None];
            self.post(state, 0, pe, Parcel::Migrate(round, leave, u32::from(to == Some(pe))));
        }
    }

    /// `Core::take_decision`
    fn take_decision(
        &self,
        state: &mut State,
        at: usize,
        round: u64,
        leave: [Option<usize>; OBJECTS],
        arrive: u32,
    ) {
        state.pes[at].expected = Some(arrive);
        for (number, to) in leave.iter().enumerate() {
            let Some(to) = *to else { continue };
            if state.pes[at].here[number].is_some_and(|object| object.turn.waits_for(round)) {
                self.migrate(state, at, number, to, true);
            } else if !self.has(Fault::NoStay) {
                self.post(state, at, to, Parcel::Stay(1));
            }
        }
        self.check_migrated(state, at);
    }

    /// `Core::check_migrated`
    fn check_migrated(&self, state: &mut State, at: usize) {
        let pe = &mut state.pes[at];
        if pe.expected.is_some_and(|expected| pe.arrived >= expected) {
            pe.expected = None;
            pe.arrived = 0;
            let round = pe.local.round();
            self.post(state, at, 0, Parcel::Migrated(round));
        }
    }

    /// `Core::migrate`
    fn migrate(&self, state: &mut State, at: usize, number: usize, to: usize, balanced: bool) {
        let pe = &mut state.pes[at];
        let Some(object) = pe.here[number].take() else { return };
        pe.local.leave(object.turn.waits());
        let round = pe.local.round();
        let mut due = object.turn.due(round);
        if self.has(Fault::CountedEarly) {
            due = round;
        }
        if !self.has(Fault::NotCounted) {
            pe.local.send(due);
        }
        self.post(state, at, to, Parcel::Moved(number, object, due, balanced));
    }
}

impl Model for SyncModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut pes: [Pe; PES] = Default::default();
        for (number, pe) in pes.iter_mut().skip(1).take(OBJECTS).enumerate() {
            pe.here[number] = Some(Object::default());
            pe.local.enter(false);
        }
        vec![State {
            pes,
            detector: Detector::new(PES as u32),
            listed: [None; OBJECTS],
            migrated: 0,
            channels: Channels::default(),
            migrations: self.migrations,
            is_early: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.is_early {
            return;
        }
        for (at, pe) in state.pes.iter().enumerate() {
            if pe.local.is_changed {
                actions.push(Action::Step(at));
            }
            for (number, object) in pe.here.iter().enumerate() {
                let Some(object) = object else { continue };
                if object.turn.is_resuming() {
                    actions.push(Action::Resume(at, number));
                } else if !object.turn.waits() && object.resumed < self.rounds {
                    actions.push(Action::AtSync(at, number));
                }
                if state.migrations > 0 {
                    actions.extend((0..PES).filter(|&to| to != at).map(|to| Action::Migrate(at, number, to)));
                }
            }
            actions.extend(state.channels.filled(at).map(|to| Action::Receive(at, to)));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::AtSync(at, number) => {
                let Pe { local, here, .. } = &mut state.pes[at];
                if here[number].as_mut()?.turn.wait(local.round()) {
                    local.leave(false);
                    local.enter(true);
                }
            }
            Action::Resume(at, number) => {
                let object = state.pes[at].here[number].as_mut()?;
                object.resumed += u64::from(object.turn.take_resuming());
            }
            Action::Step(at) => {
                if let Some(status) = state.pes[at].local.report() {
                    self.post(&mut state, at, 0, Parcel::Report(at, status));
                }
            }
            Action::Migrate(at, number, to) => {
                state.migrations -= 1;
                self.migrate(&mut state, at, number, to, false);
            }
            Action::Receive(from, to) => {
                let parcel = state.channels.receive(from, to)?;
                self.receive(&mut state, to, parcel);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("no round begins early", |_, state| !state.is_early),
            Property::<Self>::always("every object goes on after every round", |model, state| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                let done = state.pes.iter().flat_map(|pe| pe.here.iter().flatten());
                !actions.is_empty()
                    || state.is_early
                    || done.filter(|object| object.resumed == model.rounds).count() == OBJECTS
            }),
            Property::<Self>::sometimes("an object waits under way while its round ends", |_, state| {
                let ended = |parcel: &Parcel| matches!(parcel, Parcel::Moved(_, object, ..) if object.turn.waits() && object.turn.due(0) <= state.pes[0].local.round());
                state.channels.parcels().any(ended)
            }),
            Property::<Self>::sometimes("an object that was to leave has left", |_, state| {
                state.channels.parcels().any(|parcel| matches!(parcel, Parcel::Stay(_)))
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::{check, finds};
    use super::*;

    const SMALL: SyncModel = SyncModel { rounds: 1, migrations: 2, fault: None };

    #[test]
    fn rounds_begin_when_all_objects_wait_and_all_go_on_while_objects_migrate() {
        check("one round", SMALL, true);
        check("two rounds", SyncModel { rounds: 2, migrations: 1, ..SMALL }, true);
    }

    #[test]
    #[ignore = "millions of states: run it in a release build"]
    fn rounds_are_complete_in_larger_models() {
        check("one round, three migrations", SyncModel { migrations: 3, ..SMALL }, true);
        check("two rounds, two migrations", SyncModel { rounds: 2, ..SMALL }, true);
    }

    #[test]
    fn a_faulty_protocol_is_found() {
        let all = "every object goes on after every round";
        for (fault, property) in [
            (Fault::NotCounted, "no round begins early"),
            (Fault::CountedEarly, all),
            (Fault::NoLateResume, "no round begins early"),
            (Fault::NoStay, all),
        ] {
            let model = SyncModel { rounds: 2, fault: Some(fault), ..SMALL };
            finds(&format!("{fault:?}"), model, property);
        }
    }
}
