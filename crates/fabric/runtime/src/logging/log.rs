// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of one PE: what it has sent, what it has taken, and what the others need to run it again.
//!
//! An *epoch* begins with the commit of a checkpoint. PEs learn of a commit one after the other, so a PE marks the first
//! parcel of an epoch to each other one. One that is not yet there keeps what comes after the mark until it is.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::checksum::Checksum;
use super::determinants::{Determinant, Determinants};
use super::history::{Received, Repeat};
use super::sent::Sent;
use crate::message::Malformed;
use crate::parcel::{Encoded, MESSAGE};

/// The fate of a parcel that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// It is taken.
    Now,
    /// It is kept until this PE has begun the epoch.
    Later,
    /// It is of the epoch before, in which nothing was under way but what the checkpoint itself needed.
    Stale,
}

/// The state of a PE that has survived, for the decision whether only the dead one runs again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Survivor {
    pub(crate) epoch: u64,
    /// It has all that others need, makes no checkpoint, and does not run again itself.
    pub(crate) is_ready: bool,
    /// PEs that ran again and may not have ended.
    pub(crate) unfinished: Vec<u32>,
    /// PEs that have dropped their logs.
    pub(crate) dropped: Vec<u32>,
}

/// The log of this PE as to one other PE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    sent: Sent,
    /// The mark of the epoch has been sent.
    is_marked: bool,
    /// Determinants of this PE that the other one has.
    given: usize,
    /// The epoch of what comes from it.
    epoch: u64,
    received: u64,
    checksum: Checksum,
    /// Parcels of an epoch that this PE has not begun.
    later: Vec<u8>,
    /// Determinants of the other PE.
    pub(super) held: Vec<Determinant>,
}

impl Peer {
    /// What has come in an epoch.
    fn received(&self, epoch: u64) -> Received {
        if self.epoch != epoch {
            return Received::default();
        }
        let (checksum, determinants) = (self.checksum.value(), self.held.len() as u64);
        Received { parcels: self.received, checksum, determinants }
    }
}

/// The log of one PE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Log {
    /// The most bytes of parcels.
    limit: u64,
    /// The number of the checkpoint with which the epoch began, and 1; 0 before the first.
    epoch: u64,
    /// Parcels and determinants are kept.
    pub(super) records: bool,
    /// The number of the scheduler's pass under way.
    pub(super) pass: u64,
    /// Something has happened in it.
    pub(super) has_happened: bool,
    pub(super) own: Determinants,
    pub(super) peers: Vec<Peer>,
    bytes: u64,
    free: Vec<Vec<u8>>,
    /// A checkpoint has been requested because the log is long.
    has_requested: bool,
    pub(super) repeat: Option<Repeat>,
    unfinished: BTreeSet<u32>,
}

impl Log {
    /// Of a PE in a job of so many, which keeps at most `limit` bytes of parcels.
    pub(crate) fn new(pes: u32, limit: u64) -> Self {
        Self { limit, peers: vec![Peer::default(); pes as usize], ..Self::default() }
    }

    /// Goes back to a checkpoint, as all others do.
    pub(crate) fn restore(&mut self, epoch: u64, records: bool) {
        *self = Self { epoch, records, ..Self::new(self.peers.len() as u32, self.limit) };
        for peer in &mut self.peers {
            (peer.epoch, peer.is_marked) = (epoch, true);
        }
    }

    /// Begins an epoch. Returns the parcels of it that have arrived already, encoded, by their PEs.
    pub(crate) fn begin(&mut self, epoch: u64, records: bool) -> Vec<(u32, Vec<u8>)> {
        let Self { peers, free, .. } = self;
        let mut later = Vec::new();
        for (from, peer) in (0..).zip(peers) {
            peer.sent.clear(free);
            (peer.is_marked, peer.given) = (false, 0);
            if !peer.later.is_empty() {
                later.push((from, std::mem::take(&mut peer.later)));
            }
        }
        self.own.clear();
        (self.epoch, self.records, self.pass, self.bytes) = (epoch, records, 0, 0);
        (self.has_happened, self.has_requested) = (false, false);
        self.unfinished.clear();
        later
    }

