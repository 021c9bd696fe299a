// SPDX-License-Identifier: MIT OR Apache-2.0
//! Logs as Charm++ writes them, logs of Colony read back, and damaged ones.

use std::io::Write;

use proptest::prelude::*;

use super::read::{parse, read};
use super::write::{word, write};
use crate::analysis::segments::{State, of_track};
use crate::error::TimelineError;
use crate::record::{ALL_PES, Event, MessageId, NO_VALUE, Record, Timed};
use crate::synthetic::{any_timeline, small};
use crate::timeline::{Timeline, Track};

const STS: &str = "PROJECTIONS_ID \nVERSION 11.0\nMACHINE \"mpi-linux\"\nPROCESSORS 2\nHOSTNAME \"n7\"\n\
                   COMMANDLINE \"/home/u/./ping 10\"\nTIMESTAMP 2022-11-11T16:12:02Z\nTOTAL_CHARES 2\nCHARE 0 \"Main\" -1\n\
                   CHARE 1 \"CkArray<int, 2>\" -1\nENTRY CHARE 0 \"Main(CkArgMsg* impl_msg)\" 0 0\nENTRY CHARE 1 \"recv(int a, int b)\" 1 0\n\
                   MESSAGE 0 4\nEVENT 900 a phase\nTOTAL_STATS 0\nEND\n";

const LOG_0: &str = "PROJECTIONS-RECORD 9\n6 100\n2 5 0 110 -1 0 0 0 0 0 0 0 5\n1 5 1 120 7 0 64 0\n1 5 1 121 8 0 64 0\n\
                     16 122 0\n17 125 0\n13 900 126 3 0 0\n3 5 0 140 -1 0 0 9\n14 140 0\n15 150 0\n26 4 150\n10 5 1 150 1 0 8\n\
                     2 5 0 180 -1 0 0 0 0 0 0 0 5\n7 200\n";

const LOG_1: &str = "PROJECTIONS-RECORD 9\n6 100\n14 101 1\n15 130 1\n2 5 1 130 7 0 64 128 0 0 0 0 5\n98 900 131 0 0 3\n99 900 139 0 0 3\n\
                     3 5 1 140 7 0 64 9\n15 150 1\n7 200\n";

fn events(track: &Track) -> Vec<(i64, i64, Event)> {
    track.events().map(|t| (t.begin_ns / 1000, t.end_ns() / 1000, t.event)).collect()
}

#[test]
fn logs_of_charm_have_executions_messages_idle_time_and_user_events() {
    let t = parse(STS.as_bytes(), &[LOG_0.as_bytes(), LOG_1.as_bytes()]).expect("a run");
    let message = MessageId::new(0, 7);
    let start = Event::Executed { entry: 0, message: MessageId::NONE, bytes: 0 };
    let phase = Event::User { event: 0, value: NO_VALUE };
    assert_eq!(
        events(&t.tracks()[0]),
        [
            (110, 140, start),
            (120, 120, Event::Sent { entry: 1, message, to: 1, bytes: 64 }),
            (122, 125, Event::Overhead),
            (126, 126, phase),
            (140, 150, Event::Idle),
            // Charm++ ends a program inside of an execution
            (180, 200, start),
        ]
    );
    assert_eq!(
        events(&t.tracks()[1]),
        [
            (101, 130, Event::Idle),
            (130, 140, Event::Executed { entry: 1, message, bytes: 64 }),
            (131, 139, phase),
        ]
    );
    assert_eq!(
        [t.names().of_entry(0), t.names().of_entry(1), t.names().of_event(0)],
        ["Main::Main(CkArgMsg* impl_msg)", "CkArray<int, 2>::recv(int a, int b)", "a phase"]
    );
    assert_eq!((t.meta().program.as_str(), t.meta().pes), ("ping", 2));
    let hosts: Vec<&str> = t.processes().iter().map(|p| p.host.as_str()).collect();
    assert_eq!(hosts, ["n7", ""], "each PE is a process, and the host of the second is unknown");
    let notes = t.meta().notes.join("\n");
    for part in [
        "2 records of kinds that are not shown: 10, 26",
        "1 messages that were sent",
        "1 records are not shown",
    ] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
    assert_eq!(t.meta().notes.len(), 3, "{notes}");
}

