// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files for Projections, read back by the rules of Projections' own readers (`StsReader`, `GenericLogReader`): tokens between blanks, names
//! in quotes, lines of numbers in microseconds.

use std::collections::BTreeMap;
use std::path::Path;

use colony_timeline::analysis::segments::{State, of_track};
use colony_timeline::{ALL_PES, Event, MessageId, Names, Timeline, Track, projections, sample};

/// An `.sts` file as `StsReader` sees it.
#[derive(Debug, Default)]
struct Sts {
    version: f64,
    processors: u32,
    chares: BTreeMap<usize, String>,
    entries: BTreeMap<u64, (String, usize)>,
    events: BTreeMap<u64, String>,
    totals: BTreeMap<String, usize>,
    ended: bool,
}

/// A name: one token, or tokens up to the closing quote, put together by single blanks.
fn quoted<'a>(tokens: &mut impl Iterator<Item = &'a str>) -> String {
    let first = tokens.next().expect("a name");
    let Some(rest) = first.strip_prefix('"') else { return first.into() };
    if let Some(whole) = rest.strip_suffix('"') {
        return whole.into();
    }
    let mut name = rest.to_owned();
    for token in tokens {
        name = format!("{name} {token}");
        if let Some(whole) = name.strip_suffix('"') {
            return whole.into();
        }
    }
    panic!("no closing quote: {name}");
}

fn read_sts(path: &Path) -> Sts {
    let text = std::fs::read_to_string(path).expect("there");
    let mut sts = Sts::default();
    for line in text.lines() {
        let mut t = line.split_whitespace();
        // a line without a token stops the Java reader
        let head = t.next().expect("no empty line");
        let number = |t: &mut dyn Iterator<Item = &str>| -> usize {
            t.next().expect("more").parse().expect("a number")
        };
        match head {
            "VERSION" => sts.version = t.next().expect("more").parse().expect("a number"),
            "PROCESSORS" => sts.processors = number(&mut t) as u32,
            "CHARE" => {
                let id = number(&mut t);
                let name = quoted(&mut t);
                // dimensions, since version 9
                assert_eq!(t.next(), Some("-1"));
                assert!(id < sts.totals["TOTAL_CHARES"]);
                sts.chares.insert(id, name);
            }
            "ENTRY" => {
                t.next().expect("a type");
                let id = number(&mut t);
                let name = quoted(&mut t);
                assert!(
                    !name.contains('(') || name.contains(')'),
                    "the reader would look for the end of {name}"
                );
                let chare = number(&mut t);
                number(&mut t);
                assert!(sts.chares.contains_key(&chare), "chares come first");
                sts.entries.insert(id as u64, (name, chare));
            }
            "EVENT" => {
                let id = number(&mut t);
                sts.events.insert(id as u64, t.collect::<Vec<_>>().join(" "));
            }
            "MESSAGE" => assert!(number(&mut t) < sts.totals["TOTAL_MSGS"]),
            "END" => {
                sts.ended = true;
                break;
            }
            total if total.starts_with("TOTAL_") => {
                let n = number(&mut t);
                sts.totals.insert(total.into(), n);
            }
            "PROJECTIONS_ID" | "MACHINE" | "SMPMODE" | "HOSTNAME" | "COMMANDLINE" => {}
            other => panic!("{other} is nothing Projections knows"),
        }
    }
    assert!(sts.entries.len() == sts.totals["TOTAL_EPS"] && sts.events.len() == sts.totals["TOTAL_EVENTS"]);
    sts
}

/// A line of a log, as `GenericLogReader` understands version 11.
#[derive(Clone, Debug, PartialEq)]
enum Line {
    Begin { entry: i64, at: i64, event: i64, pe: i64, bytes: i64 },
    End { entry: i64, at: i64, event: i64, pe: i64, bytes: i64 },
    Sent { entry: i64, at: i64, event: i64, pe: i64, bytes: i64, to_all: Option<i64> },
    Idle { at: i64, pe: i64, begins: bool },
    User { id: i64, at: i64, pair: Option<bool> },
    Computation { at: i64, begins: bool },
}

