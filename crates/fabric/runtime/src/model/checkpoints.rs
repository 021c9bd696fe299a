// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checkpoints and recoveries while ranks die: a committed checkpoint is never lost as long as no rank dies together with
//! its buddy, and the images of a recovery are always those of one attempt.

use std::collections::BTreeSet;

use stateright::{Model, Property};

use super::{Channels, PES};
use crate::checkpoint::recovery::{Layout, Transfer, plan};

const BUDDIES: [u32; PES] = [1, 2, 0];

/// An image: its checkpoint's number, its PE, and the attempt in which it was made. The runtime does not know the last.
type Image = (u64, u32, u8);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Parcel {
    /// Make the image of a checkpoint, in this attempt.
    Capture(u64, u8),
    /// A second copy.
    Part(Image),
    /// A second copy is there.
    Saved(u64),
    Commit(u64),
}

/// A recovery under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Agreement {
    number: Option<u64>,
    /// Transfers that have not arrived.
    transfers: Vec<Transfer>,
    /// Ranks that have dropped what is not of the plan, and are ready.
    ready: [bool; PES],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    stores: [BTreeSet<Image>; PES],
    channels: Channels<Parcel>,
    /// At PE 0: the number of the next checkpoint, and the one under way with its second copies.
    next: u64,
    underway: Option<(u64, u8)>,
    agreement: Option<Agreement>,
    attempts: u8,
    deaths: u8,
    /// The newest checkpoint that PE 0 has committed.
    committed: Option<u64>,
    /// Ranks that have died since all were ready the last time.
    died: BTreeSet<usize>,
    is_wrong: bool,
    /// The program has begun anew.
    began_anew: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Begin,
    Receive(usize, usize),
    Die(usize),
    Transfer(usize),
    Ready(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// PE 0 commits before the last second copy is there.
    EarlyCommit,
    /// A rank drops the images of the last checkpoint when it makes those of the next.
    EarlyDrop,
    /// Images of attempts that were not completed stay after a recovery.
    Leftovers,
    /// A recovery does not make second copies again.
    OneCopy,
    /// A rank is ready before its copies have arrived.
    EarlyReady,
}

#[derive(Clone, Debug)]
pub(super) struct CheckpointModel {
    pub(super) attempts: u8,
    pub(super) deaths: u8,
    pub(super) fault: Option<Fault>,
}

impl CheckpointModel {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn post(&self, state: &mut State, from: usize, to: usize, parcel: Parcel) {
        if from == to { self.receive(state, to, parcel) } else { state.channels.send(from, to, parcel) }
    }

    /// `Core::capture`, `Core::take_part`, `Core::take_saved`, `Core::end_checkpoint`
    fn receive(&self, state: &mut State, at: usize, parcel: Parcel) {
        match parcel {
            Parcel::Capture(number, attempt) => {
                let image = (number, at as u32, attempt);
                if self.has(Fault::EarlyDrop) {
                    state.stores[at].retain(|image| image.0 == number);
                }
                state.stores[at].insert(image);
                self.post(state, at, BUDDIES[at] as usize, Parcel::Part(image));
            }
            Parcel::Part(image) => {
                state.stores[at].insert(image);
                self.post(state, at, 0, Parcel::Saved(image.0));
            }
            Parcel::Saved(number) => {
                let Some((_, saved)) = &mut state.underway else { return };
                *saved += 1;
                let wanted = if self.has(Fault::EarlyCommit) { PES - 1 } else { PES };
                if usize::from(*saved) == wanted {
                    state.underway = None;
                    state.next = number + 1;
                    state.committed = Some(number);
                    (0..PES).for_each(|to| self.post(state, 0, to, Parcel::Commit(number)));
                }
            }
            Parcel::Commit(number) => state.stores[at].retain(|image| image.0 == number),
        }
    }

    /// A rank dies: all connections end, and a new generation agrees.
    fn die(&self, state: &mut State, rank: usize) {
        state.deaths += 1;
        state.died.insert(rank);
        state.stores[rank].clear();
        state.channels = Channels::default();
        state.underway = None;
        let names = |store: &BTreeSet<Image>| store.iter().map(|(number, pe, _)| (*number, *pe)).collect();
        let inventories: Vec<Vec<_>> = state.stores.iter().map(names).collect();
        let plan = plan(&inventories, Layout { threads: 1, buddies: &BUDDIES });
        let mut transfers = plan.as_ref().map(|plan| plan.transfers.clone()).unwrap_or_default();
        if self.has(Fault::OneCopy) {
            transfers.retain(|transfer| transfer.to == transfer.pe);
        }
        state.agreement =
            Some(Agreement { number: plan.map(|plan| plan.number), transfers, ready: [false; PES] });
    }