    /// The epoch, if its mark has to be sent to a PE before the next parcel.
    #[inline]
    pub(crate) fn mark(&mut self, to: u32) -> Option<u64> {
        let peer = self.peers.get_mut(to as usize)?;
        (self.epoch > 0 && !std::mem::replace(&mut peer.is_marked, true)).then_some(self.epoch)
    }

    /// For models of faults: the mark has not been sent.
    #[cfg(test)]
    pub(crate) fn unmark(&mut self, to: u32) {
        self.peers[to as usize].is_marked = false;
    }

    /// The mark of an epoch has arrived.
    pub(crate) fn take_mark(&mut self, from: u32, epoch: u64) -> Result<(), Malformed> {
        let Some(peer) = self.peers.get_mut(from as usize) else { return Ok(()) };
        // a mark is only repeated for a PE that has nothing of the epoch
        if epoch < peer.epoch || (epoch == peer.epoch && (peer.received > 0 || !peer.held.is_empty())) {
            let reason = format!("is {epoch}, and that of epoch {} has arrived", peer.epoch);
            return Err(Malformed::new("the mark of an epoch", reason));
        }
        (peer.epoch, peer.received, peer.checksum) = (epoch, 0, Checksum::default());
        peer.held.clear();
        Ok(())
    }

    /// Keeps a parcel that is sent, encoded.
    #[inline]
    pub(crate) fn keep(&mut self, to: u32, parcel: &[u8]) {
        if self.records
            && let Some(peer) = self.peers.get_mut(to as usize)
        {
            self.bytes += parcel.len() as u64;
            peer.sent.push(parcel, &mut self.free);
        }
    }

    /// A parcel arrives.
    #[inline]
    pub(crate) fn arrive(&mut self, from: u32, parcel: Encoded<'_>) -> Arrival {
        let Some(peer) = self.peers.get_mut(from as usize) else { return Arrival::Now };
        match peer.epoch.cmp(&self.epoch) {
            Ordering::Greater => {
                parcel.append_to(&mut peer.later);
                return Arrival::Later;
            }
            Ordering::Less => return Arrival::Stale,
            Ordering::Equal => {}
        }
        if self.records {
            peer.received += 1;
            if parcel.kind == MESSAGE {
                peer.checksum.add(parcel.bytes);
            }
            if self.repeat.is_none() {
                self.own.push_parcel(self.pass, from);
            }
            self.has_happened = true;
        }
        Arrival::Now
    }

    /// Notes an event. While the PE runs again, its events are known already.
    pub(crate) fn note(&mut self, event: impl FnOnce(u64) -> Determinant) {
        if self.records && !self.knows_next() {
            self.own.push(event(self.pass));
            self.has_happened = true;
            if let Some(repeat) = &mut self.repeat {
                // it is no event of the run before
                repeat.next = self.own.len();
            }
        }
    }

    /// Ends a pass of the scheduler. Returns `true` if something happened in it.
    #[inline]
    pub(crate) fn end_pass(&mut self, has_run: bool) -> bool {
        let happened = std::mem::take(&mut self.has_happened) || has_run;
        self.pass += u64::from(happened);
        happened
    }

    /// The number of the first determinant that a PE does not have, and all from there on. It has them then.
    pub(crate) fn give(&mut self, to: u32) -> Option<(u64, &[Determinant])> {
        // others have what is repeated, and what is sent before the mark is of the epoch before
        let is_repeating = self.repeat.is_some();
        let peer = self.peers.get_mut(to as usize).filter(|peer| peer.is_marked && !is_repeating)?;
        let first = std::mem::replace(&mut peer.given, self.own.len());
        (first < self.own.len()).then(|| (first as u64, self.own.give(first)))
    }

    /// Takes determinants of another PE.
    pub(crate) fn take(
        &mut self,
        from: u32,
        first: u64,
        determinants: Vec<Determinant>,
    ) -> Result<(), Malformed> {
        let Some(peer) = self.peers.get_mut(from as usize) else { return Ok(()) };
        if peer.held.len() as u64 != first {
            let expected = peer.held.len();
            return Err(Malformed::new(
                "determinants",
                format!("begin with {first} and not with {expected}"),
            ));
        }
        peer.held.extend(determinants);
        Ok(())
    }

