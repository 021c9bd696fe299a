// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages: sending and execution joined, and how much each PE sent to each.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::record::{ALL_PES, Event, MessageId};
use crate::timeline::Timeline;

/// Messages from one PE to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// The PE that sent.
    pub from: u32,
    /// The PE that executed, or, if nothing is known of the execution, the PE it was sent to.
    pub to: u32,
    /// Messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The communication matrix of a run. A message counts once, whether its sending, its execution or both were kept. A broadcast counts
/// once for each PE that executed it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Messages {
    /// Pairs of PEs with messages, by `from` and `to`.
    pub cells: Vec<Cell>,
    /// Messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages of which sending and execution are known.
    pub joined: u64,
    /// Messages that were sent and whose execution is not known: still on their way at the end, or dropped.
    pub not_executed: u64,
    /// Messages that were executed and whose sending is not known.
    pub not_sent: u64,
}

/// One end of a message. Sorts by message, the sending first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    message: MessageId,
    execution: bool,
    /// The PE that executes; of a sending, the PE it is sent to.
    pe: u32,
    bytes: u32,
}

impl Messages {
    /// The messages of a run.
    #[must_use]
    pub fn of(timeline: &Timeline) -> Self {
        let mut ends = Vec::new();
        for track in timeline.tracks() {
            ends.extend(track.events().filter_map(|t| match t.event {
                Event::Executed { message, bytes, .. } => {
                    Some(End { message, execution: true, pe: track.pe, bytes })
                }
                Event::Sent { message, to, bytes, .. } => {
                    Some(End { message, execution: false, pe: to, bytes })
                }
                _ => None,
            }));
        }
        ends.retain(|e| e.message.source().is_some());
        ends.sort_unstable();
        let mut cells: BTreeMap<(u32, u32), (u64, u64)> = BTreeMap::new();
        let mut all = Self::default();
        for of_one in ends.chunk_by(|a, b| a.message == b.message) {
            all.count(of_one, &mut cells);
        }
        let cell = |((from, to), (messages, bytes))| Cell { from, to, messages, bytes };
        all.cells = cells.into_iter().map(cell).collect();
        all.messages = all.cells.iter().map(|c| c.messages).sum();
        all.bytes = all.cells.iter().fold(0, |sum, c| sum.saturating_add(c.bytes));
        all
    }

    /// Counts one message with all its ends.
    fn count(&mut self, ends: &[End], cells: &mut BTreeMap<(u32, u32), (u64, u64)>) {
        let Some(from) = ends.first().and_then(|e| e.message.source()) else { return };
        let sendings = ends.partition_point(|e| !e.execution);
        let (sent, executed) = ends.split_at(sendings);
        match (sent.is_empty(), executed.is_empty()) {
            (false, false) => self.joined += 1,
            (false, true) => self.not_executed += 1,
            (true, _) => self.not_sent += 1,
        }
        let mut add = |to: u32, bytes: u32| {
            let (messages, sum) = cells.entry((from, to)).or_default();
            *messages += 1;
            *sum = sum.saturating_add(bytes.into());
        };
        if executed.is_empty() {
            // a broadcast that nobody executed went to nobody that is known
            sent.iter().filter(|e| e.pe != ALL_PES).take(1).for_each(|e| add(e.pe, e.bytes));
        } else {
            // an entry method that was interrupted is there in parts
            executed.chunk_by(|a, b| a.pe == b.pe).for_each(|of_pe| add(of_pe[0].pe, of_pe[0].bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{any_timeline, executed, of, small, track};
    use proptest::prelude::*;

    #[test]
    fn a_message_counts_once_whatever_is_known_of_it() {
        let id = |n| MessageId::new(0, n);
        let sent = |n, to| Event::Sent { entry: 0, message: id(n), to, bytes: 100 };
        let t = of(vec![
            // 1 joined, though it was sent to another PE than where it ran; 2 on its way; 3 a broadcast; 4 known by its execution
            track(
                0,
                0,
                9,
                &[
                    (0, 0, sent(1, 7)),
                    (1, 1, sent(2, 1)),
                    (2, 2, sent(3, ALL_PES)),
                    (3, 4, executed(0, id(3))),
                ],
            ),
            track(
                1,
                0,
                9,
                &[
                    (3, 4, executed(0, id(1))),
                    (4, 5, executed(0, id(3))),
                    (5, 6, executed(0, id(4))),
                    (6, 7, executed(0, MessageId::NONE)),
                    (7, 7, Event::Sent { entry: 0, message: MessageId::new(1, 1), to: ALL_PES, bytes: 5 }),
                ],
            ),
        ]);
        let m = Messages::of(&t);
        let cell = |from, to, messages| Cell { from, to, messages, bytes: 100 * messages };
        assert_eq!(m.cells, [cell(0, 0, 1), cell(0, 1, 4)]);
        assert_eq!((m.messages, m.bytes), (5, 500));
        assert_eq!((m.joined, m.not_executed, m.not_sent), (2, 2, 1));
    }

    #[test]
    fn sending_and_execution_are_joined() {
        let m = Messages::of(&small());
        assert_eq!((m.joined, m.not_executed, m.not_sent), (1, 0, 0));
        assert_eq!(m.cells, [Cell { from: 0, to: 1, messages: 1, bytes: 100 }]);
    }

    proptest! {
        #[test]
        fn the_matrix_adds_up(t in any_timeline()) {
            let m = Messages::of(&t);
            prop_assert_eq!(m.messages, m.cells.iter().map(|c| c.messages).sum::<u64>());
            let pairs: Vec<_> = m.cells.iter().map(|c| (c.from, c.to)).collect();
            prop_assert!(pairs.is_sorted_by(|a, b| a < b));
        }
    }
}
