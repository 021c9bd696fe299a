// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rounds of load balancing with objects that are inserted, migrate and are removed at any time: PE 0 decides once in each
//! round, when every object waits; every object goes on once after the round; the objects that a decision moves arrive or stay.

use stateright::{Model, Property};

use super::{Channels, PES};
use crate::sync::{Detector, Local, Progress, Status, Turn};

const OBJECTS: usize = 2;

/// An object: its part in load balancing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Object {
    turn: Turn,
    /// The round that the object has to wait for next. An inserted object waits first for the round that it finds.
    next: Option<u64>,
    /// The last wave that the PE had answered when it inserted the object. The round of that wave may end without the object.
    wave: u64,
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
    /// An object to be created, and the last wave that its inserter's PE had answered.
    Place(usize, u64),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Pe {
    local: Local,
    here: [Option<Object>; OBJECTS],
    expected: Option<u32>,
    arrived: u32,
    /// The last wave that the PE has answered.
    answered: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pes: [Pe; PES],
    detector: Detector,
    /// At PE 0: the answers so far, and the PEs that have all their objects.
    listed: [Option<usize>; OBJECTS],
    migrated: usize,
    channels: Channels<Parcel>,
    /// At PE 0: the round that ends with a checkpoint once no parcel is under way.
    awaits: Option<u64>,
    migrations: u8,
    insertions: u8,
    removals: u8,
    /// Objects that have been inserted, and not removed.
    exists: [bool; OBJECTS],
    /// Rounds that PE 0 has decided.
    decided: u64,
    wrong: Wrong,
}

/// What must not happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Wrong {
    /// PE 0 decided while an object was due.
    is_early: bool,
    /// PE 0 decided twice in one round.
    is_twice: bool,
    /// An object did not wait for a round that it had to wait for.
    is_skipped: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    AtSync(usize, usize),
    Resume(usize, usize),
    Step(usize),
    Migrate(usize, usize, usize),
    /// A PE inserts an object, whose home is another PE or the same.
    Insert(usize, usize, usize),
    Remove(usize, usize),
    /// PE 0 commits a checkpoint, since no parcel is under way.
    Commit(u64),
    Receive(usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Objects under way are not counted.
    NotCounted,
    /// PE 0 asks again in a round that it has decided.
    DecidesAgain,
    /// An object that arrives after the end of its round waits on.
    NoLateResume,
    /// Nobody is told that an object stays.
    NoStay,
    /// Insertions under way are not counted.
    NoInsertion,
    /// The counts keep an object that is removed.
    NoRemoval,
}

#[derive(Clone, Debug)]
pub(super) struct SyncModel {
    pub(super) rounds: u64,
    pub(super) migrations: u8,
    /// Insertions of the last object, which does not exist at first if there are any.
    pub(super) insertions: u8,
    pub(super) removals: u8,
    /// Each round ends with a checkpoint.
    pub(super) checkpoints: bool,
    pub(super) fault: Option<Fault>,
}

const NOT_EARLY: &str = "PE 0 decides when every object waits";
const ONCE: &str = "PE 0 decides once in a round";
const NO_SKIP: &str = "no object skips a round";
const ALL_GO_ON: &str = "every object goes on after every round";

impl State {
    /// No parcel is under way, and no PE has anything to report.
    fn is_quiet(&self) -> bool {
        self.channels.parcels().next().is_none() && !self.pes.iter().any(|pe| pe.local.is_changed)
    }

