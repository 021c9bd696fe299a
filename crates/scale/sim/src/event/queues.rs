// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work of a rank that is ready, in the order of the resources that it waits for.

use std::collections::VecDeque;

/// Work that waits for a CPU or an interface.
#[derive(Clone, Copy, Debug)]
pub(super) enum Blocked {
    Calc(u32),
    Send(u32),
    /// A message by its send, and its receive where that is known; both among the operations of all ranks.
    Message(Option<u32>, u32),
}

/// Operations and messages of a rank that need the same CPU and the same interface, in the order they became
/// ready.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) cpu: u8,
    /// The interface; none for computing.
    pub(super) slot: Option<u32>,
    /// Each with its place in the order of the rank.
    pub(super) waiting: VecDeque<(u64, Blocked)>,
}

/// All that waits on a rank.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) lines: Vec<Line>,
    /// Entries so far.
    pub(super) entered: u64,
    /// The instant of the event that serves them next.
    pub(super) wake_ns: Option<u64>,
}