fn read_log(path: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(path).expect("there");
    let mut lines = text.lines();
    let count = lines.next().and_then(|h| h.strip_prefix("PROJECTIONS-RECORD ")).expect("a header");
    let lines: Vec<Line> = lines
        .map(|line| {
            let n: Vec<i64> = line.split(' ').map(|w| w.parse().expect("a number")).collect();
            // the numbers of a line; those after them are not read
            match (n[0], n.len()) {
                (1, 8) => {
                    Line::Sent { entry: n[2], at: n[3], event: n[4], pe: n[5], bytes: n[6], to_all: None }
                }
                (20, 9) => Line::Sent {
                    entry: n[2],
                    at: n[3],
                    event: n[4],
                    pe: n[5],
                    bytes: n[6],
                    to_all: Some(n[8]),
                },
                (2, 13) => Line::Begin { entry: n[2], at: n[3], event: n[4], pe: n[5], bytes: n[6] },
                (3, 8) => Line::End { entry: n[2], at: n[3], event: n[4], pe: n[5], bytes: n[6] },
                (6 | 7, 2) => Line::Computation { at: n[1], begins: n[0] == 6 },
                (14 | 15, 3) => Line::Idle { at: n[1], pe: n[2], begins: n[0] == 14 },
                (13, 5) => Line::User { id: n[1], at: n[2], pair: None },
                (98 | 99, 6) => Line::User { id: n[1], at: n[2], pair: Some(n[0] == 98) },
                _ => panic!("no line of version 11: {line}"),
            }
        })
        .collect();
    assert_eq!(count.parse(), Ok(lines.len()));
    lines
}

impl Line {
    fn at(&self) -> i64 {
        match *self {
            Self::Begin { at, .. }
            | Self::End { at, .. }
            | Self::Sent { at, .. }
            | Self::Idle { at, .. }
            | Self::User { at, .. }
            | Self::Computation { at, .. } => at,
        }
    }
}

/// Intervals that Projections shows: executions and idle intervals (begin, end, entry or -1).
fn intervals(lines: &[Line]) -> Vec<(i64, i64, i64)> {
    let mut open: Option<(i64, i64)> = None;
    let mut all = Vec::new();
    for line in lines {
        let (entry, at, begins) = match *line {
            Line::Begin { entry, at, .. } => (entry, at, true),
            Line::End { entry, at, .. } => (entry, at, false),
            Line::Idle { at, begins, .. } => (-1, at, begins),
            _ => continue,
        };
        match (open, begins) {
            (None, true) => open = Some((at, entry)),
            (Some((from, e)), false) if e == entry => {
                all.push((from, at, entry));
                open = None;
            }
            other => panic!("{line:?} after {other:?}"),
        }
    }
    assert_eq!(open, None);
    all
}

/// The intervals that a track has, in Projections' terms.
fn expected(track: &Track, origin_ns: i64, balancing: i64) -> Vec<(i64, i64, i64)> {
    let us = |ns: i64| (ns - origin_ns) / 1000;
    let of = |s: &colony_timeline::analysis::segments::Segment| {
        let entry = match (s.state, s.record.and_then(|r| track.records[r].event())) {
            (State::Busy, Some(Event::Executed { entry, .. })) => entry.into(),
            (State::Balancing, _) => balancing,
            (State::Idle, _) => -1,
            _ => return None,
        };
        Some((us(s.begin_ns), us(s.end_ns), entry))
    };
    of_track(track).iter().filter_map(of).collect()
}

fn check(timeline: &Timeline) -> (Sts, Vec<Vec<Line>>) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("run.sts");
    projections::write(timeline, &path).expect("written");
    let sts = read_sts(&path);
    assert!(sts.ended && sts.version == 11.0);
    let (origin, _) = timeline.span();
    let mut logs = Vec::new();
    for track in timeline.tracks() {
        assert!(track.pe < sts.processors);
        let lines = read_log(&dir.path().join(format!("run.{}.log", track.pe)));
        assert!(lines.windows(2).all(|p| p[0].at() <= p[1].at()), "time runs backwards on PE {}", track.pe);
        assert!(matches!(lines[0], Line::Computation { begins: true, .. }));
        assert!(matches!(lines[lines.len() - 1], Line::Computation { begins: false, .. }));
        let balancing = *sts.entries.iter().find(|(_, e)| e.0 == "load balancing").expect("there").0 as i64;
        assert_eq!(intervals(&lines), expected(track, origin, balancing));
        let known = |entry: i64| sts.entries.contains_key(&(entry as u64));
        for line in &lines {
            match line {
                Line::Begin { entry, .. } | Line::Sent { entry, .. } => assert!(known(*entry)),
                Line::User { id, .. } => assert!(sts.events.contains_key(&(*id as u64))),
                _ => {}
            }
        }
        logs.push(lines);
    }
    (sts, logs)
}