#[test]
fn line_ends_of_windows_and_older_versions_are_read() {
    let crlf = |text: &str| text.replace('\n', "\r\n").into_bytes();
    let plain = parse(STS.as_bytes(), &[LOG_0.as_bytes(), LOG_1.as_bytes()]).expect("a run");
    assert_eq!(parse(&crlf(STS), &[&crlf(LOG_0), &crlf(LOG_1)]).expect("a run"), plain);
    // version 6 has neither quotes nor dimensions
    let old = "VERSION 6.6\nPROCESSORS 1\nCHARE 0 Main\nENTRY CHARE 0 go(int a, int b) 0 0\nEND\n";
    let log = "PROJECTIONS-RECORD\n6 0\n2 1 0 5 0 0 8 0 0 0 0 5 0\n3 1 0 7 0 0 8 5 0\n100 3 8 4 0\n100 3 9 4 0\n7 9\n";
    let t = parse(old.as_bytes(), &[log.as_bytes()]).expect("a run");
    assert_eq!(t.names().of_entry(0), "Main::go(int a, int b)");
    let last = events(&t.tracks()[0]).pop();
    assert_eq!(last, Some((8, 9, Event::User { event: 0, value: NO_VALUE })));
    assert_eq!(t.names().of_event(0), "event 3");
}

#[test]
fn time_without_tracing_and_smp_nodes_are_told() {
    let sts = STS.replace("PROCESSORS 2", "PROCESSORS 6\nSMPMODE 2 2");
    let log = "PROJECTIONS-RECORD 0\n6 0\n14 1 0\n12 5\n11 25\n14 25 0\n15 30 0\n";
    let t = parse(sts.as_bytes(), &[log.as_bytes(); 6]).expect("a run");
    let processes: Vec<u32> = t.tracks().iter().map(|t| t.process).collect();
    assert_eq!(processes, [0, 0, 1, 1, 0, 1], "the last two are communication threads");
    assert_eq!(events(&t.tracks()[0]), [(1, 5, Event::Idle), (25, 30, Event::Idle)]);
    let notes = t.meta().notes.join("\n");
    assert!(
        notes.contains("switched off for 120 µs") && notes.contains("6 logs have no END_COMPUTATION"),
        "{notes}"
    );
}

#[test]
fn damaged_files_are_refused_with_their_line() {
    let sts = |from: &str, to: &str| STS.replace(from, to);
    for (sts, says) in [
        (String::new(), "line 0: there is no line END"),
        (sts("END\n", ""), "line 15: there is no line END after it"),
        (sts("VERSION 11.0\n", ""), "without VERSION or PROCESSORS"),
        (sts("11.0", "5.0"), "line 2: its VERSION is 5, and Colony reads 6.0 to 11"),
        (sts("11.0", "12.0"), "its VERSION is 12"),
        (sts("PROCESSORS 2", "PROCESSORS two"), "line 4: the number of PEs is `two`"),
        (sts("PROCESSORS 2", "PROCESSORS 0"), "PROCESSORS is 0"),
        (sts("PROCESSORS 2", "PROCESSORS 2\nSMPMODE 4 4"), "SMPMODE has 16 PEs, and PROCESSORS is 2"),
        (sts("impl_msg)\" 0 0", "impl_msg)\" 9 0"), "line 11: it is of CHARE 9, which no line above has"),
        (sts("CHARE 1 \"Ck", "CHARE 70000 \"Ck"), "line 10: the number of the class is `70000`"),
    ] {
        let error = parse(sts.as_bytes(), &[LOG_0.as_bytes(), LOG_1.as_bytes()]).expect_err(says).to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
    for (log, says) in [
        ("", "line 1: it is not `PROJECTIONS-RECORD`"),
        ("PROJECTIONS-RECORD 3\n", "the log of PE 0 has no record"),
        ("PROJECTIONS-RECORD 3\n6 1\n7 20", "line 3: it has no end: the log is cut off"),
        ("PROJECTIONS-RECORD 3\n6 1\n2 5 0 1", "line 3: it ends before the number of its message"),
        ("PROJECTIONS-RECORD 3\nsix 1\n", "line 2: the kind of the record is `six`"),
        ("PROJECTIONS-RECORD 3\n6 -1\n", "line 2: its time is -1 µs"),
        ("PROJECTIONS-RECORD 3\n14 20 0\n15 10 0\n", "line 3: it ends at 10 µs what begins at 20 µs"),
        ("PROJECTIONS-RECORD 3\n2 5 70000 1 1 0 8\n", "line 2: its entry method is `70000`"),
        ("PROJECTIONS-RECORD 3\n2 5 0 1 1 99999999 8\n", "its message is of PE 99999999"),
        ("PROJECTIONS-RECORD 3\n21 5 0 1 1 0 8 0 3 1 2\n", "it ends before a PE that it was sent to"),
    ] {
        let error = parse(STS.as_bytes(), &[log.as_bytes(), LOG_1.as_bytes()]).expect_err(says).to_string();
        assert!(error.contains(says), "{says}: {error}");
    }
    let endless = format!("PROJECTIONS-RECORD 0\n{}", "2 5 0 1 1 0 8\n".repeat(5000));
    let error =
        parse(STS.as_bytes(), &[endless.as_bytes(), LOG_1.as_bytes()]).expect_err("no ends").to_string();
    assert!(error.contains("line 4098: 4096 intervals before it have no end"), "{error}");
}

fn packed(text: &str) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(text.as_bytes()).expect("memory");
    out.finish().expect("memory")
}

