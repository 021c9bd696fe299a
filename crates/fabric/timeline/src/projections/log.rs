// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of one PE, record by record.

use std::collections::BTreeMap;
use std::io::BufRead;

use super::kind;
use super::lines::{Fields, Line, Lines};
use super::sts::Sts;
use crate::error::Problem;
use crate::names::Names;
use crate::record::{ALL_PES, Event, MAX_PES, MessageId, NO_CPU, NO_VALUE, Record, Timed};
use crate::recording::sorted;
use crate::timeline::{FAR_NS, Track};

/// In the place of the PE that a message was sent to, which a log does not say.
pub(super) const UNKNOWN_PE: u32 = MAX_PES;

/// Intervals of one sort that are open at a time; an end looks through them.
const MAX_OPEN: usize = 4096;

/// What a log holds that its track does not.
#[derive(Default)]
pub(super) struct Missing {
    /// Records of kinds that are not shown, by kind.
    pub(super) kinds: BTreeMap<u8, u64>,
    /// Ends without a begin, and begins of idle time or packing without an end.
    pub(super) unpaired: u64,
    /// Time that was not traced, in nanoseconds.
    pub(super) untraced_ns: u64,
    /// Logs without a record that ends them.
    pub(super) unfinished: u64,
}

impl Missing {
    pub(super) fn add(&mut self, other: Self) {
        for (kind, count) in other.kinds {
            *self.kinds.entry(kind).or_default() += count;
        }
        self.unpaired += other.unpaired;
        self.untraced_ns = self.untraced_ns.saturating_add(other.untraced_ns);
        self.unfinished += other.unfinished;
    }
}

/// Reads the log of `pe`.
pub(super) fn read(input: impl BufRead, sts: &mut Sts, pe: u32) -> Result<(Track, Missing), Problem> {
    let mut lines = Lines::new(input);
    let mut log = Log::default();
    match lines.next_line()? {
        Some(line) if line.text.starts_with(kind::LOG_HEADER) => {}
        _ => {
            let reason = format!("it is not `{}`: this is no text log of Projections", kind::LOG_HEADER);
            return Err(Problem::Line { number: 1, reason });
        }
    }
    while let Some(line) = lines.next_line()? {
        // a program that flushes its buffer may repeat the header
        if !line.text.is_empty() && !line.text.starts_with(kind::LOG_HEADER) {
            log.add(&line, sts)?;
        }
        if !line.has_end {
            let reason = "it has no end: the log is cut off; copy it again".into();
            return Err(Problem::Line { number: line.number, reason });
        }
    }
    log.into_track(sts, pe)
}

/// An execution that has begun.
#[derive(Clone, Copy)]
struct Execution {
    entry: u16,
    begin_ns: i64,
    message: MessageId,
    bytes: u32,
}

/// A user event that has begun.
#[derive(Clone, Copy)]
struct Bracket {
    event: u16,
    begin_ns: i64,
    /// Joins begin and end: the number of the thread, or of the event.
    joint: i64,
}

/// The sorts of time that have no entry method.
#[derive(Default)]
struct Others {
    idle: Option<i64>,
    pack: Option<i64>,
    unpack: Option<i64>,
    interrupt: Option<i64>,
    untraced: Option<i64>,
}

#[derive(Default)]
struct Log {
    records: Vec<Record>,
    executions: Vec<Execution>,
    brackets: Vec<Bracket>,
    /// Brackets of the kind whose begin and end are alike.
    alike: Vec<Bracket>,
    others: Others,
    missing: Missing,
    /// The first and the last instant.
    span: Option<(i64, i64)>,
    has_ended: bool,
}

