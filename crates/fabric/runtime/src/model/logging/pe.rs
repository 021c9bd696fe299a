// SPDX-License-Identifier: MIT OR Apache-2.0
//! One PE with a log, which runs a small program: the order of what it takes, timers and decisions change its state,
//! and what it sends depends on that.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::super::PES;
use super::rules::{Fault, Rules, Wrong};
use crate::logging::determinants::Determinant;
use crate::logging::history::{Diverged, History, Left, Received, Step};
use crate::logging::log::{Arrival, Log};
use crate::message::unpack;
use crate::parcel::{DETERMINANTS, EPOCH, Encoded, MESSAGE, REPEATED, SYSTEM, split};

/// Contents of parcels of the runtime in a checkpoint.
const CAPTURE: u8 = 0;
const SAVED: u8 = 1;
const PARTS_TAKEN: u8 = 2;
const COMMIT: u8 = 3;

/// What is ready to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Item {
    /// The program goes on after a checkpoint.
    Resume,
    /// A message that is passed on so many times.
    Message(u8),
}

/// Frames that are sent, with the PEs that they go to.
type Frames = Vec<(usize, Vec<u8>)>;

/// What a PE sends again to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// To one that runs again: it has all.
    Nothing,
    /// Both have survived.
    Survivor,
    /// This PE has run again.
    Repeated,
}

