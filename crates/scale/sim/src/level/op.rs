// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps of a plan, their messages costed.

use super::pattern::Pattern;
use crate::MessageCost;

/// The next step of all ranks.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// CPU work of each rank.
    Compute { ns: u64, imbalance: f64 },
    /// A collective in hardware.
    Hardware { cpu_ns: u64, wire_ns: u64, phases: u32 },
    /// Rounds of messages, one after the other.
    Rounds(Vec<Round>),
    /// All sends, then all receives, message by message.
    Burst(Burst),
    /// A message around all ranks.
    RingTrip(MessageCost),
    /// The same again and again.
    Repeat { times: u64, body: Vec<Op> },
}

/// A round: each rank sends if it is a sender, then receives if it is a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    /// The pairs in the first of `times` rounds; see [`Pattern::round`].
    pub(crate) pattern: Pattern,
    /// Rounds of this cost.
    pub(crate) times: u32,
    /// True if the pattern goes one further in each round.
    pub(crate) advances: bool,
    /// Cost of its messages.
    pub(crate) cost: MessageCost,
    /// CPU work after a receive.
    pub(crate) combine_ns: u64,
}

impl Round {
    /// The pattern of the `k`th round.
    pub(crate) const fn pattern(&self, k: u32) -> Pattern {
        if self.advances { self.pattern.round(k) } else { self.pattern }
    }
}

/// Messages that are all sent before the first is received.
#[derive(Clone, Debug)]
pub(crate) struct Burst {
    /// Messages of each rank, in the order they are sent.
    pub(crate) messages: Messages,
    /// Cost of each.
    pub(crate) cost: MessageCost,
}

/// The messages of a burst.
#[derive(Clone, Debug)]
pub(crate) enum Messages {
    /// To every other of `ranks` ranks: the next one first; received in the same order.
    All { ranks: u32 },
    /// To the neighbours in a grid, down then up in each dimension; of each dimension the one from below
    /// is received first, which is the one its sender sent up.
    Neighbours(Vec<Pattern>),
}

impl Messages {
    /// Messages of each rank.
    pub(crate) fn len(&self) -> u32 {
        match self {
            Self::All { ranks } => ranks - 1,
            Self::Neighbours(p) => p.len() as u32,
        }
    }

    /// Messages that are received in another order among themselves: 2, the second first.
    pub(crate) const fn group(&self) -> u32 {
        match self {
            Self::All { .. } => 1,
            Self::Neighbours(_) => 2,
        }
    }

    /// Sender and receiver of message `k`.
    pub(crate) fn pattern(&self, k: u32) -> Pattern {
        match self {
            Self::All { ranks } => Pattern::Shift { by: k + 1, ranks: *ranks },
            Self::Neighbours(p) => p[k as usize],
        }
    }
}

impl Op {
    /// Number of times that each rank is dealt with.
    pub(super) fn passes(&self) -> u64 {
        match self {
            Self::Compute { .. } | Self::RingTrip(_) => 1,
            Self::Hardware { phases, .. } => u64::from(*phases) + 1,
            Self::Rounds(rounds) => rounds.iter().map(|r| u64::from(r.times)).sum(),
            Self::Burst(burst) => 3 * u64::from(burst.messages.len()),
            Self::Repeat { times, body } => {
                times.saturating_mul(body.iter().map(Self::passes).fold(0, u64::saturating_add))
            }
        }
    }
}