#[test]
fn a_folder_with_packed_logs_is_a_run_and_what_is_missing_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = |name: &str, content: &[u8]| std::fs::write(dir.path().join(name), content).expect("written");
    let fails = |says: &str| {
        let error = read(dir.path()).expect_err(says);
        assert!(matches!(error, TimelineError::File { .. }), "{error:?}");
        assert!(error.to_string().contains(says), "{says}: {error}");
    };
    fails("has no .sts file");
    // a name with a dot, as of a program that was linked for tracing
    file("ping.prj.sts", STS.as_bytes());
    file("ping.prj.sum.sts", STS.as_bytes());
    file("ping.prj.0.log.gz", &packed(LOG_0));
    fails("ping.prj.1.log: the log of PE 1 is missing");
    let whole = packed(LOG_1);
    file("ping.prj.1.log.gz", &whole[..whole.len() - 12]);
    fails("ping.prj.1.log.gz: line ");
    file("ping.prj.1.log.gz", &whole);
    let expected = parse(STS.as_bytes(), &[LOG_0.as_bytes(), LOG_1.as_bytes()]).expect("a run");
    assert_eq!(Timeline::read_all(&[dir.path()]).expect("a run"), expected);
    assert_eq!(read(&dir.path().join("ping.prj.sts")).expect("a run"), expected);
    file("other.sts", STS.as_bytes());
    fails("the folder has 2 .sts files");
}

/// Every instant and length a whole number of microseconds, and nothing that Projections has no place for.
fn in_microseconds(t: &Timeline) -> Timeline {
    let tracks = t.tracks().iter().map(|track| {
        let ns = |at: i64| (at - track.begin_ns) * 1000;
        let records = track.events().map(|e| {
            let cpu = e.cpu;
            let duration_ns = e.duration_ns * 1000;
            Record::from(Timed { begin_ns: ns(e.begin_ns), duration_ns, cpu, event: e.event })
        });
        let records = records.collect();
        let (kept_from_ns, end_ns) = (ns(track.kept_from_ns), ns(track.end_ns));
        Track { begin_ns: kept_from_ns, kept_from_ns, end_ns, dropped: 0, records, ..track.clone() }
    });
    let tracks: Vec<Track> = tracks.collect();
    let mut meta = t.meta().clone();
    meta.pes = tracks.len() as u32;
    Timeline::new(meta, t.processes().to_vec(), t.names().clone(), tracks).expect("a run")
}

/// Begin, end and state of a part of a track, and, of an execution, its entry method, the number of its message and its bytes.
type Piece = (i64, i64, State, Option<(u16, i64, u32)>);

/// What Projections holds of the time of a PE: states with their execution, from `origin_ns`; neighbors without one together.
fn states(track: &Track, origin_ns: i64) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::new();
    for s in of_track(track) {
        let execution = match s.record.and_then(|r| track.records[r].event()) {
            Some(Event::Executed { entry, message, bytes }) => {
                let number = message.source().map_or(-1, |_| (message.sequence() & 0x7fff_ffff) as i64);
                Some((entry, number, bytes.min(i32::MAX as u32)))
            }
            _ => None,
        };
        let (begin, end) = (s.begin_ns - origin_ns, s.end_ns - origin_ns);
        match all.last_mut() {
            Some(last) if execution.is_none() && last.2 == s.state => last.1 = end,
            _ => all.push((begin, end, s.state, execution)),
        }
    }
    all
}