    /// A rank has all its copies: `keep_only`, or `clear` without a plan.
    fn ready(&self, state: &mut State, rank: usize) {
        let Some(agreement) = &mut state.agreement else { return };
        agreement.ready[rank] = true;
        let number = agreement.number;
        if !self.has(Fault::Leftovers) {
            state.stores[rank].retain(|image| Some(image.0) == number);
        }
        if state.agreement.as_ref().is_some_and(|agreement| agreement.ready == [true; PES]) {
            self.go_on(state, number);
        }
    }

    /// All ranks are ready: the PEs restore their images.
    fn go_on(&self, state: &mut State, number: Option<u64>) {
        let beyond = state.died.iter().any(|rank| state.died.contains(&(BUDDIES[*rank] as usize)));
        state.is_wrong |= number < state.committed && !beyond;
        state.began_anew |= number.is_none();
        if let Some(number) = number {
            let own = |rank: usize| {
                let images = &state.stores[rank];
                images.iter().filter(|image| image.0 == number && image.1 == rank as u32).collect::<Vec<_>>()
            };
            let all: Vec<Vec<&Image>> = (0..PES).map(own).collect();
            let attempts: BTreeSet<u8> = all.iter().flatten().map(|image| image.2).collect();
            state.is_wrong |= all.iter().any(Vec::is_empty) || attempts.len() != 1;
        }
        state.agreement = None;
        state.died.clear();
        state.committed = number;
        state.next = number.map_or(0, |number| number + 1);
    }
}

impl Model for CheckpointModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            stores: Default::default(),
            channels: Channels::default(),
            next: 0,
            underway: None,
            agreement: None,
            attempts: 0,
            deaths: 0,
            committed: None,
            died: BTreeSet::new(),
            is_wrong: false,
            began_anew: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.is_wrong {
            return;
        }
        if state.deaths < self.deaths {
            actions.extend((0..PES).map(Action::Die));
        }
        if let Some(Agreement { transfers, ready, .. }) = &state.agreement {
            actions.extend((0..transfers.len()).map(Action::Transfer));
            let is_whole = |rank: &usize| {
                self.has(Fault::EarlyReady) || transfers.iter().all(|transfer| transfer.to as usize != *rank)
            };
            actions.extend((0..PES).filter(|rank| !ready[*rank]).filter(is_whole).map(Action::Ready));
            return;
        }
        for from in 0..PES {
            actions.extend(state.channels.filled(from).map(|to| Action::Receive(from, to)));
        }
        // the next checkpoint begins once all PEs have resumed
        if state.underway.is_none()
            && state.attempts < self.attempts
            && state.channels.parcels().next().is_none()
        {
            actions.push(Action::Begin);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Begin => {
                let number = state.next;
                let attempt = state.attempts;
                state.attempts += 1;
                state.underway = Some((number, 0));
                (0..PES).for_each(|to| self.post(&mut state, 0, to, Parcel::Capture(number, attempt)));
            }
            Action::Receive(from, to) => {
                let parcel = state.channels.receive(from, to)?;
                self.receive(&mut state, to, parcel);
            }
            Action::Die(rank) => self.die(&mut state, rank),
            Action::Transfer(at) => {
                let agreement = state.agreement.as_mut()?;
                let Transfer { pe, from, to } = agreement.transfers.remove(at);
                let number = agreement.number?;
                let mut images = state.stores[from as usize].iter();
                let image = *images.find(|image| (image.0, image.1) == (number, pe))?;
                state.stores[to as usize].insert(image);
            }
            Action::Ready(rank) => self.ready(&mut state, rank),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("whole and not lost", |_, state| !state.is_wrong),
            Property::<Self>::sometimes("two deaths are survived", |_, state| {
                state.deaths > 1
                    && state.committed.is_some()
                    && state.agreement.is_none()
                    && !state.began_anew
            }),
            Property::<Self>::sometimes("a checkpoint that was not committed is used", |_, state| {
                let number = state.agreement.as_ref().and_then(|agreement| agreement.number);
                number.is_some() && number > state.committed
            }),
            Property::<Self>::sometimes("the program begins anew", |_, state| state.began_anew),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::{check, finds};
    use super::*;

    const SMALL: CheckpointModel = CheckpointModel { attempts: 2, deaths: 2, fault: None };

    #[test]
    fn no_committed_checkpoint_is_lost_while_ranks_die() {
        check("two attempts, two deaths", SMALL, true);
        check("three attempts, three deaths", CheckpointModel { attempts: 3, deaths: 3, ..SMALL }, true);
    }

    #[test]
    fn a_faulty_protocol_is_found() {
        for fault in
            [Fault::EarlyCommit, Fault::EarlyDrop, Fault::Leftovers, Fault::OneCopy, Fault::EarlyReady]
        {
            let model = CheckpointModel { attempts: 3, deaths: 2, fault: Some(fault) };
            finds(&format!("{fault:?}"), model, "whole and not lost");
        }
    }
}
