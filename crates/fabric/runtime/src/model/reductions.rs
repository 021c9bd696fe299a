// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reductions over elements that migrate: each result has one contribution of each element, and results come in order.

use std::hash::{Hash, Hasher};

use stateright::{Model, Property};

use super::{Channels, PES};
use crate::reduction::{Callback, Op, Partial, Reductions, Values};

const ELEMENTS: usize = 2;

/// The PE that combines what the others pass on.
const ROOT: usize = 0;

#[derive(Clone, Debug, PartialEq)]
enum Parcel {
    Partial(u64, Partial),
    /// An element, with the number of the reduction that it contributes to next.
    Moved(usize, u64),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    pes: [Reductions; PES],
    root: Reductions,
    here: [[Option<u64>; ELEMENTS]; PES],
    channels: Channels<Parcel>,
    migrations: u8,
    /// Results so far.
    results: u64,
    /// A result was not the next one, or not of all elements.
    is_wrong: bool,
}

// values may be floating-point numbers, which have no hash: the state's text has one
impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        format!("{self:?}").hash(hasher);
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Contribute(usize, usize),
    Migrate(usize, usize, usize),
    Receive(usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A PE does not look again for complete parts when an element leaves.
    NoPassAtLeave,
    /// The number of the next reduction does not migrate with an element.
    NextStays,
    /// The root takes parts of fewer elements.
    Incomplete,
}

#[derive(Clone, Debug)]
pub(super) struct ReductionModel {
    pub(super) reductions: u64,
    pub(super) migrations: u8,
    pub(super) fault: Option<Fault>,
}

impl ReductionModel {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn post(&self, state: &mut State, from: usize, to: usize, parcel: Parcel) {
        if from == to {
            return self.receive(state, to, parcel);
        }
        state.channels.send(from, to, parcel);
    }

    fn receive(&self, state: &mut State, at: usize, parcel: Parcel) {
        match parcel {
            Parcel::Partial(number, part) => {
                state.is_wrong |= state.root.add(number, part).is_err();
                while let Some((number, whole)) = state.root.take_whole() {
                    let all = Values::from([(1i64 << ELEMENTS) - 1]);
                    state.is_wrong |= number != state.results || whole.values != all;
                    state.results += 1;
                }
            }
            Parcel::Moved(element, next) => {
                let next = if self.has(Fault::NextStays) { 0 } else { next };
                state.here[at][element] = Some(next);
                state.pes[at].enter(next);
            }
        }
    }

    /// `Core::pass_complete`
    fn pass_complete(&self, state: &mut State, at: usize) {
        while let Some((number, part)) = state.pes[at].take_complete() {
            self.post(state, at, ROOT, Parcel::Partial(number, part));
        }
    }
}

impl Model for ReductionModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let here: [[Option<u64>; ELEMENTS]; PES] =
            std::array::from_fn(|pe| std::array::from_fn(|e| (e + 1 == pe).then_some(0)));
        let mut pes: [Reductions; PES] = Default::default();
        for (pe, here) in pes.iter_mut().zip(&here) {
            here.iter().flatten().for_each(|&next| pe.enter(next));
        }
        vec![State {
            pes,
            root: Reductions::at_root(if self.has(Fault::Incomplete) { 1 } else { ELEMENTS as u64 }),
            here,
            channels: Channels::default(),
            migrations: self.migrations,
            results: 0,
            is_wrong: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.is_wrong {
            return;
        }
        for at in 0..PES {
            for element in 0..ELEMENTS {
                let Some(next) = state.here[at][element] else { continue };
                if next < self.reductions {
                    actions.push(Action::Contribute(at, element));
                }
                if state.migrations > 0 {
                    actions
                        .extend((0..PES).filter(|&to| to != at).map(|to| Action::Migrate(at, element, to)));
                }
            }
            actions.extend(state.channels.filled(at).map(|to| Action::Receive(at, to)));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Contribute(at, element) => {
                let next = state.here[at][element].as_mut()?;
                let number = *next;
                *next += 1;
                let values = Values::from([1i64 << element]);
                let part = Partial { count: 1, op: Op::Sum, values, callback: Callback::Exit };
                state.is_wrong |= state.pes[at].contribute(number, part).is_err();
                self.pass_complete(&mut state, at);
            }
            Action::Migrate(at, element, to) => {
                let next = state.here[at][element].take()?;
                state.migrations -= 1;
                state.pes[at].leave(next);
                self.post(&mut state, at, to, Parcel::Moved(element, next));
                if !self.has(Fault::NoPassAtLeave) {
                    self.pass_complete(&mut state, at);
                }
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
            Property::<Self>::always("complete and in order", |_, state| !state.is_wrong),
            Property::<Self>::always("all at the end", |model, state| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                let pending = state.root.pending() + state.pes.iter().map(Reductions::pending).sum::<usize>();
                !actions.is_empty() || (state.results == model.reductions && pending == 0)
            }),
            Property::<Self>::sometimes("parts of two reductions wait at the root", |_, state| {
                state.root.pending() > 1
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::{check, finds};
    use super::*;

    const SMALL: ReductionModel = ReductionModel { reductions: 2, migrations: 3, fault: None };

    #[test]
    fn results_are_complete_and_in_order_while_elements_migrate() {
        check("two reductions", SMALL, true);
        check("three reductions", ReductionModel { reductions: 3, migrations: 4, ..SMALL }, true);
    }

    #[test]
    fn a_faulty_protocol_is_found() {
        for (fault, property) in [
            (Fault::NoPassAtLeave, "all at the end"),
            (Fault::NextStays, "complete and in order"),
            (Fault::Incomplete, "complete and in order"),
        ] {
            finds(&format!("{fault:?}"), ReductionModel { fault: Some(fault), ..SMALL }, property);
        }
    }
}
