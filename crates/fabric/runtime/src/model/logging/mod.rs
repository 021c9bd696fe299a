// SPDX-License-Identifier: MIT OR Apache-2.0
//! Message logging while PEs die: what others have received from a dead PE is what it sends again, each parcel is taken
//! once and in order, and the run ends.

mod pe;
mod rules;

use stateright::{Model, Property};

use self::pe::{Pe, Start};
use self::rules::{Fault, Rules, Wrong};
use super::{Channels, PES};
use crate::logging::exchange::{GoBack, LogNote, Notes, go_on, send};
use crate::logging::log::{Log, Survivor};
use crate::message::Malformed;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pes: [Pe; PES],
    channels: Channels<Vec<u8>>,
    /// Decisions that each PE has ever made.
    clocks: [u8; PES],
    /// PEs that have made their images in the second checkpoint.
    images: [bool; PES],
    /// Deaths, and losses of all connections.
    deaths: u8,
    /// Recoveries in which not all PEs went back.
    went_on: u8,
    /// All went back because of this, in the last recovery.
    why: Option<&'static str>,
    wrong: Option<Wrong>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A PE takes the next frame of another one.
    Arrive(usize, usize),
    /// A PE runs the next thing that is ready, and sends its frame, which is long.
    Run(usize),
    /// A PE runs what is ready, and sends its frames. A timer may be due before.
    Pass(usize, bool),
    /// PE 0 begins a checkpoint.
    Checkpoint,
    Die(usize),
    /// All connections are lost, and no PE.
    Lose,
    /// A PE begins after a recovery.
    Begin(usize),
    /// A PE runs again to the end.
    Repeat(usize),
}

#[derive(Clone, Debug)]
pub(super) struct LoggingModel {
    rules: Rules,
    /// PEs with a timer.
    timers: [bool; PES],
    deaths: u8,
    /// Frames may be sent in the midst of a pass.
    long_frames: bool,
    /// PEs begin one after the other after a recovery.
    slow: bool,
}

impl LoggingModel {
    fn has(&self, fault: Fault) -> bool {
        self.rules.fault == Some(fault)
    }

    /// The messages of an epoch.
    fn messages(&self, epoch: usize) -> usize {
        let script = self.rules.scripts[epoch - 1];
        script.iter().flat_map(|sends| sends.iter()).map(|(_, left)| usize::from(*left) + 1).sum()
    }

    /// Returns `true` if nothing is under way, and all messages of an epoch have been taken.
    fn is_complete(&self, state: &State, epoch: usize) -> bool {
        let taken = state.pes.iter().flat_map(|pe| &pe.taken).map(Vec::len).sum::<usize>();
        let is_done = |pe: &Pe| pe.epoch == epoch as u64 && pe.start.is_none() && !pe.has_work();
        taken == self.messages(epoch)
            && state.pes.iter().all(|pe| is_done(pe) && !pe.log.is_repeating() && !pe.is_saving)
            && state.channels.parcels().next().is_none()
            && pairs().all(|(from, to)| state.pes[from].sent[to] == state.pes[to].taken[from])
    }

    fn step(&self, state: &mut State, action: &Action) -> Result<Option<()>, Wrong> {
        let rules = self.rules;
        match *action {
            Action::Arrive(from, to) => {
                let Some(frame) = state.channels.receive(from, to) else { return Ok(None) };
                state.pes[to].take_frame(rules, from, &frame)?;
                state.images[to] |= state.pes[to].is_saving;
            }
            Action::Run(at) => {
                let frames = state.pes[at].run_and_flush(rules, &mut state.clocks[at])?;
                frames.into_iter().for_each(|(to, frame)| state.channels.send(at, to, frame));
            }
            Action::Pass(at, fires) => {
                let frames = state.pes[at].pass(rules, fires, &mut state.clocks[at])?;
                frames.into_iter().for_each(|(to, frame)| state.channels.send(at, to, frame));
            }
            Action::Checkpoint => {
                state.pes[0].begin_checkpoint(rules);
                state.images[0] = true;
            }
            Action::Die(pe) => self.recover(state, Some(pe))?,
            Action::Lose => self.recover(state, None)?,
            Action::Begin(at) => state.pes[at].begin(rules)?,
            Action::Repeat(at) => state.pes[at].repeat(rules, &mut state.clocks[at])?,
        }
        Ok(Some(()))
    }

    /// The rank of a PE says what it is. `Core::survivor`
    fn survivor(&self, pe: &Pe) -> Survivor {
        let survivor = pe.log.survivor();
        if self.has(Fault::Unfinished) {
            let is_ready = !pe.is_saving;
            return Survivor { is_ready, unfinished: Vec::new(), dropped: Vec::new(), ..survivor };
        }
        let is_ready = survivor.is_ready && (!pe.is_saving || self.has(Fault::Saving));
        Survivor { is_ready, ..survivor }
    }

