// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program that the PEs run, and what may go wrong.

use super::super::PES;
use crate::logging::history::Diverged;
use crate::message::Malformed;

/// Something that an implementation may get wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Determinants do not go with the frames.
    NotGiven,
    /// Determinants go with a frame before the mark of their epoch.
    GivenBeforeMark,
    /// The mark of an epoch is not sent.
    NoMark,
    /// Determinants of the epoch before are held on.
    HeldOn,
    /// All is sent again to a PE that goes on.
    AllAgain,
    /// Nothing is sent again.
    NothingAgain,
    /// A PE that has run again sends also what others have received.
    RepeatsAll,
    /// PEs go on although another one was still running again.
    Unfinished,
    /// PEs go on although a checkpoint is being made.
    Saving,
    /// A PE that runs again does not get the determinants that it held for others.
    NotHeldAgain,
    /// A PE does not say that it has dropped its log.
    DroppedInSilence,
}

/// Why a PE cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Wrong {
    Malformed(String),
    Diverged(String),
    /// A parcel of the epoch before was needed.
    Stale,
}

impl From<Malformed> for Wrong {
    fn from(error: Malformed) -> Self {
        Self::Malformed(error.to_string())
    }
}

impl From<Diverged> for Wrong {
    fn from(error: Diverged) -> Self {
        Self::Diverged(error.to_string())
    }
}

/// Messages that a PE sends when it resumes: to which PE, and how many times they are passed on.
pub(super) type Script = [&'static [(usize, u8)]; PES];

/// What all PEs share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// By epoch, from 1.
    pub(super) scripts: &'static [Script],
    /// PEs that decide something with each message that they run.
    pub(super) decides: [bool; PES],
    /// The most bytes of each PE's log.
    pub(super) limits: [u64; PES],
    pub(super) fault: Option<Fault>,
}
