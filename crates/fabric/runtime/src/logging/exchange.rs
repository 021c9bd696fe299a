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
    /// Of the sender: the PE that runs again held them before.
    Held(Vec<Determinant>),
    /// Some of the parcels for the PE that runs again.
    Parcels(Bulk<u8>),
    /// There are no more notes.
    End,
}

/// Why all ranks go back to a checkpoint although messages are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum GoBack {
    /// No rank that has survived has a log.
    #[error("no rank has a log of messages")]
    NoLog,
    /// Their logs died with them.
    #[error("several ranks have died")]
    Several,
    /// It has not begun to log, has dropped its log, makes a checkpoint, or runs again itself.
    #[error("rank {0} logs no messages at this time")]
    NotReady(u32),
    /// The end of the checkpoint is not known everywhere.
    #[error("a checkpoint was being made")]
    Epochs,
    /// Nobody else knows what it has done since.
    #[error("rank {0} was running again")]
    Unfinished(u32),
    /// The dead rank's image is lost.
    #[error("no copy of an image is left")]
    NoImage,
}

/// The ranks that go on, by what each says of itself; `None` is a process that has been replaced. Returns the epoch and the
/// rank that runs again.
///
/// # Errors
/// [`GoBack`].
pub(crate) fn go_on(ranks: &[Option<Survivor>]) -> Result<(u64, Option<u32>), GoBack> {
    let epoch = ranks.iter().flatten().next().ok_or(GoBack::NoLog)?.epoch;
    // a PE that is ready has ended its repetition, even if not all know that
    let is_unfinished = |rank| ranks.iter().flatten().any(|one| one.unfinished.contains(&rank));
    let has_dropped = |rank| ranks.iter().flatten().any(|one| one.dropped.contains(&rank));
    let mut repeats = None;
    for (rank, survivor) in (0..).zip(ranks) {
        match survivor {
            Some(one) if one.epoch != epoch => return Err(GoBack::Epochs),
            Some(one) if one.is_ready => {}
            _ if is_unfinished(rank) => return Err(GoBack::Unfinished(rank)),
            None if repeats.is_some() => return Err(GoBack::Several),
            None if has_dropped(rank) => return Err(GoBack::NotReady(rank)),
            None => repeats = Some(rank),
            Some(_) => return Err(GoBack::NotReady(rank)),
        }
    }
    Ok((epoch, repeats))
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
        send(LogNote::Held(log.own.all().to_vec()))?;
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
            LogNote::Held(determinants) => history.held = determinants,
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
        let one = || Survivor { epoch: 3, is_ready: true, unfinished: vec![], dropped: vec![] };
        assert_eq!(go_on(&[Some(one()), None, Some(one())]), Ok((3, Some(1))));
        assert_eq!(go_on(&[Some(one()), Some(one())]), Ok((3, None)), "only connections were lost");
        for (other, why) in [
            (None, GoBack::Several),
            (Some(Survivor { epoch: 4, ..one() }), GoBack::Epochs),
            (Some(Survivor { is_ready: false, ..one() }), GoBack::NotReady(2)),
            (Some(Survivor { unfinished: vec![1], ..one() }), GoBack::Unfinished(1)),
            (Some(Survivor { dropped: vec![1], ..one() }), GoBack::NotReady(1)),
        ] {
            assert_eq!(go_on(&[Some(one()), None, other]), Err(why));
        }
        assert_eq!(go_on(&[None, None]), Err(GoBack::NoLog));
        let unfinished = Some(Survivor { unfinished: vec![0], ..one() });
        assert_eq!(go_on(&[Some(one()), None, unfinished.clone()]), Ok((3, Some(1))), "it has ended that");
        let repeats = Some(Survivor { is_ready: false, ..one() });
        assert_eq!(go_on(&[repeats, None, unfinished]), Err(GoBack::Unfinished(0)));
    }
}
