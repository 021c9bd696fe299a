// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry methods: how often they ran, and for how long.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::analysis::segments::{State, of_track};
use crate::record::Event;
use crate::timeline::Timeline;

/// Executions of one entry method.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EntryTimes {
    /// The entry method, an index into the names.
    pub entry: u16,
    /// `Class::method`.
    pub name: String,
    /// Executions.
    pub calls: u64,
    /// Its own time, nanoseconds: without executions inside it. All entry methods together: the busy time.
    pub own_ns: u64,
    /// Its part of the busy time, 0 to 1.
    pub share: f64,
    /// Mean length of an execution from begin to end, nanoseconds.
    pub mean_ns: f64,
    /// Median length, nanoseconds.
    pub median_ns: u64,
    /// 99 % are not longer, nanoseconds.
    pub p99_ns: u64,
    /// The longest, nanoseconds.
    pub max_ns: u64,
    /// Bytes of the messages that started it.
    pub bytes: u64,
}

#[derive(Default)]
struct Sums {
    lengths: Vec<u64>,
    own_ns: u64,
    bytes: u64,
}

/// The entry methods that ran, by their own time, longest first.
#[must_use]
pub fn of(timeline: &Timeline) -> Vec<EntryTimes> {
    let mut sums: BTreeMap<u16, Sums> = BTreeMap::new();
    for track in timeline.tracks() {
        for t in track.events() {
            if let Event::Executed { entry, bytes, .. } = t.event {
                let sum = sums.entry(entry).or_default();
                sum.lengths.push(t.duration_ns);
                sum.bytes = sum.bytes.saturating_add(bytes.into());
            }
        }
        for segment in of_track(track).iter().filter(|s| s.state == State::Busy) {
            let event = segment.record.and_then(|r| track.records.get(r)?.event());
            if let Some(Event::Executed { entry, .. }) = event {
                sums.entry(entry).or_default().own_ns += segment.length_ns();
            }
        }
    }
    let busy_ns: u64 = sums.values().map(|s| s.own_ns).sum();
    let mut all: Vec<EntryTimes> = sums
        .into_iter()
        .map(|(entry, mut s)| {
            s.lengths.sort_unstable();
            EntryTimes {
                entry,
                name: timeline.names().of_entry(entry),
                calls: s.lengths.len() as u64,
                own_ns: s.own_ns,
                share: if busy_ns == 0 { 0.0 } else { s.own_ns as f64 / busy_ns as f64 },
                mean_ns: s.lengths.iter().map(|&n| n as f64).sum::<f64>() / s.lengths.len().max(1) as f64,
                median_ns: quantile(&s.lengths, 0.5),
                p99_ns: quantile(&s.lengths, 0.99),
                max_ns: s.lengths.last().copied().unwrap_or(0),
                bytes: s.bytes,
            }
        })
        .collect();
    all.sort_by(|a, b| b.own_ns.cmp(&a.own_ns).then(a.entry.cmp(&b.entry)));
    all
}

/// The value that a share `q` of a sorted list does not exceed (nearest rank).
pub(crate) fn quantile(sorted: &[u64], q: f64) -> u64 {
    let rank = (q * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank - 1).or(sorted.last()).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::utilization::Utilization;
    use crate::synthetic::{any_timeline, small};
    use proptest::prelude::*;

    #[test]
    fn nested_executions_count_once() {
        let all = of(&small());
        let row = |e: &EntryTimes| (e.name.clone(), e.calls, e.own_ns, e.max_ns, e.bytes);
        let rows: Vec<_> = all.iter().map(row).collect();
        assert_eq!(
            rows,
            [
                ("Block::ghost".into(), 1, 40_000, 50_000, 100),
                ("Block::start".into(), 1, 30_000, 30_000, 100),
                ("Block::step".into(), 1, 10_000, 10_000, 100),
            ]
        );
        assert_eq!(all[0].share, 0.5);
    }

    #[test]
    fn a_quantile_is_a_value_of_the_list() {
        let list = [1, 2, 3, 4];
        assert_eq!([0.0, 0.25, 0.5, 0.51, 0.99, 1.0].map(|q| quantile(&list, q)), [1, 1, 2, 3, 4, 4]);
        assert_eq!(quantile(&[], 0.5), 0);
    }

    proptest! {
        #[test]
        fn own_times_add_up_to_the_busy_time(t in any_timeline()) {
            let all = of(&t);
            let busy = Utilization::of(&t, 0).all.busy_ns;
            prop_assert_eq!(all.iter().map(|e| e.own_ns).sum::<u64>(), busy);
            prop_assert!(all.iter().all(|e| e.median_ns <= e.p99_ns && e.p99_ns <= e.max_ns && e.calls > 0));
        }
    }
}
