// SPDX-License-Identifier: MIT OR Apache-2.0
//! Broadcasts to elements that migrate: each element runs each broadcast once, in order, and no log is trimmed too early.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use stateright::{Model, Property};

use super::{Channels, PES};
use crate::broadcasts::{Broadcast, Broadcasts};

const ELEMENTS: usize = 2;

/// The PE that numbers the broadcasts.
const ROOT: usize = 0;

/// An element, as it migrates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Element {
    /// The next broadcast that it has not been given.
    next: u64,
    /// Broadcasts that it was given and has not run.
    given: VecDeque<Broadcast>,
    /// Broadcasts that it has run.
    ran: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Parcel {
    Broadcast(u64),
    Moved(usize, Element),
    Installed(u64),
    Done(u32, u64),
    Trim(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pe {
    broadcasts: Broadcasts,
    /// Elements that left and are not yet known to have arrived, by their next broadcast.
    leaving: BTreeMap<u64, u64>,
    /// Elements here, with the number of broadcasts that are queued for them.
    here: [Option<(Element, u64)>; ELEMENTS],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pes: [Pe; PES],
    channels: Channels<Parcel>,
    unsent: u64,
    migrations: u8,
    /// A broadcast ran twice or out of order, or reached a PE out of order.
    is_wrong: bool,
    /// An element arrived where a broadcast that it was not given had been trimmed.
    is_trimmed_early: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Broadcast,
    Receive(usize, usize),
    /// An element runs the next broadcast that it was given.
    Run(usize, usize),
    Migrate(usize, usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A PE acknowledges although elements that left it have not arrived.
    LeavingIgnored,
    /// Broadcasts that an element was given and has not run stay behind.
    GivenStay,
    /// Those that migrate with it are not queued again.
    GivenNotQueued,
    /// An element that arrives is not given what it missed.
    NoCatchUp,
    /// An element counts what its PE was given, not what it was.
    NextOfPe,
    /// An element is given every broadcast that reaches its PE.
    GivenAgain,
}

#[derive(Clone, Debug)]
pub(super) struct BroadcastModel {
    pub(super) broadcasts: u64,
    pub(super) migrations: u8,
    /// PEs that each PE passes a broadcast on to.
    pub(super) branches: usize,
    /// Broadcasts that a PE acknowledges at once.
    pub(super) batch: u64,
    pub(super) fault: Option<Fault>,
}

fn broadcast(number: u64) -> Broadcast {
    Broadcast { entry: number as u16, id: 0, message: Arc::from([]) }
}

impl BroadcastModel {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn post(&self, state: &mut State, from: usize, to: usize, parcel: Parcel) {
        if from == to {
            return self.receive(state, from, to, parcel);
        }
        state.channels.send(from, to, parcel);
    }

    fn receive(&self, state: &mut State, from: usize, at: usize, parcel: Parcel) {
        match parcel {
            Parcel::Broadcast(number) => self.take_broadcast(state, at, number),
            Parcel::Moved(element, moved) => self.install(state, (from, at), element, moved),
            Parcel::Installed(next) => {
                let leaving = &mut state.pes[at].leaving;
                if let Some(count) = leaving.get_mut(&next) {
                    *count -= 1;
                    leaving.retain(|_, count| *count > 0);
                }
                self.acknowledge(state, at);
            }
            Parcel::Done(pe, below) => self.acknowledged(state, pe, below),
            Parcel::Trim(below) => state.pes[at].broadcasts.trim(below),
        }
    }

    /// `Core::take_broadcast`
    fn take_broadcast(&self, state: &mut State, at: usize, number: u64) {
        let place = (at + PES - ROOT) % PES;
        for child in (1..=self.branches).map(|b| place * self.branches + b).filter(|&c| c < PES) {
            self.post(state, at, (child + ROOT) % PES, Parcel::Broadcast(number));
        }
        let pe = &mut state.pes[at];
        state.is_wrong |= pe.broadcasts.count() != number;
        pe.broadcasts.arrive(broadcast(number));
        for (element, queued) in pe.here.iter_mut().flatten() {
            if element.next == number || self.has(Fault::GivenAgain) {
                element.next += 1;
                element.given.push_back(broadcast(number));
                *queued += 1;
            }
        }
        self.acknowledge(state, at);
    }

    /// `Core::acknowledge`
    fn acknowledge(&self, state: &mut State, at: usize) {
        let pe = &mut state.pes[at];
        let lowest = pe.leaving.keys().next().copied();
        let leaving = if self.has(Fault::LeavingIgnored) { None } else { lowest };
        if let Some(below) = pe.broadcasts.acknowledge_some(leaving, self.batch) {
            self.post(state, at, ROOT, Parcel::Done(at as u32, below));
        }
    }

    /// `Core::acknowledged`
    fn acknowledged(&self, state: &mut State, pe: u32, below: u64) {
        let Some(below) = state.pes[ROOT].broadcasts.done(pe, PES as u32, below) else { return };
        for pe in (0..PES).filter(|&pe| pe != ROOT) {
            self.post(state, ROOT, pe, Parcel::Trim(below));
        }
        state.pes[ROOT].broadcasts.trim(below);
    }

    /// `Core::install`, `Core::give_broadcasts`
    fn install(&self, state: &mut State, (from, at): (usize, usize), element: usize, mut moved: Element) {
        let pe = &mut state.pes[at];
        let next = moved.next;
        if self.has(Fault::NextOfPe) {
            moved.next = pe.broadcasts.count();
        }
        let is_missing = moved.next < pe.broadcasts.count() && pe.broadcasts.get(moved.next).is_none();
        state.is_trimmed_early |= is_missing;
        if !self.has(Fault::NoCatchUp) {
            while let Some(missed) = pe.broadcasts.get(moved.next) {
                moved.given.push_back(missed.clone());
                moved.next += 1;
            }
        }
        let queued = if self.has(Fault::GivenNotQueued) { 0 } else { moved.given.len() as u64 };
        pe.here[element] = Some((moved, queued));
        self.post(state, at, from, Parcel::Installed(next));
    }
}

impl Model for BroadcastModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let pe = |pe| Pe {
            broadcasts: Broadcasts::default(),
            leaving: BTreeMap::new(),
            here: std::array::from_fn(|e| (e + 1 == pe).then(|| (Element::default(), 0))),
        };
        vec![State {
            pes: std::array::from_fn(pe),
            channels: Channels::default(),
            unsent: self.broadcasts,
            migrations: self.migrations,
            is_wrong: false,
            is_trimmed_early: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.is_wrong || state.is_trimmed_early {
            return;
        }
        if state.unsent > 0 {
            actions.push(Action::Broadcast);
        }
        for (at, pe) in state.pes.iter().enumerate() {
            for (number, element) in pe.here.iter().enumerate() {
                let Some((_, queued)) = element else { continue };
                if *queued > 0 {
                    actions.push(Action::Run(at, number));
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
            Action::Broadcast => {
                state.unsent -= 1;
                let number = state.pes[ROOT].broadcasts.next;
                state.pes[ROOT].broadcasts.next += 1;
                self.take_broadcast(&mut state, ROOT, number);
            }
            Action::Receive(from, to) => {
                let parcel = state.channels.receive(from, to)?;
                self.receive(&mut state, from, to, parcel);
            }
            Action::Run(at, element) => {
                let (element, queued) = state.pes[at].here[element].as_mut()?;
                *queued -= 1;
                if let Some(broadcast) = element.given.pop_front() {
                    state.is_wrong |= u64::from(broadcast.entry) != element.ran;
                    element.ran += 1;
                }
            }
            Action::Migrate(at, number, to) => {
                let (mut element, _) = state.pes[at].here[number].take()?;
                if self.has(Fault::GivenStay) {
                    element.given.clear();
                }
                state.migrations -= 1;
                *state.pes[at].leaving.entry(element.next).or_default() += 1;
                self.post(&mut state, at, to, Parcel::Moved(number, element));
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("once and in order", |_, state| !state.is_wrong),
            Property::<Self>::always("not trimmed too early", |_, state| !state.is_trimmed_early),
            Property::<Self>::always("complete at the end", |model, state| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                let all =
                    |pe: &Pe| pe.here.iter().flatten().all(|(element, _)| element.ran == model.broadcasts);
                !actions.is_empty() || state.pes.iter().all(all)
            }),
            Property::<Self>::always("logs are trimmed at the end", |model, state| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                let kept = |pe: &Pe| {
                    (0..model.broadcasts).filter(|&n| pe.broadcasts.get(n).is_some()).count() as u64
                };
                !actions.is_empty() || state.pes.iter().all(|pe| kept(pe) < model.batch)
            }),
            Property::<Self>::sometimes(
                "an element arrives before a broadcast that it was given",
                |_, state| {
                    let ahead =
                        |pe: &Pe| pe.here.iter().flatten().any(|(e, _)| e.next > pe.broadcasts.count());
                    state.pes.iter().any(ahead)
                },
            ),
            Property::<Self>::sometimes(
                "an element migrates with broadcasts that it has not run",
                |_, state| {
                    let has =
                        |p: &Parcel| matches!(p, Parcel::Moved(_, element) if !element.given.is_empty());
                    state.channels.parcels().any(has)
                },
            ),
            Property::<Self>::sometimes("a log is trimmed while an element is under way", |_, state| {
                let is_moved = |p: &Parcel| matches!(p, Parcel::Moved(..));
                let is_trimmed = |pe: &Pe| pe.broadcasts.count() > 0 && pe.broadcasts.get(0).is_none();
                state.channels.parcels().any(is_moved) && state.pes.iter().any(is_trimmed)
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::{check, finds};
    use super::*;

    const SMALL: BroadcastModel =
        BroadcastModel { broadcasts: 2, migrations: 3, branches: 1, batch: 1, fault: None };

    #[test]
    fn elements_run_each_broadcast_once_while_they_migrate() {
        check("a chain of PEs", SMALL, true);
        check("one PE passes on to two", BroadcastModel { branches: 4, ..SMALL }, true);
        check(
            "acknowledged in pairs",
            BroadcastModel { broadcasts: 4, migrations: 1, batch: 2, ..SMALL },
            false,
        );
    }

    #[test]
    #[ignore = "millions of states: run it in a release build"]
    fn elements_run_each_broadcast_once_in_larger_models() {
        check("three broadcasts", BroadcastModel { broadcasts: 3, ..SMALL }, true);
        check(
            "four broadcasts in pairs",
            BroadcastModel { broadcasts: 4, migrations: 2, batch: 2, ..SMALL },
            true,
        );
    }

    #[test]
    fn a_faulty_protocol_is_found() {
        for (fault, property) in [
            (Fault::LeavingIgnored, "not trimmed too early"),
            (Fault::GivenStay, "once and in order"),
            (Fault::GivenNotQueued, "complete at the end"),
            (Fault::NoCatchUp, "complete at the end"),
            (Fault::NextOfPe, "once and in order"),
            (Fault::GivenAgain, "once and in order"),
        ] {
            finds(&format!("{fault:?}"), BroadcastModel { fault: Some(fault), ..SMALL }, property);
        }
    }
}
