// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events and time lines for tests.

use proptest::prelude::*;

use crate::names::{EntryName, Names};
use crate::record::{Event, MAX_PES, MessageId, Migration, NO_CPU, Record, Timed};
use crate::timeline::{Meta, Process, Timeline, Track};

prop_compose! {
    fn any_migration()(class: u16, object: u64, peer in 0..MAX_PES, bytes: u32) -> Migration {
        Migration { class, object, peer, bytes }
    }
}

/// Any message of one of the first PEs, or none.
fn any_message() -> impl Strategy<Value = MessageId> {
    prop_oneof![
        9 => (0u32..6, 0u64..40).prop_map(|(pe, n)| MessageId::new(pe, n)),
        1 => Just(MessageId::NONE),
        1 => any::<u64>().prop_map(MessageId::from_bits),
    ]
}

/// Any event.
pub(crate) fn any_event() -> impl Strategy<Value = Event> {
    let entry = || prop_oneof![9 => 0u16..4, 1 => any::<u16>()];
    prop_oneof![
        4 => (entry(), any_message(), any::<u32>())
            .prop_map(|(entry, message, bytes)| Event::Executed { entry, message, bytes }),
        3 => (entry(), any_message(), prop_oneof![0u32..6, Just(u32::MAX)], any::<u32>())
            .prop_map(|(entry, message, to, bytes)| Event::Sent { entry, message, to, bytes }),
        2 => Just(Event::Idle),
        1 => Just(Event::Overhead),
        1 => Just(Event::Balancing),
        1 => any_migration().prop_map(Event::MigratedOut),
        1 => any_migration().prop_map(Event::MigratedIn),
        1 => (entry(), any::<u64>()).prop_map(|(event, value)| Event::User { event, value }),
    ]
}

prop_compose! {
    /// A track with any events: nested, overlapping, of no length.
    pub(crate) fn any_track(pe: u32)(
        begin_ns in -1i64 << 40..1 << 40,
        length in 0i64..100_000,
        late in 0i64..1000,
        dropped in prop_oneof![Just(0u64), any::<u64>()],
        events in prop::collection::vec((any_event(), -10i64..100_010, 0u64..9_000, prop_oneof![0u16..3, Just(NO_CPU)]), 0..40),
    ) -> Track {
        let timed = |(event, at, duration_ns, cpu)| Timed { begin_ns: begin_ns + at, duration_ns, cpu, event };
        let records = events.into_iter().map(timed).map(Record::from).collect();
        let kept_from_ns = if dropped > 0 { begin_ns + late.min(length) } else { begin_ns };
        let end_ns = begin_ns + length;
        Track { pe, process: pe / 2, begin_ns, kept_from_ns, end_ns, dropped, records: crate::recording::sorted(records) }
    }
}

/// A time line of up to four PEs with any events.
pub(crate) fn any_timeline() -> impl Strategy<Value = Timeline> {
    let tracks = [0, 1, 2, 3].map(any_track);
    (tracks, 0usize..5, "[ -~]{0,12}", prop::collection::vec("[ -~µ]{0,9}", 0..4)).prop_map(
        |(tracks, pes, program, words)| {
            let meta = Meta { program, build: "b".into(), pes: 4, ..Meta::default() };
            let process = |rank| Process { rank, host: format!("h{rank}"), pid: 7, ..Process::default() };
            let entries = words.iter().map(|w| EntryName { class: 0, name: w.clone() }).collect();
            let names = Names { classes: words.clone(), entries, events: words };
            let tracks: Vec<Track> = tracks.into_iter().take(pes).collect();
            Timeline::new(meta, vec![process(0), process(1)], names, tracks).expect("a time line")
        },
    )
}

/// A track from `begin_ns` to `end_ns` with these events, on CPU `pe`.
pub(crate) fn track(pe: u32, begin_ns: i64, end_ns: i64, events: &[(i64, i64, Event)]) -> Track {
    let timed =
        |&(from, to, event)| Timed { begin_ns: from, duration_ns: (to - from) as u64, cpu: pe as u16, event };
    let records = events.iter().map(timed).map(Record::from).collect();
    let records = crate::recording::sorted(records);
    Track { pe, process: 0, begin_ns, kept_from_ns: begin_ns, end_ns, dropped: 0, records }
}

/// An execution.
pub(crate) const fn executed(entry: u16, message: MessageId) -> Event {
    Event::Executed { entry, message, bytes: 100 }
}

/// A time line of `tracks` in one process.
pub(crate) fn of(tracks: Vec<Track>) -> Timeline {
    let mut names = Names::default();
    let class = names.class("Block").expect("room");
    for entry in ["start", "ghost", "step"] {
        names.entry(class, entry).expect("room");
    }
    names.event("iteration").expect("room");
    let meta =
        Meta { program: "small".into(), build: "b1".into(), pes: tracks.len() as u32, ..Meta::default() };
    let process = Process { rank: 0, host: "node0".into(), pid: 7, ..Process::default() };
    Timeline::new(meta, vec![process], names, tracks).expect("a time line")
}

/// Two PEs, one of everything.
pub(crate) fn small() -> Timeline {
    let message = MessageId::new(0, 1);
    let migration = Migration { class: 0, object: 9, peer: 1, bytes: 512 };
    let sent = Event::Sent { entry: 1, message, to: 1, bytes: 100 };
    of(vec![
        track(
            0,
            0,
            100_000,
            &[
                (0, 30_000, executed(0, MessageId::NONE)),
                (10_000, 10_000, sent),
                (30_000, 50_000, Event::Idle),
                (60_000, 80_000, Event::Balancing),
                (70_000, 70_000, Event::MigratedOut(migration)),
                (80_000, 100_000, Event::Overhead),
            ],
        ),
        track(
            1,
            0,
            100_000,
            &[
                (0, 40_000, Event::Idle),
                (40_000, 90_000, executed(1, message)),
                (50_000, 60_000, executed(2, MessageId::NONE)),
                (72_000, 72_000, Event::MigratedIn(Migration { peer: 0, ..migration })),
                (75_000, 85_000, Event::User { event: 0, value: 5 }),
            ],
        ),
    ])
}