impl Log {
    fn add(&mut self, line: &Line<'_>, sts: &mut Sts) -> Result<(), Problem> {
        let mut fields = Fields::of(line);
        let kind: u8 = fields.number("the kind of the record")?;
        match kind {
            kind::CREATION | kind::CREATION_BCAST | kind::CREATION_MULTICAST => self.sent(kind, &mut fields),
            kind::BEGIN_PROCESSING => self.begins(&mut fields),
            kind::END_PROCESSING => self.ends(&mut fields, sts),
            kind::USER_EVENT
            | kind::BEGIN_USER_EVENT_PAIR
            | kind::END_USER_EVENT_PAIR
            | kind::USER_EVENT_PAIR => self.user(kind, &mut fields, sts),
            kind::BEGIN_COMPUTATION => self.instant(&mut fields).map(drop),
            kind::END_COMPUTATION => {
                self.has_ended = true;
                self.instant(&mut fields).map(drop)
            }
            kind::BEGIN_TRACE | kind::END_TRACE => self.traces(kind, &mut fields, sts),
            kind::BEGIN_IDLE..=kind::END_UNPACK | kind::BEGIN_INTERRUPT | kind::END_INTERRUPT => {
                self.other(kind, &mut fields)
            }
            unknown => {
                *self.missing.kinds.entry(unknown).or_default() += 1;
                Ok(())
            }
        }
    }

    /// The instant of a record, in nanoseconds.
    fn instant(&mut self, fields: &mut Fields<'_>) -> Result<i64, Problem> {
        let us: i64 = fields.number("its time")?;
        let at_ns = us.checked_mul(1000).filter(|ns| (0..=FAR_NS).contains(ns));
        let at_ns = at_ns
            .ok_or_else(|| fields.wrong(format!("its time is {us} µs, and a run has at most 73 years")))?;
        let (first, last) = self.span.unwrap_or((at_ns, at_ns));
        self.span = Some((first.min(at_ns), last.max(at_ns)));
        Ok(at_ns)
    }

    fn push(&mut self, begin_ns: i64, end_ns: i64, event: Event) {
        let duration_ns = end_ns.saturating_sub(begin_ns).max(0) as u64;
        self.records.push(Timed { begin_ns, duration_ns, cpu: NO_CPU, event }.into());
    }

    fn sent(&mut self, kind: u8, fields: &mut Fields<'_>) -> Result<(), Problem> {
        let (entry, at_ns) = (entry(fields)?, self.instant(fields)?);
        let message = message(fields)?;
        let bytes = fields.number("the length of its message")?;
        fields.word("the time of its sending")?;
        let to = match kind {
            kind::CREATION => UNKNOWN_PE,
            kind::CREATION_BCAST => ALL_PES,
            _ => several(fields)?,
        };
        self.push(at_ns, at_ns, Event::Sent { entry, message, to, bytes });
        Ok(())
    }

    fn begins(&mut self, fields: &mut Fields<'_>) -> Result<(), Problem> {
        let (entry, begin_ns) = (entry(fields)?, self.instant(fields)?);
        let message = message(fields)?;
        let bytes = fields.number("the length of its message")?;
        let execution = Execution { entry, begin_ns, message, bytes };
        open(&mut self.executions, execution, fields)
    }

    fn ends(&mut self, fields: &mut Fields<'_>, sts: &Sts) -> Result<(), Problem> {
        let (entry, end_ns) = (entry(fields)?, self.instant(fields)?);
        let Some(at) = self.executions.iter().rposition(|e| e.entry == entry) else {
            self.missing.unpaired += 1;
            return Ok(());
        };
        let execution = self.executions.remove(at);
        in_order(execution.begin_ns, end_ns, fields)?;
        self.executed(execution, end_ns, sts);
        Ok(())
    }

    fn executed(&mut self, e: Execution, end_ns: i64, sts: &Sts) {
        let event = match sts.balancing == Some(e.entry) {
            true => Event::Balancing,
            false => Event::Executed { entry: e.entry, message: e.message, bytes: e.bytes },
        };
        self.push(e.begin_ns, end_ns, event);
    }

