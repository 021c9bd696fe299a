// SPDX-License-Identifier: MIT OR Apache-2.0
//! A track cut into segments, each of one state.

use serde::Serialize;

use crate::record::Event;
use crate::timeline::Track;

/// The state of a PE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// An entry method runs.
    Busy,
    /// The runtime runs: scheduler, network, packing.
    Overhead,
    /// Load balancing.
    Balancing,
    /// There is nothing to do.
    Idle,
}

impl State {
    /// Every state, in the order of reports.
    pub const ALL: [Self; 4] = [Self::Busy, Self::Overhead, Self::Balancing, Self::Idle];

    /// `busy`, `overhead`, `balancing` or `idle`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Overhead => "overhead",
            Self::Balancing => "balancing",
            Self::Idle => "idle",
        }
    }
}

/// A part of a track in which nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Begin, TAI nanoseconds.
    pub begin_ns: i64,
    /// End, TAI nanoseconds; after the begin.
    pub end_ns: i64,
    /// The state.
    pub state: State,
    /// The event whose interval this is a part of, an index into [`Track::records`]; `None` if no event covers it.
    pub record: Option<usize>,
}

impl Segment {
    /// Length in nanoseconds.
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns).max(0) as u64
    }
}

/// The state of an event's interval; `None` if the event says nothing of the PE's state.
#[must_use]
pub fn state(event: &Event) -> Option<State> {
    match event {
        Event::Executed { .. } => Some(State::Busy),
        Event::Idle => Some(State::Idle),
        Event::Overhead => Some(State::Overhead),
        Event::Balancing => Some(State::Balancing),
        Event::Sent { .. } | Event::MigratedOut(_) | Event::MigratedIn(_) | Event::User { .. } => None,
    }
}

/// An interval that has begun.
#[derive(Clone, Copy)]
struct Open {
    end_ns: i64,
    state: State,
    record: usize,
}

struct Cutter {
    at_ns: i64,
    open: Vec<Open>,
    segments: Vec<Segment>,
}

impl Cutter {
    /// Goes on to `to_ns`: the innermost open interval has the time.
    fn advance(&mut self, to_ns: i64) {
        while self.at_ns < to_ns {
            let Some(top) = self.open.last().copied() else {
                self.cut(to_ns, State::Overhead, None);
                return;
            };
            if top.end_ns > self.at_ns {
                self.cut(top.end_ns.min(to_ns), top.state, Some(top.record));
            }
            if top.end_ns <= self.at_ns {
                self.open.pop();
            }
        }
    }

    fn cut(&mut self, end_ns: i64, state: State, record: Option<usize>) {
        self.segments.push(Segment { begin_ns: self.at_ns, end_ns, state, record });
        self.at_ns = end_ns;
    }
}

/// The segments of a track: without gaps from [`Track::kept_from_ns`] to [`Track::end_ns`].
#[must_use]
pub fn of_track(track: &Track) -> Vec<Segment> {
    let mut cutter = Cutter { at_ns: track.kept_from_ns, open: Vec::new(), segments: Vec::new() };
    for (record, r) in track.records.iter().enumerate() {
        let Some((timed, state)) = r.timed().and_then(|t| Some((t, state(&t.event)?))) else { continue };
        if timed.begin_ns >= track.end_ns {
            break;
        }
        cutter.advance(timed.begin_ns);
        cutter.open.push(Open { end_ns: timed.end_ns(), state, record });
    }
    cutter.advance(track.end_ns);
    cutter.segments
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::MessageId;
    use crate::synthetic::{any_track, executed, track};
    use proptest::prelude::*;

    fn cut(track: &Track) -> Vec<(i64, i64, State, Option<usize>)> {
        of_track(track).iter().map(|s| (s.begin_ns, s.end_ns, s.state, s.record)).collect()
    }

    #[test]
    fn the_innermost_interval_has_the_time_and_gaps_are_overhead() {
        let e = executed(0, MessageId::NONE);
        let nested = track(0, 0, 100, &[(10, 60, e), (20, 30, e), (60, 90, Event::Idle)]);
        assert_eq!(
            cut(&nested),
            [
                (0, 10, State::Overhead, None),
                (10, 20, State::Busy, Some(0)),
                (20, 30, State::Busy, Some(1)),
                (30, 60, State::Busy, Some(0)),
                (60, 90, State::Idle, Some(2)),
                (90, 100, State::Overhead, None),
            ]
        );
        // neither contains the other: the later one has what both cover
        let crossed = track(0, 0, 30, &[(0, 20, e), (10, 30, Event::Balancing)]);
        assert_eq!(cut(&crossed), [(0, 10, State::Busy, Some(0)), (10, 30, State::Balancing, Some(1))]);
    }

    #[test]
    fn what_lies_outside_of_the_recording_is_cut_off() {
        let e = executed(0, MessageId::NONE);
        let t = track(0, 0, 100, &[(-50, 10, e), (95, 200, Event::Idle), (300, 400, e)]);
        assert_eq!(
            cut(&t),
            [(0, 10, State::Busy, Some(0)), (10, 95, State::Overhead, None), (95, 100, State::Idle, Some(1))]
        );
        assert_eq!(cut(&track(0, 5, 5, &[(0, 9, e)])), []);
    }

    proptest! {
        #[test]
        fn segments_cover_the_track_once(t in any_track(0)) {
            let segments = of_track(&t);
            let mut at = t.kept_from_ns;
            for s in &segments {
                prop_assert!(s.begin_ns == at && s.end_ns > s.begin_ns, "{:?}", s);
                if let Some(r) = s.record {
                    let timed = t.records[r].timed().expect("known");
                    prop_assert!(timed.begin_ns <= s.begin_ns && s.end_ns <= timed.end_ns());
                    // nothing that began later goes on meanwhile
                    let later = t.records[r + 1..].iter().filter_map(|r| r.timed()).any(|o| {
                        state(&o.event).is_some() && o.begin_ns <= s.begin_ns && o.end_ns() > s.begin_ns
                    });
                    prop_assert!(!later);
                }
                at = s.end_ns;
            }
            prop_assert_eq!(at, t.end_ns);
        }
    }
}
