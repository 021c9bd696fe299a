// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the files of a run, version 11.0.
//!
//! Projections reads whole microseconds, so shorter executions have length 0 there. It knows neither nested executions (an outer one is
//! written in parts) nor load balancing (written as an entry method of the runtime). Time that is neither execution nor
//! idle time is overhead. Migrations are user events, without their object.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::kind;
use crate::analysis::segments::{Segment, State, of_track};
use crate::error::{Problem, TimelineError};
use crate::names::Names;
use crate::record::{ALL_PES, Event, MessageId, Timed};
use crate::timeline::{Timeline, Track};

/// The kind of message that starts an entry method of an object.
const FOR_CHARE_MSG: u32 = 2;

/// The tables of an `.sts` file.
struct Tables<'a> {
    names: &'a Names,
    /// Entry methods, those without a name included.
    entries: usize,
    /// User events, those without a name included.
    events: usize,
}

impl<'a> Tables<'a> {
    fn of(timeline: &'a Timeline) -> Self {
        let names = timeline.names();
        let (mut entries, mut events) = (names.entries.len(), names.events.len());
        for t in timeline.tracks().iter().flat_map(Track::events) {
            match t.event {
                Event::Executed { entry, .. } | Event::Sent { entry, .. } => {
                    entries = entries.max(usize::from(entry) + 1);
                }
                Event::User { event, .. } => events = events.max(usize::from(event) + 1),
                _ => {}
            }
        }
        Self { names, entries, events }
    }

    /// The class of the runtime's own entry method, and of those without a class.
    fn runtime(&self) -> usize {
        self.names.classes.len()
    }

    /// The entry method that stands for load balancing.
    fn balancing(&self) -> usize {
        self.entries
    }

    fn migrated_out(&self) -> usize {
        self.events
    }

    fn migrated_in(&self) -> usize {
        self.events + 1
    }
}

/// A name as Projections' tokenizer gives it back: single blanks, no quotes, no open parenthesis.
pub(super) fn word(text: &str) -> String {
    let words: Vec<&str> =
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|w| !w.is_empty()).collect();
    let text = words.join(" ").replace('"', "'");
    let text = if text.contains('(') && !text.contains(')') { text.replace('(', "[") } else { text };
    if text.is_empty() { "?".into() } else { text }
}

/// The log of PE 0 beside `run.sts` is `run.0.log`.
pub(super) fn log_path(sts: &Path, pe: u32) -> PathBuf {
    sts.with_extension(format!("{pe}.log"))
}

/// Writes `sts`, whose name must end in `.sts`, and beside it a log for each PE: the `.sts` last, so that it is there only if all are.
///
/// # Errors
/// [`TimelineError::File`] with the file system's reason.
pub fn write(timeline: &Timeline, sts: &Path) -> Result<(), TimelineError> {
    let error = |path: &Path| {
        let path = path.to_path_buf();
        move |problem: Problem| TimelineError::File { doing: "writing", path, problem }
    };
    if sts.extension().is_none_or(|e| e != "sts") {
        let problem = "Projections opens files whose name ends in .sts; choose a name such as run.sts";
        return Err(error(sts)(Problem::Content(problem.into())));
    }
    let tables = Tables::of(timeline);
    let (origin_ns, _) = timeline.span();
    for track in timeline.tracks() {
        let path = log_path(sts, track.pe);
        let lines = log(&tables, track, origin_ns, timeline.tracks().len());
        colony_node::file::write_atomically::<Problem>(&path, |out| {
            writeln!(out, "PROJECTIONS-RECORD {}", lines.len())?;
            lines.iter().try_for_each(|line| writeln!(out, "{line}")).map_err(Problem::Io)
        })
        .map_err(error(&path))?;
    }
    colony_node::file::write_atomically::<Problem>(sts, |out| Ok(write_sts(timeline, &tables, out)?))
        .map_err(error(sts))
}

