// SPDX-License-Identifier: MIT OR Apache-2.0
//! The recording of one process: its clock, and the recorders of its PEs.

use std::sync::Mutex;

use colony_time::clock::tai_offset_s;
use colony_time::tsc::{Calibration, ClockMap};

use crate::error::TimelineError;
use crate::names::Names;
use crate::record::{MAX_PES, Record};
use crate::recorder::Recorder;
use crate::timeline::{Meta, Process, Timeline, Track};

/// Room for events of a PE unless the program chooses another: 1,048,576 events, 32 MiB.
pub const DEFAULT_EVENTS: usize = 1 << 20;

/// The recording of a process. Shared by its threads: each PE's thread takes its recorder from it, and the process
/// gives them back at its end.
///
/// ```no_run
/// # use colony_timeline::{Meta, Names, Process, Recording};
/// let recording = Recording::begin();
/// let mut recorder = recording.recorder(0, colony_timeline::DEFAULT_EVENTS)?;
/// // … the PE runs …
/// let timeline = recording.end(Meta::default(), Process::here(0), Names::default(), vec![recorder])?;
/// timeline.write("run.0.timeline".as_ref())?;
/// # Ok::<(), colony_timeline::TimelineError>(())
/// ```
#[derive(Debug)]
pub struct Recording {
    map: Mutex<ClockMap>,
    calibration: Calibration,
}

impl Recording {
    /// Begins to record: calibrates the counter, which takes 20 ms, or up to ten times that on a loaded node.
    #[must_use]
    pub fn begin() -> Self {
        let calibration = Calibration::measure();
        Self { map: Mutex::new(ClockMap::new(calibration)), calibration }
    }

    /// The recorder of PE `pe` with room for the newest `events` events, rounded up to a power of two. Call it on the PE's thread, after
    /// the thread is pinned: the ring's memory is touched here.
    ///
    /// # Errors
    /// [`TimelineError::Pe`] for a PE number that a message cannot name.
    pub fn recorder(&self, pe: u32, events: usize) -> Result<Recorder, TimelineError> {
        if pe >= MAX_PES {
            return Err(TimelineError::Pe(pe));
        }
        Ok(Recorder::new(self.calibration.kind, pe, events))
    }

    /// Compares the counter with the node's clock again (some 10 µs). Between two comparisons instants are interpolated, so a run that
    /// lasts longer than a second calls this about once a second, on any thread; the clock may be steered meanwhile.
    pub fn anchor(&self) {
        self.map.lock().unwrap_or_else(std::sync::PoisonError::into_inner).anchor();
    }

    /// Ends the recording: makes the process's time line of the events in its recorders.
    ///
    /// # Errors
    /// [`TimelineError::TwicePe`] if two recorders are of one PE.
    pub fn end(
        self,
        meta: Meta,
        process: Process,
        names: Names,
        recorders: Vec<Recorder>,
    ) -> Result<Timeline, TimelineError> {
        let mut map = self.map.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        map.anchor();
        let end_ns = map.tai_ns(self.calibration.kind.read());
        let tracks = recorders
            .into_iter()
            .filter(Recorder::is_on)
            .map(|recorder| track(&map, process.rank, end_ns, recorder))
            .collect();
        let process = Process { counter_hz: self.calibration.hz, tai_offset_s: tai_offset_s(), ..process };
        Timeline::new(meta, vec![process], names, tracks)
    }
}

/// The track of a PE, its counts translated to TAI.
fn track(map: &ClockMap, process: u32, end_ns: i64, recorder: Recorder) -> Track {
    let pe = recorder.pe();
    let (begin, mut records, dropped) = recorder.into_records();
    // events are recorded as they end: those dropped had ended when the oldest that is left began, or contain it
    let kept_from = records.first().filter(|_| dropped > 0).map_or(begin, Record::begin);
    for record in &mut records {
        let from = map.tai_ns(record.begin());
        let to = map.tai_ns(record.begin().saturating_add(record.duration()));
        record.set_time(from, to.saturating_sub(from).max(0) as u64);
    }
    let begin_ns = map.tai_ns(begin);
    let kept_from_ns = map.tai_ns(kept_from).max(begin_ns);
    let end_ns = end_ns.max(kept_from_ns);
    Track { pe, process, begin_ns, kept_from_ns, end_ns, dropped, records: sorted(records) }
}

/// By begin; of those that begin together the longest first, since it contains the others.
pub(crate) fn sorted(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by_key(|r| (r.begin() as i64, std::cmp::Reverse(r.duration())));
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Event, MessageId};
    use colony_time::clock::Clock;

    #[test]
    fn events_have_the_instants_of_the_clock() {
        let before = Clock::Tai.now_ns();
        let recording = Recording::begin();
        let thread = |pe| {
            let mut r = recording.recorder(pe, 16).expect("a PE");
            let begin = r.now();
            let end = r.executed(begin, 1, MessageId::NONE, 0);
            r.look_at_cpu();
            r.idle(end);
            r
        };
        let recorders = std::thread::scope(|s| {
            let threads: Vec<_> = (0..2).map(|pe| s.spawn(move || thread(pe))).collect();
            threads.into_iter().map(|t| t.join().expect("no panic")).collect::<Vec<_>>()
        });
        recording.anchor();
        let mut process = Process::here(3);
        process.pid = 7;
        let t = recording.end(Meta::default(), process, Names::default(), recorders).expect("two PEs");
        let after = Clock::Tai.now_ns();
        assert_eq!(t.tracks().len(), 2);
        for (track, pe) in t.tracks().iter().zip(0..) {
            assert_eq!((track.pe, track.process, track.dropped), (pe, 3, 0));
            let events: Vec<_> = track.events().collect();
            assert!(matches!(events[0].event, Event::Executed { entry: 1, .. }), "{events:?}");
            assert_eq!(events[1].event, Event::Idle);
            // clocks are compared within some hundred nanoseconds
            let slack = 100_000;
            let instants = [before - slack, track.begin_ns, events[1].end_ns(), track.end_ns, after + slack];
            assert!(instants.is_sorted(), "{instants:?}");
            assert!(events[0].begin_ns >= track.begin_ns && events[0].end_ns() <= events[1].begin_ns + 1);
        }
        assert!(t.processes()[0].counter_hz > 0.0);
    }

    #[test]
    fn a_pe_has_one_recorder_and_a_number_that_messages_can_name() {
        let recording = Recording::begin();
        assert!(matches!(recording.recorder(MAX_PES, 1), Err(TimelineError::Pe(_))));
        let twice = vec![recording.recorder(5, 1).expect("a PE"), recording.recorder(5, 1).expect("a PE")];
        let error = recording.end(Meta::default(), Process::here(0), Names::default(), twice);
        assert!(matches!(error, Err(TimelineError::TwicePe(5))));
    }
}
