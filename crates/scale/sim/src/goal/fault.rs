// SPDX-License-Identifier: MIT OR Apache-2.0
//! The faults of schedules.

/// A schedule that cannot run: the fault and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rank {rank}, operation {operation}: {fault}")]
pub struct BuildError {
    /// Rank at fault.
    pub rank: u32,
    /// Number of the operation at fault among those of the rank, from 0.
    pub operation: u32,
    /// The fault.
    pub fault: Fault,
}

/// The faults of schedules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A message to or from a rank that there is not.
    #[error("there is no rank {peer}: the schedule has {ranks}")]
    NoSuchRank {
        /// The other rank.
        peer: u32,
        /// Ranks of the schedule.
        ranks: u32,
    },
    /// A requirement of or on an operation that there is not.
    #[error("there is no operation {operation} on this rank to require")]
    NoSuchOperation {
        /// The operation.
        operation: u32,
    },
    /// Operations that wait for one another in a circle.
    #[error("it waits for itself, in a circle of requirements; take one of them away")]
    Cycle,
    /// A send to any rank or with any tag.
    #[error("a send needs a rank to go to and a tag; only a receive may leave them open")]
    OpenSend,
    /// Not as many sends as receives between two ranks under a tag.
    #[error(
        "{sends} messages go from rank {from} to rank {to} with tag {tag}, and {receives} are received: \
         each send needs its receive"
    )]
    Unmatched {
        /// Sender.
        from: u32,
        /// Receiver.
        to: u32,
        /// Tag.
        tag: u32,
        /// Sends.
        sends: u32,
        /// Receives.
        receives: u32,
    },
    /// A message between two ranks under a tag that is longer than its receive.
    #[error(
        "a message from rank {from} to rank {to} with tag {tag} has {sent} bytes, and this receive only {received}: \
         MPI would truncate the message; make the receive as large"
    )]
    Sizes {
        /// Sender.
        from: u32,
        /// Receiver.
        to: u32,
        /// Tag.
        tag: u32,
        /// Bytes of the message.
        sent: u64,
        /// Bytes of the receive.
        received: u64,
    },
    /// More than can be counted.
    #[error("the schedule has more than {most} {items}; split it")]
    TooLarge {
        /// Of what.
        items: &'static str,
        /// As many as can be.
        most: u32,
    },
}