fn write_sts(timeline: &Timeline, tables: &Tables<'_>, out: &mut impl Write) -> io::Result<()> {
    let meta = timeline.meta();
    let pes = timeline.tracks().last().map_or(0, |t| t.pe + 1).max(meta.pes);
    let mut hosts: Vec<&str> = timeline.processes().iter().map(|p| p.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let command = if meta.command.is_empty() { meta.program.clone() } else { meta.command.join(" ") };
    writeln!(
        out,
        "PROJECTIONS_ID\nVERSION 11.0\nTOTAL_PHASES 1\nMACHINE \"{}\"\nPROCESSORS {pes}",
        kind::COLONY
    )?;
    if let Some((pes_each, processes)) = equal_processes(timeline, pes) {
        writeln!(out, "SMPMODE {pes_each} {processes}")?;
    }
    writeln!(out, "HOSTNAME \"{}\"\nCOMMANDLINE \"{}\"", word(&hosts.join(" ")), word(&command))?;
    let (classes, entries, events) = (tables.names.classes.len() + 1, tables.entries + 1, tables.events + 2);
    writeln!(
        out,
        "TOTAL_CHARES {classes}\nTOTAL_EPS {entries}\nTOTAL_MSGS 1\nTOTAL_PSEUDOS 0\nTOTAL_EVENTS {events}"
    )?;
    for (i, name) in tables.names.classes.iter().enumerate() {
        writeln!(out, "CHARE {i} \"{}\" -1", word(name))?;
    }
    writeln!(out, "CHARE {} \"runtime\" -1", tables.runtime())?;
    for i in 0..tables.entries {
        let (name, class) = match tables.names.entries.get(i) {
            Some(e) => (word(&e.name), usize::from(e.class).min(tables.runtime())),
            None => (format!("entry {i}"), tables.runtime()),
        };
        writeln!(out, "ENTRY CHARE {i} \"{name}\" {class} 0")?;
    }
    writeln!(
        out,
        "ENTRY CHARE {} \"load balancing\" {} 0\nMESSAGE 0 0",
        tables.balancing(),
        tables.runtime()
    )?;
    for i in 0..tables.events {
        writeln!(out, "EVENT {i} {}", word(&tables.names.of_event(i as u16)))?;
    }
    writeln!(
        out,
        "EVENT {} object migrated out\nEVENT {} object migrated in",
        tables.migrated_out(),
        tables.migrated_in()
    )?;
    writeln!(out, "TOTAL_STATS 0\nEND")
}

/// PEs of each process, and processes, if each has the same number of PEs, in order, and more than one.
fn equal_processes(timeline: &Timeline, pes: u32) -> Option<(u32, u32)> {
    let processes = u32::try_from(timeline.processes().len()).ok()?;
    let pes_each = pes.checked_div(processes).filter(|&n| n > 1 && n * processes == pes)?;
    let in_order = timeline.tracks().iter().all(|t| t.process == t.pe / pes_each);
    in_order.then_some((pes_each, processes))
}

/// A user event, a message or a migration: one line, at one instant.
struct Point {
    at_ns: i64,
    line: String,
}

/// The lines of a log, in order of time.
fn log(tables: &Tables<'_>, track: &Track, origin_ns: i64, pes: usize) -> Vec<String> {
    let us = |ns: i64| ns.saturating_sub(origin_ns).max(0) / 1000;
    let inside = |t: &Point| (track.kept_from_ns..=track.end_ns).contains(&t.at_ns);
    let mut points: Vec<Point> = points(tables, track, us, pes).into_iter().filter(inside).collect();
    points.sort_by_key(|p| p.at_ns);
    let mut points = points.into_iter().peekable();
    let mut lines = vec![format!("{} {}", kind::BEGIN_COMPUTATION, us(track.kept_from_ns))];
    for segment in of_track(track) {
        let (begin, end) = around(tables, track, &segment, us);
        lines.extend(begin);
        // what happens as an execution ends happens inside it
        let last = if segment.state == State::Busy { segment.end_ns } else { segment.end_ns - 1 };
        while let Some(point) = points.next_if(|p| p.at_ns <= last) {
            lines.push(point.line);
        }
        lines.extend(end);
    }
    lines.extend(points.map(|p| p.line));
    lines.push(format!("{} {}", kind::END_COMPUTATION, us(track.end_ns)));
    lines
}

/// The lines at both ends of a segment; overhead has none.
fn around(
    tables: &Tables<'_>,
    track: &Track,
    s: &Segment,
    us: impl Fn(i64) -> i64,
) -> (Option<String>, Option<String>) {
    let (from, to, pe) = (us(s.begin_ns), us(s.end_ns), track.pe);
    let processing = |entry: usize, message: MessageId, bytes: u32| {
        // what runs without a message has no sending to be joined with
        let (event, source) = message.source().map_or((-1, pe), |source| (sequence(message), source));
        let what = |at| format!("{FOR_CHARE_MSG} {entry} {at} {event} {source} {}", length(bytes));
        let begin = format!("{} {} {from} 0 0 0 0 0", kind::BEGIN_PROCESSING, what(from));
        (Some(begin), Some(format!("{} {} 0", kind::END_PROCESSING, what(to))))
    };
    match (s.state, s.record.and_then(|r| track.records.get(r)?.event())) {
        (State::Busy, Some(Event::Executed { entry, message, bytes })) => {
            processing(entry.into(), message, bytes)
        }
        (State::Balancing, _) => processing(tables.balancing(), MessageId::NONE, 0),
        (State::Idle, _) => {
            let line = |kind, at| Some(format!("{kind} {at} {pe}"));
            (line(kind::BEGIN_IDLE, from), line(kind::END_IDLE, to))
        }
        _ => (None, None),
    }
}

/// Projections keeps numbers of messages in 32 bits.
fn sequence(message: MessageId) -> i64 {
    (message.sequence() & 0x7fff_ffff) as i64
}

/// Projections keeps lengths in 31 bits.
fn length(bytes: u32) -> u32 {
    bytes.min(i32::MAX as u32)
}

/// The events that change no state.
fn points(tables: &Tables<'_>, track: &Track, us: impl Fn(i64) -> i64, pes: usize) -> Vec<Point> {
    let mut points = Vec::new();
    for (number, t) in track.events().enumerate() {
        let Timed { begin_ns, event, .. } = t;
        let at = us(begin_ns);
        let pe = track.pe;
        let mut add = |at_ns, line| points.push(Point { at_ns, line });
        let user = |id: usize| format!("{} {id} {at} {number} {pe}", kind::USER_EVENT);
        match event {
            Event::Sent { entry, message, to, bytes } => {
                let kind = if to == ALL_PES { kind::CREATION_BCAST } else { kind::CREATION };
                let (event, bytes) = (sequence(message), length(bytes));
                let line = format!("{kind} {FOR_CHARE_MSG} {entry} {at} {event} {pe} {bytes} {at}");
                add(begin_ns, if to == ALL_PES { format!("{line} {pes}") } else { line });
            }
            Event::MigratedOut(_) => add(begin_ns, user(tables.migrated_out())),
            Event::MigratedIn(_) => add(begin_ns, user(tables.migrated_in())),
            Event::User { event, .. } if t.duration_ns == 0 => add(begin_ns, user(event.into())),
            Event::User { event, .. } => {
                let line = |kind, at| format!("{kind} {event} {at} {number} {pe} {number}");
                add(begin_ns, line(kind::BEGIN_USER_EVENT_PAIR, at));
                add(t.end_ns(), line(kind::END_USER_EVENT_PAIR, us(t.end_ns())));
            }
            Event::Executed { .. } | Event::Idle | Event::Overhead | Event::Balancing => {}
        }
    }
    points
}