#[test]
fn the_sample_run_reads_back_with_its_messages() {
    let ([a, b], _) = sample::stencil();
    let t = a.merge(b).expect("one run");
    let (sts, logs) = check(&t);
    assert_eq!(sts.entries[&3], ("compute".into(), 1));
    assert_eq!(sts.chares[&1], "Block");
    assert_eq!(sts.events[&0], "iteration");
    // every execution with a message finds its sending by sender and number, as the arrows of Projections do
    let mut sent = BTreeMap::new();
    for line in logs.iter().flatten() {
        if let Line::Sent { entry, event, pe, bytes, to_all, .. } = *line {
            assert!(to_all.is_none_or(|n| n == 4));
            sent.insert((pe, event), (entry, bytes));
        }
    }
    let mut joined = 0;
    for line in logs.iter().flatten() {
        match *line {
            Line::Begin { entry, event, pe, bytes, .. } if event >= 0 => {
                assert_eq!(sent.get(&(pe, event)), Some(&(entry, bytes)));
                joined += 1;
            }
            _ => {}
        }
    }
    let with_message =
        |e: &Event| matches!(e, Event::Executed { message, .. } if *message != MessageId::NONE);
    let all = t.tracks().iter().flat_map(Track::events).filter(|t| with_message(&t.event)).count();
    assert_eq!(joined, all);
    let iterations = logs[0].iter().filter(|l| matches!(l, Line::User { id: 0, .. })).count();
    assert_eq!(iterations, 40);
}

#[test]
fn hostile_names_and_events_without_a_name_do_not_stop_the_reader() {
    let ([t, _], _) = sample::stencil();
    let mut names: Names = t.names().clone();
    names.classes[0] = "a \"b\"\n END".into();
    names.entries[0].name = "open(int x".into();
    names.entries[1].name = String::new();
    names.entries[2].class = 77;
    names.entries.truncate(3);
    names.events.clear();
    let t =
        Timeline::new(t.meta().clone(), t.processes().to_vec(), names, t.tracks().to_vec()).expect("a run");
    let (sts, _) = check(&t);
    assert_eq!(sts.chares[&0], "a 'b' END");
    assert_eq!(sts.entries[&0].0, "open[int x");
    assert_eq!((sts.entries[&1].0.as_str(), sts.entries[&2].1), ("?", 2));
    assert_eq!(sts.entries[&4], ("entry 4".into(), 2));
    assert_eq!(sts.events[&0], "event 0");
}

#[test]
fn nested_and_crossing_intervals_and_a_broadcast_are_written_flat() {
    use colony_timeline::{Meta, Process, Record, Timed};
    let timed = |begin_ns, duration_ns, event| Record::from(Timed { begin_ns, duration_ns, cpu: 0, event });
    let run = |entry, n| Event::Executed { entry, message: MessageId::new(0, n), bytes: u32::MAX };
    let records = vec![
        timed(1_000, 90_000, run(0, 1)),
        timed(5_000, 0, Event::Sent { entry: 1, message: MessageId::new(0, 1 << 35), to: ALL_PES, bytes: 7 }),
        timed(10_000, 20_000, run(1, 2)),
        timed(10_500, 4_000, Event::User { event: 2, value: 1 }),
        timed(80_000, 30_000, Event::Idle),
    ];
    let track =
        Track { pe: 0, process: 0, begin_ns: 0, kept_from_ns: 0, end_ns: 200_000, dropped: 0, records };
    let process = Process { host: "h".into(), ..Process::default() };
    let t = Timeline::new(Meta::default(), vec![process], Names::default(), vec![track]).expect("a run");
    let (_, logs) = check(&t);
    assert_eq!(intervals(&logs[0]), [(1, 10, 0), (10, 30, 1), (30, 80, 0), (80, 110, -1)]);
    let broadcast = logs[0].iter().find(|l| matches!(l, Line::Sent { to_all: Some(1), bytes: 7, .. }));
    assert!(broadcast.is_some(), "{logs:?}");
    let pairs: Vec<_> = logs[0].iter().filter(|l| matches!(l, Line::User { .. })).map(Line::at).collect();
    assert_eq!(pairs, [10, 14]);
}

#[test]
fn a_file_of_another_name_is_refused() {
    let ([t, _], _) = sample::stencil();
    let dir = tempfile::tempdir().expect("a folder");
    let error = projections::write(&t, &dir.path().join("run.log")).expect_err("no .sts").to_string();
    assert!(error.contains("ends in .sts"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 0);
}