    /// All connections are lost, and all ranks agree how to go on. `recovery::agree`
    fn recover(&self, state: &mut State, dead: Option<usize>) -> Result<(), Wrong> {
        state.deaths += 1;
        state.channels = Channels::default();
        // a replacement that has not begun is none that has survived
        let has_log = |at: usize, pe: &Pe| Some(at) != dead && !matches!(pe.start, Some(Start::Repeat(_)));
        let logs: [Option<&Log>; PES] =
            std::array::from_fn(|at| has_log(at, &state.pes[at]).then_some(&state.pes[at].log));
        let survivors: Vec<Option<Survivor>> =
            state.pes.iter().zip(&logs).map(|(pe, log)| log.map(|_| self.survivor(pe))).collect();
        let newest = if state.images == [true; PES] { 2 } else { 1 };
        match go_on(&survivors) {
            Ok((epoch, repeats)) if epoch == newest => {
                let starts: Vec<Start> =
                    (0..PES as u32).map(|to| self.exchange(&logs, to, repeats)).collect::<Result<_, _>>()?;
                state.went_on += 1;
                state.why = None;
                // a checkpoint that nobody else knows of is begun anew
                state.images = [newest == 2; PES];
                for (at, start) in starts.into_iter().enumerate() {
                    if repeats == Some(at as u32) {
                        state.pes[at] = Pe::restored(self.rules, at, epoch);
                    }
                    state.pes[at].start = Some(start);
                    if !self.slow {
                        state.pes[at].begin(self.rules)?;
                    }
                }
            }
            went_on => {
                let why = went_on.err().unwrap_or(GoBack::NoImage);
                state.why = Some(match why {
                    GoBack::NoLog => "no log",
                    GoBack::Several => "several",
                    GoBack::NotReady(_) => "not ready",
                    GoBack::Epochs => "epochs",
                    GoBack::Unfinished(rank) if dead == Some(rank as usize) => "dead again",
                    GoBack::Unfinished(_) => "runs again",
                    GoBack::NoImage => "no image",
                });
                state.images = [newest == 2; PES];
                state.pes = std::array::from_fn(|at| Pe::restored(self.rules, at, newest));
            }
        }
        Ok(())
    }

    /// All notes to one PE.
    fn exchange(&self, logs: &[Option<&Log>; PES], to: u32, repeats: Option<u32>) -> Result<Start, Wrong> {
        let mut notes = Notes::new(PES as u32);
        for (from, log) in (0..).zip(logs).filter(|(from, _)| *from != to) {
            send::<Malformed>(*log, to, repeats == Some(to), |note: LogNote| {
                let bytes = postcard::to_allocvec(&note).unwrap_or_default();
                match postcard::from_bytes(&bytes) {
                    Ok(LogNote::Held(_)) if self.has(Fault::NotHeldAgain) => {}
                    Ok(note) => notes.take(from, note),
                    Err(error) => return Err(Malformed::new("a note", error)),
                }
                Ok(())
            })?;
        }
        let histories = notes.histories;
        if repeats == Some(to) {
            return Ok(Start::Repeat(histories));
        }
        let received = histories.iter().map(|history| history.received).collect();
        Ok(Start::GoOn { received, repeats })
    }
}

/// All pairs of PEs.
fn pairs() -> impl Iterator<Item = (usize, usize)> {
    (0..PES).flat_map(|from| (0..PES).map(move |to| (from, to))).filter(|(from, to)| from != to)
}

/// Returns `true` if each PE has taken from each other what that has sent, as far as it has come.
fn is_consistent(state: &State) -> bool {
    pairs().all(|(from, to)| {
        let (from, to) = ((from, &state.pes[from]), (to, &state.pes[to]));
        let runs = |pe: &Pe| !pe.log.is_repeating() && !matches!(pe.start, Some(Start::Repeat(_)));
        let compares = from.1.epoch == to.1.epoch && runs(from.1) && runs(to.1);
        !compares || from.1.sent[to.0].starts_with(&to.1.taken[from.0])
    })
}