    /// Returns `true` once an epoch: the log is long, so a checkpoint is needed soon.
    #[inline]
    pub(crate) fn needs_checkpoint(&mut self) -> bool {
        self.bytes > self.limit / 2 && !std::mem::replace(&mut self.has_requested, true)
    }

    /// Drops a log that has become too long, unless it is needed to run again. Returns its bytes then.
    #[inline]
    pub(crate) fn drop_if_too_long(&mut self) -> Option<u64> {
        if self.bytes <= self.limit || self.repeat.is_some() {
            return None;
        }
        Some(self.stop())
    }

    /// Drops the log until the next epoch, and tells all PEs that depend on what is not logged. Returns its bytes.
    pub(crate) fn stop(&mut self) -> u64 {
        if std::mem::take(&mut self.records) {
            self.own.push(Determinant::Dropped);
        }
        for peer in &mut self.peers {
            peer.sent = Sent::default();
        }
        self.free = Vec::new();
        std::mem::take(&mut self.bytes)
    }

    /// This PE as a survivor.
    pub(crate) fn survivor(&self) -> Survivor {
        let is_ready = self.epoch > 0 && self.records && self.repeat.is_none();
        let has_dropped =
            |peer: &Peer| peer.epoch == self.epoch && peer.held.last() == Some(&Determinant::Dropped);
        let dropped = (0..).zip(&self.peers).filter(|(_, peer)| has_dropped(peer)).map(|(pe, _)| pe);
        Survivor {
            epoch: self.epoch,
            is_ready,
            unfinished: self.unfinished.iter().copied().collect(),
            dropped: dropped.collect(),
        }
    }

    /// A PE that ran again has ended that.
    pub(crate) fn take_repeated(&mut self, from: u32) {
        self.unfinished.remove(&from);
    }

    /// What this PE has from another one.
    pub(crate) fn received(&self, from: u32) -> Received {
        self.peers.get(from as usize).map(|peer| peer.received(self.epoch)).unwrap_or_default()
    }

    /// What a PE needs of this one to run again: its determinants, and the parcels for it.
    pub(crate) fn history(&self, of: u32) -> Result<(Vec<Determinant>, Vec<u8>), Malformed> {
        let Some(peer) = self.peers.get(of as usize) else { return Ok(Default::default()) };
        let held = if peer.epoch == self.epoch { peer.held.clone() } else { Vec::new() };
        Ok((held, peer.sent.after(0)?))
    }

    /// Goes on with a PE that has this from this one. Returns the parcels that have to be sent again. A PE that runs
    /// again, `repeats`, has all of them.
    pub(crate) fn resume(&mut self, to: u32, has: Received, repeats: bool) -> Result<Vec<u8>, Malformed> {
        let Some(peer) = self.peers.get_mut(to as usize) else { return Ok(Vec::new()) };
        if repeats {
            self.unfinished.insert(to);
            // it begins in the epoch, and has all parcels and determinants of this PE
            peer.is_marked = true;
            peer.given = self.own.len();
            self.own.give(peer.given);
            return Ok(Vec::new());
        }
        let (determinants, known) = (has.determinants, self.own.len() as u64);
        if has.parcels > peer.sent.parcels || determinants > known {
            return Err(Malformed::new(
                "what a PE has received",
                format!(
                    "is more than the {} parcels and {known} determinants that PE {to} was sent",
                    peer.sent.parcels
                ),
            ));
        }
        peer.given = determinants as usize;
        // a frame of the runtime brings determinants alone
        peer.is_marked = has.parcels > 0 || determinants > 0;
        peer.sent.after(has.parcels)
    }

    /// Parcels that have been sent to a PE in the epoch.
    pub(super) fn sent(&self, to: u32) -> u64 {
        self.peers.get(to as usize).map_or(0, |peer| peer.sent.parcels)
    }

    /// The checksum of the messages among the first parcels that were sent to a PE; none if there were fewer.
    pub(super) fn checksum(&self, to: u32, parcels: u64) -> Option<u32> {
        self.peers.get(to as usize)?.sent.checksum(parcels).ok()?
    }
}
