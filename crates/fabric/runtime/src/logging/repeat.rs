// SPDX-License-Identifier: MIT OR Apache-2.0
//! A PE that runs again what it ran before its process died.

use super::determinants::{Determinant, Determinants};
use super::history::{Diverged, History, Left, Received, Repeat, Step};
use super::log::Log;

impl Log {
    /// Begins to run again from the checkpoint of the epoch. `histories` are by rank.
    pub(crate) fn begin_repeat(&mut self, histories: Vec<History>) {
        // each survivor has the first ones, and the PE depends on none that no survivor has
        let known = histories.iter().map(|history| &history.determinants).max_by_key(|known| known.len());
        self.own = Determinants::of(known.cloned().unwrap_or_default());
        self.records = true;
        for (peer, history) in self.peers.iter_mut().zip(&histories) {
            peer.held.clone_from(&history.held);
        }
        self.repeat = Some(Repeat { at: vec![0; histories.len()], histories, ..Repeat::default() });
    }

    /// Returns `true` if this PE runs again.
    #[inline]
    pub(crate) fn is_repeating(&self) -> bool {
        self.repeat.is_some()
    }

    /// Returns `true` if the next event is known.
    pub(crate) fn knows_next(&self) -> bool {
        self.repeat.as_ref().is_some_and(|repeat| repeat.next < self.own.len())
    }

    /// Returns `true` if the next event is known, or if others have received what has not been sent again.
    pub(crate) fn is_behind(&self) -> bool {
        let Some(repeat) = &self.repeat else { return false };
        let mut received = (0..).zip(&repeat.histories).map(|(to, history)| (to, history.received.parcels));
        self.knows_next() || received.any(|(to, parcels)| self.sent(to) < parcels)
    }

    /// Takes the next determinant if `take` does.
    fn take_next<T>(&mut self, take: impl FnOnce(&Determinant, u64) -> Option<T>) -> Option<T> {
        let repeat = self.repeat.as_mut()?;
        let taken = take(self.own.get(repeat.next)?, self.pass)?;
        repeat.next += 1;
        self.has_happened = true;
        Some(taken)
    }

    /// The next thing that the PE took in this pass, before it ran anything.
    pub(crate) fn next_step(&mut self) -> Result<Option<Step>, Diverged> {
        let deferred = self.take_next(|next, now| match *next {
            Determinant::Deferred { pass, pe, away } if pass == now => Some(Step::Deferred(pe, away)),
            _ => None,
        });
        if deferred.is_some() {
            return Ok(deferred);
        }
        let Some(repeat) = self.repeat.as_mut() else { return Ok(None) };
        let Some(next) = self.own.get(repeat.next) else { return Ok(None) };
        if next.pass().is_some_and(|pass| pass < self.pass) {
            return Err(Diverged("it does not reach an event where it was before".to_owned()));
        }
        let &Determinant::Parcels { pass, from, count } = next else { return Ok(None) };
        if pass != self.pass {
            return Ok(None);
        }
        if count == 0 {
            return Err(Diverged(format!("it took no parcel of PE {from}, and noted that")));
        }
        repeat.taken += 1;
        if repeat.taken == count {
            (repeat.next, repeat.taken) = (repeat.next + 1, 0);
        }
        self.has_happened = true;
        let parcel = repeat.next_parcel(from)?;
        Ok(Some(Step::Parcel(from, parcel)))
    }

    /// The next timer that was due in this pass.
    pub(crate) fn next_timer(&mut self) -> Option<u64> {
        self.take_next(|next, now| match *next {
            Determinant::Timer { pass, number } if pass == now => Some(number),
            _ => None,
        })
    }

    /// The signal that was obeyed in this pass.
    pub(crate) fn next_signal(&mut self) -> Option<bool> {
        self.take_next(|next, now| match *next {
            Determinant::Signal { pass, away } if pass == now => Some(away),
            _ => None,
        })
    }

    /// Returns `true` if the PE looked for quiescence in this pass.
    pub(crate) fn next_probe(&mut self) -> bool {
        let is_probe = |next: &Determinant, now| matches!(*next, Determinant::Probe { pass } if pass == now);
        self.take_next(|next, now| is_probe(next, now).then_some(())).is_some()
    }

    /// The decision that was made here; none if it is made now.
    pub(crate) fn next_value(&mut self) -> Result<Option<Vec<u8>>, Diverged> {
        if !self.knows_next() {
            return Ok(None);
        }
        let value = self.take_next(|next, now| match next {
            Determinant::Value { pass, bytes } if *pass == now => Some(bytes.clone()),
            _ => None,
        });
        value.map(Some).ok_or_else(|| Diverged("it decides earlier than before".to_owned()))
    }

    /// Ends the repetition. Messages are compared with those that others have received.
    pub(crate) fn end_repeat(&mut self) -> Result<Left, Diverged> {
        let Some(repeat) = self.repeat.take() else { return Ok(Left::default()) };
        for (to, history) in (0..).zip(&repeat.histories) {
            let Received { parcels, checksum, .. } = history.received;
            let sent = self.checksum(to, parcels);
            if sent != Some(checksum) {
                return Err(Diverged(format!(
                    "its messages to PE {to} are not those that PE {to} has received"
                )));
            }
        }
        let received = repeat.histories.iter().map(|history| history.received).collect();
        let rest = repeat.histories.into_iter().zip(repeat.at).zip(0..);
        let rest =
            rest.map(|((history, at), from)| (from, history.parcels.get(at..).unwrap_or_default().to_vec()));
        Ok(Left { parcels: rest.filter(|(_, parcels)| !parcels.is_empty()).collect(), received })
    }
}