impl Model for LoggingModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            pes: std::array::from_fn(|at| Pe::restored(self.rules, at, 1)),
            channels: Channels::default(),
            clocks: [0; PES],
            images: [false; PES],
            deaths: 0,
            went_on: 0,
            why: None,
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.wrong.is_some() {
            return;
        }
        if state.deaths < self.deaths {
            actions.extend((0..PES).map(Action::Die));
            actions.push(Action::Lose);
        }
        for (at, pe) in state.pes.iter().enumerate() {
            if pe.start.is_some() {
                actions.push(Action::Begin(at));
            } else if pe.log.is_repeating() {
                actions.push(Action::Repeat(at));
            } else {
                let from =
                    (0..PES).filter(|from| !pe.has_run && !state.channels.between(*from, at).is_empty());
                actions.extend(from.map(|from| Action::Arrive(from, at)));
                if self.long_frames && pe.has_several() {
                    actions.push(Action::Run(at));
                }
                if pe.has_work() {
                    actions.push(Action::Pass(at, false));
                }
                if self.timers[at] && !pe.has_fired && !pe.is_saving && !pe.has_run {
                    actions.push(Action::Pass(at, true));
                }
            }
        }
        if self.rules.scripts.len() == 2 && state.images == [false; PES] && self.is_complete(state, 1) {
            actions.push(Action::Checkpoint);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match self.step(&mut state, &action) {
            Ok(done) => done.map(|()| state),
            Err(wrong) => Some(State { wrong: Some(wrong), ..state }),
        }
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::<Self>::always("no error", |_, state| state.wrong.is_none()),
            Property::<Self>::always("once, in order, and as it was sent", |_, state| is_consistent(state)),
            Property::<Self>::always("complete at the end", |model, state| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                let goes_on = |action: &Action| !matches!(action, Action::Die(_) | Action::Lose);
                state.wrong.is_some()
                    || actions.iter().any(goes_on)
                    || model.is_complete(state, model.rules.scripts.len())
            }),
            Property::<Self>::sometimes("all go on", |model, state| {
                state.went_on == model.deaths && model.is_complete(state, model.rules.scripts.len())
            }),
            Property::<Self>::sometimes("a PE runs again what it took, and more is left", |_, state| {
                let Some(Start::Repeat(histories)) = &state.pes[1].start else {
                    return state.went_on > 0 && state.pes.iter().any(|pe| pe.log.is_behind());
                };
                histories.iter().any(|history| history.received.parcels > 0)
            }),
        ];
        if self.deaths > 1 {
            properties.extend([
                Property::<Self>::sometimes("a PE dies while another runs again", |_, state| {
                    state.why == Some("runs again")
                }),
                Property::<Self>::sometimes("a PE dies again while it runs again", |_, state| {
                    state.why == Some("dead again")
                }),
            ]);
        }
        if self.rules.scripts.len() > 1 {
            properties.extend([
                Property::<Self>::sometimes("parcels wait for an epoch", |_, state| {
                    state.pes.iter().any(|pe| pe.later)
                }),
                Property::<Self>::sometimes("a parcel is too late", |_, state| {
                    state.pes.iter().any(|pe| pe.stale)
                }),
                Property::<Self>::sometimes("a PE dies before all know of a checkpoint", |_, state| {
                    state.why == Some("epochs")
                }),
            ]);
        }
        properties
    }
}

#[cfg(test)]
mod tests {
    use super::super::{check, finds};
    use super::rules::Script;
    use super::*;

    /// PE 1 takes messages of the two others, in any order.
    const FORK: Script = [&[(1, 1)], &[(2, 0)], &[(1, 0)]];
    const PAIR: Script = [&[(1, 0)], &[], &[(1, 0)]];
    const RING: Script = [&[(1, 1)], &[(2, 1)], &[(0, 1)]];

    const MUCH: u64 = 1 << 20;
    /// PE 1 drops its log after its first message.
    const LIMITS: [u64; PES] = [MUCH, 10, MUCH];
    const RULES: Rules =
        Rules { scripts: &[FORK], decides: [false, true, false], limits: [MUCH; PES], fault: None };
    const ONE: LoggingModel =
        LoggingModel { rules: RULES, timers: [false; PES], deaths: 1, long_frames: false, slow: false };
    const TWO: LoggingModel = LoggingModel { deaths: 2, ..ONE };
    const EPOCHS: LoggingModel = LoggingModel { rules: Rules { scripts: &[PAIR, FORK], ..RULES }, ..ONE };

    #[test]
    fn messages_are_taken_once_and_in_order_while_pes_die() {
        check("a ring", LoggingModel { rules: Rules { scripts: &[RING], ..RULES }, ..ONE }, true);
        check("two deaths, long frames", LoggingModel { long_frames: true, ..TWO }, true);
        check("two epochs", EPOCHS, true);
        check("a timer", LoggingModel { timers: [false, true, false], ..ONE }, true);
        let few = Rules { scripts: &[PAIR], ..RULES };
        check("PEs begin one after the other", LoggingModel { rules: few, slow: true, ..TWO }, true);
        check(
            "a log that is dropped",
            LoggingModel { rules: Rules { limits: LIMITS, ..RULES }, ..ONE },
            false,
        );
    }

    #[test]
    fn a_faulty_protocol_is_found() {
        let dropped = LoggingModel { rules: Rules { limits: LIMITS, ..RULES }, ..ONE };
        for (fault, model, property) in [
            (Fault::NotGiven, ONE, "no error"),
            (Fault::GivenBeforeMark, EPOCHS, "no error"),
            (Fault::NoMark, EPOCHS, "no error"),
            (Fault::HeldOn, EPOCHS, "no error"),
            (Fault::AllAgain, ONE, "once, in order, and as it was sent"),
            (Fault::NothingAgain, ONE, "complete at the end"),
            (Fault::RepeatsAll, ONE, "once, in order, and as it was sent"),
            (Fault::Unfinished, TWO, "no error"),
            (Fault::Saving, EPOCHS, "no error"),
            (Fault::NotHeldAgain, TWO, "no error"),
            (Fault::DroppedInSilence, dropped, "no error"),
        ] {
            let rules = Rules { fault: Some(fault), ..model.rules };
            finds(&format!("{fault:?}"), LoggingModel { rules, ..model }, property);
        }
    }
}
