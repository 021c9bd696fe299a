// SPDX-License-Identifier: MIT OR Apache-2.0
//! What PEs tell each other before they go on without going back: what each has received, and the history of the PE that
//! runs again.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::determinants::Determinant;
use super::history::{History, Received};
use super::log::{Log, Survivor};
use crate::bulk::Bulk;
use crate::message::Malformed;

/// Bytes of parcels in one note.
const CHUNK: usize = 1 << 20;

/// One of the notes of a PE to another one, in this order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LogNote {
    Received(Received),
    /// Of the PE that runs again, which the note is for.
    Determinants(Vec<Determinant>),
    /// Some of the parcels for it.
    Parcels(Bulk<u8>),
    /// There are no more notes.
    End,
}

/// The ranks that go on, by what each says of itself; `None` is a process that has been replaced. Returns the epoch and the
/// rank that runs again. `None` if all have to go back: several processes have died, a checkpoint was being made, a log was
/// dropped, or a PE was still running again.
pub(crate) fn go_on(ranks: &[Option<Survivor>]) -> Option<(u64, Option<u32>)> {
    let mut dead = (0..).zip(ranks).filter(|(_, survivor)| survivor.is_none()).map(|(rank, _)| rank);
    let repeats = dead.next();
    let epoch = ranks.iter().flatten().next()?.epoch;
    let mut survivors = ranks.iter().flatten();
    let are_ready = survivors.all(|one| one.is_ready && one.epoch == epoch && one.unfinished.is_empty());
    (dead.next().is_none() && are_ready).then_some((epoch, repeats))
}

/// Sends all notes of this PE to another one, which runs again if `repeats`. A process that has been replaced has no log.
pub(crate) fn send<E: From<Malformed>>(
    log: Option<&Log>,
    to: u32,
    repeats: bool,
    mut send: impl FnMut(LogNote) -> Result<(), E>,
) -> Result<(), E> {
    send(LogNote::Received(log.map(|log| log.received(to)).unwrap_or_default()))?;
    if let Some(log) = log.filter(|_| repeats) {
        let (determinants, parcels) = log.history(to)?;
        send(LogNote::Determinants(determinants))?;
        for chunk in parcels.chunks(CHUNK) {
            send(LogNote::Parcels(Bulk(chunk.to_vec())))?;
        }
    }
    send(LogNote::End)
}

/// The notes that have arrived.
#[derive(Debug)]
pub(crate) struct Notes {
    /// By rank.
    pub(crate) histories: Vec<History>,
    complete: BTreeSet<u32>,
}

impl Notes {
    pub(crate) fn new(ranks: u32) -> Self {
        Self { histories: vec![History::default(); ranks as usize], complete: BTreeSet::new() }
    }

    pub(crate) fn take(&mut self, from: u32, note: LogNote) {
        let Some(history) = self.histories.get_mut(from as usize) else { return };
        match note {
            LogNote::Received(received) => history.received = received,
            LogNote::Determinants(determinants) => history.determinants = determinants,
            LogNote::Parcels(bytes) => history.parcels.extend_from_slice(&bytes),
            LogNote::End => {
                self.complete.insert(from);
            }
        }
    }

    /// Returns `true` if all other ranks have sent all their notes.
    pub(crate) fn are_complete(&self) -> bool {
        self.complete.len() + 1 == self.histories.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_process_runs_again_and_only_if_all_others_can_go_on() {
        let ready = || Some(Survivor { epoch: 3, is_ready: true, unfinished: vec![] });
        assert_eq!(go_on(&[ready(), None, ready()]), Some((3, Some(1))));
        assert_eq!(go_on(&[ready(), ready()]), Some((3, None)), "only connections were lost");
        for other in [
            None,
            Some(Survivor { epoch: 4, ..ready().expect("one") }),
            Some(Survivor { is_ready: false, ..ready().expect("one") }),
            Some(Survivor { unfinished: vec![1], ..ready().expect("one") }),
        ] {
            assert_eq!(go_on(&[ready(), None, other]), None);
        }
        assert_eq!(go_on(&[None, None]), None);
    }
}