    fn user(&mut self, kind: u8, fields: &mut Fields<'_>, sts: &mut Sts) -> Result<(), Problem> {
        let id: u32 = fields.number("the number of the user event")?;
        let event = sts.event(id).map_err(|reason| fields.wrong(reason))?;
        let begin_ns = self.instant(fields)?;
        let number: i64 = fields.number("the number of its event")?;
        let _pe: i64 = fields.number("its PE")?;
        let opened = |joint| Bracket { event, begin_ns, joint };
        match kind {
            kind::USER_EVENT => {
                self.push(begin_ns, begin_ns, Event::User { event, value: NO_VALUE });
                Ok(())
            }
            kind::BEGIN_USER_EVENT_PAIR => {
                let thread = fields.number("the number of its thread")?;
                open(&mut self.brackets, opened(thread), fields)
            }
            kind::END_USER_EVENT_PAIR => {
                let thread: i64 = fields.number("the number of its thread")?;
                match self.brackets.iter().rposition(|b| (b.event, b.joint) == (event, thread)) {
                    Some(at) => {
                        let bracket = self.brackets.remove(at);
                        self.bracketed(bracket, begin_ns, fields)
                    }
                    None => {
                        self.missing.unpaired += 1;
                        Ok(())
                    }
                }
            }
            _ => match self.alike.iter().rposition(|b| (b.event, b.joint) == (event, number)) {
                Some(at) => {
                    let bracket = self.alike.remove(at);
                    self.bracketed(bracket, begin_ns, fields)
                }
                None => open(&mut self.alike, opened(number), fields),
            },
        }
    }

    fn bracketed(&mut self, b: Bracket, end_ns: i64, fields: &Fields<'_>) -> Result<(), Problem> {
        in_order(b.begin_ns, end_ns, fields)?;
        self.push(b.begin_ns, end_ns, Event::User { event: b.event, value: NO_VALUE });
        Ok(())
    }

    /// Tracing was switched on or off. Nothing is known in between, so all that was open ends.
    fn traces(&mut self, kind: u8, fields: &mut Fields<'_>, sts: &Sts) -> Result<(), Problem> {
        let at_ns = self.instant(fields)?;
        if kind == kind::END_TRACE {
            self.close_all(at_ns, sts);
            self.others.untraced = Some(at_ns);
        } else if let Some(from) = self.others.untraced.take() {
            self.count_untraced(from, at_ns);
        }
        Ok(())
    }

    fn count_untraced(&mut self, from_ns: i64, to_ns: i64) {
        let length_ns = to_ns.saturating_sub(from_ns).max(0) as u64;
        self.missing.untraced_ns = self.missing.untraced_ns.saturating_add(length_ns);
    }

    /// Idle time, packing, and interruptions by the runtime itself.
    fn other(&mut self, kind: u8, fields: &mut Fields<'_>) -> Result<(), Problem> {
        let at_ns = self.instant(fields)?;
        let (slot, event) = match kind {
            kind::BEGIN_IDLE | kind::END_IDLE => (&mut self.others.idle, Event::Idle),
            kind::BEGIN_PACK | kind::END_PACK => (&mut self.others.pack, Event::Overhead),
            kind::BEGIN_UNPACK | kind::END_UNPACK => (&mut self.others.unpack, Event::Overhead),
            _ => (&mut self.others.interrupt, Event::Overhead),
        };
        let begins =
            matches!(kind, kind::BEGIN_IDLE | kind::BEGIN_PACK | kind::BEGIN_UNPACK | kind::BEGIN_INTERRUPT);
        let before = if begins { slot.replace(at_ns) } else { slot.take() };
        match (begins, before) {
            (false, Some(begin_ns)) => {
                in_order(begin_ns, at_ns, fields)?;
                self.push(begin_ns, at_ns, event);
            }
            (true, None) => {}
            (true, Some(_)) | (false, None) => self.missing.unpaired += 1,
        }
        Ok(())
    }