    /// All rounds have ended, and all objects have gone on. Without an object, no round begins.
    fn has_ended(&self, rounds: u64) -> bool {
        let objects: Vec<&Object> = self.pes.iter().flat_map(|pe| pe.here.iter().flatten()).collect();
        let exist = self.exists.iter().filter(|exists| **exists).count();
        let is_over = objects.is_empty() || self.pes.iter().all(|pe| pe.local.round() == rounds);
        objects.len() == exist && is_over && !objects.iter().any(|object| object.turn.waits())
    }
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
                state.pes[at].answered = wave;
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
                    if self.checkpoints {
                        state.awaits = Some(round);
                    } else {
                        self.post_to_all(state, &Parcel::Resume(round));
                    }
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
            Parcel::Place(number, wave) => {
                let Pe { local, here, .. } = &mut state.pes[at];
                local.enter(false);
                if !self.has(Fault::NoInsertion) {
                    local.receive(0);
                }
                here[number] = Some(Object { turn: Turn::new(local.round()), next: None, wave });
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
        let is_due = |object: &Object| object.turn.due(0) <= round && object.wave < wave;
        let under_way = state.channels.parcels().any(|parcel| match parcel {
            Parcel::Moved(_, object, ..) => is_due(object),
            Parcel::Place(_, answered) => *answered < wave,
            _ => false,
        });
        state.wrong.is_early |= under_way || state.pes.iter().any(|pe| pe.here.iter().flatten().any(is_due));
        state.wrong.is_twice |= round < state.decided;
        state.decided = round + 1;
        if self.has(Fault::DecidesAgain) {
            state.detector.forget_decision();
        }
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
        let due = object.turn.due(round);
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
        let mut exists = [true; OBJECTS];
        exists[OBJECTS - 1] = self.insertions == 0;
        for (number, pe) in pes.iter_mut().skip(1).take(OBJECTS).enumerate().filter(|one| exists[one.0]) {
            pe.here[number] = Some(Object { next: Some(0), ..Object::default() });
            pe.local.enter(false);
        }
        vec![State {
            pes,
            detector: Detector::new(PES as u32),
            listed: [None; OBJECTS],
            migrated: 0,
            channels: Channels::default(),
            awaits: None,
            migrations: self.migrations,
            insertions: self.insertions,
            removals: self.removals,
            exists,
            decided: 0,
            wrong: Wrong::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong != Wrong::default() {
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
                } else if !object.turn.waits() && object.turn.due(pe.local.round()) < self.rounds {
                    actions.push(Action::AtSync(at, number));
                }
                if state.removals > 0 {
                    actions.push(Action::Remove(at, number));
                }
                if state.migrations > 0 {
                    actions.extend((0..PES).filter(|&to| to != at).map(|to| Action::Migrate(at, number, to)));
                }
            }
            if state.insertions > 0 && !state.exists[OBJECTS - 1] {
                actions.extend((0..PES).map(|home| Action::Insert(at, home, OBJECTS - 1)));
            }
            actions.extend(state.channels.filled(at).map(|to| Action::Receive(at, to)));
        }
        if let Some(round) = state.awaits.filter(|_| state.is_quiet()) {
            actions.push(Action::Commit(round));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::AtSync(at, number) => {
                let Pe { local, here, .. } = &mut state.pes[at];
                let object = here[number].as_mut()?;
                let due = object.turn.due(local.round());
                state.wrong.is_skipped |= object.next.is_some_and(|next| next != due);
                object.next = Some(due + 1);
                if object.turn.wait(local.round()) {
                    local.leave(false);
                    local.enter(true);
                }
            }
            Action::Resume(at, number) => {
                state.pes[at].here[number].as_mut()?.turn.take_resuming();
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
            Action::Insert(at, home, number) => {
                state.insertions -= 1;
                state.exists[number] = true;
                if !self.has(Fault::NoInsertion) {
                    state.pes[at].local.send(0);
                }
                let wave = state.pes[at].answered;
                self.post(&mut state, at, home, Parcel::Place(number, wave));
            }
            Action::Remove(at, number) => {
                state.removals -= 1;
                state.exists[number] = false;
                let Pe { local, here, .. } = &mut state.pes[at];
                let object = here[number].take()?;
                if !self.has(Fault::NoRemoval) {
                    local.leave(object.turn.waits());
                }
            }
            Action::Commit(round) => {
                state.awaits = None;
                self.post_to_all(&mut state, &Parcel::Resume(round));
            }
            Action::Receive(from, to) => {
                let parcel = state.channels.receive(from, to)?;
                self.receive(&mut state, to, parcel);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::<Self>::always(NOT_EARLY, |_, state| !state.wrong.is_early),
            Property::<Self>::always(ONCE, |_, state| !state.wrong.is_twice),
            Property::<Self>::always(NO_SKIP, |_, state| !state.wrong.is_skipped),
            Property::<Self>::always(ALL_GO_ON, |model, state| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                !actions.is_empty() || state.wrong != Wrong::default() || state.has_ended(model.rounds)
            }),
            Property::<Self>::sometimes("an object waits under way while its round ends", |_, state| {
                let ended = |parcel: &Parcel| matches!(parcel, Parcel::Moved(_, object, ..) if object.turn.waits() && object.turn.due(0) <= state.pes[0].local.round());
                state.channels.parcels().any(ended)
            }),
            Property::<Self>::sometimes("an object that was to leave has left", |_, state| {
                state.channels.parcels().any(|parcel| matches!(parcel, Parcel::Stay(_)))
            }),
        ];
        if self.insertions > 0 {
            let waits = Property::<Self>::sometimes(
                "an object inserted after the decision waits for the round",
                |_, state| {
                    let is_late =
                        |object: &Object| object.wave > 0 && object.turn.waits_for(state.decided - 1);
                    state.decided > 0
                        && state.detector.round() < state.decided
                        && state.pes.iter().flat_map(|pe| pe.here.iter().flatten()).any(is_late)
                },
            );
            properties.push(waits);
        }
        properties
    }
}

#[cfg(test)]
mod tests {
    use super::super::{check, finds};
    use super::*;