/// User events that begin within the track, up to its end, with the name that Projections gives back.
fn user_events(t: &Timeline, track: &Track, origin_ns: i64) -> Vec<(i64, i64, String)> {
    let mut all = Vec::new();
    for e in track.events().filter(|e| (track.kept_from_ns..=track.end_ns).contains(&e.begin_ns)) {
        let Event::User { event, .. } = e.event else { continue };
        let name = word(&t.names().of_event(event));
        if !name.starts_with("object migrated") {
            all.push((e.begin_ns - origin_ns, e.end_ns().min(track.end_ns) - origin_ns, name));
        }
    }
    all.sort_unstable();
    all
}

fn written_and_read(t: &Timeline) -> Timeline {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("run.sts");
    write(t, &path).expect("written");
    read(&path).expect("read")
}

#[test]
fn one_of_everything_reads_back_with_its_messages() {
    let t = small();
    let again = written_and_read(&t);
    assert_eq!(again.names().entries, t.names().entries);
    assert_eq!((again.processes().len(), again.processes()[0].host.as_str()), (1, "node0"));
    let sent = |t: &Timeline| -> Vec<Event> {
        let events = t.tracks().iter().flat_map(Track::events).map(|t| t.event);
        events.filter(|e| matches!(e, Event::Sent { .. })).collect()
    };
    assert_eq!(sent(&again), sent(&t));
    assert_eq!(again.meta().notes, Vec::<String>::new());
}

#[test]
fn a_broadcast_that_one_pe_executed_stays_a_broadcast() {
    let t = small();
    let event = Event::Sent { entry: 1, message: MessageId::new(0, 1), to: ALL_PES, bytes: 9 };
    let mut tracks = t.tracks().to_vec();
    tracks[0].records.insert(0, Timed { begin_ns: 0, duration_ns: 0, cpu: 0, event }.into());
    let t =
        Timeline::new(t.meta().clone(), t.processes().to_vec(), t.names().clone(), tracks).expect("a run");
    assert!(written_and_read(&t).tracks()[0].events().any(|t| t.event == event));
}

proptest! {
    // each writes files, and waits for the disk
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_both_formats_hold_reads_back(t in any_timeline()) {
        prop_assume!(!t.tracks().is_empty());
        let t = in_microseconds(&t);
        let again = written_and_read(&t);
        let (origin, _) = t.span();
        prop_assert_eq!(again.tracks().len(), t.tracks().len());
        for (ours, theirs) in t.tracks().iter().zip(again.tracks()) {
            prop_assert_eq!(states(theirs, 0), states(ours, origin));
            prop_assert_eq!(user_events(&again, theirs, 0), user_events(&t, ours, origin));
        }
    }
}

proptest! {
    #[test]
    fn no_edit_of_a_run_panics(at in 0usize..2000, bytes in prop::collection::vec(any::<u8>(), 0..6), cut in 0usize..600) {
        let edit = |text: &str| {
            let mut raw = text.as_bytes().to_vec();
            let at = at % raw.len();
            raw.splice(at..(at + bytes.len()).min(raw.len()), bytes.iter().copied());
            raw.truncate(raw.len().saturating_sub(cut / 4));
            raw
        };
        let _ = parse(&edit(STS), &[LOG_0.as_bytes(), LOG_1.as_bytes()]);
        let _ = parse(STS.as_bytes(), &[&edit(LOG_0), LOG_1.as_bytes()]);
        let _ = parse(STS.as_bytes(), &[&packed(LOG_0)[..at % 80], &edit(LOG_1)]);
    }

    #[test]
    fn no_numbers_panic(rows in prop::collection::vec(prop::collection::vec(prop_oneof![0i64..33, 95i64..103, any::<i64>()], 1..12), 0..30)) {
        let mut log = "PROJECTIONS-RECORD 0\n6 0\n".to_owned();
        for row in rows {
            let words: Vec<String> = row.iter().map(i64::to_string).collect();
            log.push_str(&words.join(" "));
            log.push('\n');
        }
        if let Ok(t) = parse(STS.as_bytes(), &[log.as_bytes(), LOG_1.as_bytes()]) {
            let mut out = Vec::new();
            t.write_to(&mut out).expect("memory");
            prop_assert_eq!(Timeline::parse(&out).expect("own bytes"), t);
        }
    }
}
