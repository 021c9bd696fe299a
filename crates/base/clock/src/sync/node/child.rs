// SPDX-License-Identifier: MIT OR Apache-2.0
//! A node towards its parent: ask it, then hand up what came out.

use std::time::{Duration, Instant};

use colony_time::Estimate;

use super::Node;
use crate::fit::{Fit, FitError, Probe, Sample};
use crate::sync::config::LocalClock;
use crate::sync::error::SyncError;
use crate::sync::link::Heard;
use crate::tree;
use crate::wire::{MOST_RECORDS, Message, Record};

/// Time after which a question without an answer is sent again.
const AGAIN: Duration = Duration::from_millis(50);

/// Number of attempts at a round.
const ROUNDS: usize = 3;

/// The result of one round with the parent.
struct Round {
    samples: Vec<Sample>,
    trips: u32,
    lost: u32,
}

impl<C: LocalClock> Node<C> {
    /// Compares this clock with the parent's, and so with the reference. Rank 0 is the reference.
    pub(super) fn compare(&mut self) -> Result<Record, SyncError> {
        let rank = self.config.rank;
        let Some(parent) = tree::parent(rank) else {
            let estimate = Estimate { at_ns: self.clock.now_ns(), ..Estimate::EXACT };
            self.state.known = Some(estimate);
            let (rank, estimate) = (rank.into(), estimate.into());
            return Ok(Record { rank, estimate, ..Record::default() });
        };
        self.wait_for_turn(parent)?;
        let (round, fit) = self.measure(parent)?;
        let upper = self.ask_known(parent)?;
        let estimate = fit.estimate.then(&upper);
        self.state.known = Some(estimate);
        Ok(Record {
            rank: rank.into(),
            estimate: estimate.into(),
            round_trip_ns: fit.round_trip_ns.into(),
            residual_ns: fit.residual_ns.into(),
            trips: round.trips.into(),
            lost: round.lost.into(),
        })
    }

    /// A round with the parent and the line through it; another round where the clocks were not steady in one.
    fn measure(&mut self, parent: u32) -> Result<(Round, Fit), SyncError> {
        let mut left = ROUNDS;
        loop {
            left -= 1;
            let round = self.ask(parent)?;
            match self.fit(parent, &round.samples) {
                Err(SyncError::Fit { .. }) if left > 0 => self.history.clear(),
                other => return other.map(|fit| (round, fit)),
            }
        }
    }

    /// The line through this round and those before; through this round alone where those do not fit it.
    fn fit(&mut self, parent: u32, samples: &[Sample]) -> Result<Fit, SyncError> {
        self.history.add(samples);
        let fit = match self.history.fit() {
            Err(FitError::Contradiction) => {
                self.history.clear();
                self.history.add(samples);
                self.history.fit()
            }
            other => other,
        };
        fit.map_err(|source| SyncError::Fit { rank: parent, host: self.name(parent), source })
    }

    fn wait_for_turn(&mut self, parent: u32) -> Result<(), SyncError> {
        self.ask_until(
            parent,
            |_| Message::Ask,
            |_, heard| match heard.message {
                Message::Ready => Some(heard.cycle),
                _ => None,
            },
        )
        .map(|cycle| self.cycle = cycle)
    }

    /// Asks the parent for its estimate of the reference.
    fn ask_known(&mut self, parent: u32) -> Result<Estimate, SyncError> {
        let expected = rand::random();
        self.ask_until(
            parent,
            |_| Message::Finish { nonce: expected },
            |_, heard| match heard.message {
                Message::Known { nonce, estimate } if nonce == expected => Some(estimate),
                _ => None,
            },
        )
    }

    /// Round trips with the parent for the length of a round.
    fn ask(&mut self, parent: u32) -> Result<Round, SyncError> {
        let mut round = Round { samples: Vec::new(), trips: 0, lost: 0 };
        let end = Instant::now() + self.config.round;
        let mut heard_last = Instant::now();
        while Instant::now() < end {
            let next = Instant::now() + self.config.interval;
            match self.trip(parent)? {
                Some(probe) => {
                    heard_last = Instant::now();
                    round.trips += 1;
                    round.samples.extend(probe.sample());
                }
                None if heard_last.elapsed() > self.config.silence_timeout => return Err(self.silent(parent)),
                None => round.lost += 1,
            }
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(round)
    }

    /// One round trip; `None` where no answer comes.
    fn trip(&mut self, parent: u32) -> Result<Option<Probe>, SyncError> {
        let expected: u64 = rand::random();
        let until = Instant::now() + AGAIN;
        let sent_ns = self.clock.now_ns();
        self.link.send(parent, self.cycle, Message::Probe { nonce: expected });
        while let Some(heard) = self.link.receive(until, &self.clock)? {
            self.check_abort(&heard)?;
            match heard.message {
                Message::Reply { nonce, received_ns, replied_ns }
                    if nonce == expected && heard.from == parent =>
                {
                    return Ok(Some(Probe { sent_ns, received_ns, replied_ns, returned_ns: heard.at_ns }));
                }
                _ => self.answer(&heard),
            }
        }
        Ok(None)
    }

    /// Hands up what came out here and below, a datagram at a time.
    pub(super) fn hand_up(&mut self) -> Result<(), SyncError> {
        let Some(parent) = tree::parent(self.config.rank) else { return Ok(()) };
        let records: Vec<Record> = self.state.records.values().copied().collect();
        for part in records.chunks(MOST_RECORDS) {
            let expected = rand::random();
            let question = |_: &Self| Message::Records { nonce: expected, records: part.to_vec() };
            self.ask_until(parent, question, |_, heard| {
                matches!(heard.message, Message::Ack { nonce } if nonce == expected).then_some(())
            })?;
        }
        Ok(())
    }

    /// Asks the parent `question` again and again until it says what `answer` wants to hear. Whatever else the
    /// parent says shows that it is there.
    fn ask_until<T>(
        &mut self,
        parent: u32,
        question: impl Fn(&Self) -> Message,
        answer: impl Fn(&Self, &Heard) -> Option<T>,
    ) -> Result<T, SyncError> {
        let mut heard_last = Instant::now();
        loop {
            self.link.send(parent, self.cycle, question(self));
            let until = Instant::now() + AGAIN;
            while let Some(heard) = self.link.receive(until, &self.clock)? {
                self.check_abort(&heard)?;
                if heard.from != parent {
                    self.answer(&heard);
                    continue;
                }
                heard_last = Instant::now();
                if let Some(found) = answer(self, &heard) {
                    return Ok(found);
                }
                // busy: time enough to ask again
            }
            if heard_last.elapsed() > self.config.silence_timeout {
                return Err(self.silent(parent));
            }
        }
    }
}