    /// Ends all that is open at `end_ns`.
    fn close_all(&mut self, end_ns: i64, sts: &Sts) {
        for execution in std::mem::take(&mut self.executions) {
            self.executed(execution, end_ns, sts);
        }
        let alike = std::mem::take(&mut self.alike);
        for b in std::mem::take(&mut self.brackets).into_iter().chain(alike) {
            self.push(b.begin_ns, end_ns, Event::User { event: b.event, value: NO_VALUE });
        }
        let Others { idle, pack, unpack, interrupt, .. } = &mut self.others;
        let idle = idle.take().map(|from| (from, Event::Idle));
        let overhead = [pack.take(), unpack.take(), interrupt.take()].into_iter().flatten();
        for (from, event) in idle.into_iter().chain(overhead.map(|from| (from, Event::Overhead))) {
            self.push(from, end_ns, event);
        }
    }

    /// The track. Charm++ ends a program inside of an execution, so what is open at the end ends there.
    fn into_track(mut self, sts: &Sts, pe: u32) -> Result<(Track, Missing), Problem> {
        let Some((begin_ns, end_ns)) = self.span else {
            return Err(Problem::Content(format!(
                "the log of PE {pe} has no record of an instant; trace this PE, or copy the log again"
            )));
        };
        self.close_all(end_ns, sts);
        if let Some(from_ns) = self.others.untraced {
            self.count_untraced(from_ns, end_ns);
        }
        self.missing.unfinished = u64::from(!self.has_ended);
        let process = sts.process_of(pe);
        let records = sorted(self.records);
        let track = Track { pe, process, begin_ns, kept_from_ns: begin_ns, end_ns, dropped: 0, records };
        Ok((track, self.missing))
    }
}

fn open<T>(list: &mut Vec<T>, one: T, fields: &Fields<'_>) -> Result<(), Problem> {
    if list.len() >= MAX_OPEN {
        return Err(fields.wrong(format!("{MAX_OPEN} intervals before it have no end; the log is damaged")));
    }
    list.push(one);
    Ok(())
}

fn in_order(begin_ns: i64, end_ns: i64, fields: &Fields<'_>) -> Result<(), Problem> {
    if begin_ns <= end_ns {
        return Ok(());
    }
    let (begin_us, end_us) = (begin_ns / 1000, end_ns / 1000);
    Err(fields.wrong(format!("it ends at {end_us} µs what begins at {begin_us} µs; the log is damaged")))
}

/// The kind of the message, which is not kept, and the entry method.
fn entry(fields: &mut Fields<'_>) -> Result<u16, Problem> {
    let _kind: i64 = fields.number("the kind of its message")?;
    let entry: u16 = fields.number("its entry method")?;
    if usize::from(entry) >= Names::MAX {
        return Err(fields.wrong(format!("its entry method is {entry}, and {} are the most", Names::MAX)));
    }
    Ok(entry)
}

/// The message: its number and the PE that sent it; a negative one stands for none.
fn message(fields: &mut Fields<'_>) -> Result<MessageId, Problem> {
    let number: i64 = fields.number("the number of its message")?;
    let pe: i64 = fields.number("the PE that sent its message")?;
    let Ok(number) = u64::try_from(number) else { return Ok(MessageId::NONE) };
    match u32::try_from(pe) {
        Ok(pe) if pe < MAX_PES => Ok(MessageId::new(pe, number)),
        Err(_) if pe < 0 => Ok(MessageId::NONE),
        _ => Err(fields.wrong(format!("its message is of PE {pe}, and PE numbers are below {MAX_PES}"))),
    }
}

/// The PE of a multicast to one; a multicast to several is kept as a broadcast.
fn several(fields: &mut Fields<'_>) -> Result<u32, Problem> {
    let count: u32 = fields.number("the number of PEs that it was sent to")?;
    let mut first = None;
    for _ in 0..count {
        let pe: u32 = fields.number("a PE that it was sent to")?;
        first.get_or_insert(pe);
    }
    Ok(first.filter(|&pe| count == 1 && pe < MAX_PES).unwrap_or(ALL_PES))
}
