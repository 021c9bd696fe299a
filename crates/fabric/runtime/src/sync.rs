// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detection that all objects wait in `at_sync`, as state machines that send nothing themselves.
//!
//! Load balancing comes in rounds. An object is *due* in a round if it has not called `at_sync` in it. Each PE counts
//! the due objects here, and those that it sent to other PEs and received from them. A PE without a due object reports
//! its counts to PE 0. The last reports of all PEs contain the departure of every due object that has left its first PE,
//! and its arrival only if its new PE has reported since, which that PE does once the object waits. So the sums of
//! both counts are equal if and only if no object is due. PE 0 then asks all PEs for the loads of their objects and,
//! since a program may have created objects meanwhile, for their counts: if one has changed, PE 0 goes on waiting.
//!
//! An object migrates at any time, also while it waits, and a PE may learn late that a round has ended. So an object
//! that migrates is counted by the round in which it is due next: a waiting object by the round after the one it waits
//! in. An object under way holds up that round and later ones only.
//!
//! PE 0 decides once in a round. Until all PEs have carried out the decision, and until the checkpoint is complete if the
//! round ends with one, entry methods run on: they insert objects, which may call `at_sync` at once. Such an object waits
//! for the round under way and goes on at its end with all others, but the decision does not move it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An object's part in load balancing. It migrates with the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Turn {
    /// The round that the object waits for.
    synced: Option<u64>,
    /// The object takes part in no round before this one.
    round: u64,
    /// `Object::resume` is to be called.
    is_resuming: bool,
}

impl Turn {
    /// Of an object that is created in a round.
    pub(crate) fn new(round: u64) -> Self {
        Self { round, ..Self::default() }
    }

    /// Whether the object waits.
    pub(crate) fn waits(&self) -> bool {
        self.synced.is_some()
    }

    /// Whether the object waits for this round.
    pub(crate) fn waits_for(&self, round: u64) -> bool {
        self.synced == Some(round)
    }

    /// The round in which the object is due next, on a PE in `round`.
    pub(crate) fn due(&self, round: u64) -> u64 {
        self.synced.map_or(self.round.max(round), |synced| synced + 1)
    }

    /// The object calls `at_sync` on a PE in `round`. Returns `false` if it waits already, or has not yet resumed.
    pub(crate) fn wait(&mut self, round: u64) -> bool {
        if self.waits() || self.is_resuming {
            return false;
        }
        self.synced = Some(self.due(round));
        true
    }

    /// Lets the object go on if the round that it waits for is before `round`. Returns `true` if it goes on.
    pub(crate) fn end_wait(&mut self, round: u64) -> bool {
        let has_ended = self.synced.is_some_and(|synced| synced < round);
        if has_ended {
            *self = Self { synced: None, round, is_resuming: true };
        }
        has_ended
    }

    /// Whether `Object::resume` is to be called.
    pub(crate) fn is_resuming(&self) -> bool {
        self.is_resuming
    }

    /// The same, and from now on it is not.
    pub(crate) fn take_resuming(&mut self) -> bool {
        std::mem::take(&mut self.is_resuming)
    }
}

/// The counts of one PE in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) round: u64,
    /// Due objects here.
    pub(crate) due: u64,
    /// Objects due in this round or an earlier one that the PE sent.
    pub(crate) sent: u64,
    /// The same, received.
    pub(crate) received: u64,
}

/// The counts that a PE keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Local {
    status: Status,
    /// Objects here that wait.
    waiting: u64,
    /// Sent and received objects that are due in later rounds, by round.
    later: BTreeMap<u64, [u64; 2]>,
    /// The round has begun on another PE.
    is_called: bool,
    reported: Option<Status>,
    /// The counts have changed since the last report.
    pub(crate) is_changed: bool,
}

impl Local {
    /// Goes on with a round that a checkpoint has ended with. The caller counts the objects by [`enter`](Self::enter).
    pub(crate) fn restore(&mut self, round: u64) {
        *self = Self { status: Status { round, ..Status::default() }, ..Self::default() };
    }

    /// The round under way.
    pub(crate) fn round(&self) -> u64 {
        self.status.round
    }

    /// An object is here, and waits or is due.
    pub(crate) fn enter(&mut self, waits: bool) {
        *(if waits { &mut self.waiting } else { &mut self.status.due }) += 1;
        self.is_changed = true;
    }

    /// An object leaves that waits or is due.
    pub(crate) fn leave(&mut self, waits: bool) {
        *(if waits { &mut self.waiting } else { &mut self.status.due }) -= 1;
        self.is_changed = true;
    }

    /// An object that is due in round `due` goes to another PE.
    pub(crate) fn send(&mut self, due: u64) {
        self.count(due, 0);
    }

    /// An object arrives that was sent with this round.
    pub(crate) fn receive(&mut self, due: u64) {
        self.count(due, 1);
    }

    fn count(&mut self, due: u64, way: usize) {
        self.is_changed = true;
        if due > self.status.round {
            self.later.entry(due).or_default()[way] += 1;
        } else {
            *(if way == 0 { &mut self.status.sent } else { &mut self.status.received }) += 1;
        }
    }

    /// The round has begun on another PE.
    pub(crate) fn call(&mut self, round: u64) {
        if round == self.status.round {
            self.is_called = true;
            self.is_changed = true;
        }
    }

