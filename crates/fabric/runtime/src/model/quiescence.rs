// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quiescence: it is not announced while a parcel is under way or a PE has something to run.

use std::collections::VecDeque;

use stateright::{Model, Property};

use super::{Channels, PES};
use crate::quiescence::{Quiescence, Verdict, Wave};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Parcel {
    /// A message, or an object that migrates.
    Work,
    Probe(u64),
    Counts(u64, Wave),
    /// An idle PE asks for work.
    Steal(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pes: [Quiescence; PES],
    /// Things that are ready to run.
    ready: [u8; PES],
    channels: Channels<Parcel>,
    /// Parcels that may still be sent.
    unsent: u8,
    waves: u8,
    steals: u8,
    is_announced: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A PE ends what it runs.
    Run(usize),
    /// A PE that runs something sends a parcel.
    Send(usize, usize),
    Receive(usize, usize),
    Probe,
    Steal(usize, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// One wave is enough.
    OneWave,
    /// Only idle PEs count, not parcels.
    NoCounts,
    /// Parcels that a steal causes are not counted.
    StolenNotCounted,
}

#[derive(Clone, Debug)]
pub(super) struct QuiescenceModel {
    pub(super) parcels: u8,
    pub(super) waves: u8,
    pub(super) steals: u8,
    pub(super) fault: Option<Fault>,
}

impl QuiescenceModel {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// `Core::post`
    fn post(&self, state: &mut State, from: usize, to: usize, parcel: Parcel) {
        if from == to {
            return self.receive(state, to, parcel);
        }
        state.channels.send(from, to, parcel);
    }

    fn send_work(state: &mut State, from: usize, to: usize) {
        state.pes[from].sent += 1;
        state.channels.send(from, to, Parcel::Work);
    }

    fn receive(&self, state: &mut State, at: usize, parcel: Parcel) {
        match parcel {
            Parcel::Work => {
                state.ready[at] += 1;
                state.pes[at].received += 1;
            }
            Parcel::Probe(wave) => {
                let Quiescence { sent, received, .. } = state.pes[at];
                let idle = state.ready[at] == 0;
                let counts = if self.has(Fault::NoCounts) {
                    Wave { answers: 1, idle, ..Wave::default() }
                } else {
                    Wave { answers: 1, sent, received, idle, ..Wave::default() }
                };
                self.post(state, at, 0, Parcel::Counts(wave, counts));
            }
            Parcel::Counts(wave, counts) => {
                let verdict = state.pes[0].answer(wave, counts);
                state.is_announced |= verdict == Verdict::Quiet;
                let sums = state.pes[0].last_wave();
                let is_one_enough = verdict == Verdict::Active && sums.idle && sums.sent == sums.received;
                state.is_announced |= self.has(Fault::OneWave) && is_one_enough;
            }
            Parcel::Steal(thief) => {
                if state.ready[at] >= 2 {
                    state.ready[at] -= 1;
                    Self::send_work(state, at, thief);
                    state.pes[at].sent -= u64::from(self.has(Fault::StolenNotCounted));
                }
            }
        }
    }
}

impl Model for QuiescenceModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            pes: std::array::from_fn(|_| Quiescence::new(PES as u32)),
            ready: [0, 1, 1],
            channels: Channels::default(),
            unsent: self.parcels,
            waves: self.waves,
            steals: self.steals,
            is_announced: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.is_announced {
            return;
        }
        if state.waves > 0 && state.ready[0] == 0 && !state.pes[0].is_asking {
            actions.push(Action::Probe);
        }
        for at in 0..PES {
            if state.ready[at] > 0 {
                actions.push(Action::Run(at));
                if state.unsent > 0 {
                    actions.extend((0..PES).filter(|&to| to != at).map(|to| Action::Send(at, to)));
                }
            } else if state.steals > 0 {
                actions.extend((0..PES).filter(|&to| to != at).map(|to| Action::Steal(at, to)));
            }
            actions.extend(state.channels.filled(at).map(|to| Action::Receive(at, to)));
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Run(at) => {
                state.ready[at] -= 1;
            }
            Action::Send(at, to) => {
                state.unsent -= 1;
                Self::send_work(&mut state, at, to);
            }
            Action::Receive(from, to) => {
                let parcel = state.channels.receive(from, to)?;
                self.receive(&mut state, to, parcel);
            }
            Action::Probe => {
                state.waves -= 1;
                let wave = state.pes[0].begin();
                for pe in 0..PES {
                    self.post(&mut state, 0, pe, Parcel::Probe(wave));
                }
            }
            Action::Steal(thief, victim) => {
                state.steals -= 1;
                self.post(&mut state, thief, victim, Parcel::Steal(thief));
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("announced only if nothing is under way", |_, state| {
                let is_work = |p: &Parcel| *p == Parcel::Work;
                let under_way = state.channels.parcels().any(is_work);
                !state.is_announced || (!under_way && state.ready == [0; PES])
            }),
            Property::<Self>::sometimes("announced", |_, state| state.is_announced),
            Property::<Self>::sometimes("a PE is asked while a parcel is on its way to it", |_, state| {
                let both = |c: &VecDeque<Parcel>| c.front() == Some(&Parcel::Work);
                let probed = |c: &VecDeque<Parcel>| matches!(c.front(), Some(Parcel::Probe(_)));
                (1..PES).any(|pe| {
                    probed(state.channels.between(0, pe)) && both(state.channels.between(PES - pe, pe))
                })
            }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::super::{check, finds};
    use super::*;

    const SMALL: QuiescenceModel = QuiescenceModel { parcels: 3, waves: 3, steals: 0, fault: None };

    #[test]
    fn quiescence_is_never_announced_while_a_parcel_is_under_way() {
        check("three parcels, three waves", SMALL, true);
        check("steals", QuiescenceModel { parcels: 1, waves: 2, steals: 2, ..SMALL }, true);
        check("four waves", QuiescenceModel { parcels: 2, waves: 4, ..SMALL }, true);
    }

    #[test]
    #[ignore = "millions of states: run it in a release build"]
    fn quiescence_is_never_announced_early_in_larger_models() {
        check(
            "two parcels and two steals",
            QuiescenceModel { parcels: 2, waves: 2, steals: 2, ..SMALL },
            true,
        );
        check("four parcels", QuiescenceModel { parcels: 4, waves: 3, ..SMALL }, true);
    }

    #[test]
    fn a_faulty_protocol_is_found() {
        for fault in [Fault::OneWave, Fault::NoCounts, Fault::StolenNotCounted] {
            let model = QuiescenceModel { parcels: 4, steals: 1, fault: Some(fault), ..SMALL };
            finds(&format!("{fault:?}"), model, "announced only if nothing is under way");
        }
    }
}