    const SMALL: SyncModel =
        SyncModel { rounds: 1, migrations: 2, insertions: 0, removals: 0, checkpoints: false, fault: None };
    const INSERTION: SyncModel = SyncModel { migrations: 0, insertions: 1, removals: 1, ..SMALL };
    const CHECKPOINTS: SyncModel = SyncModel { rounds: 2, checkpoints: true, ..INSERTION };

    #[test]
    fn rounds_begin_when_all_objects_wait_and_all_go_on_while_objects_migrate() {
        check("one round", SMALL, true);
        check("two rounds", SyncModel { rounds: 2, migrations: 1, ..SMALL }, true);
    }

    #[test]
    fn rounds_end_once_while_objects_are_inserted_and_removed() {
        check("insertion and removal", INSERTION, false);
        check("insertion in two rounds", SyncModel { rounds: 2, removals: 0, ..INSERTION }, false);
        check("insertion and removal with checkpoints", CHECKPOINTS, false);
    }

    #[test]
    #[ignore = "millions of states: run it in a release build"]
    fn rounds_end_once_in_larger_models_with_insertions() {
        check("insertion, removal, migration", SyncModel { migrations: 1, ..INSERTION }, true);
        check("with checkpoints", SyncModel { migrations: 1, ..CHECKPOINTS }, false);
    }

    #[test]
    #[ignore = "millions of states: run it in a release build"]
    fn rounds_are_complete_in_larger_models() {
        check("one round, three migrations", SyncModel { migrations: 3, ..SMALL }, true);
        check("two rounds, two migrations", SyncModel { rounds: 2, ..SMALL }, true);
    }

    #[test]
    fn a_faulty_protocol_is_found() {
        for (fault, property) in
            [(Fault::NotCounted, NOT_EARLY), (Fault::NoLateResume, NOT_EARLY), (Fault::NoStay, ALL_GO_ON)]
        {
            let model = SyncModel { rounds: 2, fault: Some(fault), ..SMALL };
            finds(&format!("{fault:?}"), model, property);
        }
        for (fault, property) in
            [(Fault::NoInsertion, NOT_EARLY), (Fault::NoRemoval, ALL_GO_ON), (Fault::DecidesAgain, ONCE)]
        {
            finds(&format!("{fault:?}"), SyncModel { fault: Some(fault), ..INSERTION }, property);
        }
    }
}