    /// The counts, if PE 0 has to know them.
    pub(crate) fn report(&mut self) -> Option<Status> {
        self.is_changed = false;
        let has_begun = self.waiting > 0 || self.is_called;
        if self.status.due > 0 || !has_begun || self.reported == Some(self.status) {
            return None;
        }
        Some(self.answer())
    }

    /// The counts, for PE 0 which asks for them.
    pub(crate) fn answer(&mut self) -> Status {
        self.reported = Some(self.status);
        self.status
    }

    /// A round ends. Returns the number of the next. The caller counts again by [`leave`](Self::leave) and
    /// [`enter`](Self::enter) the objects that go on.
    pub(crate) fn end_round(&mut self) -> u64 {
        self.status.round += 1;
        self.is_called = false;
        self.is_changed = true;
        self.reported = None;
        while let Some(first) = self.later.first_entry().filter(|first| *first.key() <= self.status.round) {
            let [sent, received] = first.remove();
            self.status.sent += sent;
            self.status.received += received;
        }
        self.status.round
    }
}

/// The progress of PE 0 with a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Answers are missing.
    Waiting,
    /// A PE's counts have changed since its report.
    Changed,
    /// All objects wait.
    Complete,
}

/// PE 0's view of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Detector {
    round: u64,
    statuses: Vec<Option<Status>>,
    wave: u64,
    /// Answers that are missing in the wave under way, and whether those so far agree with the reports.
    asked: Option<(u32, bool)>,
    has_begun: bool,
    /// All objects waited, and PE 0 has decided. The round goes on until all PEs have carried out the decision.
    is_complete: bool,
}

impl Detector {
    pub(crate) fn new(pes: u32) -> Self {
        Self { statuses: vec![None; pes as usize], ..Self::default() }
    }

    /// Goes on with a round.
    pub(crate) fn restore(&mut self, round: u64) {
        *self = Self { round, ..Self::new(self.statuses.len() as u32) };
    }

    /// The fault of a detector that asks again in a round that is complete.
    #[cfg(test)]
    pub(crate) fn forget_decision(&mut self) {
        self.is_complete = false;
    }

    /// The round under way.
    #[cfg(test)]
    pub(crate) fn round(&self) -> u64 {
        self.round
    }

    /// A PE reports. Returns `true` for the first report of a round: the other PEs are to be called.
    pub(crate) fn report(&mut self, pe: u32, status: Status) -> bool {
        if status.round != self.round {
            return false;
        }
        self.statuses[pe as usize] = Some(status);
        // the PE's counts have changed after PE 0 asked
        if let Some((_, agrees)) = &mut self.asked {
            *agrees = false;
        }
        !std::mem::replace(&mut self.has_begun, true)
    }

    /// The number of a wave of questions, if it is time for one. A round that is complete needs no other wave, whatever the
    /// PEs report: an object that is inserted into it and waits goes on with all others.
    pub(crate) fn next_wave(&mut self) -> Option<u64> {
        if self.asked.is_some() || self.is_complete {
            return None;
        }
        let (mut sent, mut received) = (0, 0);
        for status in &self.statuses {
            let status = status.filter(|status| status.due == 0)?;
            sent += status.sent;
            received += status.received;
        }
        (sent == received).then(|| {
            self.asked = Some((self.statuses.len() as u32, true));
            self.wave += 1;
            self.wave
        })
    }

    /// A PE answers.
    pub(crate) fn answer(&mut self, wave: u64, pe: u32, status: Status) -> Progress {
        let Some((missing, agrees)) = self.asked.filter(|_| wave == self.wave) else {
            return Progress::Waiting;
        };
        let agrees = agrees && self.statuses[pe as usize] == Some(status);
        self.statuses[pe as usize] = Some(status);
        if missing > 1 {
            self.asked = Some((missing - 1, agrees));
            return Progress::Waiting;
        }
        self.asked = None;
        self.is_complete = agrees;
        if agrees { Progress::Complete } else { Progress::Changed }
    }

    /// The round has ended.
    pub(crate) fn end_round(&mut self) {
        self.round += 1;
        self.statuses.fill(None);
        self.has_begun = false;
        self.is_complete = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(round: u64, received: u64) -> Status {
        Status { round, due: 0, sent: received, received }
    }

    /// All PEs report, and answer the same.
    fn complete(detector: &mut Detector, pes: u32, status: Status) {
        for pe in 0..pes {
            detector.report(pe, status);
        }
        let wave = detector.next_wave().expect("no object is due");
        for pe in 1..pes {
            assert_eq!(detector.answer(wave, pe, status), Progress::Waiting);
        }
        assert_eq!(detector.answer(wave, 0, status), Progress::Complete);
    }

    #[test]
    fn a_report_between_the_decision_and_the_end_of_the_round_begins_no_other_wave() {
        let mut detector = Detector::new(3);
        complete(&mut detector, 3, waiting(0, 0));
        // PE 1 has inserted an object on itself, which waits
        detector.report(1, waiting(0, 1));
        assert_eq!(detector.next_wave(), None);
        detector.end_round();
        detector.report(1, waiting(0, 2));
        assert_eq!(detector.next_wave(), None, "a report of the last round");
        complete(&mut detector, 3, waiting(1, 2));
    }
}