/// The beginning of a PE after a recovery.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Start {
    GoOn { received: Vec<Received>, repeats: Option<u32> },
    Repeat(Vec<History>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pe {
    at: usize,
    pub(super) epoch: u64,
    pub(super) log: Log,
    state: u64,
    queue: VecDeque<Item>,
    frames: [Vec<u8>; PES],
    pub(super) is_saving: bool,
    /// At PE 0: PEs that have saved their images.
    saved: usize,
    /// A timer has been due in this epoch.
    pub(super) has_fired: bool,
    /// Something has been taken in the pass under way, or has run.
    has_taken: bool,
    pub(super) has_run: bool,
    /// The start that is not yet made.
    pub(super) start: Option<Start>,
    /// For the properties: parcels of this epoch that were sent to each PE, and those that were taken from it.
    pub(super) sent: [Vec<u64>; PES],
    pub(super) taken: [Vec<u64>; PES],
    /// Parcels that were kept for an epoch, or came too late.
    pub(super) later: bool,
    pub(super) stale: bool,
}

fn mix(values: impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    values.hash(&mut hasher);
    hasher.finish()
}

/// What the PEs other than one have.
fn others(received: Vec<Received>, at: usize) -> impl Iterator<Item = (usize, Received)> {
    received.into_iter().enumerate().filter(move |(to, _)| *to != at)
}

impl Pe {
    /// A PE that has been restored from the checkpoint with which an epoch began. `Core::restore`
    pub(super) fn restored(rules: Rules, at: usize, epoch: u64) -> Self {
        let mut log = Log::new(PES as u32, rules.limits[at]);
        log.restore(epoch, true);
        Self {
            at,
            epoch,
            log,
            state: epoch,
            queue: VecDeque::from([Item::Resume]),
            frames: Default::default(),
            is_saving: false,
            saved: 0,
            has_fired: false,
            has_taken: false,
            has_run: false,
            start: None,
            sent: Default::default(),
            taken: Default::default(),
            later: false,
            stale: false,
        }
    }

    /// Returns `true` if a pass would do something.
    pub(super) fn has_work(&self) -> bool {
        self.has_taken
            || self.has_run
            || !self.queue.is_empty()
            || self.frames.iter().any(|frame| !frame.is_empty())
    }

    /// `Core::post_remote`
    fn post(&mut self, rules: Rules, to: usize, kind: u8, bytes: &[u8]) {
        self.mark(rules, to);
        let frame = &mut self.frames[to];
        let begin = frame.len();
        Encoded { kind, bytes }.append_to(frame);
        self.log.keep(to as u32, &frame[begin..]);
        if self.log.is_repeating() {
            frame.truncate(begin);
        }
        self.sent[to].push(mix((kind, bytes)));
    }

    /// `Port::mark_epoch`
    fn mark(&mut self, rules: Rules, to: usize) {
        if let Some(epoch) = self.log.mark(to as u32)
            && rules.fault != Some(Fault::NoMark)
        {
            Encoded { kind: EPOCH, bytes: &epoch.to_le_bytes() }.append_to(&mut self.frames[to]);
        }
    }

    /// Takes the frames out that are sent. `Port::flush`
    pub(super) fn flush(&mut self, rules: Rules) -> Frames {
        let mut sent = Vec::new();
        for to in 0..PES {
            let mut frame = std::mem::take(&mut self.frames[to]);
            if frame.is_empty() {
                continue;
            }
            let is_early = rules.fault == Some(Fault::GivenBeforeMark) && self.log.mark(to as u32).is_some();
            if rules.fault != Some(Fault::NotGiven)
                && let Some((first, given)) = self.log.give(to as u32)
            {
                let mut given = given.to_vec();
                if rules.fault == Some(Fault::DroppedInSilence) {
                    given.retain(|one| *one != Determinant::Dropped);
                }
                let bytes = postcard::to_allocvec(&(first, given)).unwrap_or_default();
                Encoded { kind: DETERMINANTS, bytes: &bytes }.append_to(&mut frame);
            }
            if is_early {
                self.log.unmark(to as u32);
            }
            sent.push((to, frame));
        }
        sent
    }

    /// `Core::take_parcels`
    pub(super) fn take_frame(&mut self, rules: Rules, from: usize, mut frame: &[u8]) -> Result<(), Wrong> {
        while !frame.is_empty() {
            let (_, encoded, rest) = split(frame)?;
            self.take_parcel(rules, from, encoded)?;
            frame = rest;
        }
        Ok(())
    }

    /// `Core::log_arrival`
    fn take_parcel(&mut self, rules: Rules, from: usize, parcel: Encoded<'_>) -> Result<(), Wrong> {
        let pe = from as u32;
        match parcel.kind {
            DETERMINANTS => {
                let (first, determinants) = unpack(parcel.bytes)?;
                self.log.take(pe, first, determinants)?;
            }
            EPOCH => {
                let epoch = parcel.bytes.try_into().map(u64::from_le_bytes).unwrap_or_default();
                let (held, _) = self.log.history(pe)?;
                self.log.take_mark(pe, epoch)?;
                if rules.fault == Some(Fault::HeldOn) {
                    self.log.take(pe, 0, held)?;
                }
            }
            REPEATED => self.log.take_repeated(pe),
            _ => match self.log.arrive(pe, parcel) {
                Arrival::Now => self.receive(rules, from, parcel)?,
                Arrival::Later => self.later = true,
                Arrival::Stale if parcel.kind == SYSTEM && parcel.bytes == [PARTS_TAKEN] => self.stale = true,
                Arrival::Stale => return Err(Wrong::Stale),
            },
        }
        Ok(())
    }

    fn receive(&mut self, rules: Rules, from: usize, parcel: Encoded<'_>) -> Result<(), Wrong> {
        self.has_taken = true;
        self.taken[from].push(mix((parcel.kind, parcel.bytes)));
        match (parcel.kind, parcel.bytes) {
            (MESSAGE, [left, ..]) => {
                self.state = mix((self.state, from, parcel.bytes));
                self.queue.push_back(Item::Message(*left));
            }
            (SYSTEM, [CAPTURE]) => {
                self.is_saving = true;
                self.post(rules, 3 - self.at, SYSTEM, &[PARTS_TAKEN]);
                self.post(rules, 0, SYSTEM, &[SAVED]);
            }
            (SYSTEM, [SAVED]) => {
                self.saved += 1;
                if self.saved + 1 == PES {
                    (1..PES).for_each(|to| self.post(rules, to, SYSTEM, &[COMMIT]));
                    self.begin_epoch(rules)?;
                }
            }
            (SYSTEM, [COMMIT]) => self.begin_epoch(rules)?,
            _ => {}
        }
        Ok(())
    }

    /// At PE 0: nothing is under way. `Core::begin_checkpoint`
    pub(super) fn begin_checkpoint(&mut self, rules: Rules) {
        self.is_saving = true;
        (1..PES).for_each(|to| self.post(rules, to, SYSTEM, &[CAPTURE]));
    }

    /// `Core::begin_epoch`
    fn begin_epoch(&mut self, rules: Rules) -> Result<(), Wrong> {
        let later = self.log.begin(self.epoch + 1, true);
        let Self { log, frames, later: has_kept, stale, .. } = self.clone();
        *self =
            Self { log, frames, later: has_kept, stale, ..Self::restored(rules, self.at, self.epoch + 1) };
        for (from, parcels) in later {
            self.take_frame(rules, from as usize, &parcels)?;
        }
        Ok(())
    }

    /// Decides by a clock that nobody else knows. `Core::determined`
    fn decide(&mut self, clock: &mut u8) -> Result<u8, Wrong> {
        if let Some(bytes) = self.log.next_value()? {
            return Ok(bytes.first().copied().unwrap_or_default());
        }
        *clock += 1;
        let value = *clock;
        self.log.note(|pass| Determinant::Value { pass, bytes: vec![value] });
        Ok(value)
    }

    /// `Core::run_one`
    fn run_one(&mut self, rules: Rules, clock: &mut u8) -> Result<(), Wrong> {
        if let Some(item) = self.queue.pop_front() {
            self.has_run = true;
            let sends = match item {
                Item::Resume => rules.scripts[self.epoch as usize - 1][self.at].to_vec(),
                Item::Message(0) => Vec::new(),
                Item::Message(left) => vec![((self.at + 1 + usize::from(left % 2)) % PES, left - 1)],
            };
            if rules.decides[self.at] && item != Item::Resume {
                self.state = mix((self.state, self.decide(clock)?));
            }
            for (to, left) in sends {
                let mut bytes = vec![left];
                bytes.extend_from_slice(&self.state.to_le_bytes()[..4]);
                self.post(rules, to, MESSAGE, &bytes);
            }
        }
        Ok(())
    }

    /// Runs the next item in a pass, and sends its frames at once.
    pub(super) fn run_and_flush(&mut self, rules: Rules, clock: &mut u8) -> Result<Frames, Wrong> {
        self.run_one(rules, clock)?;
        Ok(self.flush(rules))
    }

    /// Returns `true` if several items are ready.
    pub(super) fn has_several(&self) -> bool {
        self.queue.len() > 1
    }

    /// Runs all that is ready, and ends the pass. Returns `true` if something happened in it. `scheduler::run_ready`
    fn run_ready(&mut self, rules: Rules, clock: &mut u8) -> Result<(bool, Frames), Wrong> {
        while !self.queue.is_empty() {
            self.run_one(rules, clock)?;
        }
        let sent = self.flush(rules);
        self.has_taken = false;
        let happened = self.log.end_pass(std::mem::take(&mut self.has_run));
        self.log.drop_if_too_long();
        Ok((happened, sent))
    }

    /// The rest of a pass, in which frames have been taken. Returns the frames that are sent. `scheduler::run`
    pub(super) fn pass(&mut self, rules: Rules, fires: bool, clock: &mut u8) -> Result<Frames, Wrong> {
        if fires {
            self.log.note(|pass| Determinant::Timer { pass, number: 7 });
            self.fire();
        }
        Ok(self.run_ready(rules, clock)?.1)
    }

    fn fire(&mut self) {
        self.has_fired = true;
        self.state = mix((self.state, "timer"));
    }

    /// Begins after a recovery. `run::begin_pe`
    pub(super) fn begin(&mut self, rules: Rules) -> Result<(), Wrong> {
        match self.start.take() {
            Some(Start::GoOn { received, repeats }) => {
                self.frames = Default::default();
                for (to, received) in others(received, self.at) {
                    let again = if repeats == Some(to as u32) { Again::Nothing } else { Again::Survivor };
                    self.send_again(rules, to, received, again)?;
                }
            }
            Some(Start::Repeat(histories)) => self.log.begin_repeat(histories),
            None => {}
        }
        Ok(())
    }

    /// Sends what a PE has not received. `Core::send_again`
    fn send_again(&mut self, rules: Rules, to: usize, has: Received, again: Again) -> Result<(), Wrong> {
        let mut bytes = self.log.resume(to as u32, has, again == Again::Nothing)?;
        match (rules.fault, again) {
            (Some(Fault::AllAgain), Again::Survivor) | (Some(Fault::RepeatsAll), Again::Repeated) => {
                (_, bytes) = self.log.history(to as u32)?;
            }
            (Some(Fault::NothingAgain), _) => bytes.clear(),
            _ => {}
        }
        if !bytes.is_empty() {
            self.mark(rules, to);
            self.frames[to].extend_from_slice(&bytes);
        }
        Ok(())
    }

    /// Runs again to the end. `scheduler::repeat`
    pub(super) fn repeat(&mut self, rules: Rules, clock: &mut u8) -> Result<(), Wrong> {
        while self.log.is_behind() {
            while let Some(step) = self.log.next_step()? {
                match step {
                    Step::Parcel(from, parcel) => self.take_frame(rules, from as usize, &parcel)?,
                    Step::Deferred(..) => return Err(Diverged("no signal arrives".to_owned()).into()),
                }
            }
            while self.log.next_timer().is_some() {
                self.fire();
            }
            let (happened, _) = self.run_ready(rules, clock)?;
            if !happened && self.log.is_behind() {
                return Err(Diverged("it has nothing to do".to_owned()).into());
            }
        }
        let Left { parcels, received } = self.log.end_repeat()?;
        for (to, received) in others(received, self.at) {
            self.send_again(rules, to, received, Again::Repeated)?;
            Encoded { kind: REPEATED, bytes: &[] }.append_to(&mut self.frames[to]);
        }
        parcels.into_iter().try_for_each(|(from, parcels)| self.take_frame(rules, from as usize, &parcels))
    }
}
